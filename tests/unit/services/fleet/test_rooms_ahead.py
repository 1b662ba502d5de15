"""Rooms of reports are packed in a thread before the reports count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.capacity.cluster_room import Room
from federation.model.cluster import CapacityReport, Cluster
from federation.model.reservations import Outstanding, Share
from federation.model.workload import ReplicaRequirements
from federation.parts import SystemClock
from federation.services.agent_values import AgentFacts, Placer
from federation.services.fleet import registry
from federation.services.fleet.known_rooms import KnownRooms
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, ClusterShares
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.services import join_and_report, make_report
from tests.unit.services.conftest import ControlPlane


@pytest.fixture
def owner() -> FleetOwner:
    """One cluster that was reported, in which something is promised."""
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    owner.put_cluster(Cluster(name="a"))
    owner.put_report("a", make_report(1), 0.0)
    promise(owner, "web")
    assert owner.snapshot.names == ("a",)
    return owner


def promise(owner: FleetOwner, binding: str, replicas: int = 2) -> None:
    share = Share(requirements=ReplicaRequirements(request={"cpu": 700}), replicas=replicas)
    shares = ClusterShares(
        version=owner.ledger("a").version + 1, shares=(share,) if replicas else ()
    )
    owner.apply(BindingChanged(namespace="", name=binding, clusters={"a": shares}))


async def packed_ahead(owner: FleetOwner, report: CapacityReport) -> None:
    await owner.pack_ahead([("a", report), ("gone", report)])


def room_of(owner: FleetOwner) -> Room:
    room = owner.view("a").room
    assert room is not None
    return room


def held(owner: FleetOwner) -> tuple[Outstanding, ...]:
    return room_of(owner).outstanding


async def test_a_report_that_counts_is_not_packed_again(
    owner: FleetOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = make_report(2, cpu_millis=3000)
    await packed_ahead(owner, report)
    monkeypatch.setattr(registry, "packed_room", None)
    owner.put_report("a", report, 1.0)
    room = room_of(owner)
    assert room.report == (1, 2)
    assert [each.binding for each in room.outstanding] == ["web"]
    assert owner.snapshot.rooms.rooms[0] is not None
    request = ReplicaRequirements(request={"cpu": 100})
    assert owner.snapshot.rooms.most_by_view(request)[0].tolist() == [16]


@pytest.mark.parametrize("replicas", [0, 1])
async def test_what_happens_meanwhile_is_not_forgotten(owner: FleetOwner, replicas: int) -> None:
    report = make_report(2)
    await packed_ahead(owner, report)
    promise(owner, "web" if not replicas else "api", replicas)
    owner.put_report("a", report, 1.0)
    assert room_of(owner).report == (1, 2)
    assert held(owner) == owner.ledger("a").outstanding()
    assert len(held(owner)) == 2 * replicas


async def test_another_report_has_its_own_room(owner: FleetOwner) -> None:
    await packed_ahead(owner, make_report(2, cpu_millis=9000))
    owner.put_report("a", make_report(3, cpu_millis=4000), 1.0)
    room = room_of(owner)
    assert (room.report, int(room.pools.cells.min_rk.max(axis=1)[0])) == ((1, 3), 4000)


async def test_a_new_placer_is_minded(owner: FleetOwner) -> None:
    report = make_report(2)
    await packed_ahead(owner, report)
    owner.put_facts("a", AgentFacts(placer=Placer.EXTENDER))
    owner.put_presence("a", replace(owner.known("a").presence, connected=True))
    owner.put_report("a", report, 1.0)
    assert room_of(owner).follows_claims
    assert held(owner) == owner.ledger("a").outstanding()


async def test_reports_of_agents_are_packed_ahead(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, clock = FleetOwner(store), SystemClock()
    monkeypatch.setattr(registry, "packed_room", None)
    registration, reporting = Registration(store, fleet), Reporting(store, fleet, clock)
    await join_and_report(registration, reporting, {"a": make_report(1)})
    assert room_of(fleet).report == (1, 1)


async def test_a_heartbeat_makes_no_room(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, clock = FleetOwner(store), SystemClock()
    registration, reporting = Registration(store, fleet), Reporting(store, fleet, clock)
    await join_and_report(registration, reporting, {"a": make_report(1)})
    monkeypatch.setattr(KnownRooms, "room", None)
    assert reporting.heartbeat("a", 1, "", clock.now())
    assert not reporting.heartbeat("a", 2, "", clock.now())
    with pytest.raises(TypeError):
        fleet.view("a")


async def test_a_peers_report_is_packed_before_it_is_put(
    reporting: Reporting, other: ControlPlane
) -> None:
    await reporting.accept("a", make_report(7, cpu_millis=5000))
    await other.follow()
    assert isinstance(other.fleet._known_room("a"), Room)


@pytest.fixture
def large() -> FleetOwner:
    """Three hundred clusters, in which something is promised."""
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for number in range(300):
        put_reported(owner, f"c{number:03}", number)
    assert len(owner.snapshot.names) == 300
    return owner


def put_reported(owner: FleetOwner, name: str, number: int) -> None:
    owner.put_cluster(Cluster(name=name, region=f"r{number % 7}"))
    owner.put_report(name, make_report(1, cpu_millis=1000 + number), 0.0)
    share = Share(requirements=ReplicaRequirements(request={"cpu": 100}), replicas=1 + number % 3)
    shares = ClusterShares(version=owner.ledger(name).version + 1, shares=(share,))
    owner.apply(BindingChanged(namespace="", name=f"b-{name}", clusters={name: shares}))


def test_many_clusters_that_leave_and_come_at_once_move_in_parts(
    large: FleetOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(0, 140, 4):
        large.remove(f"c{number:03}")
    for number in range(38):
        put_reported(large, f"b{number:03}", number)
    anew = large._built_anew()
    monkeypatch.setattr(FleetOwner, "_built_anew", None)
    moved = large.snapshot
    assert moved.names == anew.names
    assert moved.states == anew.states
    assert moved.fleet.region.code_c.tolist() == anew.fleet.region.code_c.tolist()
    assert moved.capacity.free_rc.tolist() == anew.capacity.free_rc.tolist()
    rooms = [[room.outstanding for room in each.rooms.rooms if room] for each in (moved, anew)]
    assert rooms[0] == rooms[1]
    assert moved.ledgers == anew.ledgers
