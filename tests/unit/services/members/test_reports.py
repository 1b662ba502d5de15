from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from federation.model.grades import DEFAULT_MODEL, model_hash
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


async def test_hello_is_kept_and_answered_with_what_the_agent_needs(
    registration: Registration, reporting: Reporting, store: PostgresStore, clock: StillClock
) -> None:
    credential = await join(registration, "a")
    welcome = await reporting.connected("a", HELLO, credential.id)
    assert welcome.model == DEFAULT_MODEL
    assert welcome.model_hash == model_hash(DEFAULT_MODEL)
    assert welcome.server_time == clock.now()
    view = await registration.get_cluster("a")
    assert view.presence.connected
    assert (view.presence.epoch, view.presence.placer) == (1, Placer.BINDER)
    assert view.presence.last_heartbeat_at == clock.now()
    assert view.cluster.api_enablements == HELLO.api_enablements
    async with store.reading() as read:
        (stored,) = await read.clusters.all()
    assert stored.cluster == view.cluster
    assert stored.facts.kubernetes_version == "v1.33.1"


async def test_a_cluster_that_is_not_graded_has_no_model(
    registration: Registration, reporting: Reporting
) -> None:
    await connect(registration, reporting, "a")
    base = (await registration.get_cluster("a")).cluster
    await registration.update_cluster(replace(base, modeling_enabled=False), None, now=1e6)
    welcome = reporting.welcome("a")
    assert (welcome.model.grades, welcome.model_hash) == ((), "")


async def test_who_is_unknown_cannot_connect_or_report(reporting: Reporting) -> None:
    with pytest.raises(NotFound):
        await reporting.connected("nobody", HELLO, "id")
    with pytest.raises(NotFound):
        await reporting.accept("nobody", make_report())


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


async def test_a_report_is_committed_when_it_is_answered(
    registration: Registration, reporting: Reporting, store: PostgresStore
) -> None:
    await connect(registration, reporting, "a")
    report = make_report(grades={2: 1, 3: 6})
    await reporting.accept("a", report)
    async with store.reading() as read:
        (stored,) = await read.clusters.all()
    state = (await registration.get_cluster("a")).state
    assert state.report == stored.report == report
    assert state.as_of == stored.received_at is not None


@pytest.mark.parametrize(("epoch", "sequence"), [(2, 3), (2, 2), (1, 9)])
async def test_stale_and_replayed_reports_are_refused(
    registration: Registration, reporting: Reporting, epoch: int, sequence: int
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(3, epoch=2))
    with pytest.raises(Conflict):
        await reporting.accept("a", make_report(sequence, epoch=epoch, cpu_millis=7))
    assert (await registration.get_cluster("a")).state.report == kept(make_report(3, epoch=2))


async def test_grades_must_sum_to_the_nodes_that_were_graded(
    registration: Registration, reporting: Reporting
) -> None:
    await connect(registration, reporting, "a")
    report = make_report(grades={2: 1, 3: 6})
    wrong = replace(report, nodes=replace(report.nodes, graded=8))
    with pytest.raises(InvalidRequest, match="gradeCounts: must sum to gradedNodes, 8"):
        await reporting.accept("a", wrong)
    negative = replace(report, grade_counts={2: -1, 3: 8})
    with pytest.raises(InvalidRequest, match="negative"):
        await reporting.accept("a", negative)
    # Without a model nothing was graded.
    await reporting.accept("a", replace(wrong, grade_counts={}, model_hash=""))


async def test_many_reports_are_written_together(
    registration: Registration, collecting: Reporting, unsteady: UnsteadyStore
) -> None:
    names = [f"c{number:02}" for number in range(40)]
    await connect(registration, collecting, *names)
    before = unsteady.transactions
    await asyncio.gather(*(collecting.accept(name, make_report()) for name in names))
    assert unsteady.transactions - before <= 3
    page = await registration.list_clusters("", 100)
    assert all(view.state.report == kept(make_report()) for view in page.views)


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


async def test_while_the_store_is_away_reports_are_refused_and_then_taken_again(
    registration: Registration, collecting: Reporting, unsteady: UnsteadyStore
) -> None:
    await connect(registration, collecting, "a", "b")
    unsteady.reachable = False
    answers = await asyncio.gather(
        *(collecting.accept(name, make_report()) for name in "ab"), return_exceptions=True
    )
    assert all(isinstance(answer, Unavailable) for answer in answers)
    assert (await registration.get_cluster("a")).state.report is None
    unsteady.reachable = True
    await collecting.accept("a", make_report())
    assert (await registration.get_cluster("a")).state.report == kept(make_report())


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


async def test_an_agent_that_comes_back_blind_says_so_before_it_reports(
    registration: Registration, reporting: Reporting, fleet: FleetOwner, clock: StillClock
) -> None:
    used = await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(content_hash="h"))
    blind = AgentSight(picture_age_seconds=30.0, blind=True, message="gone")
    await reporting.connected("a", replace(HELLO, sight=blind), used)
    assert unready(fleet, clock)[0].startswith("cannot be seen since ")
    await reporting.connected("a", replace(HELLO, sight=AgentSight()), used)
    assert unready(fleet, clock) == [""]


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


async def test_a_report_that_is_never_confirmed_is_no_picture_for_ever(
    registration: Registration, reporting: Reporting, fleet: FleetOwner, clock: StillClock
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(content_hash="h"))
    as_of = (await registration.get_cluster("a")).state.as_of
    assert as_of is not None
    clock.time = as_of + reporting.silence_seconds
    assert not reporting.heartbeat("a", 2, "of a report that is refused", 600.0, AgentSight())
    assert unready(fleet, clock) == [""]
    clock.time += 1.0
    assert not reporting.heartbeat("a", 2, "of a report that is refused", 600.0, AgentSight())
    assert unready(fleet, clock) == [f"cannot be seen since {since_text(as_of)}: ReportMissing"]
    await reporting.accept("a", make_report(3, content_hash="g"))
    assert unready(fleet, clock) == [""]


@pytest.mark.parametrize(("sequence", "content_hash"), [(2, "h"), (1, "other"), (0, "")])
async def test_a_heartbeat_about_another_report_is_out_of_step(
    registration: Registration, reporting: Reporting, sequence: int, content_hash: str
) -> None:
    await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(content_hash="h"))
    before = (await registration.get_cluster("a")).state
    assert not reporting.heartbeat("a", sequence, content_hash, 600.0)
    assert (await registration.get_cluster("a")).state == before


async def test_a_new_session_has_to_report_before_it_is_in_step(
    registration: Registration, reporting: Reporting
) -> None:
    used = await connect(registration, reporting, "a")
    await reporting.accept("a", make_report(content_hash="h"))
    await reporting.connected("a", replace(HELLO, epoch=2), used)
    assert not reporting.heartbeat("a", 1, "h", 600.0)


async def test_the_end_of_an_old_stream_does_not_disconnect_the_new_one(
    registration: Registration, reporting: Reporting
) -> None:
    used = await connect(registration, reporting, "a")
    await reporting.connected("a", replace(HELLO, epoch=2), used)
    reporting.disconnected("a", 1)
    assert (await registration.get_cluster("a")).presence.connected
    reporting.disconnected("a", 2)
    assert not (await registration.get_cluster("a")).presence.connected


async def test_a_credential_that_does_not_count_opens_no_stream_and_changes_nothing(
    registration: Registration, reporting: Reporting
) -> None:
    await connect(registration, reporting, "a")
    foreign = await join(registration, "b")
    before = await registration.get_cluster("a")
    with pytest.raises(Unauthenticated, match="revoked"):
        await reporting.connected("a", replace(HELLO, epoch=5), "unknown")
    assert await registration.get_cluster("a") == before
    with pytest.raises(Unauthenticated):
        await reporting.connected("a", replace(HELLO, epoch=5), foreign.id)


@pytest.mark.parametrize(("ahead", "shown"), [(0.0, 0.0), (-90_000.0, -90_000.0)])
async def test_a_wrong_clock_is_shown_and_not_reckoned_with(
    registration: Registration,
    reporting: Reporting,
    clock: StillClock,
    ahead: float,
    shown: float,
) -> None:
    used = await connect(registration, reporting, "a")
    hello = replace(HELLO, agent_time=clock.now() + ahead)
    await reporting.connected("a", hello, used)
    presence = (await registration.get_cluster("a")).presence
    assert presence.clock_offset_seconds == shown
    assert presence.last_heartbeat_at == clock.now()
    assert not presence.is_silent_at(clock.now())


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


async def test_who_joined_and_was_never_heard_is_stale(
    registration: Registration, fleet: FleetOwner, clock: StillClock
) -> None:
    await join(registration, "a")
    assert not fleet.snapshot.fleet_at(clock.now()).ready_c.all()


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
