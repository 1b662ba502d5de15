"""The moves of bindings that leave clusters or groups for good: greedy ones, and better ones.

Plain functions of a thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from federation.model.arrays import FloatArray, IntArray
from federation.model.placement import BindingName
from federation.model.workload import TargetCluster
from federation.plans.bound import MoveProblem, bound_moves
from federation.plans.plan import Gain, PlanLimits, PlanStep, Unfixed
from federation.services.plans.lp_inputs import (
    free_of,
    leaving_problem,
    reasons_to_leave,
    replicas_to_move,
    request_rows,
    resource_names,
    unit_replicas,
    unit_request,
    units_to_move,
)
from federation.services.plans.search import (
    BEYOND,
    DIGITS,
    PlannedMoves,
    PlannedPeers,
    refused,
    stays,
    too_much,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

# Up to this many bindings several better move sets are looked for, beyond it one.
MAX_REPAIRED: Final = 3000
# Up to this many bindings orders other than by size are tried, too.
MAX_REORDERED: Final = 300
# Packing keeps capacity back and leaves remainders on nodes. The first try counts on this part of
# the free capacity. A later one counts on more if all that it counted on was placed, else on less
# than was used.
FIRST_PART: Final = 0.965
PART_STEP: Final = 0.003
MAX_PARTS: Final = 2
# A move set within this many percent of the bound is good enough.
NEAR_PERCENT: Final = 1.8

# Bindings in an order, and how many units each should get in each cluster, if anything says so.
_Try: TypeAlias = tuple[Sequence[Attempt], Mapping[BindingName, FloatArray]]


@dataclass(slots=True, kw_only=True)
class MoveSet:
    """Moves that fit together: the new clusters of bindings, and why others stay."""

    moved: dict[BindingName, tuple[TargetCluster, ...]] = field(default_factory=dict)
    refused: dict[BindingName, str] = field(default_factory=dict)
    replicas: int = 0


def move_out(
    working: WorkingCopy, attempts: Sequence[Attempt], now: float, limits: PlanLimits
) -> PlannedMoves:
    """Move bindings out of the clusters that they are to leave, which ``working`` has closed."""
    unfixed = {attempt.key: why for attempt in attempts if (why := _stays(attempt, limits))}
    movable = in_order(working, [attempt for attempt in attempts if attempt.key not in unfixed])
    lacks_capacity = _request_too_much(working, movable)
    moves = MoveSet() if lacks_capacity else greedy_moves(working, movable, now, {})
    bound = sum(map(replicas_to_move, movable))
    if lacks_capacity or moves.refused:
        moves, bound = improve_moves(working, movable, now, moves)
    steps, beyond = _steps(movable, moves, limits.most_moves)
    unfixed |= moves.refused | dict.fromkeys(beyond, BEYOND)
    replicas = {attempt.key: replicas_to_move(attempt) for attempt in attempts}
    return PlannedMoves(
        steps=steps,
        unfixed=tuple(Unfixed.of(key, replicas[key], unfixed[key]) for key in sorted(unfixed)),
        gain=Gain(
            wanted=sum(replicas.values()),
            moved=sum(replicas[step.binding] for step in steps),
            # The moves prove that as many are possible, too.
            bound=max(bound, moves.replicas),
        ),
    )


def _stays(attempt: Attempt, limits: PlanLimits) -> str:
    """Return why the binding may not move, "" if it may."""
    return stays(attempt, limits) or too_much(attempt.candidate, reasons_to_leave(attempt), limits)


def _steps(
    movable: Iterable[Attempt], moves: MoveSet, limit: int
) -> tuple[tuple[PlanStep, ...], list[BindingName]]:
    """Return at most ``limit`` steps, and the bindings beyond them."""
    moved = [attempt for attempt in movable if attempt.key in moves.moved]
    steps = tuple(
        PlanStep(
            number=number,
            namespace=attempt.key[0],
            name=attempt.key[1],
            before=attempt.candidate.clusters,
            after=moves.moved[attempt.key],
            reason=_reason(attempt),
            leaves_group=attempt.planned.leaves_group if attempt.planned else "",
        )
        for number, attempt in enumerate(moved[:limit], start=1)
    )
    return steps, [attempt.key for attempt in moved[limit:]]


def _reason(attempt: Attempt) -> str:
    why = reasons_to_leave(attempt)
    names = [target.name for target in attempt.candidate.clusters]
    return "; ".join(dict.fromkeys(why[name] for name in names if name in why))


def greedy_moves(
    working: WorkingCopy,
    order: Sequence[Attempt],
    now: float,
    guide: Mapping[BindingName, FloatArray],
) -> MoveSet:
    """Move one binding after the other; with a guide each keeps to it where that is possible."""
    working, moves, peers = working.fresh_copy(), MoveSet(), PlannedPeers()
    for attempt in order:
        move = attempt.planned
        why = ""
        if guide and move is not None:
            most_c = np.ceil(guide[attempt.key].round(DIGITS)).astype(np.int64)
            attempt.stated = replace(move, most_c=most_c)
            why = refused(working, attempt, now, peers)
            attempt.stated = move
        if why or not guide:
            why = refused(working, attempt, now, peers)
        if why:
            moves.refused[attempt.key] = why
        else:
            moves.moved[attempt.key] = attempt.decision.clusters
            moves.replicas += replicas_to_move(attempt)
    return moves


def _request_too_much(working: WorkingCopy, movable: Sequence[Attempt]) -> bool:
    """Whether they request more than can be counted on, so that some will be refused."""
    names = resource_names(movable)
    free_cr = free_of(working, names)[working.snapshot.fleet.ready_c]
    units_b = np.array([units_to_move(attempt) for attempt in movable], dtype=np.float64)
    requested_r = units_b @ request_rows((attempt.candidate for attempt in movable), names)
    return bool((requested_r > FIRST_PART * free_cr.sum(axis=0)).any())


def improve_moves(
    working: WorkingCopy, movable: Sequence[Attempt], now: float, moves: MoveSet
) -> tuple[MoveSet, int]:
    """Return better moves if there are any, and how many replicas could move at best."""
    improvement = _Improvement(working, movable, now, moves)
    for order, guide in improvement.tries():
        improvement.add(greedy_moves(working, order, now, guide))
        if improvement.moves.replicas >= improvement.bound.whole:
            break
    return improvement.moves, improvement.bound.whole


class _Improvement:
    """Proposes orders and guides, and learns from their results; ``moves`` are the best so far."""

    def __init__(
        self, working: WorkingCopy, movable: Sequence[Attempt], now: float, moves: MoveSet
    ) -> None:
        self.moves = moves
        self._movable = movable
        self._problem: MoveProblem = leaving_problem(working.fresh_copy(), movable, now)
        self._is_large = len(movable) > MAX_REPAIRED
        self.bound = bound_moves(self._problem, FIRST_PART if self._is_large else 1.0)
        # The bindings that the last try counted on, whether it refused one of them, and the part
        # that it used of the resource that it used most of.
        self._counted_on: set[BindingName] = set()
        self._has_refused = False
        self._used = 0.0

    def add(self, moves: MoveSet) -> None:
        """Learn from the result of the last try."""
        self._has_refused = not self._counted_on.isdisjoint(moves.refused)
        self._used = self._used_by(moves)
        is_first = not (self.moves.moved or self.moves.refused)
        if is_first or moves.replicas > self.moves.replicas:
            self.moves = moves

    def tries(self) -> Iterator[_Try]:
        """Yield orders by size, then orders by the part that moves at best.

        Orders by size are best if all bindings share the same capacity: they choose who moves so
        that all of these fit. The largest units go first, because little is kept back in clusters
        that are still empty.
        """
        if self._is_large:
            yield self._by_size(self.bound.units_bc), {}
            return
        part = FIRST_PART
        for _ in range(MAX_PARTS):
            smaller = replace(self._problem, free_cr=self._problem.free_cr * part)
            yield self._by_size(bound_moves(smaller).units_bc), {}
            if self.moves.replicas >= self.bound.whole * (1 - NEAR_PERCENT / 100):
                break
            part = min(part, self._used) - PART_STEP if self._has_refused else part + PART_STEP
        if len(self._movable) <= MAX_REORDERED:
            guide = {attempt.key: self.bound.units_bc[b] for b, attempt in enumerate(self._movable)}
            by_part = sorted(self._movable, key=lambda attempt: -_part(attempt, guide[attempt.key]))
            self._counted_on = set()
            yield by_part, {}
            yield by_part, guide

    def _used_by(self, moves: MoveSet) -> float:
        problem = self._problem
        moved_b = np.array([attempt.key in moves.moved for attempt in self._movable])
        free_r = problem.free_cr[problem.available_bc.any(axis=0)].sum(axis=0)
        used_r = (problem.units_b * moved_b) @ problem.request_br
        return float((used_r / np.maximum(free_r, 1)).max(initial=0))

    def _by_size(self, units_bc: FloatArray) -> list[Attempt]:
        """Order by descending size of a unit what ``units_bc`` moves, then the rest, ascending."""
        problem, size_b = self._problem, sizes(self._problem)
        if self._is_large:
            # Of many bindings the largest part alone is measured, and what is chosen by it.
            size_b = _parts(problem).max(axis=1)
            moves = {self._movable[b].key for b in chosen(problem, units_bc, size_b).tolist()}
        else:
            # A solver that ends at a corner moves parts of few.
            pairs = zip(self._movable, units_bc, strict=True)
            moves = {attempt.key for attempt, units_c in pairs if _part(attempt, units_c) > 1 / 2}
        size = {attempt.key: size_b[b] for b, attempt in enumerate(self._movable)}
        self._counted_on = moves
        return sorted(
            self._movable,
            key=lambda attempt: (
                attempt.key not in moves,
                -size[attempt.key] if attempt.key in moves else size[attempt.key],
            ),
        )


def sizes(problem: MoveProblem) -> FloatArray:
    """Return the size of a unit of each share: the sum of its parts of all free resources.

    The largest part alone would mix small and large units, and separate units of equal requests.
    Units of equal requests side by side have less kept back for them.
    """
    size_b: FloatArray = _parts(problem).sum(axis=1)
    return size_b


def _parts(problem: MoveProblem) -> FloatArray:
    parts_br: FloatArray = problem.request_br / np.maximum(problem.free_cr.sum(axis=0), 1)
    return parts_br


def chosen(problem: MoveProblem, units_bc: FloatArray, size_b: FloatArray) -> IntArray:
    """Choose shares that move as a whole in place of parts of many.

    Shares of which most moves come first, smaller ones before larger ones, as long as their sum
    requests no more than all the parts. A solver that ends inside of the optimal face moves the
    same part of all shares that are equally good.
    """
    moved_b = units_bc.sum(axis=1)
    part_b = (moved_b / np.maximum(problem.units_b, 1)).round(DIGITS)
    order: IntArray = np.lexsort((size_b, -part_b))
    sums_br = (problem.units_b[:, None] * problem.request_br)[order].cumsum(axis=0)
    limit_r = moved_b @ problem.request_br * (1 + 1e-6) + 1
    first: IntArray = order[(sums_br <= limit_r).all(axis=1) & (part_b[order] > 0)]
    return first


def in_order(working: WorkingCopy, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Sort by priority, then the largest parts of free capacity first: small ones fit easily."""
    names = resource_names(attempts)
    free = dict(zip(names, free_of(working, names).sum(axis=0).tolist(), strict=True))

    def place(attempt: Attempt) -> tuple[int, float, BindingName]:
        units = units_to_move(attempt)
        requests = unit_request(attempt.candidate).items()
        parts = (units * amount / max(free.get(name, 0), 1) for name, amount in requests)
        return -attempt.candidate.priority, -max(parts, default=0.0), attempt.key

    return sorted(attempts, key=place)


def _part(attempt: Attempt, units_c: FloatArray) -> float:
    """Return the part of the binding that moves, rounded so that equal parts compare equal."""
    moved = float(units_c.sum()) * unit_replicas(attempt.candidate)
    return round(moved / max(1, replicas_to_move(attempt)), DIGITS)
