"""The taints that many tolerations cover, looked up by key, effect and value.

Pure. The cost grows with taints + tolerations, not with their product.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import inf
from typing import Final

from federation.model.cluster import Taint, TaintEffect
from federation.model.selectors import UNSCHEDULABLE
from federation.model.workload import NodeClaim, Toleration, TolerationOperator

NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect=TaintEffect.NO_SCHEDULE)
UNREACHABLE: Final = Taint(key="node.kubernetes.io/unreachable", effect=TaintEffect.NO_SCHEDULE)
# Nodes with one of these taints are no capacity, even if a pod tolerates it.
_OUT_OF_USE: Final = (UNSCHEDULABLE, NOT_READY, UNREACHABLE)


class Tolerations:
    """Tolerations by what they match; among equal matches the longest duration counts."""

    def __init__(self, tolerations: Iterable[Toleration]) -> None:
        # Any value where the operator is Exists: None. Any effect: None. Any key: "".
        self._seconds: dict[tuple[str, TaintEffect | None, str | None], float] = {}
        for toleration in tolerations:
            exists = toleration.operator is TolerationOperator.EXISTS
            matched = toleration.key, toleration.effect, None if exists else toleration.value
            limit = toleration.toleration_seconds
            seconds = inf if limit is None else max(limit, 0)
            self._seconds[matched] = max(self._seconds.get(matched, 0), seconds)

    def seconds(self, taint: Taint) -> float | None:
        """Return how long the taint is tolerated after it was added; None: not at all.

        Seconds limit NoExecute only.
        """
        matches = product((taint.key, ""), (taint.effect, None), (taint.value, None))
        durations = [self._seconds[match] for match in matches if match in self._seconds]
        if not durations:
            return None
        return max(durations) if taint.effect is TaintEffect.NO_EXECUTE else inf

    def first_untolerated(self, taints: Iterable[Taint], now: float | None = None) -> Taint | None:
        """Return the first taint that keeps a workload away; PreferNoSchedule never does.

        At ``now``, expired tolerations are ignored, and a taint without a time counts as added now.
        Without ``now`` no toleration has expired.
        """
        for taint in taints:
            if taint.effect is TaintEffect.PREFER_NO_SCHEDULE:
                continue
            seconds = self.seconds(taint)
            if seconds is None or (now is not None and _is_over(taint, seconds, now)):
                return taint
        return None


def reaches_nodes_out_of_use(claim: NodeClaim | None) -> bool:
    """Return whether a claim tolerates the taints of cordoned or unready nodes.

    Then its pods may run where no capacity is counted.
    """
    if claim is None or not claim.tolerations:
        return False
    covering = Tolerations(claim.tolerations)
    return any(covering.seconds(taint) is not None for taint in _OUT_OF_USE)


def _is_over(taint: Taint, seconds: float, now: float) -> bool:
    added = now if taint.time_added is None else taint.time_added
    return now >= added + seconds
