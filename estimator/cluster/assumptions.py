"""Pods that count on nodes before the API server shows them there, and how long each one counts.

An extender lets a pod on nodes, a binder gives it one. Both assumptions end alike: when the pod is
shown with a node or ended, when it is deleted, when the watch is past its version and has not shown
it, or after a time. Must not know nodes or amounts. Times are in Unix seconds and passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

# A pod without a version that no watch has shown: kube-scheduler hears of a pod at most this much
# earlier. One with a version ends at once when the watch is past it, and else as one that is shown:
# the watch is behind, however long.
UNSHOWN_SECONDS: Final = 5.0
# A pod that is shown without a node: kube-scheduler binds 50 a second, so that bursts take time.
BINDING_SECONDS: Final = 60.0
# A pod whose volumes or devices are prepared before it is bound: kube-scheduler's own limit.
PREPARING_SECONDS: Final = 600.0
# A uid takes about 150 bytes. Calls about a deleted pod are under way for seconds.
MAX_DELETED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assumption:
    """Since when a pod is assumed, for how many seconds, and the callback that stops counting."""

    began_at: float
    seconds: float
    end: Callable[[str], None]


class Assumptions:
    """Assumed pods by uid, and the uids of the newest deleted pods.

    ``is_shown`` says whether a watch has shown the pod with this uid. Versions are those of the API
    server's objects, which grow with every change of any of them; 0: not known.
    """

    def __init__(self, is_shown: Callable[[str], bool] = lambda _: True) -> None:
        self._is_shown = is_shown
        self._assumptions: dict[str, _Assumption] = {}
        self._deleted: dict[str, None] = {}
        # The versions of assumed pods that the watch has not shown, and the version it has reached.
        self._unshown: dict[str, int] = {}
        self._version = 0
        # No assumption ends by time before these.
        self._next_end = math.inf
        self._held_until = -math.inf

    def __len__(self) -> int:
        return len(self._assumptions)

    def begin(
        self,
        uid: str,
        now: float,
        end: Callable[[str], None],
        *,
        is_prepared: bool = False,
        version: int = 0,
    ) -> bool:
        """Assume a pod in place of an earlier assumption; False for a pod that was deleted.

        ``end`` is called once the assumption ends. ``is_prepared``: volumes or devices of the pod
        are prepared before it is bound. ``version`` is the pod's where it was last seen.
        """
        self.end(uid)
        if uid in self._deleted:
            return False
        if version and not self._is_shown(uid):
            if version <= self._version:
                return False
            self._unshown[uid] = version
        seconds = PREPARING_SECONDS if is_prepared else BINDING_SECONDS
        self._assumptions[uid] = _Assumption(began_at=now, seconds=seconds, end=end)
        self._next_end = min(self._next_end, now + UNSHOWN_SECONDS)
        return True

    def confirm(self, uid: str) -> None:
        """End the assumption by no time: a watch shows the pod on its node."""
        assumption = self._assumptions.get(uid)
        if assumption is not None:
            self._assumptions[uid] = replace(assumption, seconds=math.inf)

    def end(self, uid: str) -> None:
        """Assume the pod no more: it is shown with a node, has ended, or gets no node."""
        assumption = self._assumptions.pop(uid, None)
        if assumption is not None:
            self._unshown.pop(uid, None)
            assumption.end(uid)

    def shown(self, uid: str) -> None:
        """Note that a watch shows the pod: it was not deleted."""
        if self._deleted:
            self._deleted.pop(uid, None)
        if self._unshown:
            self._unshown.pop(uid, None)

    def reach(self, version: int) -> None:
        """Note that the watch has shown all there is, or was changed, up to this version.

        A pod that it would have shown by then, and has not, was deleted while nobody watched.
        """
        self._version = version
        if self._unshown:
            for uid in [uid for uid, seen in self._unshown.items() if seen <= version]:
                self.end(uid)

    def deleted(self, uid: str) -> None:
        """Note that the pod was deleted: later calls about it are late."""
        self.end(uid)
        self._deleted[uid] = None
        if len(self._deleted) > MAX_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def expire(self, now: float) -> None:
        """End the assumptions whose time is over."""
        if now < max(self._next_end, self._held_until):
            return
        ends = {uid: self._ends_at(uid) for uid in self._assumptions}
        for uid, ends_at in ends.items():
            if ends_at <= now:
                self.end(uid)
        self._next_end = min((at for at in ends.values() if at > now), default=math.inf)

    def hold(self, now: float) -> None:
        """End none by time for a while: the watches show nothing now."""
        self._held_until = now + UNSHOWN_SECONDS

    def _ends_at(self, uid: str) -> float:
        assumption = self._assumptions[uid]
        is_awaited = uid in self._unshown or self._is_shown(uid)
        seconds = assumption.seconds if is_awaited else UNSHOWN_SECONDS
        return assumption.began_at + seconds
