"""The moves of a plan whose bindings leave clusters or groups for good, and how good it is.

Plain functions of a thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray
from federation.model.errors import NotFound
from federation.model.placement import BindingName
from federation.model.workload import TargetCluster
from federation.plans.bound import most_moved
from federation.plans.plan import Gain, PlanLimits, PlanStep, Unfixed
from federation.services.plans.questions import (
    demands,
    free_of,
    question,
    replicas_to_move,
    resource_names,
    unit_replicas,
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
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

# Of more a better way is looked for once, and beyond that not at all: it would take too long.
MOST_REPAIRED: Final = 3000
MOST_GUIDED: Final = 10_000


@dataclass(slots=True, kw_only=True)
class _Way:
    """One way to move them: where those go that move, and why the others do not."""

    moved: dict[BindingName, tuple[TargetCluster, ...]] = field(default_factory=dict)
    refused: dict[BindingName, str] = field(default_factory=dict)
    replicas: int = 0


def planned(
    working: WorkingCopy, attempts: Sequence[Attempt], now: float, limits: PlanLimits
) -> PlannedMoves:
    """The moves of bindings that are to leave clusters, which ``working`` has cordoned."""
    wanted = [each for each in attempts if not isinstance(each.error, NotFound)]
    unfixed = {each.key: why for each in wanted if (why := _stays(each, limits))}
    movable = in_order(working, [each for each in wanted if each.key not in unfixed])
    way = _way(working, movable, now, {})
    bound = sum(map(replicas_to_move, movable))
    if way.refused:
        way, bound = _repaired(working, movable, now, way)
    steps, beyond = _steps(movable, way, limits.most_moves)
    unfixed |= way.refused | dict.fromkeys(beyond, BEYOND)
    by_key = {each.key: each for each in wanted}
    return PlannedMoves(
        steps=steps,
        unfixed=tuple(
            Unfixed(
                namespace=key[0],
                name=key[1],
                replicas=replicas_to_move(by_key[key]),
                reason=unfixed[key],
            )
            for key in sorted(unfixed)
        ),
        gain=Gain(
            wanted=sum(map(replicas_to_move, wanted)),
            moved=sum(replicas_to_move(by_key[step.binding]) for step in steps),
            # A way that was found shows what is possible too.
            bound=max(bound, way.replicas),
        ),
    )


def _stays(attempt: Attempt, limits: PlanLimits) -> str:
    """Why it is not asked to move, "" where it is."""
    why = attempt.planned.why if attempt.planned else {}
    return stays(attempt, limits) or too_much(attempt.candidate, why, limits)


def in_order(working: WorkingCopy, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The most urgent first, then those that ask for most: the small ones find room more easily."""
    names = resource_names(attempts)
    parts = demands(attempts, free_of(working, names), names)
    ranked = zip(attempts, parts, strict=True)
    ordered = sorted(ranked, key=lambda pair: (-pair[0].candidate.priority, -pair[1], pair[0].key))
    return [attempt for attempt, _ in ordered]


def _repaired(
    working: WorkingCopy, movable: Sequence[Attempt], now: float, way: _Way
) -> tuple[_Way, int]:
    """A better way if there is one, and how many replicas any could move: first go those that would
    move if replicas could be cut, wherever there is room; and the same way to where they would.
    """
    best = most_moved(question(working.anew(), movable, now))
    if len(movable) > MOST_GUIDED:
        return way, best.whole
    guide = {each.key: best.units_bc[b] for b, each in enumerate(movable)}
    order = sorted(movable, key=lambda each: -_part(each, guide[each.key]))
    for guided in ({}, guide) if len(movable) <= MOST_REPAIRED else (guide,):
        if way.replicas >= best.whole:
            break
        other = _way(working, order, now, guided)
        way = other if other.replicas > way.replicas else way
    return way, best.whole


def _part(attempt: Attempt, units_c: FloatArray) -> float:
    """How much of what the binding has to move would; equal parts are equal to the last digit."""
    return round(
        float(units_c.sum()) * unit_replicas(attempt.candidate) / max(1, replicas_to_move(attempt)),
        DIGITS,
    )


def _way(
    working: WorkingCopy,
    order: Sequence[Attempt],
    now: float,
    guide: Mapping[BindingName, FloatArray],
) -> _Way:
    """One after the other; where there is a guide each keeps to it if it can."""
    working, way, peers = working.anew(), _Way(), PlannedPeers()
    for attempt in order:
        move = attempt.planned
        why = ""
        if guide and move is not None:
            most_c = np.ceil(guide[attempt.key].round(DIGITS)).astype(np.int64)
            attempt.planned = replace(move, most_c=most_c)
            why = refused(working, attempt, now, peers)
            attempt.planned = move
        if why or not guide:
            why = refused(working, attempt, now, peers)
        if why:
            way.refused[attempt.key] = why
        else:
            way.moved[attempt.key] = attempt.verdict.decision.clusters
            way.replicas += replicas_to_move(attempt)
    return way


def _steps(
    movable: Iterable[Attempt], way: _Way, most_moves: int
) -> tuple[tuple[PlanStep, ...], list[BindingName]]:
    """The steps, and who would be one too many."""
    moved = [each for each in movable if each.key in way.moved]
    steps = tuple(
        PlanStep(
            number=number,
            namespace=each.key[0],
            name=each.key[1],
            before=each.candidate.clusters,
            after=way.moved[each.key],
            reason=_reason(each),
            leaves_group=each.planned.leaves_group if each.planned else "",
        )
        for number, each in enumerate(moved[:most_moves], start=1)
    )
    return steps, [each.key for each in moved[most_moves:]]


def _reason(attempt: Attempt) -> str:
    why = attempt.planned.why if attempt.planned else {}
    told = [why[each.name] for each in attempt.candidate.clusters if each.name in why]
    return "; ".join(dict.fromkeys(told))
