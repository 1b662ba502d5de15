"""Claims, selectors and victims in an extender's judgement; scores as points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.balanced_allocation import BalancedAllocation
from estimator.binpack.fit_strategies.most_allocated import MostAllocated
from estimator.binpack.profile import ScoringProfile, WeightedPlugin
from estimator.binpack.strategy import ResourceWeight, Strategy
from estimator.binpack.volcano import VolcanoBinpack
from estimator.cluster.claims import Claim
from estimator.extender.verdicts import Verdicts, fits_without, points, ten_points, verdicts
from estimator.nodes import Node, Pod
from estimator.placing.incoming import IncomingPod
from estimator.placing.judgement import RULED_OUT, Judgement
from estimator.placing.place import MOST_ALLOCATED
from estimator.watched_cluster import WatchedCluster
from federation.model.workload import NodeClaim
from lab.extenders import CAPACITY, pod, two_nodes

ROWS = {"n0": 0, "n1": 1}
CPU_ALONE = (ResourceWeight(resource="cpu", weight=1),)


def incoming(request: Mapping[str, int], namespace: str = "d") -> IncomingPod:
    return IncomingPod(
        uid="p-uid",
        namespace=namespace,
        name="p",
        request=ReplicaRequest.of(request),
        node_claim=NodeClaim(),
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """A judgement on n0 and n1."""

    judgement: Judgement

    def verdicts(self, names: list[str]) -> Verdicts:
        return verdicts(self.judgement, ROWS, names)

    def points(self, names: list[str]) -> dict[str, int]:
        return points(self.judgement, ROWS, names)

    def fits_without(self, node: str, victims: list[Pod]) -> bool:
        return fits_without(self.judgement, ROWS, node, victims)


def judged(
    cluster: WatchedCluster, asking: IncomingPod, strategy: Strategy = MOST_ALLOCATED
) -> Judged:
    snapshot = cluster.cache.snapshot()
    return Judged(Judgement.of(asking, snapshot, ROWS, cluster.claimed_for(asking, 0.0), strategy))


def claim(node: str, replicas: int, cpu: int) -> Claim:
    return Claim(node=node, replicas=replicas, request={"cpu": cpu}, nonzero={"cpu": cpu})


def test_room_that_others_were_promised_is_taken() -> None:
    cluster = two_nodes()
    cluster.claims.hold("shop/web", [claim("n0", 3, 1000)], now=0.0)
    verdicts = judged(cluster, incoming({"cpu": 2000})).verdicts(["n0", "n1"])
    assert verdicts.kept == ["n1"]
    assert verdicts.failed == {"n0": "short of cpu; the rest is promised to others"}


def test_promised_room_is_open_to_whom_it_was_promised_and_comes_first() -> None:
    cluster = two_nodes(pod("busy", "n1", cpu=3000))
    cluster.claims.hold("d/web", [claim("n0", 3, 1000)], now=0.0)
    judgement = judged(cluster, incoming({"cpu": 1000}))
    assert judgement.verdicts(["n0", "n1"]).kept == ["n0", "n1"]
    assert judgement.points(["n0", "n1"]) == {"n0": 10, "n1": 5}

    elsewhere = judged(cluster, incoming({"cpu": 1000}, "another"))
    assert elsewhere.points(["n0", "n1"]) == {"n0": 5, "n1": 5}


def test_claim_does_not_keep_a_better_node_at_ten() -> None:
    cluster = two_nodes(pod("busy", "n1", cpu=3000, memory=CAPACITY["memory"]))
    assert judged(cluster, incoming({"cpu": 1000})).points(["n1"]) == {"n1": 10}
    cluster.claims.hold("d/web", [claim("n0", 1, 1000)], now=0.0)
    assert judged(cluster, incoming({"cpu": 1000})).points(["n0", "n1"]) == {"n0": 10, "n1": 9}


def test_node_that_no_leaving_pod_can_help_is_unresolvable() -> None:
    cluster = two_nodes()
    cluster.cache.put_node(Node(name="n1", labels={"disk": "ssd"}, allocatable=CAPACITY))
    asking = incoming({"cpu": 5000})
    verdicts = judged(cluster, asking).verdicts(["n0"])
    assert verdicts.unresolvable == {"n0": "short of cpu"}

    picky = IncomingPod(
        uid="p-uid",
        namespace="d",
        name="p",
        request=ReplicaRequest.of({"cpu": 1000}),
        node_claim=NodeClaim(node_selector={"disk": "ssd"}),
    )
    verdicts = judged(cluster, picky).verdicts(["n0", "n1"])
    assert verdicts.kept == ["n1"]
    assert verdicts.unresolvable == {"n0": RULED_OUT}


def test_profile_may_overlook_a_resource() -> None:
    plugin = WeightedPlugin(strategy=MostAllocated(weights=CPU_ALONE), weight=1)
    ignored = frozenset({"intel.com/foo"})
    profile = ScoringProfile(scheduler_name="s", plugins=(plugin,), ignored_resources=ignored)
    asking = incoming({"intel.com/foo": 1})
    judgement = judged(two_nodes(), asking, profile)
    assert judgement.verdicts(["n0"]).kept == ["n0"]
    assert judgement.fits_without("n0", [])


def test_victims_free_their_own_node_only() -> None:
    here, there = pod("a", "n0", cpu=3000), pod("b", "n1", cpu=3000)
    judgement = judged(two_nodes(here, there), incoming({"cpu": 2000}))
    assert judgement.fits_without("n0", [here])
    assert not judgement.fits_without("n0", [there])
    assert not judgement.fits_without("nowhere", [here])


@pytest.mark.parametrize(
    ("score", "points"), [(0, 0), (4, 0), (5, 1), (14, 1), (59, 6), (60, 6), (95, 10), (100, 10)]
)
def test_hundred_becomes_ten_by_the_nearest_point(score: int, points: int) -> None:
    strategy = MostAllocated(weights=CPU_ALONE)
    assert ten_points(strategy, ReplicaRequest.of({}), np.array([score])).tolist() == [points]


def test_points_of_other_scales() -> None:
    request = ReplicaRequest.of({"cpu": 1})
    volcano = VolcanoBinpack(weight=5, weights=CPU_ALONE)
    assert ten_points(volcano, request, np.array([0.0, 437.5, 500.0])).tolist() == [0, 9, 10]
    repelling = VolcanoBinpack(weight=-5, weights=CPU_ALONE)
    assert ten_points(repelling, request, np.array([0.0, -500.0])).tolist() == [10, 0]
    nothing = ScoringProfile(scheduler_name="s", plugins=())
    assert ten_points(nothing, request, np.array([0, 0])).tolist() == [0, 0]


@given(
    fit=st.integers(1, 100),
    balanced=st.integers(1, 100),
    scores=st.lists(st.integers(0, 100), min_size=2, max_size=20),
)
def test_points_stay_in_range_and_in_order(fit: int, balanced: int, scores: list[int]) -> None:
    plugins = (
        WeightedPlugin(strategy=MostAllocated(weights=CPU_ALONE), weight=fit),
        WeightedPlugin(strategy=BalancedAllocation(weights=CPU_ALONE), weight=balanced),
    )
    profile = ScoringProfile(scheduler_name="s", plugins=plugins)
    score_n = np.array(sorted(scores)) * (fit + balanced)
    points = ten_points(profile, ReplicaRequest.of({"cpu": 1}), score_n).tolist()
    assert points == sorted(points)
    assert min(points) >= 0
    assert max(points) <= 10
