"""The moves that leave as many clusters empty as can be, with headroom in those that stay.

A cluster is emptied of all bindings, or nothing of it moves. Plain functions of a thread of their
own. Must not read or write the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray
from federation.model.placement import BindingName
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.plans.bound import most_emptied
from federation.plans.plan import CLUSTERS, Gain, PlanLimits, Unfixed
from federation.services.plans.questions import (
    ClusterShare,
    resource_names,
    share_question,
    used_and_allocatable,
)
from federation.services.plans.search import (
    OUTSIDE,
    PlannedMoves,
    Search,
    kept_moves,
    shares_of,
    unfixed_shares,
    unmovable,
)
from federation.services.plans.ways import in_order
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

_EMPTY: Final = Reason(ReasonCode.EMPTY_BY_PLAN)
# Of a cluster that the relaxed best empties by so much it is tried first to empty it whole.
EMPTIED_AT_BEST: Final = 0.5


def consolidated(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    now: float,
    limits: PlanLimits,
    scope: Collection[str],
) -> PlannedMoves:
    """Moves among the clusters in ``scope``; ``attempts`` are all bindings that are there."""
    names = resource_names(attempts)
    left_cr = _headroom(working, names, limits.headroom_percent)
    search = Search(working, now, limits, names, left_cr)
    used = {each.name for each in shares_of(search, attempts, scope)}
    # What is empty stays so.
    closed = {
        name: _EMPTY if name in scope else OUTSIDE
        for name in working.snapshot.names
        if name not in used
    }
    bounds: list[int] = []

    def look(barred: Mapping[BindingName, str]) -> Search:
        fixed = unmovable(attempts, limits, barred)
        search = Search(working.closed(closed), now, limits, names, left_cr)
        emptying = _Emptying(search, attempts, fixed, scope, names)
        bounds.append(emptying.work())
        return emptying.search

    search, barred = kept_moves(working, attempts, now, look)
    staying = shares_of(search, attempts, scope)
    emptied = len(used) - len({each.name for each in staying})
    return PlannedMoves(
        steps=search.steps(attempts),
        unfixed=tuple(_unfixed(search, staying, unmovable(attempts, limits, barred))),
        gain=Gain(wanted=len(used), moved=emptied, bound=max(emptied, *bounds), unit=CLUSTERS),
    )


class _Emptying:
    """Tries one cluster after the other; ``search`` is how far that has come."""

    def __init__(
        self,
        search: Search,
        attempts: Sequence[Attempt],
        fixed: Mapping[BindingName, str],
        scope: Collection[str],
        names: Sequence[str],
    ) -> None:
        self.search = search
        self._attempts = attempts
        self._fixed = fixed
        self._scope = scope
        self._names = names
        self._emptied: set[int] = set()

    def work(self) -> int:
        """Empty what can be; how many clusters could be emptied at best.

        First those that the relaxed best empties, into the others; then any, the least used first;
        and so again from there, until nothing more can be.
        """
        bound, part_c = self._best()
        while True:
            before = len(self._emptied)
            ranked = np.argsort(-part_c, kind="stable").tolist()
            targets = [c for c in ranked if part_c[c] >= EMPTIED_AT_BEST]
            for c in tuple(targets):
                if not self._empty(c, targets):
                    # It stays, and may take what leaves the others.
                    targets.remove(c)
            for c in sorted(self._candidates(), key=lambda c: -part_c[c]):
                if len(self._emptied) < bound:
                    self._empty(c, ())
            if len(self._emptied) in (before, bound):
                return bound
            _, part_c = self._best()

    def _shares(self) -> list[ClusterShare]:
        """Where everything is by now."""
        return shares_of(self.search, self._attempts, self._scope)

    def _candidates(self) -> list[int]:
        """Clusters of which everything may move, the one with the least shares first."""
        shares = self._shares()
        counts = Counter(each.position for each in shares)
        fixed = {each.position for each in shares if each.attempt.key in self._fixed}
        return sorted(counts.keys() - fixed, key=lambda c: (counts[c], c))

    def _best(self) -> tuple[int, FloatArray]:
        """How many could be emptied at best from here, and how much of each would be."""
        candidates = self._candidates()
        worth_c = np.zeros(len(self.search.left_cr))
        worth_c[candidates] = 1.0
        shares = [each for each in self._shares() if worth_c[each.position]]
        question = share_question(
            self.search.working, shares, self.search.now, self._names, self.search.left_cr
        )
        homes = np.array([each.position for each in shares], dtype=np.int64)
        bound, part_c = most_emptied(question, homes, worth_c)
        return bound.whole, part_c

    def _empty(self, c: int, targets: Collection[int]) -> bool:
        """Whether the cluster is empty from now on; the ``targets`` get nothing of it."""
        name = self.search.working.snapshot.names[c]
        why = {name: f"{name} is to be empty"}
        closed = {c, *self._emptied, *targets}
        there = [
            each
            for each in self._attempts
            if any(
                target.name == name and target.replicas for target in self.search.clusters_of(each)
            )
        ]
        trial = self.search.branch()
        trial.take_back(there, closed=[name])
        for attempt in in_order(trial.working, there):
            if refusal := trial.move(attempt, why, closed=closed):
                self.search.refusals[attempt.key] = refusal
                return False
        self.search = trial
        self._emptied.add(c)
        return True


def _headroom(working: WorkingCopy, names: Sequence[str], percent: int) -> FloatArray:
    """How much more clusters may get, so that so many percent of them stay free."""
    used_cr, allocatable_cr = used_and_allocatable(working, names)
    return np.floor(allocatable_cr * (100 - percent) / 100) - used_cr


def _unfixed(
    search: Search, shares: Iterable[ClusterShare], fixed: dict[BindingName, str]
) -> list[Unfixed]:
    """In each cluster that stays, what keeps it from being emptied."""
    reasons = search.refusals | fixed
    return unfixed_shares(
        (each for each in shares if each.attempt.key in reasons),
        lambda each: f"{each.name} is not emptied: {reasons[each.attempt.key]}",
    )
