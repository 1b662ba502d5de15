"""Clusters that can take every binding of a workload affinity group.

Pure. Must not decide where the group goes: ordinary decisions do, with a promise of room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason, Word

# Each one costs a decision for every binding of the group.
MAX_COMMON_CLUSTERS: Final = 10


def stays_reason(name: str, why: Reason) -> Reason:
    """Return why a binding stays: another one of its group, of that name, has no place."""
    return Reason.of(ReasonCode.COMPANION_STAYS, Word(name), why)


def common_clusters(rooms: Sequence[Mapping[str, int]], units: Sequence[int]) -> list[str]:
    """Return the clusters where each binding alone has capacity for all its units, at most
    MAX_COMMON_CLUSTERS: first those that leave most capacity to the binding with the least.

    ``rooms`` says by cluster how many units of each binding fit.
    """
    spare: dict[str, int] = {}
    for room, count in zip(rooms, units, strict=True):
        for name, replicas in room.items():
            spare[name] = min(spare.get(name, replicas - count), replicas - count)
    common = [
        name for name, least in spare.items() if least >= 0 and all(name in room for room in rooms)
    ]
    return sorted(common, key=lambda name: (-spare[name], name))[:MAX_COMMON_CLUSTERS]
