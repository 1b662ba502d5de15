from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.cluster_room import Room
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.fleet_rooms import FleetRooms
from federation.model.cluster import CapacityReport, Cluster, ReportedPool, ReportedPools
from federation.model.estimate import EstimateOptions, Source
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements
from federation.scheduler.fleet import Fleet
from federation.services.agent_values import AgentFacts
from federation.services.estimates.availability import answer
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterShares,
    LedgerVersion,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.member_ports import StoredReport
from lab.reports import echo
from lab.services import fleet_of, make_report

NAMES = st.sampled_from(["a", "b", "c", "d"])
CHANGES = st.one_of(
    st.tuples(st.just("cluster"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("report"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("facts"), NAMES, st.integers(0, 1)),
    st.tuples(st.just("promise"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("leave"), NAMES, st.just(0)),
    st.tuples(st.just("read"), st.just(""), st.just(0)),
)


@pytest.fixture
def owner() -> FleetOwner:
    """A fleet of a store that is never asked."""
    return fleet_of()


def put(owner: FleetOwner, kind: str, name: str, number: int) -> None:
    if kind == "read":
        # Labels that were asked for once are brought up to date as well.
        assert len(owner.snapshot.fleet.label("n").code_c) == len(owner.snapshot.names)
        asked = ReplicaRequirements(request={"cpu": 300})
        answer(owner.snapshot, owner.known_estimates, [asked], None, EstimateOptions(), 9.0)
        return
    if kind == "leave":
        owner.remove(name)
        return
    if kind == "cluster" or not owner.has(name):
        owner.put_cluster(
            Cluster(
                name=name, region=f"r{number}", labels={"n": str(number)}, resource_version=number
            )
        )
    if kind == "report":
        graded = {4: number} if number % 2 else None
        report = make_report(number, cpu_millis=number * 1000, grades=graded)
        owner.put_report(name, report, float(number))
    if kind == "promise":
        share = Share(requirements=ReplicaRequirements(request={"cpu": number}), replicas=number)
        shares = ClusterShares(version=owner.ledger(name).version + 1, shares=(share,))
        owner.apply(BindingChanged(namespace="", name="x", clusters={name: shares}))
    if kind == "facts":
        apis = frozenset({("v1", "Pod")}) if number else None
        owner.put_facts(name, AgentFacts(api_enablements=apis))


@settings(deadline=None)
@given(st.lists(CHANGES, max_size=30))
def test_a_fleet_brought_up_to_date_equals_one_built_anew(
    changes: list[tuple[str, str, int]],
) -> None:
    owner = fleet_of()
    for change in changes:
        put(owner, *change)
    snapshot, names = owner.snapshot, owner.snapshot.names
    assert list(names) == sorted(names)
    assert snapshot.positions == {name: place for place, name in enumerate(names)}
    assert snapshot.states == tuple(owner.view(name).state for name in names)
    assert snapshot.ledgers == tuple(map(owner.ledger, names))
    assert {c: snapshot.outstanding[c] for c in snapshot.outstanding} == {
        c: ledger.outstanding() for c, ledger in enumerate(snapshot.ledgers) if ledger.is_open
    }
    fleet = Fleet.of(state.cluster for state in snapshot.states)
    assert columns(snapshot.fleet) == columns(fleet)
    capacity = FleetCapacity.of(snapshot.states)
    for resource in ("cpu", "memory", "pods"):
        kept, built = snapshot.capacity.free(resource), capacity.free(resource)
        nothing_c = np.zeros(len(names))
        assert np.array_equal(
            nothing_c if kept is None else kept, nothing_c if built is None else built
        )
    assert np.array_equal(snapshot.capacity.reported_c, capacity.reported_c)
    assert snapshot.capacity.ungraded == capacity.ungraded
    rooms = FleetRooms.of(owner.view(name).room for name in names)
    asked = ReplicaRequirements(request={"cpu": 300})
    for kept, built in zip(
        snapshot.rooms.max_by_view(asked), rooms.max_by_view(asked), strict=True
    ):
        assert kept.tolist() == built.tolist()
    assert pooled(owner) == [each and int(each.cells.min_rk[0, 0]) for each in rooms.filled.pools]
    assert snapshot.rooms.overcommitted_c.tolist() == rooms.overcommitted_c.tolist()
    assert snapshot.rooms.strict_c.tolist() == rooms.strict_c.tolist()
    for options in (EstimateOptions(), EstimateOptions(highest=Source.MODELS)):
        ours = answer(snapshot, owner.known_estimates, [asked], None, options, 9.0)
        (ours_c,) = ours.estimates
        anew_c = KnownEstimates().estimates(
            capacity, rooms.reported, asked, options, dict(snapshot.outstanding)
        )
        assert ours_c.replicas_c.tolist() == anew_c.replicas_c.tolist()
        assert ours_c.source_c.tolist() == anew_c.source_c.tolist()


def columns(fleet: Fleet) -> list[object]:
    """All that decisions read of a fleet, comparable."""
    every = (fleet.unready, fleet.provider, fleet.region, fleet.zones, fleet.taints, fleet.apis)
    return [
        fleet.clusters,
        fleet.names,
        fleet.encoded_names,
        fleet.index,
        fleet.ready_c.tolist(),
        *[(each.code_c.tolist(), each.values) for each in (*every, fleet.label("n"))],
    ]


def test_what_is_older_changes_nothing(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a", region="new", resource_version=2))
    owner.put_cluster(Cluster(name="a", region="old", resource_version=1))
    owner.put_report("a", make_report(5), 5.0)
    owner.put_report("a", make_report(4), 6.0)
    state = owner.view("a").state
    assert state.cluster.region == "new"
    assert state.report == replace(make_report(5), pools=None)
    assert state.as_of == 5.0


def pools(cpu_millis: int) -> ReportedPools:
    """Two equal nodes."""
    return ReportedPools(
        label_keys=(),
        pools=(ReportedPool(),),
        resources=("cpu", "pods"),
        cell_pools=(0,),
        counts=(2,),
        minimums=(cpu_millis, 10),
        spreads=(0, 0),
        surpluses=(0, 0),
    )


def pooled(owner: FleetOwner) -> list[int | None]:
    """What a node has free, by cluster."""
    return [
        None if each is None else int(each.cells.min_rk[0, 0])
        for each in owner.snapshot.cells.pools
    ]


PROMISES = st.dictionaries(NAMES, st.integers(0, 4), min_size=1, max_size=3)
HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.just("decide"), st.sampled_from(["x", "y", "z"]), PROMISES),
        st.tuples(st.just("report"), NAMES, st.integers(0, 3)),
    ),
    max_size=20,
)
Told = partial[None]


# Unlike nodes and replicas: packed in another order, they would lie in other places.
UNLIKE = ReportedPools(
    label_keys=(),
    pools=(ReportedPool(),),
    resources=("cpu", "pods"),
    cell_pools=(0, 0, 0),
    counts=(1, 2, 1),
    minimums=(1000, 700, 450, 10, 10, 10),
    spreads=(0,) * 6,
    surpluses=(0,) * 6,
)
CPU_OF = {"x": 100, "y": 300, "z": 230}


def four_clusters(reported: ReportedPools | None = None) -> FleetOwner:
    owner = fleet_of()
    for name in "abcd":
        owner.put_cluster(Cluster(name=name))
        owner.put_report(name, replace(make_report(1), pools=reported or pools(1000)), 1.0)
    return owner


def restarted(owner: FleetOwner) -> FleetOwner:
    """Return a fleet that has read the tables, which hold what ``owner`` knows."""
    other = four_clusters(UNLIKE)
    ledgers = [owner.ledger(name) for name in "abcd"]
    rows = [
        StoredReservations(
            namespace="",
            name=name,
            reservations=tuple(part for ledger in ledgers for part in ledger.of_binding(name)),
        )
        for name in "xyz"
    ]
    reports = {}
    for ledger in ledgers:
        echoes = [
            echo
            for name in "xyz"
            for part in ledger.of_binding(name)
            if (echo := ledger.echo_of(part))
        ]
        stored_report = owner.report(ledger.cluster)
        assert stored_report is not None
        stored = replace(
            stored_report,
            pools=UNLIKE,
            echoes=tuple(echoes),
            interest_version=ledger.answered_version,
        )
        reports[ledger.cluster] = StoredReport(stored, 1.0, ledger.reported_version)
    versions = {ledger.cluster: LedgerVersion(ledger.version) for ledger in ledgers}
    other.restore(versions, rows, reports)
    return other


def cells_of(owner: FleetOwner) -> list[object]:
    """Return the cells that best fit and spreading leave free, by cluster."""
    return [
        [room.outstanding]
        + [
            [(cells.count_k.tolist(), cells.min_rk.tolist(), cells.pool_k.tolist())]
            for cells in (room.filled.cells, room.spread.cells)
        ]
        for room in owner.snapshot.rooms.rooms
        if room is not None
    ]


def told_in_order(
    happenings: list[tuple[Any, ...]], reported: ReportedPools | None = None
) -> list[Told]:
    """What a journal would tell, with the versions that the store would give."""
    versions = dict.fromkeys("abcd", four_clusters().ledger("a").version)
    sequences = dict.fromkeys("abcd", 1)
    told: list[Told] = []
    for number, happening in enumerate(happenings):
        match happening:
            case "decide", name, replicas:
                clusters = {}
                for cluster, count in replicas.items():
                    versions[cluster] += 1
                    request = {"cpu": CPU_OF[name]}
                    share = Share(requirements=ReplicaRequirements(request=request), replicas=count)
                    clusters[cluster] = ClusterShares(
                        version=versions[cluster], shares=(share,) if count else ()
                    )
                change = BindingChanged(
                    namespace="", name=name, decision=f"d{number}", clusters=clusters
                )
                told.append(partial(FleetOwner.apply, change=change))
            case "report", cluster, bound:
                versions[cluster] += 1
                sequences[cluster] += 1
                report = replace(
                    make_report(sequences[cluster]),
                    pools=reported or pools(1000),
                    interest_version=versions[cluster] - 1,
                    echoes=(echo("x", {"cpu": 100}, bound),),
                )
                told.append(
                    partial(put_told, cluster=cluster, report=report, version=versions[cluster])
                )
    return told


def put_told(owner: FleetOwner, cluster: str, report: CapacityReport, version: int) -> None:
    owner.put_report(cluster, report, float(version), version)


@settings(deadline=None)
@given(HAPPENINGS, st.randoms(use_true_random=False))
def test_in_whatever_order_it_is_told_a_fleet_comes_to_the_same(
    happenings: list[tuple[Any, ...]], chance: Random
) -> None:
    entries = told_in_order(happenings, UNLIKE)
    one, other = four_clusters(UNLIKE), four_clusters(UNLIKE)
    for change in entries:
        change(one)
    again = [*entries, *chance.sample(entries, k=len(entries) // 2)]
    chance.shuffle(again)
    for each in again:
        each(other)
        if chance.random() < 0.2:
            assert other.snapshot.positions
    assert other.behind() == one.behind() == []
    assert other.snapshot.ledgers == one.snapshot.ledgers
    assert other.snapshot.outstanding == one.snapshot.outstanding
    assert other.snapshot.states == one.snapshot.states
    for name in "xyz":
        assert other.holdings(name) == one.holdings(name)
    assert [held for held, *_ in cells_of(one)] == [
        one.snapshot.outstanding.get(position, ()) for position in range(4)
    ]
    for same in (other, restarted(one), restarted(other)):
        assert cells_of(same) == cells_of(one)


def test_a_change_waits_until_the_one_before_it_is_here() -> None:
    owner = four_clusters()
    first, second, third = told_in_order(
        [("decide", "x", {"a": 1}), ("report", "a", 0), ("decide", "y", {"a": 2, "b": 1})]
    )
    seen: list[Change] = []
    owner.observe(seen.append)
    third(owner)
    second(owner)
    assert owner.holdings("y") == ("b",)
    assert owner.behind() == ["a"]
    assert [type(each) for each in seen] == [BindingChanged]
    first(owner)
    assert owner.holdings("y") == ("a", "b")
    assert [type(each) for each in seen[1:]] == [BindingChanged, ReportAdvanced, BindingChanged]
    seen.clear()
    for each in (first, second, third):
        each(owner)
    assert seen == []


def test_the_rooms_that_decisions_were_packed_into_are_taken_over() -> None:
    owner = four_clusters()
    (decide,) = told_in_order([("decide", "x", {"a": 1})])
    change = decide.keywords["change"]
    base = owner.snapshot
    room = base.rooms.rooms[0]
    assert room is not None
    share = change.clusters["a"].shares[0]
    ledger = owner.ledger("a").decided("x", "d", [share])
    packed = base.rooms.with_rooms({0: room.with_one(ledger.outstanding()[0])})
    after = base.with_promises(packed, {0: ledger})
    owner.adopt(base, after, [change])
    assert owner.snapshot is after
    assert owner.ledger("a") is ledger
    assert owner.holdings("x") == ("a",)
    # What was packed before something else happened does not hold that.
    other = four_clusters()
    base = other.snapshot
    after = base.with_promises(packed, {0: ledger})
    other.put_report("a", replace(make_report(2), pools=pools(700)), 2.0)
    other.adopt(base, after, [change])
    assert pooled(other)[0] == 700


def test_what_came_before_its_turn_follows_what_is_taken_over() -> None:
    owner = four_clusters()
    decide, report = told_in_order([("decide", "x", {"a": 1}), ("report", "a", 1)])
    change = decide.keywords["change"]
    base = owner.snapshot
    ledger = owner.ledger("a").decided("x", "d", change.clusters["a"].shares)
    after = base.with_promises(base.rooms, {0: ledger})
    report(owner)
    owner.adopt(base, after, [change])
    assert owner.behind() == []
    assert owner.ledger("a").version == ledger.version + 1
    assert owner.snapshot.outstanding == {}


async def test_a_room_that_was_packed_ahead_of_its_report_is_taken_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = four_clusters()
    decide, put_report = told_in_order([("decide", "x", {"a": 1}), ("report", "a", 0)])
    decide(owner)
    await owner.pack_ahead([("a", put_report.keywords["report"])])

    def refuse(*_: object) -> None:
        raise AssertionError("the event loop packs the room again")

    put_report(owner)
    with monkeypatch.context() as patch:
        patch.setattr(Room, "following", refuse)
        assert pooled(owner)[0] == 1000 - 100
    assert owner.view("a").promised == owner.ledger("a").outstanding()


async def test_a_room_packed_ahead_gets_promises_that_come_before_its_report() -> None:
    owner = four_clusters()
    decide, put_report = told_in_order([("decide", "x", {"a": 1}), ("report", "a", 0)])
    await owner.pack_ahead([("a", put_report.keywords["report"])])
    decide(owner)
    put_report(owner)
    assert pooled(owner)[0] == 1000 - 100


def test_estimates_forget_nothing_that_is_promised(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a"))
    owner.put_report("a", replace(make_report(cpu_millis=1000), pools=None), 1.0)
    share = Share(requirements=ReplicaRequirements(request={"cpu": 100}), replicas=4)
    change = BindingChanged(
        namespace="", name="x", clusters={"a": ClusterShares(version=3, shares=(share,))}
    )

    def fitting() -> int:
        found = answer(
            owner.snapshot,
            owner.known_estimates,
            [share.requirements],
            None,
            EstimateOptions(),
            2.0,
        )
        return int(found.estimates[0].replicas_c[0])

    assert fitting() == 10
    owner.apply(change)
    assert fitting() == 6
