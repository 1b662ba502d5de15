"""The simulated kube-scheduler: its queue, its scores, and bindings that a real one made.

Virtual time alone.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from estimator.binpack.requests import replica_request
from estimator.kube.dump import read_dump
from estimator.nodes import Node
from estimator.placement.incoming import IncomingPod
from estimator.snapshot import NodeTable
from federation.model.resources import CPU, MEMORY, PODS
from lab.kubeapi.documents import pod
from lab.truth.kube_scheduler import (
    BindRefused,
    Delays,
    ExtenderFailed,
    KubeScheduler,
    Outcome,
    Timeline,
)
from lab.truth.scheduler_scores import Loads, Profile, Strategy, balanced_n
from tests.vectors.loading import amounts, for_each, read_lines
from tests.vectors.scoring import pod_resources
from tests.vectors.test_clusters import DUMPS, SHAPES


@for_each(read_lines("scoring-fit-objects"))
def test_recorded_scores(line: dict[str, Any]) -> None:
    nodes = [
        Node(name=node["name"], allocatable=amounts(node["allocatable"])) for node in line["nodes"]
    ]
    loads = Loads(NodeTable.of(nodes))
    for node in line["nodes"]:
        for running in node["pods"]:
            loads.add(replica_request(pod_resources(running)), node["name"], +1)
    request = replica_request(pod_resources(line["pod"]))
    profile = Profile(
        strategy=Strategy(line["strategy"]),
        weights=tuple((each["name"], each["weight"]) for each in line["resources"]),
        shape=tuple((at, score) for at, score in line.get("shape") or ((0, 0), (100, 10))),
    )
    expected = line["expect"]["nodes"]
    assert profile.fit_n(loads, request).tolist() == [node["score"] for node in expected]
    assert loads.fits_n(request).tolist() == [not node["insufficient"] for node in expected]
    if line["balanced_resources"] == ["cpu", "memory"] and expected[0]["balanced"] is not None:
        assert balanced_n(loads, request).tolist() == [node["balanced"] for node in expected]


TOO_MANY = 3


@pytest.mark.parametrize(
    ("member", "shape"), SHAPES, ids=[f"{member}-{shape['id']}" for member, shape in SHAPES]
)
def test_as_many_are_bound_as_the_real_one_bound(member: str, shape: dict[str, Any]) -> None:
    content = (DUMPS / f"{member}.json").read_bytes()
    bound: dict[str, str] = {}

    def bind(pod: IncomingPod, node: str) -> None:
        bound[pod.uid] = node

    timeline = Timeline()
    scheduler = KubeScheduler(
        nodes=read_dump(content).nodes,
        timeline=timeline,
        bind=bind,
        random=np.random.default_rng(1),
    )
    for item in json.loads(content)["items"]:
        is_over = item.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if item["kind"] == "Pod" and item["spec"].get("nodeName") and not is_over:
            scheduler.put_pod(item)
    asked = shape["kube_scheduler_bound"] + TOO_MANY
    for number in range(asked):
        scheduler.put_pod(recorded_pod(number, shape))
    timeline.run(1.0 + 2 * scheduler.delays.cycle * asked)
    assert len(bound) == shape["kube_scheduler_bound"]
    assert len(scheduler.pending) == TOO_MANY
    assert Counter(bound.values()) == {node: n for node, n in shape["per_node"].items() if n}


def recorded_pod(number: int, shape: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "resources": {"requests": shape["requests"]}}],
        "nodeSelector": shape["node_selector"],
        "tolerations": shape["tolerations"],
    }
    if shape["affinity_terms"]:
        terms = [
            {
                "matchExpressions": each.get("match_expressions", []),
                "matchFields": each.get("match_fields", []),
            }
            for each in shape["affinity_terms"]
        ]
        required = {"nodeSelectorTerms": terms}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    metadata = {"name": f"p{number}", "namespace": "recorded", "uid": f"uid-p{number}"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def node(name: str, cores: int = 4) -> Node:
    return Node(name=name, allocatable={CPU: cores * 1000, MEMORY: 64 << 30, PODS: 110})


class World:
    """A scheduler whose API server binds what it is told to, except ``refused``."""

    def __init__(self, *nodes: Node, **settings: Any) -> None:
        self.timeline = Timeline()
        self.bound: dict[str, tuple[float, str]] = {}
        self.refused: set[str] = set()
        self.scheduler = KubeScheduler(
            nodes=nodes,
            timeline=self.timeline,
            bind=self.bind,
            random=np.random.default_rng(1),
            **settings,
        )

    def bind(self, pod: IncomingPod, node: str) -> None:
        if pod.name in self.refused:
            self.refused.discard(pod.name)
            raise BindRefused("not now")
        self.bound[pod.name] = self.timeline.now, node

    def outcomes(self, name: str) -> list[tuple[Outcome, float]]:
        return [
            (each.outcome, round(each.at, 1))
            for each in self.scheduler.attempts
            if each.pod == f"uid-{name}"
        ]


class Moody:
    """An extender that answers as it is told."""

    weight = 1

    def __init__(self) -> None:
        self.error = ""
        self.refuses = False
        self.points: dict[str, int] = {}

    def filter(self, pod: bytes, nodes: list[str]) -> list[str]:
        if self.error:
            raise ExtenderFailed(self.error)
        return [] if self.refuses else nodes

    def prioritize(self, pod: bytes, nodes: list[str]) -> dict[str, int]:
        return self.points


def test_a_pod_is_assumed_before_it_is_bound() -> None:
    world = World(node("a", 1), delays=Delays(bind=5.0))
    for name in ("p", "q"):
        world.scheduler.put_pod(pod(name, cpu="1"))
    world.timeline.run(1.0)
    assert (world.scheduler.node_of("uid-p"), world.bound) == ("a", {})
    assert world.scheduler.pending == ["uid-q"]
    world.timeline.run(10.0)
    assert 2.5 <= world.bound["p"][0] <= 5.1


def test_what_fits_nowhere_waits_for_room_and_then_backs_off_no_more() -> None:
    world = World(node("a", 1))
    world.scheduler.put_pod(pod("busy", on="a", cpu="1"))
    world.scheduler.put_pod(pod("p", cpu="1"))
    world.timeline.run(100.0)
    assert world.outcomes("p") == [(Outcome.UNSCHEDULABLE, 0.0)]
    world.scheduler.remove_pod("uid-busy")
    world.timeline.run(200.0)
    assert world.outcomes("p")[1:] == [(Outcome.ASSUMED, 100.0)]


def test_what_fits_nowhere_is_tried_again_after_five_minutes() -> None:
    world = World()
    world.scheduler.put_pod(pod("p"))
    world.timeline.run(301.0)
    assert world.outcomes("p") == [(Outcome.UNSCHEDULABLE, 0.0), (Outcome.UNSCHEDULABLE, 300.0)]


def test_errors_back_off_from_one_second_to_ten() -> None:
    extender = Moody()
    extender.error = "away"
    world = World(node("a"), extender=extender)
    world.scheduler.put_pod(pod("p"))
    world.timeline.run(40.0)
    times = [at for _, at in world.outcomes("p")]
    gaps = [round(after - before) for before, after in pairwise(times)]
    assert gaps[:6] == [1, 2, 4, 8, 10, 10]


def test_what_an_extender_refused_is_tried_after_any_event() -> None:
    extender = Moody()
    extender.refuses = True
    world = World(node("a"), extender=extender)
    world.scheduler.put_pod(pod("p"))
    world.timeline.run(50.0)
    assert world.outcomes("p") == [(Outcome.UNSCHEDULABLE, 0.0)]
    extender.refuses = False
    world.scheduler.put_pod(pod("other", on="a"))
    world.timeline.run(60.0)
    assert world.outcomes("p")[1:] == [(Outcome.ASSUMED, 50.0)]


def test_a_binding_that_is_refused_gives_the_room_back() -> None:
    world = World(node("a", 1))
    world.refused.add("p")
    world.scheduler.put_pod(pod("p", cpu="1"))
    world.scheduler.put_pod(pod("q", cpu="1"))
    world.timeline.run(5.0)
    assert world.bound.keys() == {"q"}
    world.scheduler.remove_pod("uid-q")
    world.timeline.run(20.0)
    assert world.bound.keys() == {"q", "p"}


def test_scores_and_the_extenders_points_choose() -> None:
    nodes = [node("a"), node("b")]
    for strategy, chosen in ((Strategy.LEAST_ALLOCATED, "b"), (Strategy.DEFAULT_STRATEGY, "a")):
        world = World(*nodes, profile=Profile(strategy=strategy, balanced_weight=0))
        world.scheduler.put_pod(pod("there", on="a", cpu="1"))
        world.scheduler.put_pod(pod("p"))
        world.timeline.run(5.0)
        assert world.bound["p"][1] == chosen
    extender = Moody()
    extender.points = {"a": 10}
    world = World(*nodes, extender=extender)
    world.scheduler.put_pod(pod("there", on="a", cpu="1"))
    world.scheduler.put_pod(pod("p"))
    world.timeline.run(5.0)
    assert world.bound["p"][1] == "a"


def test_a_node_never_gets_more_than_it_holds() -> None:
    world = World(*(node(f"n{number}", 2) for number in range(3)))
    for number in range(20):
        world.scheduler.put_pod(pod(f"p{number}"))
    world.timeline.run(30.0)
    assert len(world.bound) == 12
    assert len(world.scheduler.pending) == 8


def test_a_timeline_of_real_seconds_takes_what_others_post() -> None:
    timeline = Timeline(real=True)
    seen: list[str] = []
    timeline.after(0.01, lambda: seen.append("later"))
    timeline.post(lambda: seen.append("posted"))
    timeline.run()
    assert seen == ["posted", "later"]
    assert timeline.now >= 0.01
