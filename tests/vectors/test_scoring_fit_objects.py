"""NodeResourcesFit and BalancedAllocation on whole pods, as kube-scheduler 1.36 scores them."""

from __future__ import annotations

from typing import Any

from estimator.binpack.arrays import unresolvable
from estimator.binpack.node_scores import NodeLoad, tabulate
from estimator.binpack.requests import replica_request
from tests.vectors.loading import amounts, for_each, read_lines
from tests.vectors.scoring import balanced, pod_resources, totals

LINES = read_lines("scoring-fit-objects")


@for_each(LINES)
def test_fit_objects(line: dict[str, Any]) -> None:
    expect = line["expect"]
    request = replica_request(pod_resources(line["pod"]))
    assert {name: amount for name, amount in request.amounts.items() if amount} == {
        name: amount for name, amount in totals(expect["pod_requests"]).items() if amount
    } | {"pods": 1}
    assert request.nonzero_placed == {
        "cpu": expect["pod_nonzero_milli_cpu"],
        "memory": expect["pod_nonzero_memory"],
    }

    nodes = tabulate(
        [
            NodeLoad.of_pods(
                amounts(node["allocatable"]),
                [replica_request(pod_resources(pod)) for pod in node["pods"]],
            )
            for node in line["nodes"]
        ]
    )
    never = unresolvable(nodes, request)
    assert (
        balanced(line["balanced_resources"]).applies_to(request)
        is not (expect["balanced_prescore_skip"])
    )
    for row, node in enumerate(expect["nodes"]):
        for resource, amount in totals(node["requested"]).items():
            assert nodes.requested_n(resource)[row] == amount
        assert nodes.scored_n("cpu")[row] == node["nonzero_milli_cpu"]
        assert nodes.scored_n("memory")[row] == node["nonzero_memory"]
        assert [name for name, never_n in never.items() if never_n[row]] == node["unresolvable"]
