"""NodeResourcesFit and BalancedAllocation on bare totals, as kube-scheduler 1.36 scores them."""

from __future__ import annotations

from typing import Any

from estimator.binpack.node_load import NodeLoad, tabulate
from estimator.binpack.requests import replica_request
from tests.vectors.loading import for_each, read_lines
from tests.vectors.scoring import balanced, fit_strategy, pod_resources, totals

LINES = read_lines("scoring-fit-raw")


@for_each(LINES)
def test_fit_raw(line: dict[str, Any]) -> None:
    container = {"requests": line["pod_container_requests"]}
    request = replica_request(pod_resources({"containers": [container]}))
    node = NodeLoad(
        allocatable=totals(line["allocatable"]),
        requested=totals(line["requested"]),
        nonzero_requested={"cpu": line["nonzero_milli_cpu"], "memory": line["nonzero_memory"]},
    )
    nodes = tabulate([node])

    assert fit_strategy(line).score(nodes, request).tolist() == [line["expect_score"]]
    plugin = balanced(dict.fromkeys(item["name"] for item in line["resources"]))
    assert plugin.applies_to(request) is not line["expect_balanced_skip"]
    if not line["expect_balanced_skip"]:
        assert plugin.score(nodes, request).tolist() == [line["expect_balanced"]]
