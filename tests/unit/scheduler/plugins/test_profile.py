"""Profiles: which one decides a binding, and what permit plugins make of a division."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.estimate import Estimates
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.workload import TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.filters import CapacityArgs, capacity
from federation.scheduler.plugins.permits import GangArgs
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, DEFAULT_PROFILES, Permit, Profiles
from federation.scheduler.plugins.registry import IN_TREE, ExtensionPoint
from federation.scheduler.plugins.scores import SCORES
from tests.unit.scheduler.states import state_of

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)


def decided(*, fits: int, replicas: int, least_percent: int) -> Decision:
    gang = IN_TREE["Gang"].bound(GangArgs(min_available_percent=least_percent))
    profile = replace(DEFAULT_PROFILE, permits=(Permit(name="Gang", run=gang),))
    return schedule(
        Binding(
            name="train",
            replicas=replicas,
            placement=Placement(replica_scheduling=DYNAMIC, partial=True),
        ),
        Fleet.of([Cluster(name="a")]),
        Estimates(
            replicas_c=np.array([fits]),
            source_c=np.array([1], dtype=np.int8),
            bound_c=np.array([0], dtype=np.int8),
            reasons={},
        ),
        now=0.0,
        profile=profile,
    )


@pytest.mark.parametrize(
    ("fits", "least_percent", "outcome"),
    [
        (10, 100, Outcome.SCHEDULED),
        (9, 100, Outcome.UNSCHEDULABLE),
        (8, 80, Outcome.PARTIAL),
        (7, 80, Outcome.UNSCHEDULABLE),
        (1, 1, Outcome.PARTIAL),
    ],
)
def test_a_gang_runs_when_enough_of_it_does(
    fits: int, least_percent: int, outcome: Outcome
) -> None:
    decision = decided(fits=fits, replicas=10, least_percent=least_percent)
    assert decision.outcome is outcome
    if outcome is Outcome.UNSCHEDULABLE:
        assert (decision.clusters, decision.remainder) == ((), 10)
        assert decision.reason.startswith(
            f"Gang: {fits} of 10 replicas are less than {least_percent} percent"
        )


def test_a_binding_picks_its_profile_by_name() -> None:
    gpus = replace(DEFAULT_PROFILE, name="gpus")
    profiles = Profiles.of([gpus])
    assert profiles.profile_of(Binding(name="a", scheduler_name="gpus")) is gpus
    assert profiles.profile_of(Binding(name="a")) is DEFAULT_PROFILE
    assert profiles.profile_of(Binding(name="a", scheduler_name="default-scheduler")) is (
        DEFAULT_PROFILE
    )
    with pytest.raises(InvalidRequest) as caught:
        profiles.profile_of(Binding(name="a", scheduler_name="cpus"))
    (violation,) = caught.value.violations
    assert violation.field == "spec.schedulerName"
    assert violation.rule == "must be one of default-scheduler, gpus, not 'cpus'"


def test_the_default_profile_may_be_another() -> None:
    other = replace(DEFAULT_PROFILE, scores=())
    assert Profiles.of([other]).profile_of(Binding(name="a")) is other


def test_the_default_profile_ranks_by_locality_alone_and_records_the_rest() -> None:
    weights = {score.name: score.weight for score in DEFAULT_PROFILE.scores}
    assert weights == {**dict.fromkeys(SCORES, 0), "ClusterLocality": 1}
    assert DEFAULT_PROFILES.profile_of(Binding(name="a")) is DEFAULT_PROFILE


def test_every_plugin_of_the_table_has_its_point() -> None:
    points = {name: plugin.point for name, plugin in IN_TREE.items()}
    assert points["ClusterReady"] is ExtensionPoint.FILTER
    assert points["Packing"] is ExtensionPoint.SCORE
    assert points["Gang"] is ExtensionPoint.PERMIT


def test_capacity_asks_for_as_many_as_it_is_told_to_but_never_drops_what_runs() -> None:
    binding = Binding(name="web", replicas=9, clusters=(TargetCluster(name="c", replicas=1),))
    state = state_of([Cluster(name=name) for name in "abc"], binding, fits={"a": 3, "b": 2, "c": 0})
    ((refused_c, reason),) = capacity(state, CapacityArgs(min_replicas=3))
    assert (refused_c.tolist(), reason) == ([False, True, False], "has no room for 3 replicas")
