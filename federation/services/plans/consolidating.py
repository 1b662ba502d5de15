"""The moves that leave as many clusters empty as can be, with headroom in those that stay.

A cluster is emptied of all bindings, or none of its bindings moves. Plain functions of a thread of
their own. Must not read or write the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray
from federation.model.placement import BindingName
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.plans.bound import bound_emptying
from federation.plans.plan import CLUSTERS, Gain, PlanLimits
from federation.services.plans.leaving import in_order
from federation.services.plans.lp_inputs import (
    homes_of,
    resource_names,
    share_problem,
    used_and_allocatable,
)
from federation.services.plans.search import (
    OUTSIDE,
    PlannedMoves,
    Search,
    kept_moves,
    unfixed_shares,
    unmovable,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

_EMPTY: Final = Reason(ReasonCode.EMPTY_BY_PLAN)
# Clusters of which the relaxed optimum empties at least this part are emptied first.
_MIN_EMPTIED_PART: Final = 0.5


def empty_clusters(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    now: float,
    limits: PlanLimits,
    scope: Collection[str],
) -> PlannedMoves:
    """Empty some clusters in ``scope`` into others; ``attempts`` are all bindings in them."""
    names = resource_names(attempts)
    used_cr, allocatable_cr = used_and_allocatable(working, names)
    # A part of each cluster stays free.
    allowance_cr = np.floor(allocatable_cr * (100 - limits.headroom_percent) / 100) - used_cr
    search = Search(working, now, limits, names, allowance_cr)
    used = {share.name for share in search.shares(attempts, scope)}
    # Empty clusters stay empty.
    closed = {
        name: _EMPTY if name in scope else OUTSIDE
        for name in working.snapshot.names
        if name not in used
    }
    bounds: list[int] = []

    def find(barred: Mapping[BindingName, str]) -> Search:
        fixed = unmovable(attempts, limits, barred)
        search = Search(working.closed(closed), now, limits, names, allowance_cr)
        emptying = _Emptying(search, attempts, fixed, scope, names)
        bounds.append(emptying.run())
        return emptying.search

    search, barred = kept_moves(working, attempts, now, find)
    staying = search.shares(attempts, scope)
    emptied = len(used) - len({share.name for share in staying})
    reasons = search.refusals | unmovable(attempts, limits, barred)
    return PlannedMoves(
        steps=search.steps(attempts),
        unfixed=unfixed_shares(
            (share for share in staying if share.attempt.key in reasons),
            lambda share: f"{share.name} is not emptied: {reasons[share.attempt.key]}",
        ),
        gain=Gain(wanted=len(used), moved=emptied, bound=max(emptied, *bounds), unit=CLUSTERS),
    )


class _Emptying:
    """Empties one cluster after the other; ``search`` holds the moves so far."""

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

    def run(self) -> int:
        """Empty as many clusters as possible, and return how many could be emptied at best.

        Clusters that the relaxed optimum empties come first and go into the others; then any, the
        least used first. That is done again until no further cluster can be emptied.
        """
        bound, part_c = self._relaxed()
        while True:
            count = len(self._emptied)
            ranked = np.argsort(-part_c, kind="stable").tolist()
            targets = [c for c in ranked if part_c[c] >= _MIN_EMPTIED_PART]
            for c in tuple(targets):
                if not self._empty(c, targets):
                    # It stays, and may take shares of the other clusters.
                    targets.remove(c)
            for c in sorted(self._candidates(), key=lambda c: -part_c[c]):
                if len(self._emptied) < bound:
                    self._empty(c, ())
            if len(self._emptied) in (count, bound):
                return bound
            _, part_c = self._relaxed()

    def _candidates(self) -> list[int]:
        """Return the clusters of which all shares may move, those with the fewest first."""
        shares = self.search.shares(self._attempts, self._scope)
        counts = Counter(share.position for share in shares)
        fixed = {share.position for share in shares if share.attempt.key in self._fixed}
        return sorted(counts.keys() - fixed, key=lambda c: (counts[c], c))

    def _relaxed(self) -> tuple[int, FloatArray]:
        """Return how many clusters could be emptied from here, and the part of each."""
        search, candidates = self.search, self._candidates()
        worth_c = np.zeros(len(search.allowance_cr))
        worth_c[candidates] = 1.0
        shares = search.shares(self._attempts, self._scope)
        shares = [share for share in shares if worth_c[share.position]]
        problem = share_problem(
            search.working, shares, search.now, self._names, search.allowance_cr
        )
        bound, part_c = bound_emptying(problem, homes_of(shares), worth_c)
        return bound.whole, part_c

    def _empty(self, c: int, targets: Collection[int]) -> bool:
        """Try to empty the cluster, into none of the ``targets``; return whether it is empty."""
        name = self.search.working.snapshot.names[c]
        why = {name: f"{name} is to be empty"}
        closed = {c, *self._emptied, *targets}
        present = [share.attempt for share in self.search.shares(self._attempts, {name})]
        trial = self.search.branch()
        trial.take_back(present, closed=[name])
        for attempt in in_order(trial.working, present):
            if refusal := trial.move(attempt, why, closed=closed):
                self.search.refusals[attempt.key] = refusal
                return False
        self.search = trial
        self._emptied.add(c)
        return True
