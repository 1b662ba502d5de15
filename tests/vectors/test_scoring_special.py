"""Named corner cases of scoring; the worked example of Kubernetes' page is among them."""

from __future__ import annotations

from typing import Any

from estimator.binpack.arrays import insufficient
from estimator.binpack.node_scores import NodeLoad, tabulate
from estimator.binpack.requests import replica_request
from tests.vectors.loading import amounts, for_each, read_lines
from tests.vectors.scoring import balanced, fit_strategy, pod_resources

# The lines do not repeat the shapes they were recorded with.
RISING = [[0, 0], [100, 10]]
SHAPES = {"over capacity RequestedToCapacityRatio": [[0, 0], [100, 3]]}

LINES = read_lines("scoring-special")


@for_each(LINES)
def test_special(line: dict[str, Any]) -> None:
    request = replica_request(pod_resources(line["pod"]))
    pods = [replica_request(pod_resources(pod)) for pod in line["node"]["pods"] or ()]
    nodes = tabulate([NodeLoad.of_pods(amounts(line["node"]["allocatable"]), pods)])

    strategy = fit_strategy({"shape": SHAPES.get(line["name"], RISING), **line})
    assert strategy.score(nodes, request).tolist() == [line["score"]]
    plugin = balanced(("cpu", "memory"))
    assert plugin.applies_to(request) is not line["balanced_skip"]
    if line["balanced"] is not None:
        assert plugin.score(nodes, request).tolist() == [line["balanced"]]
    short = insufficient(nodes, request)
    assert [name for name, short_n in short.items() if short_n[0]] == line["insufficient"]
