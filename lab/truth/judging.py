"""What a study found: promised, left pending, refused though there was room.

Must not know how it was run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from lab.truth.members import ROWS, Int64Array, Node, free_rn
from lab.truth.streams import Wanted


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

    @property
    def promised_and_refused(self) -> str:
        bindings = f"{self.bindings} bindings, {self.refused} refused, {self.fitted} that fitted"
        return f"promised {self.promised}; {bindings}"


def sum_of(founds: Sequence[Found]) -> Found:
    """Of several runs together."""
    total = founds[0]
    for found in founds[1:]:
        sums = {
            name: getattr(total, name) + getattr(found, name)
            for name in (each.name for each in fields(total))
        }
        total = replace(total, **sums)
    return total


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
            fits = sum(int(fits_n(wanted, nodes[m], free[m]).sum()) for m in nodes)
            count += fits >= wanted.replicas
        taken_r = asked_of(wanted)
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


def asked_of(wanted: Wanted) -> Int64Array:
    """What one of its pods takes, as ROWS."""
    return np.array([wanted.request.get(row, 1) for row in ROWS], dtype=np.int64)


def fits_n(wanted: Wanted, nodes: Sequence[Node], free: Int64Array) -> Int64Array:
    """How many of its pods each node takes that has so much free: ROWS x nodes."""
    asked_r = asked_of(wanted)
    takes_n = np.array([wanted.takes(node) for node in nodes])
    room_n: Int64Array = (np.maximum(free, 0) // asked_r[:, np.newaxis]).min(axis=0)
    return np.where(takes_n, room_n, 0)
