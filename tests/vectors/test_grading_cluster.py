"""Summaries and grade counts of whole clusters under the default model."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from federation.model.grade_counts import count_grades
from federation.model.grades import DEFAULT_MODEL
from federation.model.resources import PODS
from tests.vectors.loading import amounts, for_each, read_lines

LINES = read_lines("grading-cluster")

Amounts = dict[str, int]


def requested_by_node(line: dict[str, Any]) -> dict[str, Counter[str]]:
    """What each node's running pods ask for, their number among it; waiting pods are under ""."""
    requested: dict[str, Counter[str]] = {"": Counter()}
    for pod in line["pods"]:
        is_finished = pod["phase"] in ("Succeeded", "Failed")
        if pod["node"] and is_finished:
            continue
        total = requested.setdefault(pod["node"], Counter())
        total.update(amounts(pod["request"]))
        total[PODS] += 1
    return requested


def free_of_nodes(line: dict[str, Any], requested: dict[str, Counter[str]]) -> list[Amounts]:
    return [
        {
            name: amount - requested.get(node["name"], Counter())[name]
            for name, amount in amounts(node["allocatable"]).items()
        }
        for node in line["nodes"]
    ]


def counted(nodes: list[Amounts]) -> list[int]:
    free_rn = np.array(
        [[node.get(name, 0) for node in nodes] for name in DEFAULT_MODEL.resources], dtype=np.int64
    )
    return list(count_grades(DEFAULT_MODEL, free_rn).values())


@for_each(LINES)
def test_counts(line: dict[str, Any]) -> None:
    nodes = free_of_nodes(line, requested_by_node(line))
    full = [position for position, node in enumerate(nodes) if node[PODS] <= 0]
    if full:
        # Karmada ends its count at the first node without pod slots; ours grades all others.
        assert counted(nodes[: full[0]]) == line["counts"]
        assert sum(counted([node for node in nodes if node[PODS] > 0])) >= sum(line["counts"])
    else:
        assert counted(nodes) == line["counts"]


@for_each(LINES)
def test_summary(line: dict[str, Any]) -> None:
    requested = requested_by_node(line)
    waiting = requested.pop("")
    assert +sum(requested.values(), Counter()) == amounts(line["summary"]["allocated"])
    assert +waiting == amounts(line["summary"]["allocating"])
