"""Cycles, and their states for tests of single plugins. Must not decide what a test is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from federation.model.cluster import Cluster
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    Binding,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.reasons import stored_reasons
from federation.model.workload import TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.filters import Refusals
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile
from federation.scheduler.state import NO_CONTEXT, BindingContext, CycleState

DIVIDED = SchedulingType.DIVIDED
DYNAMIC = ReplicaScheduling(type=DIVIDED, dynamic=True)
AGGREGATED = ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED)
FILL_FIRST = ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.FILL_FIRST)
ABC = tuple(Cluster(name=name, region="xyx"["abc".index(name)]) for name in "abc")


def estimates(
    replicas: Sequence[int | None], reasons: Mapping[int, str] | None = None
) -> Estimates:
    """As pools tell them; None is a cluster that nothing could estimate."""
    sources = [Source.NONE if each is None else Source.POOLS for each in replicas]
    return Estimates(
        replicas_c=np.array([each or 0 for each in replicas], dtype=np.int64),
        source_c=np.array(sources, dtype=np.int8),
        bound_c=np.full(len(replicas), Bound.LOWER, dtype=np.int8),
        reasons=stored_reasons(reasons or {}),
    )


def state_of(
    clusters: Sequence[Cluster],
    binding: Binding,
    *,
    fits: Mapping[str, int] | None = None,
    surroundings: BindingContext = NO_CONTEXT,
) -> CycleState:
    """What a first cycle shows to its filters; ``fits`` is 10 for every cluster unless given."""
    shown: list[CycleState] = []

    def look(state: CycleState) -> Refusals:
        shown.append(state)
        return ()

    fleet = Fleet.of(clusters)
    known = estimates([(fits or {}).get(name, 10) for name in fleet.names])
    profile = replace(DEFAULT_PROFILE, filters=(Filter(name="Look", run=look),))
    schedule(binding, fleet, known, now=1_000.0, profile=profile, surroundings=surroundings)
    return shown[0]


def decide(
    binding: Binding,
    available: Mapping[str, int | None],
    *,
    clusters: Sequence[Cluster] = ABC,
    fleet: Fleet | None = None,
    profile: Profile = DEFAULT_PROFILE,
    surroundings: BindingContext = NO_CONTEXT,
    reasons: Mapping[int, str] | None = None,
) -> Decision:
    fleet = fleet or Fleet.of(clusters)
    known = estimates([available.get(name) for name in fleet.names], reasons)
    return schedule(binding, fleet, known, now=5.0, profile=profile, surroundings=surroundings)


def web(replicas: int, *, prior: Mapping[str, int] | None = None, **placement: Any) -> Binding:
    return Binding(
        name="web",
        replicas=replicas,
        clusters=tuple(TargetCluster(name=name, replicas=n) for name, n in (prior or {}).items()),
        placement=Placement(**{"replica_scheduling": DYNAMIC, **placement}),
    )


def shares(decision: Decision) -> dict[str, int]:
    return {target.name: target.replicas for target in decision.clusters}
