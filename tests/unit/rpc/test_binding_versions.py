"""metadata.resourceVersion of a binding: whoever read an older one does not overwrite a newer."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import (
    DeleteBindingRequest,
    ListBindingsRequest,
    ScheduleBatchItem,
    ScheduleBatchRequest,
)
from lab.control_planes import RunningControlPlane, refused, report
from tests.unit.rpc.test_scheduling import binding, got, scheduled


def at(version: str, replicas: int = 2, **fields: Any) -> ResourceBinding:
    made = binding(replicas=replicas, **fields)
    made.metadata.resource_version = version
    return made


async def version_of(running: RunningControlPlane) -> str:
    return str((await got(running)).binding.metadata.resource_version)


async def test_of_two_who_read_the_same_version_one_is_refused(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        first = await scheduled(running, binding(replicas=1))
        read = first.binding.metadata.resource_version
        history, stored_id, number = read.rsplit("-", 2)
        assert history
        assert int(stored_id) > 0
        assert read == await version_of(running)
        newer = await scheduled(running, at(read, 2))
        newest = f"{history}-{stored_id}-{int(number) + 1}"
        assert newer.binding.metadata.resource_version == newest
        refusal = await refused(scheduled(running, at(read, 3)))
        assert refusal.code is grpc.StatusCode.ABORTED
        assert f"is at version {newest}, not at {read}" in refusal.message
        assert (await got(running)).binding.spec.replicas == 2
        (listed,) = (
            await running.admin.call(running.admin.scheduling.ListBindings, ListBindingsRequest())
        ).bindings
        assert listed.metadata.resource_version == newer.binding.metadata.resource_version


async def test_a_preview_is_of_the_version_that_was_read(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        first = (await scheduled(running, binding(replicas=1))).binding.metadata.resource_version
        previewed = await scheduled(running, at(first, 2), preview=True)
        assert previewed.preview_token
        second = (await scheduled(running, at(first, 3))).binding.metadata.resource_version
        assert second != first
        refusal = await refused(scheduled(running, at(first, 2), preview=True))
        assert refusal.code is grpc.StatusCode.ABORTED


async def test_a_repeated_request_finds_its_answer_before_versions_are_compared(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        read = (await scheduled(running, binding(replicas=1))).binding.metadata.resource_version
        first = await scheduled(running, at(read), idempotency_key="k")
        again = await scheduled(running, at(read), idempotency_key="k")
        assert again.decision.id == first.decision.id


async def test_a_version_of_a_deleted_binding_does_not_make_another_one(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        read = (await scheduled(running, binding(replicas=1))).binding.metadata.resource_version
        gone = DeleteBindingRequest(namespace="shop", name="cart")
        await running.admin.call(running.admin.scheduling.DeleteBinding, gone)
        refusal = await refused(scheduled(running, at(read)))
        assert refusal.code is grpc.StatusCode.ABORTED
        assert "is gone" in refusal.message
        made = await scheduled(running, binding(replicas=1))
        assert made.binding.metadata.resource_version != read


async def test_an_item_of_a_batch_is_refused_alone(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        read = (await scheduled(running, binding(replicas=1))).binding.metadata.resource_version
        await scheduled(running, at(read, 2))
        items = [
            ScheduleBatchItem(binding=at(read, 3)),
            ScheduleBatchItem(binding=binding("other", replicas=1)),
        ]
        answer = await running.admin.call(
            running.admin.scheduling.ScheduleBatch, ScheduleBatchRequest(items=items)
        )
        stale, other = answer.results
        assert stale.error_reason == "CONFLICT"
        assert [each.replicas for each in other.decision.clusters] == [1]


async def test_digits_of_another_api_are_ignored_with_a_warning(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        answer = await scheduled(running, at("4711"))
        (warning,) = answer.decision.warnings
        assert warning == "metadata.resourceVersion 4711 is ignored: it is of another API"


@pytest.mark.parametrize("version", ["four", "a-b-c", "0-1", f"0-1-{2**63}", "0-1-2-"])
async def test_what_was_never_given_out_is_refused(
    running: RunningControlPlane, version: str
) -> None:
    refusal = await refused(scheduled(running, at(version)))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "resourceVersion" in str(refusal)
