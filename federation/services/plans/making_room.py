"""The moves that find room for replicas that are pending, and make some for bindings that wait.

Replicas that lost their room in a cluster move to another. A replica that leaves frees room on its
node for replicas that request no more. Plain functions of a thread of their own. Must not place
waiting bindings, which the queue does, nor read or write the store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, IntArray
from federation.model.errors import FederationError
from federation.model.placement import Binding, BindingName
from federation.plans.bound import WaitingProblem, bound_placing
from federation.plans.plan import Gain, PlanLimits, Unfixed
from federation.scheduler.decide import scheduled
from federation.scheduler.decision import Outcome
from federation.services.plans.lp_inputs import (
    ClusterShare,
    eligible_and_available,
    homes_of,
    request_rows,
    resource_names,
    share_problem,
    shares_in,
    unit_replicas,
    unit_request,
)
from federation.services.plans.search import (
    ANY_AMOUNT,
    PlannedMoves,
    Search,
    kept_moves,
    unmovable,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.read import draft_of
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy

NOT_ENOUGH: Final = "what may move would not leave enough room on nodes that it may use"
IN_GANG: Final = "it waits with its gang: nothing is moved for a part of one"


@dataclass(slots=True, kw_only=True)
class _Freed:
    """Replicas that leave a cluster, whose room is not yet counted on by a waiting binding."""

    binding: Binding
    position: int
    replicas: int


def make_room(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    waiting: Sequence[Attempt],
    now: float,
    limits: PlanLimits,
    scope: Collection[str],
) -> PlannedMoves:
    """Move ``attempts`` out of clusters in ``scope``, to make room.

    Replicas that lost their room move first. Then moves make room for the ``waiting`` bindings in
    their order; those that fit already need no plan.
    """
    # What fits already takes its room, so that nothing moves into it.
    base = working.fresh_copy()
    unplaced = [attempt for attempt in waiting if not _places(base, attempt, now)]
    pending = _pending(working, attempts, scope)
    makers: list[_RoomMaking] = []

    def find(barred: Mapping[BindingName, str]) -> Search:
        fixed = unmovable(attempts, limits, barred)
        movable = [attempt for attempt in attempts if attempt.key not in fixed]
        making = _RoomMaking(base, movable, pending, now, limits, scope)
        making.move_pending()
        for attempt in unplaced:
            if attempt.candidate.gang is None:
                making.make_for(attempt)
        makers.append(making)
        return making.search

    search, barred = kept_moves(working, attempts, now, find)
    helped = makers[-1].helped
    reasons = search.refusals | unmovable(attempts, limits, barred)
    reasons |= {
        attempt.key: IN_GANG if attempt.candidate.gang else NOT_ENOUGH for attempt in unplaced
    }
    replicas = {key: sum(names.values()) for key, names in pending.items()}
    replicas |= {attempt.key: _remainder(attempt) for attempt in unplaced}
    total = sum(replicas.values())
    moved = sum(replicas[key] for key in replicas.keys() & helped)
    bound = total
    if moved < total:
        bound = makers[0].bound(unplaced) + sum(replicas[key] for key in pending)
    return PlannedMoves(
        steps=search.steps(attempts),
        unfixed=tuple(
            Unfixed.of(key, replicas[key], reasons[key]) for key in sorted(replicas.keys() - helped)
        ),
        gain=Gain(wanted=total, moved=moved, bound=max(moved, min(total, bound))),
    )


class _RoomMaking:
    """Moves for one binding after the other; ``helped`` are the bindings that get room."""

    def __init__(
        self,
        working: WorkingCopy,
        attempts: Sequence[Attempt],
        pending: Mapping[BindingName, Mapping[str, int]],
        now: float,
        limits: PlanLimits,
        scope: Collection[str],
    ) -> None:
        self.helped: set[BindingName] = set()
        self._working = working
        self._attempts = attempts
        self._pending = pending
        self._scope = scope
        names = resource_names(attempts)
        allowance_cr = np.full((len(working.snapshot.names), len(names)), ANY_AMOUNT)
        self.search = Search(working.branch(), now, limits, names, allowance_cr)
        self._freed: list[_Freed] = []

    def move_pending(self) -> None:
        """Let replicas that lost their room move to other clusters, or stay."""
        for attempt in self._attempts:
            lost = self._pending.get(attempt.key, {})
            why = {
                name: f"{n} of its replicas lost their room in {name}" for name, n in lost.items()
            }
            if why and not self.search.move(attempt, why):
                self.helped.add(attempt.key)

    def make_for(self, attempt: Attempt) -> None:
        """Make room in one cluster, those with much room first, or else in several."""
        eligible_c, available_c = _eligible_and_available(self.search, attempt)
        shares: dict[int, list[ClusterShare]] = {}
        for share in self.search.shares(self._attempts, self._scope):
            # Pending replicas are on no node.
            is_on_nodes = share.name not in self._pending.get(share.attempt.key, ())
            slots = _slots(share.attempt.candidate, attempt.candidate)
            if eligible_c[share.position] and is_on_nodes and slots:
                shares.setdefault(share.position, []).append(share)
        homes = sorted(shares, key=lambda c: (-available_c[c], c))
        for clusters in (*([c] for c in homes), homes):
            leaving = [share for c in clusters for share in shares[c]]
            if self._make(attempt, available_c, leaving):
                self.helped.add(attempt.key)
                return

    def bound(self, waiting: Sequence[Attempt]) -> int:
        """Bound how many replicas of these could have room."""
        if not waiting:
            return 0
        working, bindings = self._working.branch(), [attempt.candidate for attempt in waiting]
        names = resource_names([*self._attempts, *waiting])
        shares = shares_in(self._scope, self._attempts, working.snapshot.positions)
        start = Search(
            working,
            self.search.now,
            PlanLimits(),
            names,
            np.full((len(working.snapshot.names), len(names)), ANY_AMOUNT),
        )
        eligible_wc = [_eligible_and_available(start, attempt)[0] for attempt in waiting]
        bound = bound_placing(
            share_problem(working, shares, start.now, names, start.allowance_cr),
            homes_of(shares),
            WaitingProblem(
                units_w=np.array([_units(attempt) for attempt in waiting], dtype=np.int64),
                replicas_w=np.array([unit_replicas(binding) for binding in bindings]),
                request_wr=request_rows(bindings, names),
                eligible_wc=np.array(eligible_wc, dtype=np.bool_),
            ),
        )
        return bound.whole

    def _make(self, attempt: Attempt, available_c: IntArray, shares: list[ClusterShare]) -> bool:
        """Move some of these shares, the largest first, if that makes room for the binding."""
        search, freed = self.search.branch(), [copy(replicas) for replicas in self._freed]
        # Nothing moves into the room that the binding counts on.
        units_c = np.minimum(available_c, _units(attempt))
        reserved = {c: int(units_c[c]) for c in units_c.nonzero()[0].tolist()}
        search.working = search.working.with_waiting(attempt.candidate, reserved)
        closed, candidates = {share.position for share in shares}, iter(shares)
        while True:
            slots_c = _slots_in(freed, attempt.candidate, len(available_c))
            taken_c = _placed(search, attempt, available_c, slots_c)
            if taken_c is not None:
                break
            share = next(candidates, None)
            if share is None:
                return False
            why = {share.name: f"{attempt.candidate.key} waits for room in {share.name}"}
            if search.has_left(share) or search.move(share.attempt, why, closed=closed):
                continue
            binding, position = share.attempt.candidate, share.position
            freed.append(_Freed(binding=binding, position=position, replicas=share.replicas))
        _take(freed, attempt.candidate, taken_c - available_c)
        self.search, self._freed = search, freed
        return True


def _pending(
    working: WorkingCopy, attempts: Sequence[Attempt], scope: Collection[str]
) -> dict[BindingName, dict[str, int]]:
    """Count by cluster the replicas of bindings that lost the room promised to them."""
    by_key = {attempt.candidate.key: attempt.key for attempt in attempts}
    pending: defaultdict[BindingName, dict[str, int]] = defaultdict(dict)
    for c in working.rooms.overcommitted_c.nonzero()[0].tolist():
        room, name = working.room(c), working.snapshot.names[c]
        for shortfall in room.overcommitted if room and name in scope else ():
            key = by_key.get(shortfall.outstanding.binding)
            if key is not None:
                pending[key][name] = pending[key].get(name, 0) + shortfall.unplaced
    return dict(pending)


def _places(working: WorkingCopy, attempt: Attempt, now: float) -> bool:
    """Place the binding if it fits as things are; return whether it does."""
    trial = attempt.trial()
    decide_all(working, [trial], now)
    return trial.error is None and trial.is_placed


def _placed(
    search: Search, attempt: Attempt, available_c: IntArray, slots_c: IntArray
) -> IntArray | None:
    """Return the units that clusters would get in addition, with ``slots_c`` more of them free.

    None if the binding would not be placed as a whole.
    """
    working, now, binding = search.working, search.now, attempt.candidate
    certificate = binding.certificate or attempt.profile.certificate
    available = working.availability(binding, certificate)
    available = replace(available, replicas_c=available_c + slots_c)
    fleet = working.snapshot.fleet_at(now)
    try:
        draft = draft_of(attempt, fleet, now, attempt.facts.peers)
        decision = scheduled(fleet, draft, available, now).decision
    except FederationError:
        return None
    if decision.outcome is not Outcome.SCHEDULED:
        return None
    replicas = {target.name: target.replicas for target in binding.clusters}
    units_c = np.zeros_like(available_c)
    for target in decision.clusters:
        growth = max(0, target.replicas - replicas.get(target.name, 0))
        units_c[working.snapshot.positions[target.name]] = growth // unit_replicas(binding)
    return units_c


def _eligible_and_available(search: Search, attempt: Attempt) -> tuple[BoolArray, IntArray]:
    """Return which ready clusters let the binding in, and how many more units fit there."""
    working, now = search.working, search.now
    passes_c, available_c = eligible_and_available(working, attempt, attempt.candidate, now)
    return passes_c & working.snapshot.fleet_at(now).ready_c, available_c


def _slots(leaves: Binding, waits: Binding) -> int:
    """Return how many waiting replicas fit in place of one that leaves, on any node."""
    if leaves.components or waits.components:
        return 0
    if leaves.requirements.node_claim != waits.requirements.node_claim:
        return 0
    freed = unit_request(leaves)
    return min(freed.get(name, 0) // amount for name, amount in unit_request(waits).items())


def _slots_in(freed: Sequence[_Freed], waits: Binding, clusters: int) -> IntArray:
    slots_c = np.zeros(clusters, dtype=np.int64)
    for leaving in freed:
        slots_c[leaving.position] += leaving.replicas * _slots(leaving.binding, waits)
    return slots_c


def _take(freed: Sequence[_Freed], waits: Binding, units_c: IntArray) -> None:
    """Take the room of as many freed replicas as these units need."""
    needed_c = np.maximum(units_c, 0)
    for leaving in freed:
        slots, c = _slots(leaving.binding, waits), leaving.position
        if slots and needed_c[c]:
            taken = min(leaving.replicas, -(-int(needed_c[c]) // slots))
            leaving.replicas -= taken
            needed_c[c] = max(0, needed_c[c] - taken * slots)


def _remainder(attempt: Attempt) -> int:
    wait = attempt.stored_wait
    return wait.remainder if wait else attempt.candidate.replicas


def _units(attempt: Attempt) -> int:
    return max(1, _remainder(attempt) // unit_replicas(attempt.candidate))
