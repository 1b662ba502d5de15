"""Whether a cluster changed so much that its next report should not wait for its time.

Pure. Must not look at anything but totals: it is asked often.
"""

from __future__ import annotations

from typing import Final

from federation.model.cluster import NodeSummary, ResourceSummary
from federation.model.resources import CPU, MEMORY

# A greater part than this of what was free came or went.
PART: Final = 0.05
# Of the allocatable.
LEAST_BASE: Final = 0.01


def changed_much(
    sent: tuple[ResourceSummary, NodeSummary], now: tuple[ResourceSummary, NodeSummary]
) -> bool:
    """A node came or went, or more than 5 % of the free cpu or memory did."""
    (summary, nodes), (summary_now, nodes_now) = sent, now
    if (nodes.total, nodes.ready) != (nodes_now.total, nodes_now.ready):
        return True
    return any(_moved(summary, summary_now, name) for name in (CPU, MEMORY))


def _moved(summary: ResourceSummary, now: ResourceSummary, name: str) -> bool:
    free = _free(summary, name)
    # Where next to nothing is free every pod would move it much.
    base = max(free, LEAST_BASE * summary.allocatable.get(name, 0))
    return abs(_free(now, name) - free) > PART * base


def _free(summary: ResourceSummary, name: str) -> int:
    used = summary.allocated.get(name, 0) + summary.allocating.get(name, 0)
    return summary.allocatable.get(name, 0) - used
