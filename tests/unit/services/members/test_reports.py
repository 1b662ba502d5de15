from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import (
    Conflict,
    InvalidRequest,
)
from federation.services.agent_values import AgentHello, AgentSight, Placer
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting, ReportTimes
from federation.store.postgres import PostgresStore
from lab.reports import kept
from lab.services import UnsteadyStore, join, make_report
from tests.unit.services.conftest import StillClock

HELLO = AgentHello(
    epoch=1,
    agent_version="0.1.0",
    kubernetes_version="v1.33.1",
    placer=Placer.BINDER,
    api_enablements=frozenset({("apps/v1", "Deployment")}),
)


@pytest.fixture
def unsteady(store: PostgresStore) -> UnsteadyStore:
    return UnsteadyStore(store)


@pytest.fixture
def collecting(unsteady: UnsteadyStore, fleet: FleetOwner, clock: StillClock) -> Reporting:
    """Collects reports as in production."""
    return Reporting(unsteady, fleet, clock, ReportTimes())


async def connect(registration: Registration, reporting: Reporting, *names: str) -> str:
    """Join and say hello; the id of the last one's credential."""
    credential_id = ""
    for name in names:
        credential_id = (await join(registration, name)).id
        await reporting.connected(name, HELLO, credential_id)
    return credential_id


async def test_an_older_session_does_not_come_back(
    registration: Registration, reporting: Reporting, store: PostgresStore, clock: StillClock
) -> None:
    used = await connect(registration, reporting, "a")
    await reporting.connected("a", replace(HELLO, epoch=5), used)
    with pytest.raises(Conflict, match="older"):
        await reporting.connected("a", replace(HELLO, epoch=4), used)
    await reporting.connected("a", replace(HELLO, epoch=5), used)
    await reporting.accept("a", make_report(epoch=5))
    # Nor after a restart, when only the report tells.
    fleet = FleetOwner(store)
    await fleet.load(grace_until=0.0)
    with pytest.raises(Conflict, match="older"):
        await Reporting(store, fleet, clock).connected("a", replace(HELLO, epoch=4), used)


@pytest.mark.parametrize(("epoch", "sequence"), [(2, 3), (2, 2), (1, 9)])
async def test_stale_and_replayed_reports_are_refused(
    registration: Registration, reporting: Reporting, epoch: int, sequence: int
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(3, epoch=2))
    with pytest.raises(Conflict):
        await reporting.accept("a", make_report(sequence, epoch=epoch, cpu_millis=7))
    assert (await registration.get_cluster("a")).state.report == kept(make_report(3, epoch=2))


async def test_each_of_a_batch_has_its_own_answer(
    registration: Registration, collecting: Reporting
) -> None:
    await connect(registration, collecting, "ok", "stale", "broken", "twice")
    await collecting.accept("stale", make_report(5))
    # The store has no such number.
    broken = make_report(2**63)
    answers = await asyncio.gather(
        collecting.accept("ok", make_report(1)),
        collecting.accept("stale", make_report(5)),
        collecting.accept("broken", broken),
        collecting.accept("twice", make_report(1)),
        collecting.accept("twice", make_report(2)),
        return_exceptions=True,
    )
    kinds = [type(answer) for answer in answers]
    assert kinds == [type(None), Conflict, InvalidRequest, type(None), type(None)]
    reports = {
        view.cluster.name: view.state.report
        for view in (await registration.list_clusters("", 9)).views
    }
    assert reports == {
        "ok": kept(make_report(1)),
        "stale": kept(make_report(5)),
        "broken": None,
        "twice": kept(make_report(2)),
    }


async def test_a_caller_that_gives_up_harms_nobody(
    registration: Registration, collecting: Reporting
) -> None:
    await connect(registration, collecting, "a", "b")
    gone = asyncio.create_task(collecting.accept("a", make_report()))
    stays = asyncio.create_task(collecting.accept("b", make_report()))
    await asyncio.sleep(0)
    gone.cancel()
    await stays
    assert (await registration.get_cluster("b")).state.report == kept(make_report())


async def test_of_concurrent_sessions_the_highest_report_stays(
    registration: Registration, reporting: Reporting
) -> None:
    await connect(registration, reporting, "a")
    order = [(1, 3), (2, 2), (1, 9), (2, 1), (2, 4), (2, 3), (1, 4)]

    answers = await asyncio.gather(
        *(reporting.accept("a", make_report(sequence, epoch=epoch)) for epoch, sequence in order),
        return_exceptions=True,
    )
    assert {type(answer) for answer in answers} == {type(None), Conflict}
    assert (await registration.get_cluster("a")).state.report == kept(make_report(4, epoch=2))


async def test_a_heartbeat_in_step_makes_the_report_fresh(
    registration: Registration, reporting: Reporting, clock: StillClock
) -> None:
    await connect(registration, reporting, "a")
    report = make_report(content_hash="h")
    await reporting.accept("a", report)
    clock.time += 1_000_000_000.0
    assert reporting.heartbeat("a", 1, "h", 600.0)
    view = await registration.get_cluster("a")
    assert view.state.as_of == view.presence.last_heartbeat_at == clock.time
    assert view.state.report == kept(replace(report, snapshot_time=600.0))


async def test_the_picture_of_a_blind_agent_grows_old_and_takes_nothing_new(
    registration: Registration, reporting: Reporting, fleet: FleetOwner, clock: StillClock
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(content_hash="h"))
    clock.time += 1_000_000_000.0
    seen_at = clock.time - 40.0
    # A little more or less of travelling time does not move the date.
    for late in (0.0, 1.5, 0.25):
        age = clock.time - seen_at
        sight = AgentSight(picture_age_seconds=age + late, blind=True, message="nodes: refused")
        assert reporting.heartbeat("a", 1, "h", 600.0, sight)
        view = await registration.get_cluster("a")
        assert view.presence.last_heartbeat_at == clock.time
        assert not view.presence.is_silent_at(clock.time)
        assert view.presence.blindness is not None
        assert view.state.as_of == view.presence.blindness.since == seen_at
        assert fleet.snapshot.capacity.age_seconds_c(clock.time).tolist() == [age]
        (reason,) = unready(fleet, clock)
        assert reason == f"cannot be seen since {since_text(seen_at)}: ApiServerUnreachable"
        clock.time += 10.0
    assert reporting.heartbeat("a", 1, "h", 600.0, AgentSight())
    assert (await registration.get_cluster("a")).state.as_of == clock.time
    assert unready(fleet, clock) == [""]


def unready(fleet: FleetOwner, clock: StillClock) -> list[str]:
    column = fleet.snapshot.fleet_at(clock.time).unready
    return [column[position] for position in range(len(column.code_c))]


def since_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_report_is_as_old_as_its_picture_was(
    registration: Registration, reporting: Reporting, store: PostgresStore
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", replace(make_report(), picture_age_seconds=70.0))
    async with store.reading() as read:
        (stored,) = await read.clusters.all()
    assert stored.received_at is not None
    assert (await registration.get_cluster("a")).state.as_of == stored.received_at - 70.0
    # Also after a restart.
    fleet = FleetOwner(store)
    await fleet.load(grace_until=0.0)
    assert fleet.view("a").state.as_of == stored.received_at - 70.0


async def test_a_fleet_speaks_the_less_often_the_larger_it_is(
    reporting: Reporting, fleet: FleetOwner
) -> None:
    for number in range(600):
        fleet.put_cluster(Cluster(name=f"c{number:03}"))
    welcome = reporting.welcome("c000")
    assert welcome.heartbeat_seconds == 12.0
    assert welcome.report_seconds == 12.0
    assert reporting.silence_seconds == 36.0


async def test_a_cluster_is_stale_after_three_heartbeats_unheard_until_it_is_heard_again(
    registration: Registration, reporting: Reporting, fleet: FleetOwner, clock: StillClock
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(content_hash="h"))

    def is_stale() -> bool:
        return not fleet.snapshot.fleet_at(clock.now()).ready_c.all()

    clock.time += 30.0
    assert not is_stale()
    clock.time += 0.1
    assert is_stale()
    assert reporting.heartbeat("a", 1, "h", 600.0)
    assert not is_stale()


async def test_a_restart_loses_nobody_before_the_grace_is_over(
    registration: Registration, reporting: Reporting, store: PostgresStore, clock: StillClock
) -> None:
    await connect(registration, reporting, "a", "b")
    clock.time += 1000.0
    again = FleetOwner(store)
    await again.load(grace_until=clock.now() + 60.0)
    after = Reporting(store, again, clock)
    used = await join(Registration(store, again), "b")
    await after.connected("b", HELLO, used.id)
    clock.time += 60.0
    after.heartbeat("b", 1, "h", 600.0)
    assert again.snapshot.fleet_at(clock.now()).ready_c.tolist() == [True, True]
    clock.time += 0.1
    fleet = again.snapshot.fleet_at(clock.now())
    assert fleet.ready_c.tolist() == [False, True]
    assert fleet.unready.values[fleet.unready.code_c[0]] == "is stale: its agent is silent"
