"""Decisions with their promises on one and on two control planes over one database."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.capacity.ledger import ClusterLedger
from federation.model.access import EVERYTHING
from federation.model.errors import PreconditionFailed, Unavailable
from federation.model.placement import Binding, Placement
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change
from federation.services.members.lifecycle import Membership
from federation.services.ports import Store
from federation.services.scheduling.batches import BatchItem, schedule_batch
from federation.services.values import Once, Scheduled
from federation.store import engine as engine_module
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.services import (
    DYNAMIC,
    WEB,
    Agents,
    Deciders,
    apply,
    decided,
    make_deciders,
)
from tests.contract.store.test_failures import ForgetfulWire
from tests.unit.services.conftest import (
    ControlPlane,
    MeddledStore,
    StillClock,
    Streams,
    held,
    only,
    rows,
    run_out,
)


def once(key: str, body: bytes = b"body") -> Once:
    return Once(caller="admin", key=key, body_hash=hashlib.sha256(body).digest())


async def at_once(
    deciders: Deciders, binding: Binding, once: Once | None = None, *, wait: bool = True
) -> Scheduled:
    return await deciders.scheduling.schedule(binding, adopt=False, wait=wait, once=once)


async def assert_alike(store: Store, *planes: ControlPlane) -> None:
    """All have followed to the same ledgers, and what is held by them is what is stored."""
    for each in planes:
        await each.follow()
    first, *others = (_ledgers(each) for each in planes)
    for ledgers in others:
        assert ledgers == first
    async with store.reading() as read:
        stored = {
            (each.cluster, row.key)
            for row in await read.reservations.all()
            for each in row.reservations
        }
    assert {(each.cluster, key) for each in first for key in each.bindings()} == stored


def _ledgers(plane: ControlPlane) -> list[ClusterLedger]:
    """But for what agents are to be told anew by who started later."""
    assert not plane.fleet.behind()
    return [replace(each, interest_version=0) for each in plane.fleet.snapshot.ledgers]


async def test_what_another_one_placed_is_left_before_it_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, only("a"))
    assert other.fleet.holdings(WEB.key) == ()
    await apply(other.deciders.scheduling, only("b"))
    assert await held(store) == {"b": 2}
    await assert_alike(store, one, other)
    assert one.fleet.holdings(WEB.key) == ("b",)


async def test_what_another_one_released_is_promised_anew_before_that_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    first = await apply(one.deciders.scheduling, only("a"))
    await other.follow()
    await one.deciders.releases.release("shop", "web")
    again = await apply(other.deciders.scheduling, only("a"))
    assert again.record.id != first.record.id
    assert await held(store) == {"a": 2}
    await assert_alike(store, one, other)


async def test_a_preview_leaves_what_another_one_placed_before_that_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, only("a"))
    previewed = await other.deciders.previews.preview(only("b"), adopt=False, wait=True)
    await other.deciders.previews.commit(previewed.token, None, EVERYTHING)
    assert await held(store) == {"b": 2}
    await assert_alike(store, one, other)


async def test_who_schedules_after_its_lease_ran_out_has_one_again(
    deciders: Deciders, store: PostgresStore, engine: AsyncEngine
) -> None:
    leased = replace(only("a"), lease_seconds=60)
    first = await apply(deciders.scheduling, leased)
    await run_out(engine)
    again = await apply(deciders.scheduling, leased)
    assert again.record.id != first.record.id
    assert await deciders.releases.expire_leases(store.transaction) == 0
    assert await held(store) == {"a": 2}


async def test_workloads_that_avoid_each_other_are_kept_apart_by_two_control_planes(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    placement = Placement(workload_anti_affinity_key="shy", replica_scheduling=DYNAMIC)
    shy = replace(WEB, uid="", replicas=1, labels={"shy": "yes"}, placement=placement)
    rival = asyncio.Future[Scheduled]()

    async def meddle() -> None:
        rival.set_result(await apply(one.deciders.scheduling, replace(shy, name="rival")))

    meddled.meddle = meddle
    answer = await apply(other.deciders.scheduling, shy)
    assert len(decided(answer)) == len(decided(rival.result())) == 1
    assert decided(answer).keys() != decided(rival.result()).keys()
    wanted = [
        apply(plane.deciders.scheduling, replace(shy, name=f"{name}{place}"))
        for name in "xyz"
        for place, plane in enumerate((one, other))
    ]
    placed = [each for answer in await asyncio.gather(*wanted) for each in decided(answer)]
    assert placed == list({"a", "b", "c"} - decided(answer).keys() - decided(rival.result()).keys())
    await assert_alike(store, one, other)


async def test_two_control_planes_never_promise_one_room_twice(
    one: ControlPlane, other: ControlPlane, store: PostgresStore, engine: AsyncEngine
) -> None:
    """Twenty replicas want two cores in each of two clusters."""
    planes = (one, other)
    wanted = [
        (plane, replace(only(cluster, 1), name=f"{cluster}{number}{place}", uid=""))
        for number in range(5)
        for cluster in "bc"
        for place, plane in enumerate(planes)
    ]
    answers = await asyncio.gather(
        *(apply(plane.deciders.scheduling, binding) for plane, binding in wanted)
    )
    placed = Counter(next(iter(decided(each)), "") for each in answers)
    assert placed == {"b": 3, "c": 3, "": 14}
    refused = [each.record.decision for each in answers if not decided(each)]
    assert {each.outcome for each in refused} == {Outcome.UNSCHEDULABLE}
    assert all(each.reason for each in refused)
    async with store.reading() as read:
        stored = Counter(
            each.cluster for row in await read.reservations.all() for each in row.reservations
        )
    assert stored == {"b": 3, "c": 3}
    assert await rows(engine, "decision") == 20
    await assert_alike(store, one, other)


async def test_two_control_planes_decide_one_binding_one_after_the_other(
    one: ControlPlane, other: ControlPlane, store: PostgresStore, engine: AsyncEngine
) -> None:
    answers = await asyncio.gather(
        *(
            apply(plane.deciders.scheduling, only(cluster))
            for cluster in "abc"
            for plane in (one, other)
        )
    )
    newest = max(answers, key=lambda each: each.binding.resource_version if each.binding else 0)
    assert await held(store) == decided(newest)
    view = await one.deciders.scheduling.get_binding("shop", "web")
    assert view.record is not None
    assert (view.binding, view.record.id) == (newest.binding, newest.record.id)
    assert await rows(engine, "decision") == len({each.record.id for each in answers})
    await assert_alike(store, one, other)


async def test_what_another_one_took_meanwhile_is_not_promised(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    rival = replace(only("b"), name="rival", uid="")
    meddled.meddle = lambda: apply(one.deciders.scheduling, rival)
    answer = await apply(other.deciders.scheduling, only("b"))
    assert answer.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert (await held(store, rival), await held(store)) == ({"b": 2}, {})
    # What still fits is promised as it was decided.
    small = replace(only("c", 1), name="small", uid="")
    meddled.meddle = lambda: apply(one.deciders.scheduling, small)
    assert decided(await apply(other.deciders.scheduling, only("c"))) == {"c": 2}
    assert await held(store, small) == {"c": 1}
    await assert_alike(store, one, other)


async def test_a_cluster_that_is_deleted_before_the_commit_is_given_nothing(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    membership = Membership(store, one.fleet, Streams())
    meddled.meddle = lambda: membership.delete("a", force=True)
    answers = await schedule_batch(
        other.deciders.scheduling,
        [
            BatchItem(binding=replace(each, name=f"w{place}", uid=""))
            for place, each in enumerate((only("a"), only("b"), WEB))
        ],
    )
    placed = [decided(each) for each in answers if isinstance(each, Scheduled)]
    assert placed == [{}, {"b": 2}, {}]
    assert not other.fleet.has("a")
    await assert_alike(store, one, other)


async def test_a_binding_that_is_deleted_before_the_commit_is_made_anew(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, only("a"))
    await other.follow()
    meddled.meddle = lambda: one.deciders.releases.delete("shop", "web")
    again = await apply(other.deciders.scheduling, only("b"))
    assert again.binding is not None
    assert again.binding.generation == 1
    assert await held(store) == {"b": 2}
    await assert_alike(store, one, other)


async def test_a_preview_of_what_another_one_moved_is_stale(
    one: ControlPlane, other: ControlPlane, fleet: FleetOwner, store: PostgresStore
) -> None:
    """The binding asks for the same all the time: what it may go to changes."""
    anywhere = replace(WEB, replicas=3)
    first = await apply(one.deciders.scheduling, anywhere)
    await other.follow()
    previewed = await other.deciders.previews.preview(anywhere, adopt=False, wait=True)
    moved = replace(first.binding or WEB, clusters=(TargetCluster(name="c", replicas=3),))
    await one.deciders.scheduling.schedule(moved, adopt=True, wait=True)
    assert fleet.holdings(WEB.key) == ("c",)
    with pytest.raises(PreconditionFailed, match="placed elsewhere"):
        await other.deciders.previews.commit(previewed.token, None, EVERYTHING)
    assert await held(store) == {"c": 3}


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_connection_that_was_lost_silently_costs_another_try_and_no_more(
    one: ControlPlane,
    database_url: str,
    engine: AsyncEngine,
    agents: Agents,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
    losses: int,
) -> None:
    monkeypatch.setattr(engine_module, "UNASKED_SECONDS", 3600.0)
    wire = ForgetfulWire(database_url)

    async def lose() -> None:
        nonlocal losses
        wire.forget_all()
        losses -= 1
        if losses:
            meddled.meddle = lose

    async with wire.laid() as url:
        lossy = create_engine(url)
        meddled = MeddledStore(PostgresStore(lossy))
        deciders = make_deciders(meddled, one.fleet, agents, clock)
        assert decided(await apply(deciders.scheduling, only("a", 1))) == {"a": 1}
        is_lost_for_good = losses > 1
        meddled.meddle = lose
        scheduling = apply(deciders.scheduling, replace(only("a"), name="late", uid=""))
        if is_lost_for_good:
            with pytest.raises(Unavailable):
                await scheduling
        else:
            assert decided(await scheduling) == {"a": 2}
        await lossy.dispose()
    assert await rows(engine, "decision") == (1 if is_lost_for_good else 2)


async def test_an_observer_that_fails_after_the_commit_lets_nothing_be_decided_again(
    one: ControlPlane, deciders: Deciders, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Change) -> None:
        raise RuntimeError("a fault of the observer")

    one.fleet.observe(fail)
    answers = await asyncio.gather(
        *(apply(deciders.scheduling, replace(only("a"), name=name, uid="")) for name in "xyz")
    )
    assert [decided(each) for each in answers] == [{"a": 2}] * 3
    assert await rows(engine, "decision") == 3
    assert "an observer failed" in caplog.text


async def test_the_same_request_to_two_control_planes_is_answered_once(
    one: ControlPlane, other: ControlPlane, engine: AsyncEngine, store: PostgresStore
) -> None:
    first, second = await asyncio.gather(
        *(at_once(plane.deciders, only("a"), once("k")) for plane in (one, other))
    )
    assert first.record.id == second.record.id
    assert await rows(engine, "decision") == await rows(engine, "request") == 1
    await assert_alike(store, one, other)


async def test_a_key_that_another_one_took_before_the_commit_keeps_nothing(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    rival = replace(only("b"), name="rival", uid="")
    meddled.meddle = lambda: at_once(one.deciders, rival, once("k", b"another"))
    beside = replace(only("c"), name="beside", uid="")
    refused, kept = await asyncio.gather(
        at_once(other.deciders, only("a"), once("k")),
        apply(other.deciders.scheduling, beside),
        return_exceptions=True,
    )
    assert isinstance(refused, PreconditionFailed)
    assert refused.reason == "IDEMPOTENCY_KEY_REUSED"
    assert isinstance(kept, Scheduled)
    assert [await held(store, each) for each in (rival, WEB, beside)] == [{"b": 2}, {}, {"c": 2}]
    await assert_alike(store, one, other)


async def test_a_standing_decision_is_not_the_answer_to_a_key_that_was_taken_meanwhile(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    """And who was answered in the same batch is not decided again for it."""
    await apply(one.deciders.scheduling, only("a", 6))
    await other.follow()

    async def meddle() -> None:
        await at_once(one.deciders, replace(only("b"), name="rival", uid=""), once("k", b"another"))
        await one.deciders.releases.release("shop", "web", clusters=["a"])
        await other.follow()

    meddled.meddle = meddle
    large = replace(only("a", 6), name="large", uid="", priority=1)
    unstored, refused = await asyncio.gather(
        at_once(other.deciders, large, wait=False),
        at_once(other.deciders, only("a", 6), once("k")),
        return_exceptions=True,
    )
    assert isinstance(unstored, Scheduled)
    assert unstored.binding is None
    assert isinstance(refused, PreconditionFailed)
    assert refused.reason == "IDEMPOTENCY_KEY_REUSED"
    assert await held(store, large) == {}
