"""Plans on fleets of few nodes: whatever moves has a place at every instant, and fits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.cluster import Cluster
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.plans.bound import MoveProblem, bound_moves
from federation.plans.plan import PlanLimits, PlanStep
from federation.services.plans.leaving import move_out
from federation.services.plans.search import PlannedMoves, infeasible
from federation.services.scheduling.attempt import Attempt, AttemptCause
from federation.services.scheduling.stated_moves import PlannedMove
from federation.services.scheduling.working_copy import WorkingCopy
from lab.services import fleet_of, make_report

NAMES = ("b", "c", "d")
# No agent is silent yet.
NOW = 0.0
DIVISIONS = (
    ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True),
    ReplicaScheduling(type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED),
    ReplicaScheduling(type=SchedulingType.DIVIDED),
)


@st.composite
def bindings(draw: st.DrawFn) -> list[Binding]:
    """Each is in `a`, which is to be emptied, and may go to some of the others."""
    made = []
    for number in range(draw(st.integers(1, 6))):
        may_go = draw(st.sets(st.sampled_from(NAMES)))
        replicas = draw(st.integers(1, 4))
        made.append(
            Binding(
                namespace="n",
                name=f"w{number}",
                uid=f"uid-{number}",
                replicas=replicas,
                priority=draw(st.integers(0, 1)),
                requirements=ReplicaRequirements(request={"cpu": draw(st.integers(1, 3)) * 1000}),
                clusters=(TargetCluster(name="a", replicas=replicas),),
                placement=Placement(
                    affinity=ClusterAffinity(cluster_names=("a", *sorted(may_go))),
                    replica_scheduling=draw(st.sampled_from(DIVISIONS)),
                    partial=draw(st.booleans()),
                ),
            )
        )
    return made


def clusters_of(binding: Binding) -> tuple[str, ...]:
    """Where it may be, `a` first."""
    affinity = binding.placement.affinity
    return affinity.cluster_names if affinity else ()


def working_copy(free: Sequence[int]) -> WorkingCopy:
    """Clusters of one node each with so many free cores; `a` is full, and cordoned."""
    owner = fleet_of()
    for name, cores in zip(("a", *NAMES), (0, *free), strict=True):
        owner.put_cluster(Cluster(name=name, cordoned=name == "a"))
        owner.put_report(name, make_report(1, cpu_millis=cores * 1000), 1.0)
    return WorkingCopy(owner.snapshot)


def attempts(every: Sequence[Binding]) -> list[Attempt]:
    move = PlannedMove(why={"a": "a is to be emptied"})
    attempts = [
        Attempt(binding=binding, cause=AttemptCause.MOVED, stated=move) for binding in every
    ]
    for attempt in attempts:
        attempt.profile = replace(attempt.profile, reserves=(), post_binds=())
    return attempts


@settings(deadline=None, max_examples=60)
@given(
    every=bindings(), free=st.tuples(*[st.integers(0, 8) | st.just(80)] * 3), most=st.integers(1, 6)
)
def test_what_moves_is_whole_fits_in_any_order_and_is_no_more_than_the_bound(
    every: list[Binding], free: tuple[int, ...], most: int
) -> None:
    async def plan() -> PlannedMoves:
        return move_out(working_copy(free), attempts(every), NOW, PlanLimits(most_moves=most))

    moves = asyncio.run(plan())
    assert asyncio.run(plan()) == moves
    by_name = {each.name: each for each in every}
    used: Counter[str] = Counter()
    for step in moves.steps:
        binding = by_name[step.name]
        assert step.before == binding.clusters
        assert sum(each.replicas for each in step.after) == binding.replicas
        assert {each.name for each in step.after} <= set(clusters_of(binding)[1:])
        for target in step.after:
            used[target.name] += target.replicas * binding.requirements.request["cpu"]
    for name, cores in zip(NAMES, free, strict=True):
        assert used[name] <= cores * 1000
    gain = moves.gain
    assert gain.moved == sum(step.replicas for step in moves.steps)
    assert gain.moved <= gain.bound <= gain.wanted == sum(each.replicas for each in every)
    everything = sum(each.replicas * each.requirements.request["cpu"] for each in every)
    if most >= len(every) and all(cores * 1000 >= everything for cores in free):
        assert gain.moved == sum(each.replicas for each in every if len(clusters_of(each)) > 1)
    stays = {each.name: each for each in moves.unfixed}
    assert stays.keys() | {step.name for step in moves.steps} == by_name.keys()
    for name, each in stays.items():
        assert each.reason
        assert each.replicas == by_name[name].replicas
    # Feasible in any order: none hangs on room that another leaves.
    for steps in (moves.steps, moves.steps[::-1]):

        async def check(steps: Sequence[PlanStep] = steps) -> object:
            asked = attempts([by_name[step.name] for step in steps])
            for attempt, step in zip(asked, steps, strict=True):
                move = attempt.stated = PlannedMove(
                    why={"a": step.reason}, before=step.before, after=step.after
                )
                attempt.candidate = move.candidate(attempt.binding)
            return infeasible(working_copy(free), asked, steps, NOW)

        assert asyncio.run(check()) is None


@settings(deadline=None, max_examples=60)
@given(
    asks=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=4),
    free=st.integers(0, 9),
)
def test_the_bound_is_what_cutting_replicas_would_allow(
    asks: list[tuple[int, int]], free: int
) -> None:
    found = bound_moves(
        MoveProblem(
            units_b=np.array([units for units, _ in asks]),
            replicas_b=np.ones(len(asks), dtype=np.int64),
            needless_b=np.zeros(len(asks), dtype=np.bool_),
            request_br=np.array([[size] for _, size in asks], dtype=np.float64),
            available_bc=np.array([[free // size] for _, size in asks]),
            free_cr=np.array([[free]], dtype=np.float64),
        )
    )
    # In one cluster the smallest ones go first.
    left, best = Fraction(free), Fraction(0)
    for units, size in sorted(asks, key=lambda each: each[1]):
        cut = min(Fraction(min(units, free // size)), left / size)
        left, best = left - cut * size, best + cut
    assert found.whole == int(best)
