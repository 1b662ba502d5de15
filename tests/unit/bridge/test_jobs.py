"""Jobs that run keep their shares: completions are divided once."""

from __future__ import annotations

from typing import Any

from bridge.jobs import is_running_job, keeps_shares, note_of, with_fixed_shares
from bridge.karmada import KarmadaBinding
from bridge.steps import HeldBinding
from lab.karmadas import EVERYWHERE
from tests.unit.bridge.bindings import stored

JOB = {"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "web"}
TWO = [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]


def job(**spec: Any) -> KarmadaBinding:
    return stored(resource=JOB, **{"clusters": TWO, **spec})


def test_only_a_divided_job_that_is_placed_is_fixed() -> None:
    assert is_running_job(job())
    assert not is_running_job(job(clusters=[]))
    assert not is_running_job(job(placement=EVERYWHERE))
    assert not is_running_job(stored(clusters=TWO))
    deployment = stored(clusters=TWO)
    assert with_fixed_shares(deployment, None) is deployment
    assert keeps_shares(deployment, {"m1": 4})


def test_its_shares_are_asked_for_as_they_are() -> None:
    asked = with_fixed_shares(job(replicas=9), HeldBinding(uid="u", replicas=4))
    assert asked.replicas == 4
    assert asked.placement is not None
    strategy = asked.placement["replicaScheduling"]
    assert strategy["replicaDivisionPreference"] == "Weighted"
    assert strategy["clusterLimits"] == [
        {"targetCluster": {"clusterNames": ["m1"]}, "min": 3, "max": 3},
        {"targetCluster": {"clusterNames": ["m2"]}, "min": 1, "max": 1},
    ]


def test_what_an_eviction_took_runs_elsewhere() -> None:
    tasks = [{"fromCluster": "m2", "replicas": 1}]
    one = [{"name": "m1", "replicas": 3}]
    assert with_fixed_shares(job(clusters=one), None).replicas == 3
    assert with_fixed_shares(job(clusters=one, gracefulEvictionTasks=tasks), None).replicas == 4
    assert with_fixed_shares(job(clusters=one), HeldBinding(uid="u", replicas=4)).replicas == 4


def test_another_division_is_told_from_a_share_that_moves_whole() -> None:
    for targets in ({"m1": 3, "m2": 1}, {"m1": 3, "m3": 1}, {"m3": 4}, None):
        assert keeps_shares(job(), targets)
    for targets in ({"m1": 4}, {"m1": 2, "m2": 2}):
        assert not keeps_shares(job(), targets)


def test_replicas_that_are_not_placed_are_told() -> None:
    assert note_of(job(), {"m1": 3, "m2": 1}) == ""
    assert "spec.replicas is 9 and 4 stay" in note_of(job(replicas=9), {"m1": 3, "m2": 1})
    assert note_of(stored(replicas=9, clusters=TWO), {"m1": 9}) == ""
