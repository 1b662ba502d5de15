from __future__ import annotations

import pytest

from estimator.estimation.capacity import changed_much
from federation.model.cluster import NodeSummary, ResourceSummary
from federation.model.resources import CPU, MEMORY

NODES = NodeSummary(total=10, ready=9)


def summary(*, used_cpu: int = 0, waiting_cpu: int = 0, used_memory: int = 0) -> ResourceSummary:
    return ResourceSummary(
        allocatable={CPU: 100_000, MEMORY: 1_000_000},
        allocated={CPU: used_cpu, MEMORY: used_memory},
        allocating={CPU: waiting_cpu},
    )


@pytest.mark.parametrize(
    ("before", "after", "much"),
    [
        (summary(), summary(), False),
        (summary(), summary(used_cpu=5_000), False),
        (summary(), summary(used_cpu=5_001), True),
        (summary(used_cpu=5_001), summary(), True),
        (summary(), summary(waiting_cpu=5_001), True),
        (summary(), summary(used_memory=50_001), True),
        (summary(used_cpu=90_000), summary(used_cpu=90_501), True),
        # Next to nothing is free: one small pod is not news.
        (summary(used_cpu=100_000), summary(used_cpu=100_050), False),
        (summary(used_cpu=100_000), summary(used_cpu=99_900), True),
    ],
)
def test_more_than_a_twentieth_of_what_is_free_is_much(
    before: ResourceSummary, after: ResourceSummary, *, much: bool
) -> None:
    assert changed_much((before, NODES), (after, NODES)) is much


@pytest.mark.parametrize("nodes", [NodeSummary(total=11, ready=9), NodeSummary(total=10, ready=8)])
def test_a_node_that_comes_or_goes_is_much(nodes: NodeSummary) -> None:
    assert changed_much((summary(), NODES), (summary(), nodes))
