"""The moves that even out how full clusters are of what is scarcest.

Shares leave clusters above the level for clusters below it, and lift none above it. Plain functions
of a thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray, IntArray
from federation.model.placement import BindingName
from federation.model.quantity import divide_up
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.resources import CPU
from federation.plans.bound import bound_levelling
from federation.plans.plan import Gain, PlanLimits
from federation.services.plans.lp_inputs import (
    ClusterShare,
    homes_of,
    resource_names,
    share_problem,
    shares_in,
    unit_request,
    used_and_allocatable,
)
from federation.services.plans.search import (
    DIGITS,
    OUTSIDE,
    PlannedMoves,
    Search,
    kept_moves,
    unfixed_shares,
    unmovable,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

_FULL: Final = Reason(ReasonCode.FULL_BY_PLAN)
# How often the relaxed optimum is computed anew after moves.
_MAX_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Levels:
    """How full clusters are of ``resource``, by cluster.

    ``over_c`` is how far they are above the level, and ``allowance_c`` how much they may get. Both
    are 0 for clusters that take no part.
    """

    resource: str
    used_c: FloatArray
    allocatable_c: FloatArray
    over_c: FloatArray
    allowance_c: FloatArray
    mean: float

    @classmethod
    def of(
        cls, working: WorkingCopy, names: Sequence[str], open_c: Sequence[int], tolerance: int
    ) -> _Levels | None:
        """Take the scarcest resource of the clusters at ``open_c``; None: nothing is used."""
        used_cr, allocatable_cr = used_and_allocatable(working, names)
        used_r, allocatable_r = used_cr[open_c].sum(axis=0), allocatable_cr[open_c].sum(axis=0)
        mean_r = used_r / np.maximum(allocatable_r, 1)
        if not len(open_c) or not mean_r.any():
            return None
        scarcest = int(mean_r.argmax())
        used_c, allocatable_c = used_cr[:, scarcest], allocatable_cr[:, scarcest]
        total = int(allocatable_r[scarcest]) * 100
        level = int(used_r[scarcest]) * 100 + int(allocatable_r[scarcest]) * tolerance
        # Integers, because products of bytes are too large for floats.
        level_c = np.array(
            [divide_up(int(amount) * level, total) for amount in allocatable_c], dtype=np.float64
        )
        takes_part_c = np.zeros(len(used_c), dtype=np.bool_)
        takes_part_c[open_c] = True
        return cls(
            resource=names[scarcest],
            used_c=used_c,
            allocatable_c=allocatable_c,
            over_c=np.maximum(used_c - level_c, 0) * takes_part_c,
            allowance_c=np.maximum(level_c - used_c, 0) * takes_part_c,
            mean=float(mean_r[scarcest]),
        )

    def amount(self, share: ClusterShare) -> int:
        return share.units * unit_request(share.attempt.candidate).get(self.resource, 0)

    def above_c(self, search: Search, shares: Sequence[ClusterShare]) -> FloatArray:
        """How far clusters are above the level once those of the shares that moved are gone."""
        above_c = self.over_c.copy()
        for share in shares:
            moved = search.moved.get(share.attempt.key)
            if moved and share.name in moved.why:
                above_c[share.position] -= self.amount(share)
        return np.maximum(above_c, 0)

    def reason(self, share: ClusterShare) -> str:
        full = self.used_c[share.position] * 100 / self.allocatable_c[share.position]
        return (
            f"{share.name} has {full:.0f} % of its {self.resource} in use, "
            f"all together {self.mean * 100:.0f} %"
        )


def level_clusters(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    now: float,
    limits: PlanLimits,
    scope: Collection[str],
) -> PlannedMoves:
    """Even out the clusters in ``scope`` that may get replicas now."""
    fleet = working.snapshot.fleet_at(now)
    positions = working.snapshot.positions
    open_c = [c for c in fleet.ready_c.nonzero()[0].tolist() if fleet.names[c] in scope]
    names = resource_names(attempts)
    levels = _Levels.of(working, names, open_c, limits.tolerance_percent)
    if levels is None or not levels.over_c.any():
        unit = levels.resource if levels else CPU
        return PlannedMoves(steps=(), unfixed=(), gain=Gain(wanted=0, moved=0, bound=0, unit=unit))
    over = {name for c, name in enumerate(fleet.names) if levels.over_c[c]}
    shares = [share for share in shares_in(over, attempts, positions) if levels.amount(share)]
    closed = {
        name: _FULL if name in scope else OUTSIDE
        for c, name in enumerate(fleet.names)
        if not levels.allowance_c[c]
    }
    bounds: list[float] = []

    def find(barred: Mapping[BindingName, str]) -> Search:
        fixed = unmovable(attempts, limits, barred)
        movable = [share for share in shares if share.attempt.key not in fixed]
        allowance_cr = levels.allowance_c[:, None]
        search = Search(working.closed(closed), now, limits, [levels.resource], allowance_cr)
        search, bound = _level(search, levels, movable, now)
        bounds.append(bound)
        return search

    search, barred = kept_moves(working, attempts, now, find)
    above_c = levels.above_c(search, shares)
    excess, above = int(levels.over_c.sum()), int(above_c.sum())
    reasons = search.refusals | unmovable(attempts, limits, barred)
    return PlannedMoves(
        steps=search.steps(attempts),
        unfixed=unfixed_shares(
            (
                share
                for share in shares
                if above_c[share.position] > 0 and not search.has_left(share)
            ),
            lambda share: reasons.get(share.attempt.key, "to move it would not help"),
        ),
        gain=Gain(
            wanted=excess,
            moved=excess - above,
            bound=max(excess - above, min(excess, int(max(bounds)))),
            unit=levels.resource,
        ),
    )


def _level(
    search: Search, levels: _Levels, shares: Sequence[ClusterShare], now: float
) -> tuple[Search, float]:
    """Return the best moves, and how much of the excess could leave at best.

    If shares stay above the level, the relaxed optimum says which go first, and where. That is
    done again from there as long as it helps.
    """
    plain = search.branch()
    _relieve(plain, levels, shares, {})
    excess = float(levels.over_c.sum())
    if not levels.above_c(plain, shares).any():
        return plain, excess
    bound, guide = _relaxed(search, levels, shares, now)
    best = search.branch()
    _relieve(best, levels, shares, guide)
    if levels.above_c(best, shares).sum() >= levels.above_c(plain, shares).sum():
        best = plain
    for _ in range(_MAX_ROUNDS):
        above = levels.above_c(best, shares).sum()
        if excess - above >= bound:
            break
        further = best.branch()
        _relieve(further, levels, shares, _relaxed(further, levels, shares, now)[1])
        if levels.above_c(further, shares).sum() >= above:
            break
        best = further
    return best, float(bound)


def _relieve(
    search: Search,
    levels: _Levels,
    shares: Sequence[ClusterShare],
    guide: Mapping[BindingName, IntArray],
) -> None:
    """Let shares leave clusters above the level, the fullest cluster first.

    Shares that the guide names leave first, then the largest that does not go below the level, and
    if there is none the smallest.
    """
    above_c = levels.above_c(search, shares)
    staying: defaultdict[int, list[ClusterShare]] = defaultdict(list)
    for share in shares:
        if not search.has_left(share):
            staying[share.position].append(share)
    for c in sorted(staying, key=lambda c: (-above_c[c], c)):
        ranked = sorted(staying[c], key=lambda share: (-levels.amount(share), share.attempt.key))
        for share in [share for share in ranked if share.attempt.key in guide]:
            if levels.amount(share) > above_c[c]:
                continue
            why, guide_c = {share.name: levels.reason(share)}, guide[share.attempt.key]
            if not search.move(share.attempt, why, guide_c=guide_c):
                above_c[c] -= levels.amount(share)
                ranked.remove(share)
        while above_c[c] > 0 and ranked:
            fitting = [share for share in ranked if levels.amount(share) <= above_c[c]]
            share = fitting[0] if fitting else ranked[-1]
            ranked.remove(share)
            if not search.move(share.attempt, {share.name: levels.reason(share)}):
                above_c[c] -= levels.amount(share)


def _relaxed(
    search: Search, levels: _Levels, shares: Sequence[ClusterShare], now: float
) -> tuple[int, dict[BindingName, IntArray]]:
    """Return how much of the excess could still leave, and the new clusters of shares then."""
    staying = [share for share in shares if not search.has_left(share)]
    names = resource_names(share.attempt for share in staying)
    allowance_cr = np.where(np.array(names) == levels.resource, search.allowance_cr, np.inf)
    amounts = [levels.amount(share) // max(1, share.units) for share in staying]
    bound = bound_levelling(
        share_problem(search.working, staying, now, names, allowance_cr),
        homes_of(staying),
        np.array(amounts, dtype=np.int64),
        levels.above_c(search, shares),
    )
    units: dict[BindingName, FloatArray] = {}
    for share, units_c in zip(staying, bound.units_bc, strict=True):
        if units_c.any():
            key = share.attempt.key
            units[key] = units[key] + units_c if key in units else units_c
    return bound.whole, {
        key: np.ceil(units_c.round(DIGITS)).astype(np.int64) for key, units_c in units.items()
    }
