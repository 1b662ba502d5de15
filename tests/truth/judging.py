"""What a study found: promised, left pending, refused though there was room.

Must not know how it was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from federation.model.resources import PODS
from tests.truth.members import ROWS, Amounts, Int64Array, Node, free_rn
from tests.truth.streams import Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A workload and what was decided: replicas by member; none where it was refused."""

    wanted: Wanted
    shares: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Of one run: pods asked for and promised, and in words those without a node at the end.

    ``weakened`` of the promised were to be planned and are careful. ``refused`` are bindings, and
    of those ``fitted`` would have found room beside all that was promised before them.
    """

    asked: int
    promised: int
    pending: list[str]
    weakened: int
    bindings: int
    refused: int
    fitted: int
    kills: int = 0


def fitted(
    answered: Sequence[Answered],
    nodes: Mapping[str, Sequence[Node]],
    nodes_of_pods: Mapping[str, Mapping[str, str]],
) -> int:
    """How many refused ones fitted, in the order of the answers.

    Beside the pods of those promised before, each where it is in the end.
    """
    free = {member: free_rn(members) for member, members in nodes.items()}
    rows = {member: {node.name: n for n, node in enumerate(nodes[member])} for member in nodes}
    count = 0
    for answer in answered:
        wanted = answer.wanted
        if not answer.shares:
            fits = sum(int(_fits_n(wanted, nodes[m], free[m]).sum()) for m in nodes)
            count += fits >= wanted.replicas
        taken_r = np.array([_amount(wanted.request, row) for row in ROWS])
        for member, pod_names in pods_of(answer).items():
            for name in pod_names:
                node = nodes_of_pods[member].get(name, "")
                if node:
                    free[member][:, rows[member][node]] -= taken_r
    return count


def pods_of(answer: Answered) -> dict[str, list[str]]:
    """The names of the pods that a decision stands for, by member."""
    names: dict[str, list[str]] = {}
    start = 0
    for member, replicas in answer.shares.items():
        names[member] = [f"{answer.wanted.name}-{start + n}" for n in range(replicas)]
        start += replicas
    return names


def _fits_n(wanted: Wanted, nodes: Sequence[Node], free: Int64Array) -> Int64Array:
    """How many of its pods each node takes."""
    asked_r = np.array([_amount(wanted.request, row) for row in ROWS])
    takes_n = np.array([wanted.takes(node) for node in nodes])
    fits_n: Int64Array = (np.maximum(free, 0) // asked_r[:, np.newaxis]).min(axis=0)
    return np.where(takes_n, fits_n, 0)


def _amount(request: Amounts, row: str) -> int:
    return 1 if row == PODS else request[row]
