"""What control planes do about promises beside deciding: write, ask, and say aloud."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from federation.model.cluster import Cluster
from federation.model.reservations import Share
from federation.model.shapes import Echo
from federation.model.workload import ReplicaRequirements
from federation.services.agent_values import AgentPresence
from federation.services.fleet.overcommitment import Overcommitment
from federation.services.fleet.registry import FleetOwner
from federation.services.fleet.report_requests import DECISIONS, Refreshing
from federation.services.journal import BindingChanged, ClusterShares, StoredReservations
from federation.services.members.finished_jobs import Finishing
from federation.services.members.reports import report_violations
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.reports import echo, nodes
from lab.services import make_report, reservations_of

SMALL = {"cpu": 100}


class Agents:
    """Implements AgentReports."""

    def __init__(self, *, are_here: bool = True) -> None:
        self.asked: list[str] = []
        self._are_here = are_here

    def refresh(self, cluster: str, reason: str) -> bool:
        assert reason
        self.asked.append(cluster)
        return self._are_here


class StillClock:
    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@pytest.fixture
def fleet() -> FleetOwner:
    """One cluster of 100 cores, of a store that is never asked."""
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    owner.put_cluster(Cluster(name="a"))
    owner.put_report("a", replace(make_report(1), pools=nodes(10, cpu=10_000)), 1.0)
    return owner


def promised(fleet: FleetOwner, name: str, replicas: int) -> BindingChanged:
    share = Share(requirements=ReplicaRequirements(request=SMALL), replicas=replicas)
    given = ClusterShares(version=fleet.ledger("a").version + 1, shares=(share,))
    return BindingChanged(namespace="", name=name, decision="d", clusters={"a": given})


@pytest.mark.parametrize("are_here", [True, False])
def test_after_ten_decisions_a_fresh_report_is_asked_for_once_a_second(
    fleet: FleetOwner, are_here: bool
) -> None:
    agents, clock = Agents(are_here=are_here), StillClock()
    fleet.observe(Refreshing(fleet, agents, clock).changed)
    for number in range(DECISIONS - 1):
        fleet.apply(promised(fleet, f"w{number}", 1))
    assert agents.asked == []
    fleet.apply(promised(fleet, "x", 1))
    fleet.apply(promised(fleet, "y", 1))
    assert agents.asked == ["a"]
    clock.time += 1.0
    fleet.apply(promised(fleet, "z", 1))
    assert agents.asked == ["a", "a"]
    fleet.put_report("a", make_report(2), 2.0)
    clock.time += 1.0
    fleet.apply(promised(fleet, "v", 1))
    assert agents.asked == ["a", "a"]


@pytest.mark.parametrize(("replicas", "times"), [(49, 0), (50, 1)])
def test_a_twentieth_of_the_cluster_is_reason_enough(
    fleet: FleetOwner, replicas: int, times: int
) -> None:
    agents = Agents()
    fleet.observe(Refreshing(fleet, agents, StillClock()).changed)
    fleet.apply(promised(fleet, "x", replicas))
    assert len(agents.asked) == times


def test_what_finds_no_room_is_said_once_per_change(
    fleet: FleetOwner, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.observe(Overcommitment(fleet).changed)
    fleet.put_presence("a", AgentPresence(connected=True))
    fleet.apply(promised(fleet, "x", 20))
    with caplog.at_level(logging.INFO):
        for sequence, count in ((2, 1), (3, 1), (4, 2), (5, 2)):
            report = replace(
                make_report(sequence), pools=nodes(count, cpu=1500 - 500 * (count - 1))
            )
            fleet.put_report("a", report, float(sequence))
    said = [(each.levelname, each.fields["replicas_without_room"]) for each in caplog.records]
    assert said == [("WARNING", 5), ("INFO", 0)]


def test_who_does_not_serve_the_agent_says_nothing(
    fleet: FleetOwner, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.observe(Overcommitment(fleet).changed)
    fleet.put_presence("a", AgentPresence(connected=True, peer="other"))
    fleet.apply(promised(fleet, "x", 20))
    fleet.put_report("a", replace(make_report(2), pools=nodes(1, cpu=500)), 2.0)
    assert fleet.view("a").overcommitted == 15
    assert not caplog.records


def test_echoes_make_sense() -> None:
    wrong = Echo(binding="x", shape=(), bound=1, unbound=-1)
    report = replace(make_report(), interest_version=8, echoes=(echo("x", SMALL, 1), wrong))
    fields = [each.field for each in report_violations(report, 7)]
    assert fields == ["echoes[1]", "interestVersion"]
    assert report_violations(replace(report, echoes=()), 8) == []


@pytest.fixture
async def stored(store: PostgresStore) -> tuple[FleetOwner, Finishing]:
    """A fleet with a Job of three pods in cluster a, as stored."""
    from federation.services.members.join import Registration
    from lab.services import join

    owner = FleetOwner(store)
    await join(Registration(store, owner), "a")
    change = promised(owner, "job", 3)
    owner.apply(change)
    row = StoredReservations(namespace="", name="job", reservations=reservations_of(owner, "job"))
    async with store.transaction() as tx:
        await tx.journal.lock(["a"])
        await tx.journal.advance({"a": owner.ledger("a").version}, {"a": change.nonce})
        await tx.reservations.put([row], {})
    return owner, Finishing(store, owner)


async def finished(store: PostgresStore) -> int:
    async with store.reading() as read:
        row = await read.reservations.of("", "job")
    assert row is not None
    (reservation,) = row.reservations
    return reservation.finished


async def test_pods_that_finished_are_kept_with_their_reservation(
    store: PostgresStore, stored: tuple[FleetOwner, Finishing]
) -> None:
    owner, finishing = stored
    version = owner.ledger("a").version
    report = replace(
        make_report(), interest_version=version, echoes=(echo("job", SMALL, 1, finished=2),)
    )
    finishing.note("a", report)
    owner.put_report("a", report, 1.0)
    # The store does not know that version: something happened that is not known there, or here.
    await finishing.write()
    assert await finished(store) == 0
    async with store.transaction() as tx:
        await tx.journal.lock(["a"])
        await tx.journal.advance({"a": version + 1})
    await finishing.write()
    assert await finished(store) == 2
    # Once they are gone they still count.
    gone = replace(make_report(2), interest_version=version)
    finishing.note("a", gone)
    owner.put_report("a", gone, 2.0)
    assert owner.ledger("a").outstanding()[0].in_cells == 1
