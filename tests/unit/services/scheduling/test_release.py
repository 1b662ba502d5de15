"""What ends or weakens promises: release, leases, deletion, plans that nobody keeps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.capacity.ledger import ClusterLedger
from federation.model.errors import (
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from federation.model.reservations import PromiseCertificate
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentHello, Placer
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.release import ReleaseService
from federation.services.values import DecisionRecord, Scheduled
from federation.store.postgres import PostgresStore
from lab.patience import until
from lab.services import (
    WEB,
    Agents,
    Deciders,
    UnsteadyStore,
    apply,
    decided,
    join,
    make_deciders,
)
from tests.unit.services.conftest import (
    ControlPlane,
    MeddledStore,
    StillClock,
    Streams,
    held,
    only,
    run_out,
)

# It takes all that the three clusters have.
LARGE = replace(WEB, replicas=12)
LEASED = replace(LARGE, lease_seconds=60)


@pytest.fixture
def releases(deciders: Deciders) -> ReleaseService:
    return deciders.releases


def ledgers(fleet: FleetOwner) -> Sequence[ClusterLedger]:
    return fleet.snapshot.ledgers


async def versions(store: PostgresStore) -> dict[str, int]:
    async with store.transaction() as tx:
        locked = await tx.journal.lock(["a", "b", "c"])
    return {name: each.version for name, each in locked.items()}


async def room(scheduling: Scheduling, cluster: str) -> bool:
    """Whether there is room for one replica; it is not taken."""
    asked = replace(only(cluster, 1), name="asked", uid="")
    considered = await scheduling.consider(asked, adopt=False, wait=True)
    return considered.is_placed


async def test_what_is_released_is_free_and_the_placement_stays(
    releases: ReleaseService, scheduling: Scheduling, store: PostgresStore
) -> None:
    first = await apply(scheduling, LARGE)
    assert decided(first) == {"a": 6, "b": 3, "c": 3}
    assert not await room(scheduling, "b")
    released = await releases.release("shop", "web", clusters=["b"])
    assert [(each.cluster, each.replicas, each.outstanding) for each in released] == [("b", 3, 3)]
    assert await held(store) == {"a": 6, "c": 3}
    assert [await room(scheduling, name) for name in "abc"] == [False, True, False]
    released = await releases.release("shop", "web", "uid-web")
    assert [each.cluster for each in released] == ["a", "c"]
    assert await held(store) == {}
    assert [await room(scheduling, name) for name in "abc"] == [True, True, True]
    view = await scheduling.get_binding("shop", "web")
    assert (view.held, view.binding) == ((), first.binding)


async def test_a_decision_after_a_release_says_what_it_is_for(
    releases: ReleaseService, scheduling: Scheduling, engine: AsyncEngine
) -> None:
    first = await apply(scheduling, LEASED)
    await releases.release("shop", "web", clusters=["b"])
    again = await apply(scheduling, LEASED)
    assert decided(again) == decided(first)
    assert again.record.decision.trace.triggers == ("what it held was released",)
    assert (await apply(scheduling, LEASED)).record.id == again.record.id
    await run_out(engine)
    late = await apply(scheduling, LEASED)
    assert late.record.decision.trace.triggers == ("the lease of what it held has run out",)


async def test_nothing_was_released_where_the_cluster_is_gone(
    releases: ReleaseService, scheduling: Scheduling, store: PostgresStore, fleet: FleetOwner
) -> None:
    wanted = replace(LARGE, replicas=6)
    await apply(scheduling, wanted)
    await releases.release("shop", "web", clusters=["c"])
    await Membership(store, fleet, Streams()).delete("c", force=True)
    again = await apply(scheduling, wanted)
    assert again.record.decision.trace.triggers == ("not all of its replicas are placed",)


async def test_nothing_was_released_of_what_was_never_placed(scheduling: Scheduling) -> None:
    stated = replace(only("b", 40), clusters=(TargetCluster(name="b", replicas=4),))
    refused = await scheduling.schedule(stated, adopt=True, wait=True)
    assert refused.record.decision.outcome is Outcome.UNSCHEDULABLE
    again = await apply(scheduling, replace(only("b", 1), name=stated.name))
    assert again.record.decision.trace.triggers == ("replicas changed", "it was never placed")


async def test_what_is_not_held_cannot_be_released_and_changes_nothing(
    releases: ReleaseService, scheduling: Scheduling, store: PostgresStore, fleet: FleetOwner
) -> None:
    await apply(scheduling, LARGE)
    await releases.release("shop", "web", clusters=["b"])
    before, known = ledgers(fleet), await versions(store)
    with pytest.raises(NotFound, match="holds nothing in b"):
        await releases.release("shop", "web", clusters=["b"])
    with pytest.raises(NotFound, match="no binding 'shop/nobody'"):
        await releases.release("shop", "nobody")
    with pytest.raises(PreconditionFailed, match="uid"):
        await releases.release("shop", "web", "another")
    with pytest.raises(InvalidRequest) as caught:
        await releases.release("shop", "web", clusters=["a", "gone"])
    assert [each.field for each in caught.value.violations] == ["clusters[1]"]
    assert (ledgers(fleet), await versions(store)) == (before, known)
    await releases.release("shop", "web")
    before, known = ledgers(fleet), await versions(store)
    with pytest.raises(NotFound, match="holds nothing"):
        await releases.release("shop", "web")
    assert (ledgers(fleet), await versions(store)) == (before, known)


async def test_what_another_control_plane_placed_is_released_before_it_was_heard_of(
    one: ControlPlane, other: ControlPlane, store: PostgresStore
) -> None:
    await apply(one.deciders.scheduling, LARGE)
    assert other.fleet.holdings(WEB.key) == ()
    released = await other.deciders.releases.release("shop", "web")
    assert [each.replicas for each in released] == [6, 3, 3]
    assert await held(store) == {}
    await one.follow()
    assert one.fleet.holdings(WEB.key) == ()
    assert [each.version for each in ledgers(one.fleet)] == [
        each.version for each in ledgers(other.fleet)
    ]


async def test_while_the_store_is_away_everything_stays(
    scheduling: Scheduling,
    store: PostgresStore,
    fleet: FleetOwner,
    agents: Agents,
    clock: StillClock,
) -> None:
    unsteady = UnsteadyStore(store)
    releases = make_deciders(unsteady, fleet, agents, clock).releases
    await apply(scheduling, LEASED)
    before = ledgers(fleet)
    unsteady.reachable = False
    for call in (
        releases.release("shop", "web"),
        releases.renew("shop", "web"),
        releases.delete("shop", "web"),
    ):
        with pytest.raises(Unavailable):
            await call
    assert ledgers(fleet) == before
    assert await held(store) == {"a": 6, "b": 3, "c": 3}


async def test_a_lease_is_renewed_by_what_the_spec_or_the_caller_says(
    releases: ReleaseService, scheduling: Scheduling
) -> None:
    await apply(scheduling, LEASED)
    first = (await scheduling.get_binding("shop", "web")).lease_expires_at
    assert first is not None
    by_caller = await releases.renew("shop", "web", lease_seconds=6000)
    assert 5900 < by_caller - first < 6100
    by_spec = await releases.renew("shop", "web", "uid-web")
    assert first <= by_spec < by_caller
    assert (await scheduling.get_binding("shop", "web")).lease_expires_at == by_spec
    with pytest.raises(PreconditionFailed, match="uid"):
        await releases.renew("shop", "web", "another")
    with pytest.raises(NotFound):
        await releases.renew("shop", "nobody")


async def test_without_a_lease_there_is_nothing_to_renew(
    releases: ReleaseService, scheduling: Scheduling, engine: AsyncEngine, store: PostgresStore
) -> None:
    async def refusal(seconds: int | None = None) -> str:
        with pytest.raises(PreconditionFailed) as caught:
            await releases.renew("shop", "web", lease_seconds=seconds)
        return caught.value.reason

    await apply(scheduling, LARGE)
    assert [await refusal(), await refusal(60)] == ["NO_LEASE", "NO_LEASE"]
    await apply(scheduling, LEASED)
    await run_out(engine)
    assert [await refusal(), await refusal(60)] == ["NO_LEASE", "NO_LEASE"]
    # Who wants no lease any more has none.
    await apply(scheduling, LARGE)
    async with store.reading() as read:
        row = await read.reservations.of("shop", "web")
    assert row is not None
    assert row.lease_expires_at is None


async def test_a_lease_that_ran_out_ends_once_and_frees_its_room(
    releases: ReleaseService, scheduling: Scheduling, store: PostgresStore, engine: AsyncEngine
) -> None:
    await apply(scheduling, LEASED)
    assert await releases.expire_leases(store.transaction) == 0
    await run_out(engine)
    assert not await room(scheduling, "a")
    assert await releases.expire_leases(store.transaction) == 1
    assert await held(store) == {}
    assert await room(scheduling, "a")
    known = await versions(store)
    assert await releases.expire_leases(store.transaction) == 0
    assert await versions(store) == known


async def test_a_lease_that_was_taken_anew_meanwhile_is_not_ended(
    one: ControlPlane,
    other: ControlPlane,
    meddled: MeddledStore,
    store: PostgresStore,
    engine: AsyncEngine,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await apply(one.deciders.scheduling, LEASED)
    await run_out(engine)
    meddled.meddle = lambda: apply(one.deciders.scheduling, LEASED)
    with caplog.at_level(logging.INFO):
        await other.deciders.releases.expire_leases(store.transaction)
    assert await held(store) == {"a": 6, "b": 3, "c": 3}
    assert "lease ran out" not in caplog.messages


async def test_a_deleted_binding_holds_nothing(
    releases: ReleaseService, scheduling: Scheduling, store: PostgresStore, fleet: FleetOwner
) -> None:
    first = await apply(scheduling, LARGE)
    with pytest.raises(PreconditionFailed):
        await releases.delete("shop", "web", "another")
    await releases.delete("shop", "web", "uid-web")
    assert await held(store) == {}
    assert fleet.holdings(WEB.key) == ()
    assert [await room(scheduling, name) for name in "abc"] == [True, True, True]
    assert (await scheduling.get_decision(first.record.id)).id == first.record.id
    with pytest.raises(NotFound):
        await releases.delete("shop", "web")


@pytest.fixture
async def planned(
    scheduling: Scheduling, registration: Registration, reporting: Reporting
) -> Scheduled:
    """A decision over the three clusters, of which `a` and `b` follow plans."""
    for name, placer in (("a", Placer.EXTENDER), ("b", Placer.BINDER)):
        credential = await join(registration, name)
        await reporting.connected(name, AgentHello(epoch=1, placer=placer), credential.id)
    return await apply(scheduling, LARGE)


async def placed_while_away(
    planned: Scheduled, scheduling: Scheduling, agents: Agents
) -> DecisionRecord:
    """Asked for nodes while no agent is there."""
    assert planned.binding is not None
    agents.errors = {name: Unavailable() for name in ("a", "b", "c")}
    return await scheduling.node_plans.place(planned.record, planned.binding, 5.0)


async def certificates(scheduling: Scheduling, store: PostgresStore) -> dict[str, str]:
    """By cluster; the fleet and the store say the same."""
    view = await scheduling.get_binding("shop", "web")
    async with store.reading() as read:
        row = await read.reservations.of("shop", "web")
    assert row is not None
    known = {each.cluster: each.certificate.value for each in view.held}
    assert known == {each.cluster: each.certificate.value for each in row.reservations}
    return known


async def test_a_plan_that_an_agent_does_not_keep_is_careful_from_then_on(
    planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    told = {each.cluster: each.certificate for each in planned.record.promises}
    assert told == {
        "a": PromiseCertificate.PLANNED,
        "b": PromiseCertificate.PLANNED,
        "c": PromiseCertificate.CAREFUL,
    }
    assert planned.binding is not None
    agents.claiming.add("b")
    await scheduling.node_plans.place(planned.record, planned.binding, 5.0)
    assert {name: order.planned for name, order in agents.orders.items()} == {
        "a": True,
        "b": True,
        "c": False,
    }
    assert await certificates(scheduling, store) == {"a": "careful", "b": "planned", "c": "careful"}
    assert await held(store) == decided(planned)


async def test_an_agent_that_answers_nonsense_keeps_no_plan(
    planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    assert planned.binding is not None
    agents.claiming |= {"a", "b"}
    agents.forgetful = {"a"}
    await scheduling.node_plans.place(planned.record, planned.binding, 5.0)
    assert await certificates(scheduling, store) == {"a": "careful", "b": "planned", "c": "careful"}


@pytest.mark.parametrize("away", ["gone", "late"])
async def test_an_agent_that_comes_back_keeps_the_plan(
    away: str, planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    assert planned.binding is not None
    agents.claiming |= {"a", "b"}
    agents.errors = {"a": Unavailable()} if away == "gone" else {}
    agents.silent = {"a"} if away == "late" else set()
    plans = scheduling.node_plans
    placed = await plans.place(planned.record, planned.binding, 0.05)
    worth = {each.cluster: each.certificate.value for each in placed.promises}
    assert worth == await certificates(scheduling, store)
    assert worth == {"a": "planned", "b": "planned", "c": "careful"}
    assert plans.awaits_agents(placed)
    stored = await scheduling.get_decision(placed.id)
    assert [plan.cluster for plan in stored.node_plans] == ["b", "c"]
    returning = asyncio.create_task(plans.place_once_back(placed, planned.binding, 60.0))
    await asyncio.sleep(0.05)
    assert not returning.done()
    agents.errors, agents.silent = {}, set()
    await returning
    stored = await scheduling.get_decision(placed.id)
    assert [plan.cluster for plan in stored.node_plans] == ["a", "b", "c"]
    assert not plans.awaits_agents(stored)
    assert await certificates(scheduling, store) == worth


async def test_an_agent_that_stays_away_keeps_no_plan(
    planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    assert planned.binding is not None
    placed = await placed_while_away(planned, scheduling, agents)
    assert scheduling.node_plans.placeable([planned]) == [planned]
    assert (await certificates(scheduling, store))["a"] == "planned"
    await scheduling.node_plans.place_once_back(placed, planned.binding, 0.05)
    assert set((await certificates(scheduling, store)).values()) == {"careful"}


async def test_who_is_back_and_keeps_no_plan_says_so_before_others_are_back(
    planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    assert planned.binding is not None
    placed = await placed_while_away(planned, scheduling, agents)
    del agents.errors["a"]
    returning = asyncio.create_task(
        scheduling.node_plans.place_once_back(placed, planned.binding, 60.0)
    )
    await until(
        lambda: scheduling.get_binding("shop", "web"),
        lambda view: {each.cluster: each.certificate.value for each in view.held}["a"] == "careful",
    )
    assert (await certificates(scheduling, store))["b"] == "planned"
    assert not returning.done()
    returning.cancel()


async def test_nobody_is_asked_for_a_plan_that_was_made_again_meanwhile(
    planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    assert planned.binding is not None
    placed = await placed_while_away(planned, scheduling, agents)
    await apply(scheduling, replace(LARGE, replicas=11))
    agents.errors = {}
    await scheduling.node_plans.place_once_back(placed, planned.binding, 60.0)
    assert agents.orders == {}
    assert (await certificates(scheduling, store))["a"] == "planned"


async def test_a_plan_that_was_made_again_meanwhile_is_not_weakened(
    planned: Scheduled,
    releases: ReleaseService,
    scheduling: Scheduling,
    store: PostgresStore,
    fleet: FleetOwner,
) -> None:
    await apply(scheduling, replace(LARGE, replicas=11))
    before = ledgers(fleet)
    await releases.downgrade("shop", "web", planned.record.id, "a", "no room")
    await releases.downgrade("shop", "nobody", planned.record.id, "a", "no room")
    assert (await certificates(scheduling, store))["a"] == "planned"
    assert ledgers(fleet) == before


async def test_what_was_careful_already_is_not_weakened(
    planned: Scheduled,
    releases: ReleaseService,
    fleet: FleetOwner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await releases.downgrade("shop", "web", planned.record.id, "a", "no room")
    assert caplog.messages == ["planned promise is careful now"]
    caplog.clear()
    before = ledgers(fleet)
    for cluster in ("a", "c", "gone"):
        await releases.downgrade("shop", "web", planned.record.id, cluster, "no room")
    assert ledgers(fleet) == before
    assert caplog.messages == []
