"""Score plugins."""

from __future__ import annotations

import pytest

from federation.model.cluster import Cluster
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.plugins.scores import SCORES
from tests.unit.scheduler.states import state_of

CLUSTERS = [Cluster(name=name) for name in "abcd"]
FITS = {"a": 0, "b": 8, "c": 20, "d": 40}


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
    assert SCORES[name](state_of(CLUSTERS, binding, fits=FITS)).tolist() == expected


@pytest.mark.parametrize("name", sorted(SCORES))
def test_scores_of_a_full_fleet_are_numbers(name: str) -> None:
    state = state_of(CLUSTERS, Binding(name="web"), fits=dict.fromkeys("abcd", 0))
    assert SCORES[name](state).tolist() == [0, 0, 0, 0]
