"""Which moves a plan has, how good it is, and whether its steps are feasible still.

Plain functions of a thread of their own: what moves is decided and packed by the same code that
makes promises, one move after the other on a working copy. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray
from federation.model.errors import NotFound
from federation.model.placement import BindingName, groups_of, is_grouped
from federation.model.workload import TargetCluster
from federation.plans.bound import most_moved
from federation.plans.plan import DO_NOT_MOVE, Gain, PlanStep, Unfixed, is_pinned
from federation.scheduler.decision import Outcome
from federation.services.plans.questions import (
    demands,
    free_of,
    question,
    replicas_to_move,
    resource_names,
    unit_replicas,
)
from federation.services.ports import Peers
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy

# Of more the first way is taken that is found: to look for a better one would take too long.
MOST_REPAIRED: Final = 3000
# Of what the solver says; the rest is noise.
DIGITS: Final = 6
BEYOND: Final = "the plan has as many moves as it may have: make another one once it is done"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMoves:
    """The steps of a plan, what it leaves, and how good it is."""

    steps: tuple[PlanStep, ...]
    unfixed: tuple[Unfixed, ...]
    gain: Gain


@dataclass(slots=True, kw_only=True)
class _Way:
    """One way to move them: where those go that move, and why the others do not."""

    moved: dict[BindingName, tuple[TargetCluster, ...]] = field(default_factory=dict)
    refused: dict[BindingName, str] = field(default_factory=dict)
    replicas: int = 0


def planned(
    working: WorkingCopy, attempts: Sequence[Attempt], now: float, most_moves: int
) -> PlannedMoves:
    """The moves of bindings that are to leave clusters, which ``working`` has cordoned."""
    wanted = [each for each in attempts if not isinstance(each.error, NotFound)]
    unfixed = {each.key: why for each in wanted if (why := _stays(each))}
    movable = _in_order(working, [each for each in wanted if each.key not in unfixed])
    way = _way(working, movable, now, {})
    bound = sum(map(replicas_to_move, movable))
    if way.refused:
        way, bound = _repaired(working, movable, now, way)
    steps, beyond = _steps(movable, way, most_moves)
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


def infeasible(
    working: WorkingCopy, attempts: Sequence[Attempt], steps: Sequence[PlanStep], now: float
) -> tuple[PlanStep, str] | None:
    """The first step that cannot be done any more after those before it, and why; None: all can."""
    peers = _PlannedPeers()
    for attempt, step in zip(attempts, steps, strict=True):
        why = str(attempt.error) if attempt.error else _refusal(working, attempt, now, peers)
        if why:
            return step, why
    return None


def _stays(attempt: Attempt) -> str:
    """Why the binding is not asked to move, "" where it is."""
    if attempt.error is not None:
        return str(attempt.error)
    if is_pinned(attempt.candidate):
        return f"it is pinned by {DO_NOT_MOVE}"
    if attempt.known is not None and attempt.known.wait is not None:
        return "it waits for room for other replicas"
    if attempt.candidate.eviction_tasks:
        return "it is being moved already"
    return ""


def _in_order(working: WorkingCopy, attempts: Sequence[Attempt]) -> list[Attempt]:
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
    if len(movable) > MOST_REPAIRED:
        return way, best.replicas
    guide = {each.key: best.units_bc[b] for b, each in enumerate(movable)}
    order = sorted(movable, key=lambda each: -_part(each, guide[each.key]))
    for guided in ({}, guide):
        if way.replicas >= best.replicas:
            break
        other = _way(working, order, now, guided)
        way = other if other.replicas > way.replicas else way
    return way, best.replicas


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
    working, way, peers = working.anew(), _Way(), _PlannedPeers()
    for attempt in order:
        move = attempt.planned
        why = ""
        if guide and move is not None:
            most_c = np.ceil(guide[attempt.key].round(DIGITS)).astype(np.int64)
            attempt.planned = replace(move, most_c=most_c)
            why = _refusal(working, attempt, now, peers)
            attempt.planned = move
        if why or not guide:
            why = _refusal(working, attempt, now, peers)
        if why:
            way.refused[attempt.key] = why
        else:
            way.moved[attempt.key] = attempt.verdict.decision.clusters
            way.replicas += replicas_to_move(attempt)
    return way


def _refusal(working: WorkingCopy, attempt: Attempt, now: float, peers: _PlannedPeers) -> str:
    """Why it does not move, "" where its room is taken now."""
    read = attempt.peers
    attempt.peers = peers.of(attempt)
    try:
        decide_all(working, [attempt], now)
    finally:
        attempt.peers = read
    if attempt.error is not None:
        return str(attempt.error)
    decision = attempt.verdict.decision
    if decision.outcome is not Outcome.SCHEDULED:
        return decision.reason
    after = {each.name: each.replicas for each in decision.clusters}
    for target in attempt.candidate.clusters:
        # There is no graceful way to keep a part of it running.
        if after.get(target.name, target.replicas) < target.replicas:
            return f"it would stay in {target.name}, with fewer replicas"
    peers.add(attempt)
    return ""


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


class _PlannedPeers:
    """Where those of workload affinity groups go by the plan, beside where they are."""

    def __init__(self) -> None:
        self._placed: list[tuple[str, str, str, frozenset[str]]] = []

    def add(self, attempt: Attempt) -> None:
        if is_grouped(attempt.candidate):
            names = frozenset(each.name for each in attempt.verdict.decision.clusters)
            group, anti_group = groups_of(attempt.candidate)
            self._placed.append((attempt.candidate.namespace, group, anti_group, names))

    def of(self, attempt: Attempt) -> Peers:
        if not (self._placed and is_grouped(attempt.candidate)):
            return attempt.peers
        own, own_anti = groups_of(attempt.candidate)
        together, apart = [*attempt.peers.affinity], [*attempt.peers.anti_affinity]
        for namespace, group, anti_group, names in self._placed:
            if namespace == attempt.candidate.namespace:
                together += [names] if own and own == group else []
                apart += [names] if own_anti and own_anti == anti_group else []
        return Peers(affinity=tuple(together), anti_affinity=tuple(apart))
