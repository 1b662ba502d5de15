"""The moves that even out how full clusters are of what is scarcest.

Shares leave clusters that are above the level, for clusters that are below it; nobody is above it
because of that. Plain functions of a thread of their own. Must not read or write the store.
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
from federation.plans.bound import most_levelled
from federation.plans.plan import Gain, PlanLimits, Unfixed
from federation.services.plans.questions import (
    ClusterShare,
    asked_by,
    resource_names,
    share_question,
    shares_in,
    used_and_allocatable,
)
from federation.services.plans.search import (
    MOST_ROUNDS,
    OUTSIDE,
    PlannedMoves,
    Search,
    guides,
    has_left,
    kept_moves,
    unfixed_shares,
    unmovable,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

_FULL: Final = Reason(ReasonCode.FULL_BY_PLAN)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Levels:
    """How full clusters are of ``resource``, and how far above the level; 0 for those that take no
    part. ``left_c`` is how much more they may get.
    """

    resource: str
    used_c: FloatArray
    allocatable_c: FloatArray
    over_c: FloatArray
    left_c: FloatArray
    mean: float

    @classmethod
    def of(
        cls, working: WorkingCopy, names: Sequence[str], open_c: Sequence[int], tolerance: int
    ) -> _Levels | None:
        """Of the resource that is scarcest in the clusters at ``open_c``; None: there is none."""
        used_cr, allocatable_cr = used_and_allocatable(working, names)
        used_r, allocatable_r = used_cr[open_c].sum(axis=0), allocatable_cr[open_c].sum(axis=0)
        mean_r = used_r / np.maximum(allocatable_r, 1)
        if not len(open_c) or not mean_r.any():
            return None
        scarcest = int(mean_r.argmax())
        used_c, allocatable_c = used_cr[:, scarcest], allocatable_cr[:, scarcest]
        everything = int(allocatable_r[scarcest]) * 100
        level = int(used_r[scarcest]) * 100 + int(allocatable_r[scarcest]) * tolerance
        # Of whole base units, and exact: sums of bytes are too large for floats.
        level_c = np.array(
            [divide_up(int(each) * level, everything) for each in allocatable_c], dtype=np.float64
        )
        takes_part_c = np.zeros(len(used_c), dtype=np.bool_)
        takes_part_c[open_c] = True
        return cls(
            resource=names[scarcest],
            used_c=used_c,
            allocatable_c=allocatable_c,
            over_c=np.maximum(used_c - level_c, 0) * takes_part_c,
            left_c=np.maximum(level_c - used_c, 0) * takes_part_c,
            mean=float(mean_r[scarcest]),
        )

    def amount(self, share: ClusterShare) -> int:
        return share.units * asked_by(share.attempt.candidate).get(self.resource, 0)

    def above_c(self, search: Search, shares: Sequence[ClusterShare]) -> FloatArray:
        """How far clusters are above the level once these shares of what moved are gone."""
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


def balanced(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    now: float,
    limits: PlanLimits,
    scope: Collection[str],
) -> PlannedMoves:
    """Moves among the clusters in ``scope`` that may get something now."""
    fleet = working.snapshot.fleet_at(now)
    positions = working.snapshot.positions
    open_c = [c for c in fleet.ready_c.nonzero()[0].tolist() if fleet.names[c] in scope]
    names = resource_names(attempts)
    levels = _Levels.of(working, names, open_c, limits.tolerance_percent)
    if levels is None or not levels.over_c.any():
        unit = levels.resource if levels else CPU
        return PlannedMoves(steps=(), unfixed=(), gain=Gain(wanted=0, moved=0, bound=0, unit=unit))
    every = shares_in(attempts, positions, lambda each: each.candidate.clusters)
    shares = [each for each in every if levels.over_c[each.position] and levels.amount(each)]
    closed = {
        name: _FULL if name in scope else OUTSIDE
        for c, name in enumerate(fleet.names)
        if not levels.left_c[c]
    }
    bounds: list[float] = []

    def look(barred: Mapping[BindingName, str]) -> Search:
        fixed = unmovable(attempts, limits, barred)
        movable = [each for each in shares if each.attempt.key not in fixed]
        search = Search(
            working.closed(closed), now, limits, [levels.resource], levels.left_c[:, None]
        )
        found, bound = _evened(search, levels, movable, now)
        bounds.append(bound)
        return found

    search, barred = kept_moves(working, attempts, now, look)
    fixed = unmovable(attempts, limits, barred)
    above_c = levels.above_c(search, shares)
    wanted, above = int(levels.over_c.sum()), int(above_c.sum())
    return PlannedMoves(
        steps=search.steps(attempts),
        unfixed=tuple(_unfixed(search, shares, above_c, fixed)),
        gain=Gain(
            wanted=wanted,
            moved=wanted - above,
            bound=max(wanted - above, min(wanted, int(max(bounds)))),
            unit=levels.resource,
        ),
    )


def _evened(
    search: Search, levels: _Levels, shares: Sequence[ClusterShare], now: float
) -> tuple[Search, float]:
    """The best moves that were found, and how much of what is above could leave at best.

    Where shares stay above the level the relaxed best says who goes first, and where to; so again
    from there, until that finds nothing more.
    """
    plain = search.branch()
    _relieve(plain, levels, shares, {})
    wanted = float(levels.over_c.sum())
    if not levels.above_c(plain, shares).any():
        return plain, wanted
    best, guide = _best(search, levels, shares, now)
    found = search.branch()
    _relieve(found, levels, shares, guide)
    if levels.above_c(found, shares).sum() >= levels.above_c(plain, shares).sum():
        found = plain
    for _ in range(MOST_ROUNDS):
        above = levels.above_c(found, shares).sum()
        if wanted - above >= best:
            break
        more = found.branch()
        _relieve(more, levels, shares, _best(more, levels, shares, now)[1])
        if levels.above_c(more, shares).sum() >= above:
            break
        found = more
    return found, float(best)


def _relieve(
    search: Search,
    levels: _Levels,
    shares: Sequence[ClusterShare],
    guide: Mapping[BindingName, IntArray],
) -> None:
    """Let shares leave what is above the level, the fullest first: those that a guide names, the
    largest that does not go below it, or else the smallest.
    """
    above_c = levels.above_c(search, shares)
    staying: defaultdict[int, list[ClusterShare]] = defaultdict(list)
    for share in shares:
        if not has_left(search, share):
            staying[share.position].append(share)
    for c in sorted(staying, key=lambda c: (-above_c[c], c)):
        ranked = sorted(staying[c], key=lambda each: (-levels.amount(each), each.attempt.key))
        guided = [each for each in ranked if each.attempt.key in guide]
        for share in guided:
            if levels.amount(share) <= above_c[c]:
                guide_c = guide[share.attempt.key]
                if not search.move(
                    share.attempt, {share.name: levels.reason(share)}, guide_c=guide_c
                ):
                    above_c[c] -= levels.amount(share)
                    ranked.remove(share)
        while above_c[c] > 0 and ranked:
            fitting = [each for each in ranked if levels.amount(each) <= above_c[c]]
            share = fitting[0] if fitting else ranked[-1]
            ranked.remove(share)
            if not search.move(share.attempt, {share.name: levels.reason(share)}):
                above_c[c] -= levels.amount(share)


def _best(
    search: Search, levels: _Levels, shares: Sequence[ClusterShare], now: float
) -> tuple[int, dict[BindingName, IntArray]]:
    """How much could leave what is above the level still, and what would go where then."""
    staying = [each for each in shares if not has_left(search, each)]
    names = resource_names([each.attempt for each in staying])
    most_cr = np.where(np.array(names) == levels.resource, search.left_cr, np.inf)
    question = share_question(search.working, staying, now, names, most_cr)
    best = most_levelled(
        question,
        np.array([each.position for each in staying], dtype=np.int64),
        np.array([levels.amount(each) // max(1, each.units) for each in staying], dtype=np.int64),
        levels.above_c(search, shares),
    )
    return best.whole, guides(staying, best.units_bc)


def _unfixed(
    search: Search,
    shares: Sequence[ClusterShare],
    above_c: FloatArray,
    fixed: dict[BindingName, str],
) -> list[Unfixed]:
    """What stays in clusters that are above the level still."""
    reasons = search.refusals | fixed
    stays = (each for each in shares if above_c[each.position] > 0 and not has_left(search, each))
    return unfixed_shares(
        stays, lambda each: reasons.get(each.attempt.key, "to move it would not help")
    )
