from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.capacity import FleetCapacity
from federation.model.cluster import Cluster, ReportedPool, ReportedPools
from federation.model.errors import NotFound
from federation.services.fleet import FleetOwner
from federation.services.registration import Registration
from federation.services.reporting import Reporting
from federation.services.values import AgentFacts, AgentHello, AgentPresence
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from tests.services import join_and_report, make_report

NAMES = st.sampled_from(["a", "b", "c", "d"])
CHANGES = st.one_of(
    st.tuples(st.just("cluster"), NAMES, st.integers(0, 5)),
    st.tuples(st.just("report"), NAMES, st.integers(1, 5)),
    st.tuples(st.just("facts"), NAMES, st.integers(0, 1)),
    st.tuples(st.just("read"), st.just(""), st.just(0)),
)


@pytest.fixture
def owner() -> FleetOwner:
    """Of a store that is never asked."""
    return FleetOwner(PostgresStore(create_engine("postgresql://unused")))


def put(owner: FleetOwner, kind: str, name: str, number: int) -> None:
    if kind == "read":
        assert owner.snapshot is owner.snapshot
        return
    if kind == "cluster" or name not in owner.snapshot.positions:
        owner.put_cluster(
            Cluster(
                name=name, region=f"r{number}", labels={"n": str(number)}, resource_version=number
            )
        )
    if kind == "report":
        owner.put_report(name, make_report(number, cpu_millis=number * 1000), float(number))
    if kind == "facts":
        apis = frozenset({("v1", "Pod")}) if number else None
        owner.put_facts(name, AgentFacts(api_enablements=apis))


@settings(deadline=None)
@given(st.lists(CHANGES, max_size=30))
def test_a_fleet_brought_up_to_date_equals_one_built_anew(
    changes: list[tuple[str, str, int]],
) -> None:
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for change in changes:
        put(owner, *change)
    snapshot = owner.snapshot
    assert list(snapshot.names) == sorted(snapshot.names)
    assert snapshot.positions == {name: place for place, name in enumerate(snapshot.names)}
    assert snapshot.states == tuple(owner.view(name).state for name in snapshot.names)
    assert snapshot.fleet.clusters == tuple(state.cluster for state in snapshot.states)
    anew = FleetCapacity.of(snapshot.states)
    for resource in ("cpu", "memory", "pods"):
        kept, built = snapshot.capacity.free(resource), anew.free(resource)
        assert (kept is None) or (built is None) or np.array_equal(kept, built)
    assert np.array_equal(snapshot.capacity.reported_c, anew.reported_c)


def test_a_snapshot_does_not_change_when_the_fleet_does(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a"))
    before = owner.snapshot
    owner.put_report("a", make_report(), 1.0)
    owner.put_cluster(Cluster(name="b"))
    assert before.names == ("a",)
    assert before.states[0].report is None
    assert owner.snapshot.names == ("a", "b")


def test_a_report_leaves_the_arrays_of_the_specs_alone(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a"))
    before = owner.snapshot
    owner.put_report("a", make_report(), 1.0)
    after = owner.snapshot
    assert after.fleet is before.fleet
    assert after.capacity is not before.capacity
    owner.put_presence("a", AgentPresence(connected=True))
    assert owner.snapshot is after
    owner.put_presence("a", AgentPresence(connected=True, silent_after=9.0))
    assert owner.snapshot.silent_after_c.tolist() == [9.0]
    assert owner.snapshot.fleet is before.fleet


def test_the_generation_names_the_clusters(owner: FleetOwner) -> None:
    generations = [owner.snapshot.generation]
    for name in ("b", "a"):
        owner.put_cluster(Cluster(name=name))
        generations.append(owner.snapshot.generation)
    assert len(set(generations)) == 3
    owner.put_report("a", make_report(), 1.0)
    owner.put_cluster(Cluster(name="b", region="r", resource_version=1))
    assert owner.snapshot.generation == generations[-1]
    other = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for name in ("a", "b"):
        other.put_cluster(Cluster(name=name))
    assert other.snapshot.generation == generations[-1]


def test_a_cluster_may_come_and_go_unseen(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a"))
    before = owner.snapshot
    owner.put_cluster(Cluster(name="b"))
    owner.remove("b")
    assert owner.snapshot.names == ("a",)
    assert owner.snapshot.generation == before.generation


def test_what_is_older_changes_nothing(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a", region="new", resource_version=2))
    owner.put_cluster(Cluster(name="a", region="old", resource_version=1))
    owner.put_report("a", make_report(5), 5.0)
    owner.put_report("a", make_report(4), 6.0)
    state = owner.view("a").state
    assert state.cluster.region == "new"
    assert state.report == replace(make_report(5), pools=None)
    assert state.received_at == 5.0


def test_a_spec_read_before_a_hello_does_not_undo_it(owner: FleetOwner) -> None:
    owner.put_cluster(Cluster(name="a"))
    apis = frozenset({("v1", "Pod")})
    owner.put_facts("a", AgentFacts(api_enablements=apis, kubernetes_version="v1.33.1"))
    owner.put_cluster(Cluster(name="a", region="r", resource_version=2))
    view = owner.view("a")
    assert view.cluster == Cluster(name="a", region="r", resource_version=2, api_enablements=apis)
    assert view.presence.kubernetes_version == "v1.33.1"


def test_an_unknown_cluster_is_not_found(owner: FleetOwner) -> None:
    with pytest.raises(NotFound, match="'nobody'"):
        owner.view("nobody")


async def test_a_restart_takes_over_what_was_committed(
    store: PostgresStore, fleet: FleetOwner, registration: Registration, reporting: Reporting
) -> None:
    reports = {"a": make_report(3, grades={2: 1}), "b": make_report(1, epoch=7)}
    credentials = await join_and_report(registration, reporting, reports)
    base = (await registration.get_cluster("b")).cluster
    await registration.update_cluster(replace(base, region="south"), None)
    hello = AgentHello(epoch=7, agent_version="0.2", kubernetes_version="v1.34.0")
    await reporting.connected("b", hello, credentials["b"].id)
    again = FleetOwner(store)
    await again.load(grace_until=700.0)
    assert again.snapshot.states == fleet.snapshot.states
    assert again.snapshot.generation == fleet.snapshot.generation
    for name in ("a", "b"):
        presence = fleet.view(name).presence
        forgotten = replace(
            presence, connected=False, last_heartbeat_at=None, silent_after=700.0, epoch=0
        )
        assert again.view(name).presence == forgotten


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


def test_pools_follow_the_reports(owner: FleetOwner) -> None:
    for name in ("a", "b"):
        owner.put_cluster(Cluster(name=name))
    assert pooled(owner) == [None, None]
    first = replace(make_report(1), pools=pools(4000))
    owner.put_report("b", first, 1.0)
    assert pooled(owner) == [None, 4000]
    cells = owner.snapshot.cells
    known = owner.view("b").state.report
    assert known is not None
    owner.put_report("b", replace(known, snapshot_time=900.0), 2.0)
    assert owner.snapshot.cells is cells
    owner.put_report("a", replace(make_report(1), pools=pools(1000)), 3.0)
    owner.put_report("b", replace(make_report(2), pools=pools(2000)), 3.0)
    assert pooled(owner) == [1000, 2000]
    owner.put_report("b", replace(make_report(3), pools=None), 4.0)
    assert pooled(owner) == [1000, None]
    owner.put_cluster(Cluster(name="c"))
    assert pooled(owner) == [1000, None, None]
    owner.remove("a")
    assert pooled(owner) == [None, None]
