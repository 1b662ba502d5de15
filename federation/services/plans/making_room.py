"""The moves that find room for replicas that are pending, and make some for bindings that wait.

What lost its room in a cluster moves to another. Elsewhere a replica that leaves leaves room on its
node for those that ask for no more. Plain functions of a
thread of their own. Must not place who waits, nor read or write the store: the queue places it,
once the room is seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from federation.model.arrays import IntArray
from federation.model.errors import FederationError
from federation.model.placement import Binding, BindingName
from federation.plans.bound import WaitingQuestion, most_placed
from federation.plans.plan import Gain, PlanLimits, Unfixed
from federation.scheduler.cycle import room_for
from federation.scheduler.decide import scheduled
from federation.scheduler.decision import Outcome
from federation.services.plans.questions import (
    ClusterShare,
    asked_by,
    resource_names,
    share_question,
    unit_replicas,
)
from federation.services.plans.search import (
    ANY_AMOUNT,
    PlannedMoves,
    Search,
    has_left,
    kept_moves,
    shares_of,
    unmovable,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.drafts import draft_of
from federation.services.scheduling.seeing import surroundings_of
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy

NOT_ENOUGH: Final = "what may move would not leave enough room on nodes that it may use"
IN_GANG: Final = "it waits with its gang: nothing is moved for a part of one"


@dataclass(slots=True, kw_only=True)
class _Freed:
    """Replicas that leave a cluster, and the room of which nobody has taken yet."""

    binding: Binding
    position: int
    replicas: int


def with_room(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    waiting: Sequence[Attempt],
    now: float,
    limits: PlanLimits,
    scope: Collection[str],
) -> PlannedMoves:
    """Moves of ``attempts``, out of clusters in ``scope``: first of those that lost their room
    there, then for those that are ``waiting``, the first of them first. Who has room already needs
    no plan.
    """
    # Nobody moves into the room of those that have some.
    beside = working.anew()
    wanting = [each for each in waiting if not _places(beside, each, now)]
    alone = [each for each in wanting if each.candidate.gang is None]
    pending = _pending(working, attempts, scope)
    makers: list[_RoomMaking] = []

    def look(barred: Mapping[BindingName, str]) -> Search:
        fixed = unmovable(attempts, limits, barred)
        movable = [each for each in attempts if each.key not in fixed]
        making = _RoomMaking(beside, movable, now, limits, scope)
        making.move_pending(pending)
        for each in alone:
            making.make_for(each)
        makers.append(making)
        return making.search

    search, barred = kept_moves(working, attempts, now, look)
    helped = makers[-1].helped
    reasons = search.refusals | unmovable(attempts, limits, barred)
    replicas = {key: sum(names.values()) for key, names in pending.items()}
    replicas |= {each.key: _remainder(each) for each in wanting}
    reasons |= {each.key: IN_GANG if each.candidate.gang else NOT_ENOUGH for each in wanting}
    wanted = sum(replicas.values())
    moved = sum(replicas[key] for key in replicas.keys() & helped)
    bound = wanted
    if moved < wanted:
        bound = makers[0].bound(wanting) + sum(replicas[key] for key in pending)
    return PlannedMoves(
        steps=search.steps(attempts),
        unfixed=tuple(
            Unfixed(namespace=key[0], name=key[1], replicas=replicas[key], reason=reasons[key])
            for key in sorted(replicas.keys() - helped)
        ),
        gain=Gain(wanted=wanted, moved=moved, bound=max(moved, min(wanted, bound))),
    )


class _RoomMaking:
    """Moves for one waiting binding after the other; ``helped`` are those that get room."""

    def __init__(
        self,
        working: WorkingCopy,
        attempts: Sequence[Attempt],
        now: float,
        limits: PlanLimits,
        scope: Collection[str],
    ) -> None:
        self.helped: set[BindingName] = set()
        self._working = working
        self._attempts = attempts
        self._names = resource_names(attempts)
        self._scope = scope
        self._pending = _pending(working, attempts, scope)
        most_cr = np.full((len(working.snapshot.names), len(self._names)), ANY_AMOUNT)
        self.search = Search(working.branch(), now, limits, self._names, most_cr)
        self._freed: list[_Freed] = []

    def move_pending(self, pending: Mapping[BindingName, Mapping[str, int]]) -> None:
        """Let what lost its room leave; it is packed elsewhere, or stays."""
        for attempt in self._attempts:
            lost = pending.get(attempt.key, {})
            why = {
                name: f"{n} of its replicas lost their room in {name}" for name, n in lost.items()
            }
            if why and not self.search.move(attempt, why):
                self.helped.add(attempt.key)

    def make_for(self, attempt: Attempt) -> None:
        """In one cluster if that is enough, the one with the most room first, or in several."""
        reach_c, room_c = _reach(self.search.working, attempt, self.search.now)
        shares: dict[int, list[ClusterShare]] = {}
        for share in shares_of(self.search, self._attempts, self._scope):
            # What is pending is on no node.
            is_on_nodes = share.name not in self._pending.get(share.attempt.key, ())
            slots = _slots(share.attempt.candidate, attempt.candidate)
            if reach_c[share.position] and is_on_nodes and slots:
                shares.setdefault(share.position, []).append(share)
        homes = sorted(shares, key=lambda c: (-room_c[c], c))
        for tried in (*([c] for c in homes), homes):
            trial = [share for c in tried for share in shares[c]]
            if self._made(attempt, room_c, trial):
                self.helped.add(attempt.key)
                return

    def bound(self, waiting: Sequence[Attempt]) -> int:
        """How many replicas of these could have room at best."""
        if not waiting:
            return 0
        names = resource_names([*self._attempts, *waiting])
        start = Search(
            self._working.branch(),
            self.search.now,
            PlanLimits(),
            names,
            np.full((len(self._working.snapshot.names), len(names)), ANY_AMOUNT),
        )
        shares = shares_of(start, self._attempts, self._scope)
        question = share_question(start.working, shares, start.now, names, start.left_cr)
        reaches = [_reach(start.working, each, start.now)[0] for each in waiting]
        asked = [asked_by(each.candidate) for each in waiting]
        best = most_placed(
            question,
            np.array([each.position for each in shares], dtype=np.int64),
            WaitingQuestion(
                units_w=np.array([_units(each) for each in waiting], dtype=np.int64),
                replicas_w=np.array([unit_replicas(each.candidate) for each in waiting]),
                request_wr=np.array(
                    [[each.get(name, 0) for name in names] for each in asked], dtype=np.float64
                ),
                reach_wc=np.array(reaches, dtype=np.bool_),
            ),
        )
        return best.whole

    def _made(self, attempt: Attempt, room_c: IntArray, shares: Sequence[ClusterShare]) -> bool:
        """Whether moves of some of these shares, the largest first, make room for it; if not,
        nothing of them moves.
        """
        search, freed = self.search.branch(), [copy(each) for each in self._freed]
        # Nobody moves into the room that it counts on.
        units = np.minimum(room_c, _units(attempt))
        kept = {c: int(units[c]) for c in units.nonzero()[0].tolist()}
        search.working = search.working.beside(attempt.candidate, kept)
        left = list(shares)
        while True:
            slots_c = _slots_in(freed, attempt.candidate, len(room_c))
            taken_c = _placed(search.working, attempt, search.now, room_c, slots_c)
            if taken_c is not None:
                break
            if not left:
                return False
            share = left.pop(0)
            why = {share.name: f"{attempt.candidate.key} waits for room in {share.name}"}
            if has_left(search, share) or search.move(
                share.attempt, why, closed={each.position for each in shares}
            ):
                continue
            binding, position = share.attempt.candidate, share.position
            freed.append(_Freed(binding=binding, position=position, replicas=share.replicas))
        _take(freed, attempt.candidate, taken_c - room_c)
        self.search, self._freed = search, freed
        return True


def _pending(
    working: WorkingCopy, attempts: Sequence[Attempt], scope: Collection[str]
) -> dict[BindingName, dict[str, int]]:
    """How many replicas of bindings lost the room that clusters had promised them."""
    by_key = {each.candidate.key: each.key for each in attempts}
    found: defaultdict[BindingName, dict[str, int]] = defaultdict(dict)
    for c in working.rooms.overcommitted_c.nonzero()[0].tolist():
        room, name = working.room(c), working.snapshot.names[c]
        for each in room.overcommitted if room and name in scope else ():
            key = by_key.get(each.outstanding.binding)
            if key is not None:
                found[key][name] = found[key].get(name, 0) + each.unplaced
    return dict(found)


def _places(working: WorkingCopy, attempt: Attempt, now: float) -> bool:
    """Whether it has room as it is, which it takes."""
    trial = copy(attempt)
    decide_all(working, [trial], now)
    return trial.error is None and trial.is_placed


def _placed(
    working: WorkingCopy, attempt: Attempt, now: float, room_c: IntArray, slots_c: IntArray
) -> IntArray | None:
    """How many more units it would get in each cluster, if that much room were there; None where it
    would not be placed as a whole.
    """
    asked = attempt.candidate.certificate or attempt.profile.certificate
    available = working.availability(attempt.candidate, asked)
    available = replace(available, replicas_c=room_c + slots_c)
    fleet = working.snapshot.fleet_at(now)
    try:
        draft = draft_of(attempt, fleet, now, attempt.peers)
        decision = scheduled(fleet, draft, available, now).decision
    except FederationError:
        return None
    if decision.outcome is not Outcome.SCHEDULED:
        return None
    before = {each.name: each.replicas for each in attempt.candidate.clusters}
    units_c = np.zeros_like(room_c)
    for target in decision.clusters:
        more = max(0, target.replicas - before.get(target.name, 0))
        units_c[working.snapshot.positions[target.name]] = more // unit_replicas(attempt.candidate)
    return units_c


def _reach(working: WorkingCopy, attempt: Attempt, now: float) -> tuple[IntArray, IntArray]:
    """Which clusters let it in, and how many more units fit there."""
    asked = attempt.candidate.certificate or attempt.profile.certificate
    passes_c, room_c = room_for(
        attempt.candidate,
        working.snapshot.fleet_at(now),
        working.availability(attempt.candidate, asked),
        now=now,
        profile=attempt.profile,
        surroundings=surroundings_of(attempt, attempt.peers),
    )
    ready_c = working.snapshot.fleet_at(now).ready_c
    return (passes_c & ready_c).astype(np.int64), room_c


def _slots(leaves: Binding, waits: Binding) -> int:
    """How many of what waits fit where one replica was, whichever node that is on."""
    if leaves.components or waits.components:
        return 0
    if leaves.requirements.node_claim != waits.requirements.node_claim:
        return 0
    had = asked_by(leaves)
    return min(had.get(name, 0) // amount for name, amount in asked_by(waits).items())


def _slots_in(freed: Sequence[_Freed], waits: Binding, clusters: int) -> IntArray:
    slots_c = np.zeros(clusters, dtype=np.int64)
    for each in freed:
        slots_c[each.position] += each.replicas * _slots(each.binding, waits)
    return slots_c


def _take(freed: Sequence[_Freed], waits: Binding, units_c: IntArray) -> None:
    """Take the room of as many replicas as that needs."""
    needed_c = np.maximum(units_c, 0)
    for each in freed:
        slots = _slots(each.binding, waits)
        if slots and needed_c[each.position]:
            taken = min(each.replicas, -(-int(needed_c[each.position]) // slots))
            each.replicas -= taken
            needed_c[each.position] = max(0, needed_c[each.position] - taken * slots)


def _remainder(attempt: Attempt) -> int:
    wait = attempt.known.wait if attempt.known else None
    return wait.remainder if wait else attempt.candidate.replicas


def _units(attempt: Attempt) -> int:
    return max(1, _remainder(attempt) // unit_replicas(attempt.candidate))
