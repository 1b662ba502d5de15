"""Only equals that come into question are put in order: whoever sorts all selects the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from federation.model.arrays import IntArray
from federation.model.cluster import Cluster
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    ClusterLimit,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    TieBreak,
)
from federation.scheduler.demand import Demand
from federation.scheduler.division.apportion import TieOrder
from federation.scheduler.fleet import Fleet
from federation.scheduler.resolved_placement import Limits
from federation.scheduler.selection.spread import Selection
from federation.scheduler.stages import candidate_order, select_clusters
from federation.scheduler.state import NO_CONTEXT, CycleState, prior_replicas

HALF_OF_THEM = ClusterAffinity(cluster_names=("c0", "c2", "c3", "c6"))
AGGREGATED = ReplicaScheduling(
    type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
)

schedulings = st.builds(
    ReplicaScheduling,
    type=st.sampled_from(
        [SchedulingType.DIVIDED, SchedulingType.DIVIDED, SchedulingType.DUPLICATED]
    ),
    preference=st.sampled_from(DivisionPreference),
    dynamic=st.just(True),
    limits=st.sampled_from([(), (ClusterLimit(target=HALF_OF_THEM, max=1),)]),
)


def constrained(*fields: SpreadField) -> st.SearchStrategy[SpreadConstraint]:
    return st.builds(
        SpreadConstraint,
        by=st.sampled_from(fields),
        min_groups=st.integers(0, 3),
        max_groups=st.none() | st.integers(1, 4),
    )


constraints = st.tuples(constrained(SpreadField.CLUSTER)) | st.lists(
    constrained(SpreadField.CLUSTER, SpreadField.REGION, SpreadField.ZONE),
    max_size=2,
    unique_by=lambda constraint: constraint.by,
).map(tuple)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A cycle as far as its scores: everything by cluster, in the order of the names."""

    scheduling: ReplicaScheduling
    constraints: tuple[SpreadConstraint, ...]
    replicas: int
    fits: Sequence[int]
    scores: Sequence[int]
    tiers: Sequence[int]
    uid: str

    @property
    def state(self) -> CycleState:
        fleet = Fleet.of(
            Cluster(name=f"c{number}", region=f"r{number % 3}", zones=(f"z{number % 2}",))
            for number in range(len(self.fits))
        )
        binding = Binding(
            name="web",
            replicas=self.replicas,
            placement=Placement(
                replica_scheduling=self.scheduling, spread_constraints=self.constraints
            ),
        )
        prior_c, placed_c = prior_replicas(binding, fleet)
        return CycleState(
            binding=binding,
            fleet=fleet,
            available_c=np.array(self.fits, dtype=np.int64),
            prior_c=prior_c,
            placed_c=placed_c,
            tier_c=np.array(self.tiers, dtype=np.int64),
            surroundings=NO_CONTEXT,
            now=0.0,
        )

    @property
    def score_c(self) -> IntArray:
        return np.array(self.scores, dtype=np.int64)

    @property
    def limits(self) -> Limits:
        return Limits.of(self.scheduling.limits, self.state.fleet)

    @property
    def ties(self) -> TieOrder:
        return TieOrder.of(self.state.fleet.encoded_names, self.uid, TieBreak.HASH)

    def lazily_ordered(self) -> IntArray:
        state = self.state
        feasible_c = state.tier_c >= 0
        demand = Demand.of(state.binding)
        return candidate_order(state, demand, self.limits, feasible_c, self.score_c, self.ties)

    def fully_ordered(self) -> IntArray:
        key_c = self.ties.keys(np.arange(len(self.fits))).tolist()
        feasible = [c for c, tier in enumerate(self.tiers) if tier >= 0]
        feasible.sort(key=lambda c: (self.tiers[c], -self.scores[c], -self.fits[c], key_c[c]))
        return np.array(feasible, dtype=np.int64)

    def selected(self, index_k: IntArray) -> tuple[Any, ...]:
        state = self.state
        demand = Demand.of(state.binding)
        found: Selection = select_clusters(state, demand, self.score_c, self.limits, index_k)
        chosen = index_k[found.order_k].tolist()
        return chosen, found.rule, found.group_scores, found.shortage, found.lacks_capacity


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(0, 8))

    def by_cluster(*values: int) -> list[int]:
        drawn = st.lists(st.sampled_from(values), min_size=count, max_size=count)
        return draw(drawn)

    return Case(
        scheduling=draw(schedulings),
        constraints=draw(constraints),
        replicas=draw(st.integers(1, 6)),
        fits=by_cluster(0, 2, 3),
        scores=by_cluster(0, 0, 100),
        tiers=by_cluster(-1, 0, 0, 0, 1),
        uid=draw(st.text("uid", min_size=1, max_size=4)),
    )


# The first would hold everything, but may not; who is swapped in for it is one of the equals.
LIMITED = Case(
    scheduling=replace(AGGREGATED, limits=(ClusterLimit(target=HALF_OF_THEM, max=1),)),
    constraints=(SpreadConstraint(by=SpreadField.CLUSTER, max_groups=1),),
    replicas=2,
    fits=[3, 2, 0, 0, 2, 2],
    scores=[0] * 6,
    tiers=[0] * 6,
    uid="uid",
)
# All of the first region are taken, in their order, though its first holds everything.
BY_REGION = replace(
    LIMITED,
    scheduling=AGGREGATED,
    constraints=(SpreadConstraint(by=SpreadField.REGION, max_groups=1),),
    fits=[3, 2, 2, 2, 2, 2, 2, 2, 2, 2],
    scores=[0] * 10,
    tiers=[0] * 10,
)


@settings(max_examples=200, deadline=None)
@given(cases())
@example(LIMITED)
@example(BY_REGION)
def test_whoever_sorts_all_candidates_selects_the_same(case: Case) -> None:
    assume(Demand.of(case.state.binding).is_ranked)
    assert case.selected(case.lazily_ordered()) == case.selected(case.fully_ordered())


@pytest.mark.parametrize(
    ("most", "replicas", "asked"),
    [
        pytest.param(1, 5, [], id="the first alone holds exactly enough"),
        pytest.param(2, 8, [1, 2, 3], id="one of the equals is taken"),
        pytest.param(1, 6, [1, 2, 3, 4, 5], id="the first alone holds too little"),
        pytest.param(None, 5, [1, 2, 3, 4, 5], id="as many as there are"),
    ],
)
def test_no_name_is_hashed_that_does_not_come_into_question(
    monkeypatch: pytest.MonkeyPatch, most: int | None, replicas: int, asked: list[int]
) -> None:
    hashed: list[int] = []
    keys = TieOrder.keys

    def noted(ties: TieOrder, index_c: IntArray) -> Any:
        hashed.extend(index_c.tolist())
        return keys(ties, index_c)

    monkeypatch.setattr(TieOrder, "keys", noted)
    case = Case(
        scheduling=AGGREGATED,
        constraints=(SpreadConstraint(by=SpreadField.CLUSTER, max_groups=most),),
        replicas=replicas,
        fits=[5, 3, 3, 3, 2, 2],
        scores=[0] * 6,
        tiers=[0] * 6,
        uid="uid-1",
    )
    case.lazily_ordered()
    assert sorted(hashed) == asked
