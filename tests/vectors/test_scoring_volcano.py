"""Volcano's binpack scores, from its own configuration file to the node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from estimator.binpack.node_load import NodeLoad, tabulate
from estimator.binpack.volcano import volcano_amounts, volcano_request
from estimator.scoring_config.volcano import read_volcano
from tests.vectors.loading import for_each, read_lines
from tests.vectors.scoring import pod_resources

LINES = read_lines("scoring-volcano")


def without_zeros(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if amount}


@for_each(LINES)
def test_volcano(line: dict[str, Any]) -> None:
    binpack = read_volcano(line["conf"]).binpack
    assert (binpack is not None) is line["expect_registered"]
    if binpack is None:
        return
    nodes = tabulate(
        [
            NodeLoad.of_pods(
                volcano_amounts(node["allocatable"]),
                [volcano_request(pod_resources(pod)) for pod in node["pods"]],
            )
            for node in line["nodes"]
        ]
    )
    request = volcano_request(pod_resources(line["pod"]))
    assert without_zeros(request.amounts) == without_zeros(line["pod_volcano_units"])
    scores = binpack.score(nodes, request)
    for row, node in enumerate(line["nodes"]):
        for resource, amount in node["used_volcano_units"].items():
            assert nodes.requested_n(resource)[row] == amount
    expected = [node["expect_score"] for node in line["nodes"]]
    assert scores.tolist() == pytest.approx(expected, rel=1e-12)
