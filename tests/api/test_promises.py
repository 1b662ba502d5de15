"""Promises over the wire: what is held is shown, released, renewed, and gone with its cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest

from federation.v1.agents_pb2 import Echo, EchoShape
from lab.control_planes import AgentStream, Plane, refused, report
from tests.api.calls import binding, got, scheduled, shares

NOT_FOUND, PRECONDITION = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION


async def release(api: Plane, name: str = "cart", **fields: Any) -> Any:
    return await api.ask("ReleaseReservation", namespace="shop", name=name, **fields)


async def test_what_is_held_is_shown_and_what_is_released_is_told(
    api: Plane, member1: AgentStream
) -> None:
    answer = await scheduled(api, binding(uid="one"))
    (promise,) = answer.decision.promises
    assert (promise.cluster, promise.certificate, promise.note) == ("member1", "careful", "")
    assert (promise.report_epoch, promise.report_sequence) == (1, 1)
    found = await got(api)
    (held,) = found.reservations
    assert (held.cluster, held.replicas, held.outstanding) == ("member1", 3, 3)
    assert held.decision_id == answer.decision.id
    assert not found.HasField("lease_expire_time")
    assert (await refused(release(api, uid="other"))).code is PRECONDITION
    assert list((await release(api, uid="one")).released) == [held]
    assert not (await got(api)).reservations
    refusal = await refused(release(api))
    assert (refusal.code, "holds nothing" in refusal.message) == (NOT_FOUND, True)


async def test_what_grew_is_outstanding_as_a_whole(api: Plane, member1: AgentStream) -> None:
    for replicas in (3, 5):
        await scheduled(api, binding(replicas=replicas))
        (held,) = (await got(api)).reservations
        assert (held.replicas, held.outstanding) == (replicas, replicas)
    assert list((await release(api)).released) == [held]


async def test_echoes_of_what_nobody_holds_change_nothing(api: Plane, member1: AgentStream) -> None:
    await scheduled(api, binding())
    await member1.hear("place_request")
    (held,) = (await got(api)).reservations
    echoes = [
        Echo(binding=name, shape=0, bound=9, unbound=9, finished=9)
        for name in ("shop/nobody", "nobody", "shop/cart/more")
    ]
    shape = EchoShape(request={"cpu": 1000})
    await member1.say(report=report(sequence=2, echo_shapes=[shape], echoes=echoes))
    assert (await member1.hear("ack")).sequence == 2
    assert list((await got(api)).reservations) == [held]
    assert (await refused(release(api, "nobody"))).code is NOT_FOUND
    # Nor is a report taken whose echoes make no sense.
    wrong = [Echo(binding="shop/cart", shape=0, bound=1, unbound=-1)]
    await member1.say(report=report(sequence=3, echo_shapes=[shape], echoes=wrong))
    assert "echoes[0]" in (await member1.hear("refusal")).reason


async def test_what_was_held_in_a_deleted_cluster_is_gone_with_it(api: Plane) -> None:
    async with api.connected("member1", report=report()):
        await scheduled(api, binding())
        refusal = await refused(api.ask("DeleteCluster", name="member1"))
        assert (refusal.code, refusal.reason) == (PRECONDITION, "STILL_HOLDING")
        assert "Bindings shop/cart hold replicas" in refusal.message
        await api.ask("DeleteCluster", name="member1", force=True)
    found = await got(api)
    # What is placed and what is held agree: it waits for another cluster.
    assert not found.reservations
    assert not found.binding.spec.clusters
    assert list((await refused(release(api, clusters=["member1"]))).violations) == ["clusters[0]"]
    assert (await refused(release(api))).code is NOT_FOUND
    # Another one of that name owes it nothing.
    async with api.connected("member1", epoch=2, report=report(2)):
        answer = await scheduled(api, binding())
        assert shares(answer.decision) == {"member1": 3}
        (held,) = (await got(api)).reservations
        assert held.decision_id == answer.decision.id


async def test_no_nodes_are_asked_for_by_an_answer_that_is_given_again_too_late(
    api: Plane, member1: AgentStream
) -> None:
    async def asked_for(call: Awaitable[Any]) -> Any:
        """The decision, of which the agent was asked for nodes."""
        decision = (await call).decision
        assert (await member1.hear("place_request")).decision_id == decision.id
        return decision

    def keyed() -> Awaitable[Any]:
        return scheduled(api, binding(), idempotency_key="k2")

    first = await asked_for(keyed())
    preview = await scheduled(api, binding(replicas=4), preview=True)

    def by_token() -> Awaitable[Any]:
        return api.ask("Schedule", preview_token=preview.preview_token)

    second = await asked_for(by_token())
    await asked_for(scheduled(api, binding(replicas=2)))
    again: list[tuple[Any, Callable[[], Awaitable[Any]]]] = [(first, keyed), (second, by_token)]
    for decision, ask in again:
        assert (await ask()).decision.id == decision.id
    await member1.say(report=report(sequence=2))
    await member1.hear("ack")


VERSIONS = ["four", "a-b-c", "0-1", f"0-1-{2**63}", "0-1-2-"]


def at(version: str, replicas: int = 2) -> Any:
    wanted = binding(replicas=replicas)
    wanted.metadata.resource_version = version
    return wanted


async def version_of(call: Awaitable[Any]) -> str:
    return str((await call).binding.metadata.resource_version)


async def test_of_two_who_read_the_same_version_one_is_refused(
    api: Plane, member1: AgentStream
) -> None:
    read = await version_of(scheduled(api, binding(replicas=1)))
    history, stored_id, number = read.rsplit("-", 2)
    assert history
    assert int(stored_id) > 0
    assert read == await version_of(got(api))
    newest = await version_of(scheduled(api, at(read)))
    assert newest == f"{history}-{stored_id}-{int(number) + 1}"
    for fields in ({}, {"preview": True}):
        refusal = await refused(scheduled(api, at(read, 3), **fields))
        assert refusal.code is grpc.StatusCode.ABORTED
        assert f"is at version {newest}, not at {read}" in refusal.message
    assert (await got(api)).binding.spec.replicas == 2
    (listed,) = (await api.ask("ListBindings")).bindings
    assert listed.metadata.resource_version == newest
    # An item of a batch is refused alone.
    items = [{"binding": at(read, 3)}, {"binding": binding("other", replicas=1)}]
    stale, other = (await api.ask("ScheduleBatch", items=items)).results
    assert (stale.error_reason, shares(other.decision)) == ("CONFLICT", {"member1": 1})


async def test_a_repeated_request_finds_its_answer_before_versions_are_compared(
    api: Plane, member1: AgentStream
) -> None:
    read = await version_of(scheduled(api, binding(replicas=1)))
    first = await scheduled(api, at(read), idempotency_key="k")
    again = await scheduled(api, at(read), idempotency_key="k")
    assert again.decision.id == first.decision.id


async def test_a_version_of_a_deleted_binding_does_not_make_another_one(
    api: Plane, member1: AgentStream
) -> None:
    read = await version_of(scheduled(api, binding(replicas=1)))
    await api.ask("DeleteBinding", namespace="shop", name="cart")
    refusal = await refused(scheduled(api, at(read)))
    assert (refusal.code, "is gone" in refusal.message) == (grpc.StatusCode.ABORTED, True)
    assert await version_of(scheduled(api, binding(replicas=1))) != read


async def test_digits_of_another_api_are_ignored_with_a_warning(
    api: Plane, member1: AgentStream
) -> None:
    (warning,) = (await scheduled(api, at("4711"))).decision.warnings
    assert warning == "metadata.resourceVersion 4711 is ignored: it is of another API"
    for version in VERSIONS:
        refusal = await refused(scheduled(api, at(version)))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert "resourceVersion" in str(refusal)


@pytest.mark.parametrize("lease_seconds", [-1, 315_360_001])
async def test_a_lease_is_of_seconds_to_ten_years(api: Plane, lease_seconds: int) -> None:
    refusal = await refused(scheduled(api, binding(lease_seconds=lease_seconds)))
    assert list(refusal.violations) == ["spec.leaseSeconds"]
