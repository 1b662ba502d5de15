"""Previews over the wire: the token, the trace, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.model.access import Role
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleRequest
from lab.control_planes import RunningControlPlane, refused, report, running_control_plane
from tests.unit.rpc.test_scheduling import answer_places, binding, got, scheduled


async def asked(running: RunningControlPlane, **fields: Any) -> Any:
    return await running.admin.call(running.admin.scheduling.Schedule, ScheduleRequest(**fields))


async def test_a_preview_is_shown_whole_and_committed_by_its_token(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()) as stream:
        preview = await scheduled(running, binding(), preview=True)
        assert preview.decision.outcome == OUTCOME_SCHEDULED
        assert preview.decision.id == ""
        assert [each.name for each in preview.decision.trace.clusters] == ["member1"]
        assert preview.preview_expire_time.seconds > preview.decision.create_time.seconds
        assert not preview.HasField("binding")
        assert (await refused(got(running))).code is grpc.StatusCode.NOT_FOUND
        token = preview.preview_token
        asking = asyncio.create_task(asked(running, preview_token=token, node_timeout_seconds=10))
        await answer_places(stream, "node-1")
        answer = await asking
        assert answer.decision.id
        assert answer.decision.clusters == preview.decision.clusters
        assert answer.decision.node_placements[0].nodes[0].node == "node-1"
        assert answer.preview_token == ""
        assert (await got(running)).decision.id == answer.decision.id
        # Repeated, it answers the same, and asks nobody for nodes that are known.
        again = await asked(running, preview_token=token, node_timeout_seconds=10)
        assert again.decision == answer.decision


async def test_a_token_outlives_the_server(
    running: RunningControlPlane, database_url: str, tmp_path: Path
) -> None:
    async with running.connected("member1", report=report()):
        preview = await scheduled(running, binding(), preview=True)
        await running.plane.stop()
    async with running_control_plane(database_url, tmp_path) as again:
        answer = await asked(again, preview_token=preview.preview_token)
        assert answer.decision.clusters == preview.decision.clusters


async def test_a_preview_of_another_namespace_is_not_committed(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        preview = await scheduled(running, binding(), preview=True)
        stranger = running.caller(await running.token(Role.SCHEDULER, "bank"))
        request = ScheduleRequest(preview_token=preview.preview_token)
        refusal = await refused(stranger.call(stranger.scheduling.Schedule, request))
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
        assert (await refused(got(running))).code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"preview_token": "nonsense"}, "PREVIEW_EXPIRED"),
        ({"preview_token": "a.b"}, "PREVIEW_EXPIRED"),
    ],
)
async def test_what_cannot_be_committed_is_a_failed_precondition(
    running: RunningControlPlane, fields: dict[str, Any], reason: str
) -> None:
    refusal = await refused(asked(running, **fields))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, reason)


async def test_a_changed_binding_makes_its_preview_stale(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        await scheduled(running, binding(replicas=1))
        preview = await scheduled(running, binding(replicas=2), preview=True)
        await scheduled(running, binding(replicas=3))
        refusal = await refused(asked(running, preview_token=preview.preview_token))
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "PREVIEW_STALE",
        )


async def test_a_token_does_not_commit_another_request(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        token = (await scheduled(running, binding(replicas=1), preview=True)).preview_token
        refusal = await refused(asked(running, binding=binding(replicas=2), preview_token=token))
        assert refusal.reason == "PREVIEW_OF_ANOTHER_REQUEST"
        assert (await asked(running, binding=binding(replicas=1), preview_token=token)).binding


async def test_a_request_previews_or_commits(running: RunningControlPlane) -> None:
    refusal = await refused(asked(running, binding=binding(), preview=True, preview_token="a.b"))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.violations == {"previewToken": "cannot be combined with preview"}


async def test_a_preview_is_checked_as_a_request_is(running: RunningControlPlane) -> None:
    refusal = await refused(asked(running, binding=ResourceBinding(), preview=True))
    assert {"metadata.name", "spec.placement"} <= refusal.violations.keys()


async def test_a_preview_does_not_join_a_workload_it_keeps_away_from(
    running: RunningControlPlane,
) -> None:
    def apart(name: str) -> ResourceBinding:
        wanted = binding(name, replicas=1)
        wanted.metadata.labels["app"] = "shop"
        wanted.spec.placement.workload_affinity.anti_affinity.group_by_label_key = "app"
        return wanted

    async with running.connected("member1", report=report()):
        preview = await scheduled(running, apart("first"), preview=True)
        assert (await scheduled(running, apart("second"))).decision.clusters
        refusal = await refused(asked(running, preview_token=preview.preview_token))
        assert refusal.reason == "PREVIEW_STALE"
        assert "affinity groups" in refusal.message
