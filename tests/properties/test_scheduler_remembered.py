"""A fleet that remembers what placements came to decides as one that was never asked before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.placement import (
    AffinityGroup,
    Binding,
    ClusterAffinity,
    EvictionTask,
    Placement,
    SpreadConstraint,
    SpreadField,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.workload import (
    ObjectReference,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.cycle import schedule
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile
from federation.scheduler.state import BindingContext, CycleState
from tests.properties.test_scheduler_cycle import BY_CAPACITY, BY_WEIGHT, estimates

TAINTS = (
    Taint(key="gpu", effect=TaintEffect.NO_SCHEDULE),
    Taint(key="drain", effect=TaintEffect.NO_EXECUTE, time_added=100.0),
    Taint(key="drain", effect=TaintEffect.NO_EXECUTE),
    Taint(key="late", effect=TaintEffect.NO_EXECUTE, time_added=130.0),
)
# Before, at and after the tolerations of the taints run out; clocks may go back, too.
TIMES = (0.0, 100.0, 129.999, 130.0, 130.5, 160.0, 500.0)
NAMES = tuple(f"c{number}" for number in range(6))


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
        ClusterAffinity(match_labels={"tier": "a"}),
        ClusterAffinity(exclude=("c0", "c2")),
        ClusterAffinity(cluster_names=("c1", "c3")),
    ]
)
groups = st.builds(
    AffinityGroup,
    name=st.sampled_from("xyz"),
    affinity=affinities,
    overflow=st.lists(affinities, max_size=1).map(tuple),
)
placements = st.builds(
    Placement,
    affinity_groups=st.lists(groups, max_size=3, unique_by=lambda each: each.name).map(tuple),
    tolerations=st.lists(
        st.builds(
            Toleration,
            key=st.sampled_from(["gpu", "drain", "late"]),
            operator=st.just(TolerationOperator.EXISTS),
            toleration_seconds=st.sampled_from([None, 0, 30]),
        ),
        max_size=3,
    ).map(tuple),
    spread_constraints=st.sampled_from(
        [
            (),
            (SpreadConstraint(by=SpreadField.CLUSTER, min_groups=2, max_groups=3),),
            (SpreadConstraint(by=SpreadField.REGION),),
        ]
    ),
    replica_scheduling=st.sampled_from(BY_CAPACITY + BY_WEIGHT),
) | st.builds(Placement, affinity=affinities)
clusters = st.lists(
    st.builds(
        Cluster,
        name=st.sampled_from(NAMES),
        labels=st.sampled_from([{"tier": "a"}, {"tier": "b"}]),
        region=st.sampled_from(["", "r1", "r2"]),
        taints=st.lists(st.sampled_from(TAINTS), max_size=2).map(tuple),
        ready=st.sampled_from([True, True, True, False]),
        api_enablements=st.sampled_from([None, frozenset({("apps/v1", "Deployment")})]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda cluster: cluster.name,
)


class Question(NamedTuple):
    binding: Binding
    profile: Profile = DEFAULT_PROFILE
    peers: tuple[frozenset[str], ...] = ()
    now: float = 0.0
    lost: frozenset[str] = frozenset()
    fits: dict[str, int] = dict.fromkeys(NAMES, 3)


@st.composite
def questions(draw: st.DrawFn) -> list[Question]:
    """Several in a row, of few placements: some come again, themselves or as an equal value."""
    few, asked = draw(st.lists(placements, min_size=1, max_size=3)), []
    for number in range(draw(st.integers(2, 8))):
        placement = draw(st.sampled_from(few))
        here = draw(st.lists(st.sampled_from(["c0", "c1", "c2", "gone"]), unique=True, max_size=2))
        binding = Binding(
            name=f"w{number}",
            replicas=draw(st.integers(0, 12)),
            placement=copy.deepcopy(placement) if draw(st.booleans()) else placement,
            resource=ObjectReference(
                api_version="apps/v1",
                kind=draw(st.sampled_from(["", "Deployment", "Job"])),
                uid=draw(st.sampled_from(["", "u1", "u2"])),
            ),
            clusters=tuple(TargetCluster(name=name, replicas=2) for name in here),
            eviction_tasks=draw(st.sampled_from([(), (), (EvictionTask(from_cluster="c1"),)])),
        )
        asked.append(
            Question(
                binding,
                draw(st.sampled_from(PROFILES)),
                draw(st.sampled_from([(), (), (frozenset({"c0", "c2"}),)])),
                draw(st.sampled_from(TIMES)),
                frozenset(draw(st.sampled_from(["", "c1", "c0 c4"])).split()),
                {name: draw(st.sampled_from([0, 2, 9])) for name in NAMES},
            )
        )
    return asked


def answered(fleet: Fleet, asked: Question) -> dict[str, Any]:
    lost = Column.of(
        Reason(ReasonCode.STALE) if name in asked.lost else NO_REASON for name in fleet.names
    )
    return schedule(
        asked.binding,
        fleet.without(lost),
        estimates(fleet, asked.fits),
        now=asked.now,
        profile=asked.profile,
        surroundings=BindingContext(anti_affinity_peers=asked.peers),
    ).to_plain()


@settings(max_examples=200, deadline=None)
@given(clusters, clusters, questions())
def test_what_is_remembered_changes_no_decision(
    first: Sequence[Cluster], then: Sequence[Cluster], asked: list[Question]
) -> None:
    """On one fleet, then on the fleet that it changed into."""
    for each in (first, then):
        fleet = Fleet.of(each)
        for question in asked:
            assert answered(fleet, question) == answered(Fleet.of(each), question)


def test_plugins_of_others_run_for_every_binding() -> None:
    seen: list[str] = []

    def watches(state: CycleState) -> Any:
        seen.append(state.binding.name)
        return ()

    profile = replace(DEFAULT_PROFILE, filters=(Filter(name="Watches", run=watches), *FILTERS))
    fleet = Fleet.of([Cluster(name="c0")])
    for name in ("one", "two"):
        answered(fleet, Question(Binding(name=name, replicas=1), profile))
    assert seen == ["one", "two"]
