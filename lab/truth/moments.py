"""What was to be known of a member when something was decided.

Must not judge it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lab.truth.judging import Answered, asked_of, pods_of
from lab.truth.members import Int64Array, Node, free_rn
from lab.truth.streams import Wanted
from lab.truth.virtual import VirtualMember


class Moment(NamedTuple):
    """A member's nodes, what is free on each (ROWS x nodes), and the promised pods that are on no
    node yet, in the order in which they come.
    """

    nodes: Sequence[Node]
    free_rn: Int64Array
    coming: tuple[tuple[Wanted, int], ...]

    def with_more(self, wanted: Wanted, replicas: int) -> Moment:
        return self._replace(coming=(*self.coming, (wanted, replicas)))


def moment_of(member: VirtualMember, answered: Sequence[Answered]) -> Moment:
    """As its next report would show it."""
    rows = {node.name: row for row, node in enumerate(member.nodes)}
    free = free_rn(member.nodes)
    coming: list[tuple[Wanted, int]] = []
    for answer in answered:
        names = pods_of(answer).get(member.name, [])
        seen = [member.bound[name] for name in names if name in member.bound]
        for node in seen:
            free[:, rows[node]] -= asked_of(answer.wanted)
        if len(seen) < len(names):
            coming.append((answer.wanted, len(names) - len(seen)))
    return Moment(nodes=member.nodes, free_rn=free, coming=tuple(coming))
