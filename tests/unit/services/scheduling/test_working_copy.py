"""A batch's working copy: what it takes of the rooms, and what the ledgers become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from federation.capacity.cluster_room import Room, Site, packed_anew
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.reserve import Refused
from federation.model.cluster import CapacityReport, Cluster
from federation.model.estimate import Bound, Source
from federation.model.placement import Binding, Certificate
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import Component, NodeClaim, ReplicaRequirements, TargetCluster
from federation.scheduler.promisable import NO_POOLS, OVERCOMMITTED
from federation.services.agent_values import AgentFacts, Placer
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged
from federation.services.scheduling.shares import NOT_PLANNED
from federation.services.scheduling.working_copy import Reserved, WorkingCopy
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.reports import nodes
from lab.services import WEB, make_report

CORE = ReplicaRequirements(request={"cpu": 1000})
CORES = replace(WEB, requirements=CORE)


def fleet_of(**reports: CapacityReport) -> FleetOwner:
    """Clusters with reports, of a store that is never asked."""
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for name, report in reports.items():
        owner.put_cluster(Cluster(name=name))
        owner.put_report(name, report, 1.0)
    return owner


def pooled(count: int, cpu: int) -> CapacityReport:
    """Nodes of so much free CPU each."""
    return replace(make_report(1, cpu_millis=count * cpu), pools=nodes(count, cpu=cpu))


@pytest.fixture
def fleet() -> FleetOwner:
    """Three nodes of two cores in `a`, one of them in `b`; `bare` reports its sums only."""
    return fleet_of(
        a=pooled(3, 2000),
        b=pooled(1, 2000),
        bare=replace(make_report(1, cpu_millis=5000), pools=None),
    )


def taken(
    working: WorkingCopy,
    binding: Binding,
    shares: dict[str, int],
    *,
    asked: Certificate | None = None,
    held: Sequence[str] = (),
    adopts: bool = False,
) -> Reserved | Refused:
    """The shares reserved under decision `d`."""
    targets = [TargetCluster(name=name, replicas=count) for name, count in shares.items()]
    request = working.request(binding, "d", targets, asked=asked, held=held, adopts=adopts)
    return working.reserve(request)


def fits(working: WorkingCopy, binding: Binding, asked: Certificate | None = None) -> list[int]:
    found: list[int] = working.availability(binding, asked).replicas_c.tolist()
    return found


def commit(fleet: FleetOwner, kept: Reserved | Refused, binding: Binding = CORES) -> None:
    assert isinstance(kept, Reserved)
    fleet.apply(
        BindingChanged(
            namespace=binding.namespace, name=binding.name, decision="d", clusters=kept.clusters
        )
    )


def test_what_is_taken_is_missing_for_the_next_one_and_the_snapshot_stays(
    fleet: FleetOwner,
) -> None:
    base = fleet.snapshot
    working = WorkingCopy(base)
    assert fits(working, CORES) == [6, 2, 0]
    kept = taken(working, CORES, {"a": 4, "b": 0})
    assert isinstance(kept, Reserved)
    assert {name: given.version for name, given in kept.clusters.items()} == {
        "a": fleet.ledger("a").version + 1
    }
    other = replace(CORES, name="other")
    assert fits(working, other) == [2, 2, 0]
    assert fits(WorkingCopy(base), other) == [6, 2, 0]
    assert fits(working.ahead(), other) == [2, 2, 0]
    commit(fleet, kept)
    assert fleet.ledger("a") == working.ledger(0)
    assert fits(WorkingCopy(fleet.snapshot), other) == [2, 2, 0]


def test_who_was_promised_last_is_answered_without_packing_anything() -> None:
    fleet = fleet_of(a=pooled(6, 2000), b=pooled(1, 2000))
    other = replace(CORES, name="other", requirements=ReplicaRequirements(request={"cpu": 500}))
    commit(fleet, taken(WorkingCopy(fleet.snapshot), other, {"a": 2}), other)
    commit(fleet, taken(WorkingCopy(fleet.snapshot), CORES, {"a": 2, "b": 1}))
    packed = list[int]()

    def counted(
        kinds: PoolKinds, every: Sequence[tuple[Site, Sequence[Outstanding]]]
    ) -> list[Room]:
        packed.append(len(every))
        return packed_anew(kinds, every)

    working = WorkingCopy(fleet.snapshot, pack=counted)
    clusters = tuple(TargetCluster(name=name, replicas=n) for name, n in (("a", 2), ("b", 1)))
    web = replace(CORES, clusters=clusters)
    # Ten beside the other's two halves, of which two are kept back, and two; of these three stay.
    assert fits(working, web, Certificate.CAREFUL) == [6, 1]
    assert packed == []
    assert fits(working, replace(other, clusters=clusters[:1]), Certificate.CAREFUL)[0] > 0
    assert packed == [1]


def test_all_shares_are_taken_or_none(fleet: FleetOwner) -> None:
    working = WorkingCopy(fleet.snapshot)
    refused = taken(working, CORES, {"a": 1, "b": 3, "gone": 1})
    assert isinstance(refused, Refused)
    assert refused.reasons == {"gone": "the cluster is gone"}
    refused = taken(working, CORES, {"a": 1, "b": 3, "bare": 1})
    assert isinstance(refused, Refused)
    assert sorted(refused.reasons) == ["b", "bare"]
    assert [working.ledger(position) for position in range(3)] == list(fleet.snapshot.ledgers)
    assert fits(working, CORES) == [6, 2, 0]


def test_what_a_decision_leaves_is_free_in_the_same_batch(fleet: FleetOwner) -> None:
    commit(fleet, taken(WorkingCopy(fleet.snapshot), CORES, {"a": 6}))
    working = WorkingCopy(fleet.snapshot)
    other = replace(CORES, name="other")
    assert fits(working, other) == [0, 2, 0]
    kept = taken(working, CORES, {"b": 2}, held=["a", "gone"])
    assert isinstance(kept, Reserved)
    assert kept.clusters["a"].shares == ()
    assert [each.cluster for each in kept.promises] == ["b"]
    assert fits(working, other) == [6, 0, 0]


def test_the_own_reservation_is_free_and_what_stays_comes_first(fleet: FleetOwner) -> None:
    commit(fleet, taken(WorkingCopy(fleet.snapshot), CORES, {"a": 4}))
    placed = replace(CORES, clusters=(TargetCluster(name="a", replicas=4),))
    assert fits(WorkingCopy(fleet.snapshot), placed) == [2, 2, 0]
    # Of twice the size there is room for one on each of three nodes, but four stay.
    larger = replace(placed, requirements=ReplicaRequirements(request={"cpu": 2000}))
    assert fits(WorkingCopy(fleet.snapshot), larger) == [0, 1, 0]
    working = WorkingCopy(fleet.snapshot)
    assert isinstance(taken(working, larger, {"a": 4}), Refused)
    assert isinstance(taken(working, larger, {"a": 3}), Reserved)


def test_what_ran_before_is_not_taken_of_the_room(fleet: FleetOwner) -> None:
    working = WorkingCopy(fleet.snapshot)
    running = replace(CORES, clusters=(TargetCluster(name="a", replicas=9),))
    kept = taken(working, running, {"a": 9}, adopts=True)
    assert isinstance(kept, Reserved)
    assert kept.clusters["a"].adopted == {"": 9}
    assert fits(working, replace(CORES, name="other")) == [6, 2, 0]
    # Of more only the rest is.
    kept = taken(WorkingCopy(fleet.snapshot), running, {"a": 16}, adopts=True)
    assert isinstance(kept, Refused)
    working = WorkingCopy(fleet.snapshot)
    assert isinstance(taken(working, running, {"a": 14}, adopts=True), Reserved)
    assert fits(working, replace(CORES, name="other")) == [1, 2, 0]


def test_where_nothing_shows_room_there_is_none_unless_unproven_promises_are_allowed(
    fleet: FleetOwner,
) -> None:
    found = WorkingCopy(fleet.snapshot).availability(CORES, None)
    assert found.source_c.tolist() == [Source.POOLS, Source.POOLS, Source.NONE]
    assert found.bound_c.tolist() == [Bound.LOWER, Bound.LOWER, Bound.NONE]
    assert found.reasons == {2: NO_POOLS}
    lenient = WorkingCopy(fleet.snapshot, allow_unproven=True)
    assert lenient.availability(CORES, None).source_c.tolist()[2] == Source.SUMMARY
    assert fits(lenient, CORES) == [6, 2, 5]
    kept = taken(lenient, CORES, {"bare": 3}, asked=Certificate.STRICT)
    assert isinstance(kept, Reserved)
    (promise,) = kept.promises
    assert promise.certificate is PromiseCertificate.UNPROVEN
    assert promise.note
    assert fits(lenient, replace(CORES, name="other")) == [6, 2, 2]
    # What is promised since, let go again, or promised to the same one, is looked at as well.
    assert isinstance(taken(lenient, replace(CORES, name="more"), {"bare": 1}), Reserved)
    assert fits(lenient, replace(CORES, name="other")) == [6, 2, 1]
    assert isinstance(taken(lenient, CORES, {"bare": 1}), Reserved)
    assert fits(lenient, replace(CORES, name="other")) == [6, 2, 3]
    assert isinstance(taken(lenient, CORES, {}, held=["bare"]), Reserved)
    assert fits(lenient, replace(CORES, name="other")) == [6, 2, 4]
    assert fits(lenient.ahead(), replace(CORES, name="other")) == [6, 2, 4]
    lenient.forget()
    assert fits(lenient, CORES) == [6, 2, 5]


def test_totals_of_somebody_else_are_promised_as_far_as_they_go_and_that_is_said() -> None:
    bare = replace(make_report(1, cpu_millis=5000), pools=None, source="karmada")
    snapshot = fleet_of(a=pooled(1, 2000), bare=bare).snapshot
    working = WorkingCopy(snapshot)
    assert fits(working, CORES) == [2, 5]
    kept = taken(working, CORES, {"a": 1, "bare": 3})
    assert isinstance(kept, Reserved)
    worth = [(each.cluster, each.certificate.value, each.note) for each in kept.promises]
    assert worth == [("a", "careful", ""), ("bare", "summary-checked", "")]
    other = replace(CORES, name="other")
    assert fits(working, other) == [1, 2]
    refused = taken(working, other, {"bare": 3})
    assert isinstance(refused, Refused)
    assert refused.reasons == {"bare": "by its totals there is room for 2 more, not 3"}
    # What stays is promised again, and what is asked for in a newer snapshot is checked again.
    request = working.request(
        replace(CORES, clusters=(TargetCluster(name="bare", replicas=3),)),
        "e",
        [TargetCluster(name="bare", replicas=5)],
        asked=None,
        held=(),
        adopts=False,
    )
    assert isinstance(working.reserve(request), Reserved)
    assert isinstance(working.reserve(replace(request, key="shop/third")), Refused)
    # Certainty is not to be had of totals, nor do they tell nodes apart.
    strict = WorkingCopy(snapshot)
    assert fits(strict, CORES, Certificate.STRICT) == [2, 0]
    assert isinstance(taken(strict, CORES, {"bare": 1}, asked=Certificate.STRICT), Refused)
    claim = NodeClaim(node_selector={"disk": "ssd"})
    chosen = replace(CORES, requirements=replace(CORE, node_claim=claim))
    assert fits(strict, chosen)[1] == 0
    # What runs is in Karmada's totals, wherever it runs; an agent of its own would show its nodes.
    running = replace(chosen, clusters=(TargetCluster(name="bare", replicas=9),))
    own = WorkingCopy(fleet_of(bare=replace(bare, source="")).snapshot)
    for working, certificate in ((strict, "summary-checked"), (own, "unproven")):
        kept = taken(working, running, {"bare": 9}, adopts=True)
        assert isinstance(kept, Reserved)
        assert [each.certificate.value for each in kept.promises] == [certificate]
    lenient = WorkingCopy(snapshot, allow_unproven=True)
    kept = taken(lenient, CORES, {"bare": 6})
    assert isinstance(kept, Reserved)
    assert [each.certificate for each in kept.promises] == [PromiseCertificate.UNPROVEN]


def test_what_grade_counts_of_somebody_else_surely_hold_is_told_apart() -> None:
    # Nodes of grade 4 have 8 cores or more, nodes of grade 5 have 16.
    graded = {
        name: replace(make_report(1, grades=counts), source="karmada")
        for name, counts in {"b": {4: 10}, "c": {4: 10, 5: 3}}.items()
    }
    twelve = replace(CORES, requirements=ReplicaRequirements(request={"cpu": 12_000}))
    working = WorkingCopy(fleet_of(a=pooled(2, 12_000), **graded).snapshot)
    found = working.availability(twelve, None)
    assert found.replicas_c.tolist() == [2, 10, 13]
    assert found.sure_c is not None
    assert found.sure_c.tolist() == [2, 0, 3]
    # What is promised by totals is surely taken from what was sure.
    assert isinstance(taken(working, twelve, {"c": 2}), Reserved)
    left = working.availability(replace(twelve, name="other"), None)
    assert left.sure_c is not None
    assert left.sure_c.tolist() == [2, 0, 1]
    # Certainty that is asked for needs nodes that are seen.
    assert working.availability(twelve, Certificate.STRICT).sure_c is None


def test_an_overcommitted_cluster_has_no_room_and_says_why(fleet: FleetOwner) -> None:
    commit(fleet, taken(WorkingCopy(fleet.snapshot), CORES, {"a": 6}))
    fleet.put_report("a", replace(pooled(2, 2000), sequence=2), 2.0)
    working = WorkingCopy(fleet.snapshot)
    small = replace(CORES, name="other", requirements=ReplicaRequirements(request={"cpu": 1}))
    found = working.availability(small, None)
    assert found.replicas_c.tolist()[0] == 0
    lost = "promised replicas lost their room, 2 of shop/web"
    assert found.reasons[0] == f"{OVERCOMMITTED}: {lost}"
    assert isinstance(taken(working, small, {"a": 1}), Refused)
    # The same again, or less, is nothing new.
    assert isinstance(taken(working, CORES, {"a": 6}), Reserved)
    assert isinstance(taken(working, CORES, {"a": 4}), Reserved)
    assert fits(working, replace(CORES, name="third"))[0] == 0


@pytest.mark.parametrize(
    ("asked", "placer", "worth", "note"),
    [
        (None, Placer.NONE, PromiseCertificate.CAREFUL, ""),
        (None, Placer.EXTENDER, PromiseCertificate.PLANNED, ""),
        (Certificate.CAREFUL, Placer.EXTENDER, PromiseCertificate.CAREFUL, ""),
        (Certificate.STRICT, Placer.EXTENDER, PromiseCertificate.STRICT, ""),
        (Certificate.PLANNED, Placer.BINDER, PromiseCertificate.PLANNED, ""),
        (Certificate.PLANNED, Placer.NONE, PromiseCertificate.CAREFUL, NOT_PLANNED),
    ],
)
def test_what_a_promise_is_worth(
    fleet: FleetOwner,
    asked: Certificate | None,
    placer: Placer,
    worth: PromiseCertificate,
    note: str,
) -> None:
    put_agent(fleet, placer, connected=True)
    kept = taken(WorkingCopy(fleet.snapshot), CORES, {"a": 1}, asked=asked)
    assert isinstance(kept, Reserved)
    (promise,) = kept.promises
    assert (promise.certificate, promise.note) == (worth, note)
    assert (promise.report_epoch, promise.report_sequence) == (1, 1)
    assert [each.certificate for each in kept.clusters["a"].shares] == [worth]


def test_what_nobody_is_there_to_plan_is_careful(fleet: FleetOwner) -> None:
    planned, careful = PromiseCertificate.PLANNED, PromiseCertificate.CAREFUL
    for placer, connected, asked, worth in (
        (Placer.BINDER, True, None, planned),
        (Placer.BINDER, False, None, careful),
        # It may come back.
        (Placer.BINDER, False, Certificate.PLANNED, planned),
        (Placer.BINDER, False, Certificate.CAREFUL, careful),
        (Placer.BINDER, True, None, planned),
        (Placer.NONE, True, Certificate.PLANNED, careful),
        (Placer.NONE, False, Certificate.PLANNED, careful),
    ):
        put_agent(fleet, placer, connected=connected)
        working = WorkingCopy(fleet.snapshot)
        kept = taken(working, CORES, {"a": 1}, asked=asked)
        assert isinstance(kept, Reserved)
        (promise,) = kept.promises
        note = NOT_PLANNED if asked is Certificate.PLANNED and worth is careful else ""
        assert (promise.certificate, promise.note) == (worth, note)


def put_agent(fleet: FleetOwner, placer: Placer, *, connected: bool) -> None:
    fleet.put_facts("a", AgentFacts(placer=placer))
    presence = fleet.known("a").presence
    fleet.put_presence("a", replace(presence, connected=connected))


def test_a_set_of_components_is_taken_whole(fleet: FleetOwner) -> None:
    parts = (
        Component(name="manager", replicas=1, requirements=CORE),
        Component(
            name="worker", replicas=2, requirements=ReplicaRequirements(request={"cpu": 2000})
        ),
    )
    job = replace(WEB, name="job", replicas=0, components=parts)
    working = WorkingCopy(fleet.snapshot)
    assert fits(working, job) == [1, 0, 0]
    kept = taken(working, job, {"a": 3})
    assert isinstance(kept, Reserved)
    given = {each.component: each.replicas for each in kept.clusters["a"].shares}
    assert given == {"manager": 1, "worker": 2}
    # One core is left in a, and kept back while others are on their way.
    assert fits(working, CORES) == [0, 2, 0]
    assert isinstance(taken(working, replace(job, name="again"), {"a": 3}), Refused)


def test_what_moved_since_is_told_by_versions(fleet: FleetOwner) -> None:
    working = WorkingCopy(fleet.snapshot)
    commit(fleet, taken(WorkingCopy(fleet.snapshot), CORES, {"a": 1}))
    assert working.moved_since(fleet.snapshot, ["a", "b", "bare"]) == {"a"}
    fleet.remove("b")
    assert working.moved_since(fleet.snapshot, ["a", "b", "bare"]) == {"a", "b"}
    assert working.moved_since(fleet.snapshot, ["bare"]) == frozenset()


def test_a_branch_counts_what_its_own_ledgers_hold() -> None:
    """Totals of somebody else's: what was promised before the branch, and what changes in it."""
    relayed = replace(make_report(1, cpu_millis=5000), pools=None, source="karmada")
    working = WorkingCopy(fleet_of(bare=relayed).snapshot)
    assert isinstance(taken(working, CORES, {"bare": 2}), Reserved)
    branch = working.branch()
    other = replace(CORES, name="other")
    assert fits(branch, other) == fits(working, other) == [3]
    assert isinstance(taken(branch, CORES, {"bare": 1}), Reserved)
    assert (fits(branch, other), fits(working, other)) == ([4], [3])
