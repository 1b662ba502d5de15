"""Previews: nothing is stored until the token comes back, and then exactly what was shown."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from federation.model.access import Role
from federation.v1.resource_pb2 import Suspension, TargetCluster
from federation.v1.scheduling_pb2 import (
    OUTCOME_UNSCHEDULABLE,
)
from lab.control_planes import refused
from tests.api.world import World, code_of, shares

CORES = {"a": 6, "b": 3, "c": 3}


async def shown(world: World, replicas: int = 9, **fields: Any) -> Any:
    return await world.schedule("web", replicas, preview=True, **fields)


async def commit(world: World, token: str, **fields: Any) -> Any:
    return await world.plane.ask("Schedule", preview_token=token, **fields)


async def refusal(world: World, token: str) -> str:
    found = await refused(commit(world, token))
    assert found.code is grpc.StatusCode.FAILED_PRECONDITION
    return found.reason


async def is_stored(world: World) -> bool:
    return await code_of(world.got()) is grpc.StatusCode.OK


async def test_a_preview_is_committed_by_who_may_schedule_in_its_namespace(world: World) -> None:
    """The token alone, which may be overheard, is not enough."""
    await world.clusters(**CORES)
    token = (await shown(world)).preview_token
    for namespace, code in (
        (f"{world.namespace}-other", grpc.StatusCode.PERMISSION_DENIED),
        (world.namespace, grpc.StatusCode.OK),
    ):
        secret = await world.plane.token(Role.SCHEDULER, namespace)
        caller = world.plane.caller(secret)
        assert await code_of(caller.ask("Schedule", preview_token=token)) is code
        assert await is_stored(world) == (code is grpc.StatusCode.OK)


async def test_nothing_is_committed_in_a_cluster_that_cannot_be_seen_any_more(
    world: World,
) -> None:
    await world.clusters(**CORES)
    preview = await shown(world, only=["a"], replicas=2)
    world.agents["a"].blind = "the API server is gone"
    await world.report("a", 6)
    assert "a cannot be seen since" in (await refused(commit(world, preview.preview_token))).message
    assert not await is_stored(world)
    world.agents["a"].blind = ""
    await world.report("a", 6)
    assert (await commit(world, preview.preview_token)).decision.id


async def test_the_token_commits_what_was_shown_whatever_was_reported_since(world: World) -> None:
    await world.clusters(**CORES)
    preview = await shown(world, 8)
    placed = shares(preview.decision.clusters)
    await world.report("a", placed["a"])
    await world.report("b", 90)
    committed = await commit(world, preview.preview_token)
    assert committed.decision.clusters == preview.decision.clusters
    found = await world.got()
    assert (shares(found.binding.spec.clusters), found.decision.id) == (
        placed,
        committed.decision.id,
    )
    kept = await world.decision(committed.decision.id)
    # Quotas are kept with three digits.
    for each in preview.decision.trace.clusters:
        each.quota = round(each.quota, 3)
    assert kept.trace == preview.decision.trace


async def test_what_was_shown_is_not_committed_where_its_room_is_gone(world: World) -> None:
    await world.clusters(**CORES)
    preview = await shown(world)
    await world.report("a", shares(preview.decision.clusters)["a"] - 1)
    assert await refusal(world, preview.preview_token) == "PREVIEW_STALE"
    assert not await is_stored(world)
    await world.report("a", 6)
    await world.schedule("other", 9)
    assert await refusal(world, preview.preview_token) == "PREVIEW_STALE"


async def test_a_commit_may_be_repeated(world: World) -> None:
    await world.clusters(**CORES)
    token = (await shown(world)).preview_token
    answers = await asyncio.gather(*(commit(world, token) for _ in range(4)))
    (decision,) = {answer.decision.id for answer in answers}
    # Even when the binding moved on: what was committed is the answer.
    later = await world.schedule("web", 3)
    again = await commit(world, token)
    assert (again.decision.id, again.binding) == (decision, later.binding)


async def test_a_known_binding_is_committed_over(world: World) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", 9)
    preview = await shown(world, 3)
    assert (await world.got()).binding == first.binding
    noted = world.workload("web", 9)
    noted.metadata.annotations["seen"] = "yes"
    # What is only noted on it does not spoil its preview.
    await world.schedule(noted)
    committed = (await commit(world, preview.preview_token)).decision
    assert committed.binding_generation == 2
    assert sum(shares(committed.clusters).values()) == 3


async def test_an_expired_token_is_refused_and_swept_away(world: World) -> None:
    await world.clusters(**CORES)
    preview = await shown(world)
    await world.plane.sql(
        "UPDATE preview SET created_at = now() - interval '1 h', expires_at = now()"
    )
    assert await refusal(world, preview.preview_token) == "PREVIEW_EXPIRED"
    await shown(world)
    (row,) = await world.plane.sql("SELECT count(*) FROM preview")
    assert row[0] == 1


async def test_what_is_no_token_is_refused(world: World) -> None:
    await world.clusters(**CORES)
    identifier, _, secret = (await shown(world)).preview_token.partition(".")
    for token in ("nonsense", "a.b", "x" * 1000, f"{identifier}.{secret[::-1]}"):
        assert await refusal(world, token) == "PREVIEW_EXPIRED"


async def test_a_binding_that_was_changed_made_or_deleted_since_is_left_alone(
    world: World,
) -> None:
    await world.clusters(**CORES)
    of_new = await shown(world)
    await world.schedule("web", 1)
    assert await refusal(world, of_new.preview_token) == "PREVIEW_STALE"
    of_known = await shown(world)
    await world.schedule("web", 4)
    assert await refusal(world, of_known.preview_token) == "PREVIEW_STALE"
    assert (await world.got()).binding.spec.replicas == 4
    # Another priority moves nothing.
    of_known = await shown(world)
    await world.schedule("web", 4, priority=1)
    assert await refusal(world, of_known.preview_token) == "PREVIEW_STALE"
    of_known = await shown(world)
    await world.delete()
    assert await refusal(world, of_known.preview_token) == "PREVIEW_STALE"
    await world.schedule("web", 1)
    assert await refusal(world, of_known.preview_token) == "PREVIEW_STALE"


@pytest.mark.parametrize("how", ["cordoned", "deleted"])
async def test_a_cluster_that_is_closed_or_gone_takes_no_replicas(world: World, how: str) -> None:
    await world.clusters(**CORES)
    preview = await shown(world)
    admin = world.plane.admin
    if how == "cordoned":
        await admin.ask("CordonCluster", name="a", cordoned=True)
    else:
        await admin.ask("DeleteCluster", name="a")
        del world.agents["a"]
    assert await refusal(world, preview.preview_token) == "PREVIEW_STALE"
    assert not await is_stored(world)


async def test_a_binding_beside_the_token_must_ask_for_the_same(world: World) -> None:
    await world.clusters(**CORES)
    token = (await shown(world)).preview_token
    found = await refused(commit(world, token, binding=world.workload("web", 8)))
    assert found.reason == "PREVIEW_OF_ANOTHER_REQUEST"
    elsewhere = [TargetCluster(name="b", replicas=1)]
    same = world.workload("web", 9, clusters=elsewhere)
    assert (await commit(world, token, binding=same)).decision.id


async def test_a_preview_that_would_store_nothing_has_no_token(world: World) -> None:
    await world.clusters(**CORES)
    preview = await shown(world, 1000, wait=False)
    assert preview.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert not preview.preview_token
    assert not preview.HasField("preview_expire_time")
    waiting = await shown(world, 1000)
    committed = await commit(world, waiting.preview_token)
    assert committed.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert not committed.binding.spec.clusters
    # It lacks what it lacked when it was shown.
    (queued,) = await world.queue()
    assert (await world.schedule("as-large", 1000)).queued
    lacks = {each.name: each.wait.short_of for each in await world.queue()}
    assert lacks[queued.name] == lacks["as-large"] != ""


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"replicas": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"scheduler_name": "nobody"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"suspension": Suspension(scheduling=True)}, grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_what_cannot_be_decided_cannot_be_previewed(
    world: World, fields: dict[str, Any], code: grpc.StatusCode
) -> None:
    await world.clusters(**CORES)
    assert await code_of(shown(world, **fields)) is code
