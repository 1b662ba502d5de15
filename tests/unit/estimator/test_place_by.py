"""Which strategy the agent places by: the configuration's, or MostAllocated."""

from __future__ import annotations

import logging

import pytest

from estimator.app import placing_strategy
from estimator.binpack.fit_strategies.least_allocated import LeastAllocated
from estimator.binpack.strategy import ResourceWeight
from estimator.placing.place import MOST_ALLOCATED
from estimator.scoring_config.reader import ScoringConfiguration, read_scoring_configuration
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import InvalidRequest
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.workload import ReplicaRequirements
from lab.extenders import pod, two_nodes

LEAST_ALLOCATED = LeastAllocated(weights=(ResourceWeight(resource="cpu", weight=1),))


def profiles(*names: str) -> ScoringConfiguration:
    listed = "".join(f"  - schedulerName: {name}\n" for name in names)
    return read_scoring_configuration(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        f"kind: KubeSchedulerConfiguration\nprofiles:\n{listed}"
    )


def placed(cluster: WatchedCluster) -> NodePlan:
    share = ShareOrder(replicas=1, requirements=ReplicaRequirements(request={"cpu": 1000}))
    return cluster.place(PlaceOrder(binding_key="shop/web", shares=(share,)), 0.0)


def test_the_strategy_decides_from_when_it_is_set() -> None:
    cluster = two_nodes(pod("busy", "n1", cpu=2000))
    fullest = placed(cluster)
    assert ([each.node for each in fullest.nodes], fullest.strategy) == (["n1"], "MostAllocated")
    cluster.place_by(LEAST_ALLOCATED)
    emptiest = placed(cluster)
    assert ([each.node for each in emptiest.nodes], emptiest.strategy) == (["n0"], "LeastAllocated")


def test_of_several_profiles_the_agents_own_places() -> None:
    several = profiles("default-scheduler", "fedsched-binpack")
    assert placing_strategy(several, lenient=False).name == "fedsched-binpack"
    assert placing_strategy(profiles("only"), lenient=False).name == "only"


def test_profiles_of_others_are_refused_or_said_to_be_unused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    others = profiles("default-scheduler", "packing")
    with pytest.raises(InvalidRequest, match="schedulerName"):
        placing_strategy(others, lenient=False)
    with caplog.at_level(logging.WARNING):
        chosen = placing_strategy(others, lenient=True)
    assert chosen is MOST_ALLOCATED
    assert "placing by MostAllocated: " in caplog.text
