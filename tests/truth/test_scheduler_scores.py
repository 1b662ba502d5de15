"""The simulated kube-scheduler's scores, held to those that the real one was seen to give."""

from __future__ import annotations

from typing import Any

from estimator.binpack.requests import replica_request
from estimator.nodes import Node
from estimator.snapshot import NodeTable
from lab.truth.scheduler_scores import Loads, Profile, Strategy, balanced_n
from tests.vectors.loading import amounts, for_each, read_lines
from tests.vectors.scoring import pod_resources


@for_each(read_lines("scoring-fit-objects"))
def test_recorded_scores(line: dict[str, Any]) -> None:
    nodes = [
        Node(name=node["name"], allocatable=amounts(node["allocatable"])) for node in line["nodes"]
    ]
    loads = Loads(NodeTable.of(nodes))
    for node in line["nodes"]:
        for pod in node["pods"]:
            loads.add(replica_request(pod_resources(pod)), node["name"], +1)
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
