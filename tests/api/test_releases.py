"""Promises that end or weaken: by release, with their lease or binding, without their plan."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import pytest

from federation.v1.resource_pb2 import TargetCluster
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE
from lab.control_planes import refused
from lab.fake_agents import never, on_no_node, on_nodes
from lab.patience import until
from tests.api.world import World, code_of, shares

CORES = {"a": 6, "b": 3, "c": 3}
NOT_FOUND, PRECONDITION = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION
RUN_OUT = "UPDATE reservation SET lease_expires_at = now() - interval '1 second'"
ALL: dict[str, Any] = {"replicas": 12, "uid": "uid-web"}
LEASED = {**ALL, "lease_seconds": 60}


async def renew(world: World, name: str = "web", **fields: Any) -> float:
    """When the lease ends."""
    answer = await world.ask_of("RenewLease", name, **fields)
    return float(answer.lease_expire_time.ToMilliseconds() / 1000)


async def triggers(world: World, **fields: Any) -> list[str]:
    return list((await world.schedule("web", **fields)).decision.triggers)


async def state(world: World) -> tuple[Any, ...]:
    """What is free, what is held, and how much was written to the journal."""
    (row,) = await world.plane.sql("SELECT count(*) FROM journal")
    return await world.free(), await world.held(), row[0]


async def test_what_is_released_is_free_and_the_placement_stays(world: World) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", **ALL)
    assert shares(first.decision) == CORES
    released = (await world.release(clusters=["b"])).released
    assert [(each.cluster, each.replicas, each.outstanding) for each in released] == [("b", 3, 3)]
    assert await world.held() == {"a": 6, "c": 3}
    assert await world.free() == {"a": 0, "b": 3, "c": 0}
    released = (await world.release(uid="uid-web")).released
    assert [each.cluster for each in released] == ["a", "c"]
    found = await world.got()
    assert (list(found.reservations), found.binding) == ([], first.binding)
    assert await world.free() == CORES
    # Asked again it is promised the same, and that is said; once.
    again = await world.schedule("web", **ALL)
    assert list(again.decision.triggers) == ["what it held was released"]
    assert await world.held() == CORES
    assert (await world.schedule("web", **ALL)).decision.id == again.decision.id


async def test_nothing_was_released_where_the_cluster_is_gone_or_nothing_was_placed(
    world: World,
) -> None:
    await world.clusters(**CORES)
    (other,) = (await world.placed("web", 8)).keys() - {"a"}
    await world.release(clusters=[other])
    await world.delete_cluster(other)
    await until(world.shares_of("web"), lambda found: sum(found.values()) == 8)
    assert "what it held was released" not in (await world.got()).decision.triggers
    stated = [TargetCluster(name="a", replicas=4)]
    refusal = await world.schedule("stated", 40, only=["a"], clusters=stated, adopt=True)
    assert refusal.decision.outcome == OUTCOME_UNSCHEDULABLE
    again = await world.schedule("stated", 0, only=["a"])
    assert "what it held was released" not in again.decision.triggers


async def test_what_is_not_held_cannot_be_released_and_changes_nothing(world: World) -> None:
    await world.clusters(**CORES)
    await world.schedule("web", **LEASED)
    await world.release(clusters=["b"])
    before = await state(world)
    for fields, code, message in (
        ({"clusters": ["b"]}, NOT_FOUND, "holds nothing in b"),
        ({"name": "nobody"}, NOT_FOUND, "no binding"),
        ({"uid": "another"}, PRECONDITION, "uid"),
        ({"clusters": ["a", "gone"]}, grpc.StatusCode.INVALID_ARGUMENT, "clusters[1]"),
    ):
        refusal = await refused(world.release(**fields))
        assert (refusal.code, message in f"{refusal}") == (code, True)
    for name, uid, code in (("nobody", "", NOT_FOUND), ("web", "another", PRECONDITION)):
        assert await code_of(renew(world, name, uid=uid)) is code
        assert await code_of(world.ask_of("DeleteBinding", name, uid=uid)) is code
    world.store.is_reachable = False
    for method in ("ReleaseReservation", "RenewLease", "DeleteBinding"):
        assert await code_of(world.ask_of(method)) is grpc.StatusCode.UNAVAILABLE
    world.store.is_reachable = True
    assert await state(world) == before
    await world.release()
    before = await state(world)
    assert "holds nothing" in (await refused(world.release())).message
    assert await state(world) == before


async def test_a_lease_is_renewed_by_what_the_spec_or_the_caller_says(world: World) -> None:
    await world.clusters(**CORES)
    await world.schedule("web", **LEASED)
    first = (await world.got()).lease_expire_time.ToMilliseconds() / 1000
    by_caller = await renew(world, lease_seconds=6000)
    assert 5900 < by_caller - first < 6100
    by_spec = await renew(world, uid="uid-web")
    assert first <= by_spec < by_caller
    await world.plane.sql(RUN_OUT)
    for fields in ({}, {"lease_seconds": 60}):
        assert (await refused(renew(world, **fields))).reason == "NO_LEASE"
    # Scheduled again it has one again, and who wants none any more has none.
    assert await triggers(world, **LEASED) == ["the lease of what it held has run out"]
    assert await renew(world) > first
    await world.schedule("web", **ALL)
    assert not (await world.got()).HasField("lease_expire_time")
    for fields in ({}, {"lease_seconds": 60}):
        assert (await refused(renew(world, **fields))).reason == "NO_LEASE"


async def test_a_lease_that_ran_out_ends_once_and_not_if_it_was_taken_anew(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    is_renewed = asyncio.Event()

    async def renew() -> None:
        await renewed(world)
        is_renewed.set()

    await world.clusters(**CORES)
    with caplog.at_level(logging.INFO):
        await world.schedule("web", **LEASED)
        world.store.before("reservations.has_expired", renew)
        await world.plane.sql(RUN_OUT)
        await world.pass_until(world.held, lambda _: is_renewed.is_set())
        assert await world.held() == CORES
        assert "lease ran out" not in caplog.messages
        await world.plane.sql(RUN_OUT)
        await world.pass_until(world.held, lambda held: not held)
    assert await world.free() == CORES
    before = await state(world)
    rounds = world.store.statements["reservations.expired"]
    await world.pass_until(
        world.queued, lambda _: world.store.statements["reservations.expired"] > rounds + 1
    )
    assert await state(world) == before
    assert caplog.messages.count("lease ran out") == 1


async def renewed(world: World) -> None:
    await world.plane.sql("UPDATE reservation SET lease_expires_at = now() + interval '1 hour'")


async def test_a_deleted_binding_holds_nothing_and_its_decisions_stay(world: World) -> None:
    await world.clusters(**CORES)
    first = await world.schedule("web", **ALL)
    await world.delete()
    assert await world.free() == CORES
    assert (await world.decision(first.decision.id)).id == first.decision.id
    assert await code_of(world.delete()) is NOT_FOUND


async def planned(world: World, **fields: Any) -> Any:
    """A decision over a and b, whose agents follow plans, and c."""
    await world.clusters(placer="extender", a=6)
    await world.clusters(placer="binder", b=3)
    await world.clusters(c=3)
    for agent in world.agents.values():
        agent.place = fields.pop(agent.cluster, on_nodes("n1", claimed=True))
    return (await world.schedule("web", 12, node_timeout_seconds=0.5, **fields)).decision


async def worth(world: World) -> dict[str, str]:
    """By cluster, as is held and as the decision says."""
    found = await world.got()
    held = {each.cluster: each.certificate for each in found.reservations}
    assert held == {each.cluster: each.certificate for each in found.decision.promises}
    return held


async def plans(world: World, decision: Any) -> list[str]:
    placements = (await world.decision(decision.id)).node_placements
    return [each.cluster for each in placements if each.nodes]


@pytest.mark.parametrize("answer", [on_nodes("n1"), on_no_node()])
async def test_a_plan_that_an_agent_does_not_keep_is_careful_from_then_on(
    world: World, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    decision = await planned(world, a=answer)
    assert await worth(world) == {"a": "careful", "b": "planned", "c": "careful"}
    assert await world.held() == shares(decision)
    orders = {name: agent.orders[0].planned for name, agent in world.agents.items()}
    assert orders == {"a": True, "b": True, "c": False}
    assert caplog.messages.count("planned promise is careful now") == 1


@pytest.mark.parametrize("away", ["gone", "late"])
async def test_an_agent_that_comes_back_keeps_the_plan(world: World, away: str) -> None:
    """And who is back and keeps none says so before others are back."""
    await world.clusters(placer="extender", a=6)
    await world.clusters(placer="binder", b=3)
    a, b = world.agents["a"], world.agents["b"]
    b.place = on_nodes("n1", claimed=True)
    a.place = never
    asking = asyncio.create_task(world.schedule("web", 9, node_timeout_seconds=1))
    if away == "gone":
        await a.until_asked()
        await a.leave()
    decision = (await asking).decision
    assert await worth(world) == {"a": "planned", "b": "planned"}
    assert await plans(world, decision) == ["b"]
    a.place = on_nodes("n1", claimed=True)
    if away == "gone":
        await a.connect()
    await until(lambda: plans(world, decision), lambda found: found == ["a", "b"])
    assert await worth(world) == {"a": "planned", "b": "planned"}


async def test_a_late_agent_is_not_asked_for_a_plan_that_was_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.services.scheduling.agents.ANSWER_SECONDS", 0.01)
    monkeypatch.setattr("federation.services.scheduling.agents.RETRY_SECONDS", 0.01)
    await world.clusters(placer="extender", a=6)
    a = world.agents["a"]
    a.place = never
    first = (await world.schedule("web", 6, node_timeout_seconds=0.1)).decision
    second = (await world.schedule("web", 5, node_timeout_seconds=0.5)).decision
    a.place = on_nodes("n1", claimed=True)
    await until(lambda: plans(world, second), lambda found: found == ["a"])
    assert await worth(world) == {"a": "planned"}
    asked = [order.decision_id for order in a.orders]
    # One question may have been on its way.
    assert asked[asked.index(second.id) :].count(first.id) <= 1


async def test_an_agent_that_stays_away_keeps_no_plan(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("federation.rpc.placing.RETURN_SECONDS", 0.1)
    await planned(world, a=never)

    async def held() -> list[str]:
        return [each.certificate for each in (await world.got()).reservations]

    await until(held, lambda found: found == ["careful", "planned", "careful"])
    assert await worth(world) == {"a": "careful", "b": "planned", "c": "careful"}
