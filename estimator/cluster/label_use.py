"""Which node labels are asked for, and how much: what the pools of a report are told apart by.

A pod event costs O(1). Belongs to the loop that owns the cache. Must not build pools.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Final

from estimator.nodes import Pod
from federation.model.workload import NodeClaim

# More keys make more pools than a report has cells for.
MAX_KEYS: Final = 16
# Requests that count as recent, each as much as a pod.
RECENT_REQUESTS: Final = 256
# A key moves up only when it is used so many times as much as the one before it. Pools that are
# told apart in another order have to be built anew.
AHEAD: Final = 2
# Choices for which a key is kept after its last use: jobs come back.
KEPT_UNUSED: Final = 30


class LabelUse:
    """Label keys named by the selectors and required affinity of pods and of recent requests."""

    def __init__(self) -> None:
        self._pods: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._recent: deque[frozenset[str]] = deque()
        self._chosen: tuple[str, ...] = ()
        self._unused: Counter[str] = Counter()

    def follow(self, former: Pod | None, current: Pod | None) -> None:
        """A pod was one thing and is another; None: not there."""
        if former is not None and former.selects_by:
            self._use(former, -1)
        if current is not None and current.selects_by:
            self._use(current, +1)

    def asked(self, claims: Iterable[NodeClaim | None]) -> None:
        """Requests with these claims came in."""
        for claim in claims:
            keys = claim.label_keys if claim is not None else frozenset()
            if not keys:
                continue
            self._recent.append(keys)
            for key in keys:
                _count(self._requests, key, +1)
            if len(self._recent) > RECENT_REQUESTS:
                for key in self._recent.popleft():
                    _count(self._requests, key, -1)

    def choose(self) -> tuple[str, ...]:
        """The keys used, about the most used first. To be asked once a report.

        The choice changes only where use did by much, so that pools stay comparable.
        """
        use = self._pods + self._requests
        keys = [key for key in self._chosen if self._is_kept(key, use)]
        new = sorted(use.keys() - set(keys), key=lambda key: (-use[key], key))
        self._chosen = _in_order([*keys, *new[:MAX_KEYS]], use)[:MAX_KEYS]
        return self._chosen

    def _use(self, pod: Pod, sign: int) -> None:
        if not pod.state.is_over:
            for key in pod.selects_by:
                _count(self._pods, key, sign)

    def _is_kept(self, key: str, use: Counter[str]) -> bool:
        if use[key]:
            self._unused.pop(key, None)
            return True
        self._unused[key] += 1
        if self._unused[key] <= KEPT_UNUSED:
            return True
        del self._unused[key]
        return False


def _in_order(keys: Iterable[str], use: Mapping[str, int]) -> tuple[str, ...]:
    """The keys, each moved ahead of those it is used much more than."""
    order: list[str] = []
    for key in keys:
        place = len(order)
        while place and use[key] >= AHEAD * max(use[order[place - 1]], 1):
            place -= 1
        order.insert(place, key)
    return tuple(order)


def _count(counter: Counter[str], key: str, sign: int) -> None:
    counter[key] += sign
    if not counter[key]:
        del counter[key]
