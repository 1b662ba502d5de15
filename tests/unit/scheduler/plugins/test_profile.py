"""Profiles: which one decides a binding, and what permit plugins make of a division."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.plugins.filters import CapacityArgs, capacity
from federation.scheduler.plugins.permits import GangArgs
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, DEFAULT_PROFILES, Permit, Profiles
from federation.scheduler.plugins.registry import IN_TREE
from tests.unit.scheduler.states import decide, state_of, web


def decided(*, fits: int, replicas: int, least_percent: int) -> Decision:
    gang = IN_TREE["Gang"].bound(GangArgs(min_available_percent=least_percent))
    profile = replace(DEFAULT_PROFILE, permits=(Permit(name="Gang", run=gang),))
    return decide(web(replicas, partial=True), {"a": fits}, profile=profile)


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
        assert str(decision.reason).startswith(
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
    other = replace(DEFAULT_PROFILE, scores=())
    assert Profiles.of([other]).profile_of(Binding(name="a")) is other


def test_the_default_profile_ranks_by_locality_alone_and_records_the_rest() -> None:
    weights = {score.name: score.weight for score in DEFAULT_PROFILE.scores}
    assert weights == {"ClusterLocality": 1, "AvailableReplicas": 0, "Packing": 0}
    assert DEFAULT_PROFILES.profile_of(Binding(name="a")) is DEFAULT_PROFILE


def test_capacity_asks_for_as_many_as_it_is_told_to_but_never_drops_what_runs() -> None:
    binding = Binding(name="web", replicas=9, clusters=(TargetCluster(name="c", replicas=1),))
    state = state_of([Cluster(name=name) for name in "abc"], binding, fits={"a": 3, "b": 2, "c": 0})
    ((refused_c, reason),) = capacity(state, CapacityArgs(min_replicas=3))
    assert refused_c.tolist() == [False, True, False]
    assert str(reason) == "has no room for 3 replicas"


SCORES = {each.name: each for each in DEFAULT_PROFILE.scores}
ABCD = [Cluster(name=name) for name in "abcd"]
FITTING = {"a": 0, "b": 8, "c": 20, "d": 40}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ClusterLocality", [100, 0, 100, 0]),
        ("AvailableReplicas", [0, 20, 50, 100]),
        ("Packing", [0, 100, 50, 25]),
    ],
)
def test_scores(name: str, expected: list[int]) -> None:
    binding = Binding(
        name="web",
        replicas=10,
        clusters=(TargetCluster(name="a", replicas=0), TargetCluster(name="c", replicas=0)),
    )
    assert SCORES[name].run(state_of(ABCD, binding, fits=FITTING)).tolist() == expected
    full = state_of(ABCD, Binding(name="web"), fits=dict.fromkeys("abcd", 0))
    assert SCORES[name].run(full).tolist() == [0, 0, 0, 0]
