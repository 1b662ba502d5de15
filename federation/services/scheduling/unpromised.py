"""Shares of a binding for which nothing is held any more: promised again, or left.

Plain functions of one thread. Must not promise anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from federation.model.estimate import Estimates
from federation.services.scheduling.attempt import Attempt

NOTHING_LEFT: Final[Mapping[str, str]] = MappingProxyType({})
TAKEN: Final = "what was promised there has ended, and too little room is left for it"


def beside_unpromised(
    attempt: Attempt, positions: Mapping[str, int], available: Estimates
) -> tuple[Estimates, Mapping[str, str]]:
    """Return what is available beside shares that find room again, and the clusters that have none.

    A share counts as the binding's own room where something is held for it, and nowhere else: so it
    is taken out of what is available, or left, with the reason by the name of the cluster.
    """
    shares = attempt.unpromised
    if not shares:
        return available, NOTHING_LEFT
    replicas_c, left = available.replicas_c.copy(), dict[str, str]()
    for share in shares:
        position = positions.get(share.name)
        if position is None:
            continue
        units = 1 if attempt.candidate.components else share.replicas
        if replicas_c[position] >= units:
            replicas_c[position] -= units
        else:
            left[share.name] = TAKEN
    return replace(available, replicas_c=replicas_c), left
