"""A fleet that remembers what placements came to decides as one that was never asked before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.arrays import BoolArray, IntArray
from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    ClusterLimit,
    DivisionPreference,
    EvictionTask,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
)
from federation.model.workload import (
    ObjectReference,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.cycle import schedule
from federation.scheduler.division.ties import TieOrder
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile
from federation.scheduler.state import CycleState, Surroundings

TAINTS = (
    Taint(key="gpu", effect=TaintEffect.NO_SCHEDULE),
    Taint(key="drain", effect=TaintEffect.NO_EXECUTE, time_added=100.0),
    Taint(key="drain", effect=TaintEffect.NO_EXECUTE),
    Taint(key="late", effect=TaintEffect.NO_EXECUTE, time_added=130.0),
)
# Before, at and after the tolerations of the taints run out.
TIMES = (0.0, 100.0, 129.999, 130.0, 130.5, 160.0, 500.0)
DIVIDED = SchedulingType.DIVIDED
SCHEDULINGS = (
    ReplicaScheduling(),
    ReplicaScheduling(type=DIVIDED, dynamic=True),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
    ReplicaScheduling(
        type=DIVIDED,
        static_weights=(StaticWeight(target=ClusterAffinity(match_labels={"t": "a"}), weight=3),),
    ),
    ReplicaScheduling(
        type=DIVIDED,
        dynamic=True,
        limits=(ClusterLimit(target=ClusterAffinity(match_labels={"t": "b"}), max=2),),
    ),
)


def odd_replicas(state: CycleState) -> Any:
    """Refuses by what only the binding has: what is remembered of it would be wrong."""
    refused_c = np.zeros(len(state.fleet), np.bool_)
    refused_c[:: 1 + state.binding.replicas % 3] = state.binding.replicas % 2 == 1
    return [(refused_c, "is odd")]


FOREIGN = Filter(name="Odd", run=odd_replicas)
FILTERS = DEFAULT_PROFILE.filters
PROFILES = (
    DEFAULT_PROFILE,
    replace(DEFAULT_PROFILE, name="foreign", filters=(*FILTERS[:3], FOREIGN, *FILTERS[3:])),
    # Under the name of one that is known to the scheduler, but another function.
    replace(
        DEFAULT_PROFILE,
        name="renamed",
        filters=(replace(FOREIGN, name="ClusterReady"), *FILTERS[1:]),
    ),
)

affinities = st.sampled_from(
    [
        ClusterAffinity(),
        ClusterAffinity(match_labels={"t": "a"}),
        ClusterAffinity(exclude=("c0", "c2")),
        ClusterAffinity(cluster_names=("c1", "c3")),
    ]
)
tolerations = st.lists(
    st.builds(
        Toleration,
        key=st.sampled_from(["gpu", "drain", "late"]),
        operator=st.just(TolerationOperator.EXISTS),
        toleration_seconds=st.sampled_from([None, 0, 30]),
    ),
    max_size=3,
).map(tuple)
placements = st.builds(
    Placement,
    affinity=st.none() | affinities,
    tolerations=tolerations,
    spread_constraints=st.sampled_from(
        [
            (),
            (SpreadConstraint(by=SpreadField.CLUSTER, max_groups=2),),
            (SpreadConstraint(by=SpreadField.CLUSTER, min_groups=2, max_groups=3),),
            (SpreadConstraint(by=SpreadField.REGION),),
        ]
    ),
    replica_scheduling=st.sampled_from(SCHEDULINGS),
) | st.builds(
    Placement,
    affinity_groups=st.lists(
        st.builds(
            AffinityGroup,
            name=st.sampled_from("xyz"),
            affinity=affinities,
            overflow=st.lists(affinities, max_size=1).map(tuple),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda group: group.name,
    ).map(tuple),
    tolerations=tolerations,
    replica_scheduling=st.sampled_from(SCHEDULINGS),
)
clusters = st.lists(
    st.builds(
        Cluster,
        name=st.sampled_from([f"c{number}" for number in range(6)]),
        labels=st.sampled_from([{"t": "a"}, {"t": "b"}]),
        region=st.sampled_from(["", "r1", "r2"]),
        taints=st.lists(st.sampled_from(TAINTS), max_size=2).map(tuple),
        ready=st.sampled_from([True, True, True, False]),
        api_enablements=st.sampled_from([None, frozenset({("apps/v1", "Deployment")})]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda cluster: cluster.name,
)


@dataclass(frozen=True)
class Question:
    binding: Binding
    profile: Profile
    surroundings: Surroundings
    now: float
    lost: frozenset[str]
    fits: tuple[int, ...]


@st.composite
def questions(draw: st.DrawFn) -> list[Question]:
    """Several in a row, of few placements: some come again, themselves or as an equal value."""
    few = draw(st.lists(placements, min_size=1, max_size=3))
    asked = []
    for number in range(draw(st.integers(2, 8))):
        placement = draw(st.sampled_from(few))
        if draw(st.booleans()):
            placement = copy.deepcopy(placement)
        here = draw(st.lists(st.sampled_from(["c0", "c1", "c2", "gone"]), unique=True, max_size=2))
        binding = Binding(
            name=f"w{number}",
            replicas=draw(st.integers(0, 12)),
            placement=placement,
            resource=ObjectReference(
                api_version="apps/v1",
                kind=draw(st.sampled_from(["", "Deployment", "Job"])),
                uid=draw(st.sampled_from(["", "u1", "u2"])),
            ),
            clusters=tuple(TargetCluster(name=name, replicas=2) for name in here),
            eviction_tasks=draw(st.sampled_from([(), (), (EvictionTask(from_cluster="c1"),)])),
        )
        peers = draw(st.sampled_from([(), (), (frozenset({"c0", "c2"}),)]))
        asked.append(
            Question(
                binding=binding,
                profile=draw(st.sampled_from(PROFILES)),
                surroundings=Surroundings(anti_affinity_peers=peers),
                now=draw(st.sampled_from(TIMES)),
                lost=draw(
                    st.sampled_from([frozenset(), frozenset({"c1"}), frozenset({"c0", "c4"})])
                ),
                fits=tuple(draw(st.lists(st.sampled_from([0, 2, 9]), min_size=6, max_size=6))),
            )
        )
    return asked


def answered(fleet: Fleet, asked: Question) -> dict[str, Any]:
    lost = Column.of("is stale" if name in asked.lost else "" for name in fleet.names)
    estimates = Estimates(
        replicas_c=np.array(asked.fits[: len(fleet)], dtype=np.int64),
        source_c=np.full(len(fleet), Source.POOLS, dtype=np.int8),
        bound_c=np.full(len(fleet), Bound.LOWER, dtype=np.int8),
        reasons={},
    )
    return schedule(
        asked.binding,
        fleet.without(lost),
        estimates,
        now=asked.now,
        profile=asked.profile,
        surroundings=asked.surroundings,
    ).to_plain()


@settings(max_examples=150, deadline=None)
@given(clusters, clusters, questions())
def test_what_is_remembered_changes_no_decision(
    first: Sequence[Cluster], then: Sequence[Cluster], asked: list[Question]
) -> None:
    """On one fleet, then on the fleet that it changed into."""
    for each in (first, then):
        fleet = Fleet.of(each)
        for question in asked:
            assert answered(fleet, question) == answered(Fleet.of(each), question)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(TIMES), min_size=2, max_size=5), placements, tolerations)
def test_tolerations_run_out_whatever_is_remembered(
    times: list[float], placement: Placement, tolerated: tuple[Toleration, ...]
) -> None:
    """Clocks may go back, too."""
    here = [Cluster(name=f"c{number}", taints=(taint,)) for number, taint in enumerate(TAINTS)]
    asked = replace(placement, tolerations=tolerated)
    fleet = Fleet.of(here)
    for now in times:
        question = Question(
            binding=Binding(name="web", replicas=3, placement=asked),
            profile=DEFAULT_PROFILE,
            surroundings=Surroundings(),
            now=now,
            lost=frozenset(),
            fits=(5, 5, 5, 5),
        )
        assert answered(fleet, question) == answered(Fleet.of(here), question)


@settings(max_examples=150, deadline=None)
@given(clusters, questions())
def test_equals_out_of_question_need_no_order(
    here: Sequence[Cluster], asked: list[Question]
) -> None:
    fleet = Fleet.of(here)
    found = [answered(fleet, question) for question in asked]
    settled = TieOrder.settled

    def all_settled(
        ties: TieOrder, index_k: IntArray, differs_k: BoolArray, _taken: int
    ) -> IntArray:
        return settled(ties, index_k, differs_k, len(index_k))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TieOrder, "settled", all_settled)
        assert [answered(fleet, question) for question in asked] == found


def test_plugins_of_others_run_for_every_binding() -> None:
    seen: list[str] = []

    def watches(state: CycleState) -> Any:
        seen.append(state.binding.name)
        return ()

    profile = replace(DEFAULT_PROFILE, filters=(Filter(name="Watches", run=watches), *FILTERS))
    fleet = Fleet.of([Cluster(name="c0")])
    for name in ("one", "two"):
        asked = Question(
            binding=Binding(name=name, replicas=1),
            profile=profile,
            surroundings=Surroundings(),
            now=0.0,
            lost=frozenset(),
            fits=(3,),
        )
        answered(fleet, asked)
    assert seen == ["one", "two"]
