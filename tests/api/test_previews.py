"""Previews over the wire: the token, the trace, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc

from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.control_planes import AgentStream, Plane, refused, report, running_control_plane
from tests.api.calls import answer_places, binding, got, scheduled

PRECONDITION, NOT_FOUND = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND


async def previewed(api: Plane, wanted: ResourceBinding | None = None) -> str:
    answer = await scheduled(api, wanted or binding(), preview=True)
    assert answer.preview_token
    return str(answer.preview_token)


async def test_a_preview_is_shown_whole_and_committed_by_its_token(
    api: Plane, member1: AgentStream
) -> None:
    preview = await scheduled(api, binding(), preview=True)
    assert (preview.decision.outcome, preview.decision.id) == (OUTCOME_SCHEDULED, "")
    assert [each.name for each in preview.decision.trace.clusters] == ["member1"]
    assert preview.preview_expire_time.seconds > preview.decision.create_time.seconds
    assert not preview.HasField("binding")
    assert (await refused(got(api))).code is NOT_FOUND
    token = {"preview_token": preview.preview_token, "node_timeout_seconds": 10}
    asking = asyncio.create_task(api.ask("Schedule", **token))
    await answer_places(member1, "node-1")
    answer = await asking
    assert answer.decision.id
    assert answer.decision.clusters == preview.decision.clusters
    assert answer.decision.node_placements[0].nodes[0].node == "node-1"
    assert answer.preview_token == ""
    assert (await got(api)).decision.id == answer.decision.id
    # Repeated, it answers the same, and asks nobody for nodes that are known.
    assert (await api.ask("Schedule", **token)).decision == answer.decision


async def test_a_token_outlives_the_server(fresh: Plane, database_url: str, tmp_path: Path) -> None:
    async with fresh.connected("member1", report=report()):
        preview = await scheduled(fresh, binding(), preview=True)
        await fresh.plane.stop()
    async with running_control_plane(database_url, tmp_path) as again:
        answer = await again.ask("Schedule", preview_token=preview.preview_token)
        assert answer.decision.clusters == preview.decision.clusters


async def test_a_preview_does_not_join_a_workload_it_keeps_away_from(
    api: Plane, member1: AgentStream
) -> None:
    def apart(name: str) -> ResourceBinding:
        wanted = binding(name, replicas=1)
        wanted.metadata.labels["app"] = "shop"
        wanted.spec.placement.workload_affinity.anti_affinity.group_by_label_key = "app"
        return wanted

    token = await previewed(api, apart("first"))
    assert (await scheduled(api, apart("second"))).decision.clusters
    refusal = await refused(api.ask("Schedule", preview_token=token))
    assert refusal.reason == "PREVIEW_STALE"
    assert "affinity groups" in refusal.message
