"""Ways to move bindings that leave clusters for good, one after the other; and better ones.

Plain functions of a thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from federation.model.arrays import FloatArray, IntArray
from federation.model.placement import BindingName
from federation.model.workload import TargetCluster
from federation.plans.bound import MoveQuestion, most_moved
from federation.services.plans.questions import (
    asked_by,
    demands,
    free_of,
    question,
    replicas_to_move,
    resource_names,
    unit_replicas,
)
from federation.services.plans.search import DIGITS, PlannedPeers, refused
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.working_copy import WorkingCopy

# Of more one better way is looked for, by one programme: more would take too long.
MOST_REPAIRED: Final = 3000
# Of more no other ways are tried once that many rooms were.
MOST_TRIED: Final = 300
# What is kept back, and what is left over on nodes, grows with what is there already: at first so
# much of all room is counted on, then more where all found room who were counted on, and less than
# was used where they did not.
FIRST_ROOM: Final = 0.965
ROOM_STEP: Final = 0.003
MOST_ROOMS: Final = 2
# Who is so near to the best looks no further, in percent.
NEAR: Final = 1.8


@dataclass(slots=True, kw_only=True)
class Way:
    """One way to move them: where those go that move, and why the others do not."""

    moved: dict[BindingName, tuple[TargetCluster, ...]] = field(default_factory=dict)
    refused: dict[BindingName, str] = field(default_factory=dict)
    replicas: int = 0


def found_way(
    working: WorkingCopy,
    order: Sequence[Attempt],
    now: float,
    guide: Mapping[BindingName, FloatArray],
) -> Way:
    """One after the other; where there is a guide each keeps to it if it can."""
    working, way, peers = working.anew(), Way(), PlannedPeers()
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


def is_too_much(working: WorkingCopy, movable: Sequence[Attempt]) -> bool:
    """Whether they ask for more than can be counted on, so that some will find no room."""
    names = resource_names(movable)
    free_cr = free_of(working, names)[working.snapshot.fleet.ready_c]
    asked_r = np.zeros(len(names))
    for each in movable:
        asked = asked_by(each.candidate)
        units = replicas_to_move(each) // unit_replicas(each.candidate)
        asked_r += [units * asked.get(name, 0) for name in names]
    return bool((asked_r > FIRST_ROOM * free_cr.sum(axis=0)).any())


def better_way(
    working: WorkingCopy, movable: Sequence[Attempt], now: float, way: Way
) -> tuple[Way, int]:
    """A better way if there is one, and how many replicas any could move."""
    better = _Better(working, movable, now, way)
    for order, guide in better.ways():
        better.tried(found_way(working, order, now, guide))
        if better.way.replicas >= better.best.whole:
            break
    return better.way, better.best.whole


class _Try(NamedTuple):
    order: Sequence[Attempt]
    guide: Mapping[BindingName, FloatArray]


class _Better:
    """Looks for better ways, each told what came of the one before; ``way`` is the best so far."""

    def __init__(
        self, working: WorkingCopy, movable: Sequence[Attempt], now: float, way: Way
    ) -> None:
        self.way = way
        self._movable = movable
        self._question: MoveQuestion = question(working.anew(), movable, now)
        is_many = len(movable) > MOST_REPAIRED
        self.best = most_moved(self._question, FIRST_ROOM if is_many else 1.0)
        # Those that the last way counted on, whether it left some where they are, and the part that
        # it took of the resource that it took most of.
        self._counted_on: set[BindingName] = set()
        self._has_left_out = False
        self._used = 0.0

    def tried(self, way: Way) -> None:
        self._has_left_out = not self._counted_on.isdisjoint(way.refused)
        self._used = self._used_by(way)
        is_first = not (self.way.moved or self.way.refused)
        if is_first or way.replicas > self.way.replicas:
            self.way = way

    def ways(self) -> Iterator[_Try]:
        """The first ones are best where all have the same room to share: they choose who moves so
        that there is room for all of these, and the largest replicas go first, as little is kept
        back of clusters that are empty still.
        """
        if len(self._movable) > MOST_REPAIRED:
            yield _Try(self._by_size(self.best.units_bc), {})
            return
        room = FIRST_ROOM
        for _ in range(MOST_ROOMS):
            asked = replace(self._question, free_cr=self._question.free_cr * room)
            yield _Try(self._by_size(most_moved(asked).units_bc), {})
            if self.way.replicas >= self.best.whole * (1 - NEAR / 100):
                break
            room = min(room, self._used) - ROOM_STEP if self._has_left_out else room + ROOM_STEP
        if len(self._movable) <= MOST_TRIED:
            guide = {each.key: self.best.units_bc[b] for b, each in enumerate(self._movable)}
            by_part = sorted(self._movable, key=lambda each: -_part(each, guide[each.key]))
            self._counted_on = set()
            yield _Try(by_part, {})
            yield _Try(by_part, guide)

    def _used_by(self, way: Way) -> float:
        asked = self._question
        moved_b = np.array([each.key in way.moved for each in self._movable])
        free_r = np.maximum(asked.free_cr[asked.room_bc.any(axis=0)].sum(axis=0), 1)
        return float(((asked.units_b * moved_b) @ asked.request_br / free_r).max(initial=0))

    def _by_size(self, units_bc: FloatArray) -> list[Attempt]:
        """Those first that are chosen by ``units_bc``, by descending size of a unit; of the others
        those with the smallest units.
        """
        asked = self._question
        size_b = sizes(asked)
        if len(self._movable) > MOST_REPAIRED:
            # Measured of many is the largest part alone, and what is chosen by it.
            size_b = (asked.request_br / np.maximum(asked.free_cr.sum(axis=0), 1)).max(axis=1)
        size = {each.key: size_b[b] for b, each in enumerate(self._movable)}
        if len(self._movable) > MOST_REPAIRED:
            moves = {self._movable[b].key for b in chosen(asked, units_bc, size_b).tolist()}
        else:
            # A solver that ends at a corner moves parts of few.
            pairs = zip(self._movable, units_bc, strict=True)
            moves = {each.key for each, units_c in pairs if _part(each, units_c) > 1 / 2}
        self._counted_on = moves
        return sorted(
            self._movable,
            key=lambda each: (
                each.key not in moves,
                -size[each.key] if each.key in moves else size[each.key],
            ),
        )


def sizes(asked: MoveQuestion) -> FloatArray:
    """How large a unit of each share is: the sum of the parts of all resources that it asks for.

    By the largest part alone small ones of one resource came between large ones of another, and
    those that ask for just the same came apart: of these less is kept back side by side.
    """
    size_b: FloatArray = (asked.request_br / np.maximum(asked.free_cr.sum(axis=0), 1)).sum(axis=1)
    return size_b


def chosen(asked: MoveQuestion, units_bc: FloatArray, size_b: FloatArray) -> IntArray:
    """Who moves as a whole in place of parts of many: those of which most does, the smaller ones
    first, as long as together they ask for no more than all those parts.

    A solver that ends inside of the best ones moves the same part of all that are equally good.
    """
    moved_b = units_bc.sum(axis=1)
    part_b = (moved_b / np.maximum(asked.units_b, 1)).round(DIGITS)
    order: IntArray = np.lexsort((size_b, -part_b))
    wants_br = (asked.units_b[:, None] * asked.request_br)[order].cumsum(axis=0)
    most_r = moved_b @ asked.request_br * (1 + 1e-6) + 1
    first: IntArray = order[(wants_br <= most_r).all(axis=1) & (part_b[order] > 0)]
    return first


def in_order(working: WorkingCopy, attempts: Sequence[Attempt]) -> list[Attempt]:
    """The most urgent first, then those that ask for most: the small ones find room more easily."""
    names = resource_names(attempts)
    parts = demands(attempts, free_of(working, names), names)
    ranked = zip(attempts, parts, strict=True)
    ordered = sorted(ranked, key=lambda pair: (-pair[0].candidate.priority, -pair[1], pair[0].key))
    return [attempt for attempt, _ in ordered]


def _part(attempt: Attempt, units_c: FloatArray) -> float:
    """How much of what the binding has to move would; equal parts are equal to the last digit."""
    return round(
        float(units_c.sum()) * unit_replicas(attempt.candidate) / max(1, replicas_to_move(attempt)),
        DIGITS,
    )
