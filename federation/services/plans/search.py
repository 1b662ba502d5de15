"""Search for moves on a working copy, one after the other, by the code that makes promises.

Plain functions and values of one thread. Must not choose what moves, nor read or write the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from federation.model.arrays import FloatArray, IntArray
from federation.model.placement import (
    Binding,
    BindingName,
    DivisionPreference,
    SchedulingType,
    groups_of,
    is_grouped,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.workload import TargetCluster
from federation.plans.plan import DO_NOT_MOVE, Gain, PlanLimits, PlanStep, Unfixed, is_pinned
from federation.scheduler.decision import Outcome
from federation.services.binding_ports import Peers
from federation.services.plans.lp_inputs import (
    ClusterShare,
    request_rows,
    shares_in,
    unit_replicas,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.stated_moves import PlannedMove
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy

# Reasons in refusals: why clusters get nothing more by a plan.
TO_BE_EMPTIED: Final = Reason(ReasonCode.TO_BE_EMPTIED)
OUTSIDE: Final = Reason(ReasonCode.OUTSIDE_PLAN)
BEYOND: Final = "the plan has as many moves as it may have: make another one once it is done"
TOO_LONG: Final = "better moves were looked for long enough: name fewer clusters"
# The limit is a count and not a time, so that equal fleets have equal plans on any machine.
MAX_TRIES: Final = 20_000
# The allowance of a cluster that only its free capacity limits.
ANY_AMOUNT: Final = float(2**62)
# Digits of the solver's answers that count; the others are noise.
DIGITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMoves:
    """The steps of a plan, what it leaves, and how good it is."""

    steps: tuple[PlanStep, ...]
    unfixed: tuple[Unfixed, ...]
    gain: Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The new clusters of a binding, and why it leaves clusters, by their names."""

    after: tuple[TargetCluster, ...]
    why: Mapping[str, str]


class Search:
    """Moves that fit at the same time, extended one by one.

    Clusters get no more than ``allowance_cr`` of the resources ``names``. A binding that moves once
    more is decided from its stored clusters, with all the clusters that it leaves.
    """

    def __init__(
        self,
        working: WorkingCopy,
        now: float,
        limits: PlanLimits,
        names: Sequence[str],
        allowance_cr: FloatArray,
    ) -> None:
        self.working = working
        self.moved: dict[BindingName, Moved] = {}
        # Why other bindings did not move at their last try.
        self.refusals: dict[BindingName, str] = {}
        # The clusters that bindings have left whose moves were taken back.
        self._left: dict[BindingName, Mapping[str, str]] = {}
        self.now = now
        self._limits = limits
        self._names = names
        self._allowance_cr = allowance_cr.copy()
        self._peers = PlannedPeers()
        self._tries = iter(range(MAX_TRIES))

    def branch(self) -> Search:
        """Return a search that goes on from here and leaves this one as it is."""
        state = self.working.branch(), self.now, self._limits, self._names, self._allowance_cr
        branch = Search(*state)
        branch.moved, branch.refusals = self.moved.copy(), self.refusals.copy()
        branch._peers, branch._left = self._peers.copy(), self._left.copy()
        # Moves that are taken back have cost time, too.
        branch._tries = self._tries
        return branch

    @property
    def allowance_cr(self) -> FloatArray:
        """How much clusters may still get."""
        return np.maximum(self._allowance_cr, 0)

    def steps(self, attempts: Iterable[Attempt]) -> tuple[PlanStep, ...]:
        """Return the moves as steps, which are feasible in any order."""
        by_key = {attempt.key: attempt for attempt in attempts}
        return tuple(
            PlanStep(
                number=number,
                namespace=key[0],
                name=key[1],
                before=by_key[key].candidate.clusters,
                after=moved.after,
                reason="; ".join(dict.fromkeys(moved.why.values())),
            )
            for number, (key, moved) in enumerate(self.moved.items(), start=1)
        )

    def clusters_of(self, attempt: Attempt) -> tuple[TargetCluster, ...]:
        """Return the clusters of the binding after its move, if it has one."""
        moved = self.moved.get(attempt.key)
        return moved.after if moved else attempt.candidate.clusters

    def shares(self, attempts: Iterable[Attempt], scope: Collection[str]) -> list[ClusterShare]:
        """List what bindings have in the clusters in scope after their moves."""
        return shares_in(scope, attempts, self.working.snapshot.positions, self.clusters_of)

    def has_left(self, share: ClusterShare) -> bool:
        """Whether the binding of the share has left its cluster."""
        return share.name not in {target.name for target in self.clusters_of(share.attempt)}

    def move(
        self,
        attempt: Attempt,
        why: Mapping[str, str],
        *,
        guide_c: IntArray | None = None,
        closed: Collection[int] = (),
    ) -> str:
        """Let the binding leave clusters; return why it does not, "" if it does.

        It gets no more than ``guide_c`` units in a cluster, and none in those at ``closed``.
        """
        refusal = self._moved(attempt, why, guide_c, closed)
        if refusal:
            self.refusals[attempt.key] = refusal
        return refusal

    def take_back(self, attempts: Iterable[Attempt], closed: Collection[str] = ()) -> None:
        """Take back the moves of bindings, until they move once more from their stored clusters.

        Clusters that are ``closed`` get nothing more, so their ledgers are not kept right.
        """
        keys_in: dict[str, set[str]] = {}
        for attempt in attempts:
            moved = self.moved.pop(attempt.key, None)
            if moved is None:
                continue
            stored = {target.name for target in attempt.candidate.clusters}
            for name in {target.name for target in moved.after}.difference(stored, closed):
                keys_in.setdefault(name, set()).add(attempt.candidate.key)
            self._peers.forget(attempt)
            self._count(attempt, moved, 1)
            self._left[attempt.key] = moved.why
        self.working.drop_reservations(keys_in)

    def _moved(
        self,
        attempt: Attempt,
        why: Mapping[str, str],
        guide_c: IntArray | None,
        closed: Collection[int],
    ) -> str:
        if next(self._tries, None) is None:
            return TOO_LONG
        moved = self.moved.get(attempt.key)
        stored = {target.name for target in attempt.candidate.clusters}
        leaves = dict(moved.why if moved else self._left.get(attempt.key, {}))
        leaves |= {name: text for name, text in why.items() if name in stored}
        if why_not := too_much(attempt.candidate, leaves, self._limits):
            return why_not
        if moved is None and len(self.moved) >= self._limits.most_moves:
            return BEYOND
        if moved is None:
            return self._take(attempt, leaves, guide_c, closed)
        # Its move is taken back on a branch, because it may use that capacity again.
        state = vars(self).copy()
        vars(self).update(vars(self.branch()))
        self.take_back([attempt])
        refusal = self._take(attempt, leaves, guide_c, closed)
        if refusal:
            vars(self).update(state)
        return refusal

    def _take(
        self,
        attempt: Attempt,
        leaves: Mapping[str, str],
        guide_c: IntArray | None,
        closed: Collection[int],
    ) -> str:
        max_c = self._max_units(attempt)
        if guide_c is not None:
            max_c = np.minimum(max_c, guide_c)
        max_c[[*closed]] = 0
        attempt.stated = PlannedMove(why=leaves, most_c=max_c)
        refusal = refused(self.working, attempt, self.now, self._peers)
        if not refusal:
            moved = Moved(after=attempt.decision.clusters, why=leaves)
            self.moved[attempt.key] = moved
            self._count(attempt, moved, -1)
        return refusal

    def _count(self, attempt: Attempt, moved: Moved, sign: int) -> None:
        """Change the allowance of clusters by what the binding gets there in addition."""
        request_r = self._request(attempt)
        replicas = {target.name: target.replicas for target in attempt.candidate.clusters}
        positions = self.working.snapshot.positions
        for target in moved.after:
            growth = target.replicas - replicas.get(target.name, 0)
            if growth > 0:
                units = growth // unit_replicas(attempt.candidate)
                self._allowance_cr[positions[target.name]] += sign * units * request_r

    def _max_units(self, attempt: Attempt) -> IntArray:
        request_r = self._request(attempt)
        has_request_r = request_r > 0
        parts_cr = self._allowance_cr[:, has_request_r] // request_r[has_request_r]
        least_c = parts_cr.min(axis=1, initial=float(2**31 - 1))
        units_c: IntArray = np.maximum(least_c, 0).astype(np.int64)
        return units_c

    def _request(self, attempt: Attempt) -> FloatArray:
        request_r: FloatArray = request_rows([attempt.candidate], self._names)[0]
        return request_r


def unfixed_shares(
    shares: Iterable[ClusterShare], why: Callable[[ClusterShare], str]
) -> tuple[Unfixed, ...]:
    """Return shares that stay, with their reasons, sorted by binding and cluster."""
    ordered = sorted(shares, key=lambda share: (share.attempt.key, share.name))
    return tuple(Unfixed.of(share.attempt.key, share.replicas, why(share)) for share in ordered)


def refused(working: WorkingCopy, attempt: Attempt, now: float, peers: PlannedPeers) -> str:
    """Decide a move and reserve its capacity; return why it is refused, "" if it is not."""
    read = attempt.facts.peers
    attempt.facts.peers = peers.of(attempt)
    try:
        decide_all(working, [attempt], now)
    finally:
        attempt.facts.peers = read
    if attempt.error is not None:
        why, attempt.error = str(attempt.error), None
        return why
    decision = attempt.decision
    if decision.outcome is not Outcome.SCHEDULED:
        return str(decision.reason)
    peers.add(attempt)
    return ""


def infeasible(
    working: WorkingCopy, attempts: Sequence[Attempt], steps: Sequence[PlanStep], now: float
) -> tuple[PlanStep, str] | None:
    """Return the first step that the steps before it make impossible, and why; None: all can."""
    peers = PlannedPeers()
    for attempt, step in zip(attempts, steps, strict=True):
        why = str(attempt.error) if attempt.error else refused(working, attempt, now, peers)
        if why:
            return step, why
    return None


def kept_moves(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    now: float,
    find: Callable[[Mapping[BindingName, str]], Search],
) -> tuple[Search, dict[BindingName, str]]:
    """Return moves that ordinary decisions agree with, and why barred bindings cannot move.

    ``find`` finds moves without the barred bindings, of which there are more from round to round.
    """
    barred: dict[BindingName, str] = {}
    while True:
        search = find(barred)
        disagreements = _disagreements(working.fresh_copy(), attempts, search, now)
        if not disagreements:
            return search, barred
        barred |= disagreements


def _disagreements(
    working: WorkingCopy, attempts: Iterable[Attempt], search: Search, now: float
) -> dict[BindingName, str]:
    """Return the bindings that ordinary decisions would not leave where they move, and why."""
    peers, disagreements = PlannedPeers(), {}
    for attempt in attempts:
        moved = search.moved.get(attempt.key)
        if moved is None:
            continue
        trial = attempt.trial()
        stored = attempt.candidate.clusters
        move = PlannedMove(why=moved.why, before=stored, after=moved.after)
        trial.stated, trial.candidate = move, move.candidate(attempt.candidate)
        if why := refused(working, trial, now, peers):
            disagreements[attempt.key] = why
    return disagreements


def stays(attempt: Attempt, limits: PlanLimits) -> str:
    """Return why the binding may not move, "" if it may."""
    if attempt.error is not None:
        return str(attempt.error)
    if not limits.selects(attempt.candidate):
        return "it does not have the labels that were asked for"
    if is_pinned(attempt.candidate):
        return f"it is pinned by {DO_NOT_MOVE}"
    if attempt.stored_wait is not None:
        return "it waits for room for other replicas"
    if attempt.candidate.eviction_tasks:
        return "it is being moved already"
    return ""


def unmovable(
    attempts: Iterable[Attempt], limits: PlanLimits, barred: Mapping[BindingName, str]
) -> dict[BindingName, str]:
    """Return the bindings that stay, because they need not move, and why."""
    return {
        attempt.key: why
        for attempt in attempts
        if (why := stays(attempt, limits) or _is_fixed(attempt) or barred.get(attempt.key, ""))
    }


def _is_fixed(attempt: Attempt) -> str:
    """Return why the placement fixes the clusters of its replicas, "" if it does not."""
    division = attempt.candidate.placement.replica_scheduling
    if division.type is SchedulingType.DUPLICATED and not attempt.candidate.components:
        return "it has all its replicas in each of its clusters"
    is_weighted = division.preference is DivisionPreference.WEIGHTED
    if division.type is SchedulingType.DIVIDED and is_weighted and not division.dynamic:
        return "its replicas are divided by fixed weights"
    return ""


def too_much(binding: Binding, why: Mapping[str, str], limits: PlanLimits) -> str:
    """Return why the binding may not leave these clusters at once, "" if it may."""
    leaves = sum(target.replicas for target in binding.clusters if target.name in why)
    replicas = sum(target.replicas for target in binding.clusters)
    if leaves * 100 <= replicas * limits.moved_percent:
        return ""
    return f"the plan may move {limits.moved_percent} % of a binding at most"


class PlannedPeers:
    """The clusters to which the plan moves members of workload affinity groups."""

    def __init__(self) -> None:
        self._placed: dict[BindingName, tuple[str, str, frozenset[str]]] = {}

    def copy(self) -> PlannedPeers:
        peers = PlannedPeers()
        peers._placed = self._placed.copy()
        return peers

    def add(self, attempt: Attempt) -> None:
        if is_grouped(attempt.candidate):
            names = frozenset(target.name for target in attempt.decision.clusters)
            self._placed[attempt.key] = (*groups_of(attempt.candidate), names)

    def forget(self, attempt: Attempt) -> None:
        self._placed.pop(attempt.key, None)

    def of(self, attempt: Attempt) -> Peers:
        if not (self._placed and is_grouped(attempt.candidate)):
            return attempt.facts.peers
        own, own_anti = groups_of(attempt.candidate)
        together, apart = [*attempt.facts.peers.affinity], [*attempt.facts.peers.anti_affinity]
        for (namespace, _), (group, anti_group, names) in self._placed.items():
            if namespace == attempt.candidate.namespace:
                together += [names] if own and own == group else []
                apart += [names] if own_anti and own_anti == anti_group else []
        return Peers(affinity=tuple(together), anti_affinity=tuple(apart))
