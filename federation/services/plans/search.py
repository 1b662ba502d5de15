"""One move after the other on a working copy: what leaves, where it goes, and what that takes.

Plain functions and values of one thread: each move is decided and packed by the same code that
makes promises. Must not choose who moves, nor read or write the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
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
from federation.services.plans.questions import (
    ClusterShare,
    asked_by,
    shares_in,
    unit_replicas,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.planned import PlannedMove
from federation.services.scheduling.together import decide_all
from federation.services.scheduling.working_copy import WorkingCopy

# The reasons, in refusals, why clusters get nothing more by a plan.
TO_BE_EMPTIED: Final = Reason(ReasonCode.TO_BE_EMPTIED)
OUTSIDE: Final = Reason(ReasonCode.OUTSIDE_PLAN)
BEYOND: Final = "the plan has as many moves as it may have: make another one once it is done"
TOO_LONG: Final = "better moves were looked for long enough: name fewer clusters"
# So many moves are tried, by count: equal fleets have equal plans however fast they are made.
MOST_TRIES: Final = 20_000
# What a cluster may get more where nothing but its room is in the way.
ANY_AMOUNT: Final = float(2**62)
# Of what the solver says; the rest is noise.
DIGITS: Final = 6
# How often the relaxed best is asked for anew, from where moves have led.
MOST_ROUNDS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMoves:
    """The steps of a plan, what it leaves, and how good it is."""

    steps: tuple[PlanStep, ...]
    unfixed: tuple[Unfixed, ...]
    gain: Gain


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Where a binding goes, and why it leaves clusters, by their names."""

    after: tuple[TargetCluster, ...]
    why: Mapping[str, str]


@dataclass(slots=True)
class Tries:
    """How many moves may still be tried."""

    left: int = MOST_TRIES


class Search:
    """Moves that were found so far, all of which have their room at the same time.

    Of a resource clusters get no more than ``most_cr``, by the resources ``names``. A binding that
    moves once more is decided from where it is, with all that it leaves.
    """

    def __init__(
        self,
        working: WorkingCopy,
        now: float,
        limits: PlanLimits,
        names: Sequence[str],
        most_cr: FloatArray,
    ) -> None:
        self.working = working
        self.moved: dict[BindingName, Moved] = {}
        # Why others did not move when that was tried last.
        self.refusals: dict[BindingName, str] = {}
        # What those have left that were taken back.
        self._left: dict[BindingName, Mapping[str, str]] = {}
        self.now = now
        self._limits = limits
        self._names = names
        self._left_cr = most_cr.copy()
        self._peers = PlannedPeers()
        self._tries = Tries()

    def branch(self) -> Search:
        """Another one from here on, which may come to nothing."""
        made = Search(self.working.branch(), self.now, self._limits, self._names, self._left_cr)
        made.moved, made.refusals = self.moved.copy(), self.refusals.copy()
        made._peers, made._left = self._peers.copy(), self._left.copy()
        # What is taken back has taken its time all the same.
        made._tries = self._tries
        return made

    @property
    def left_cr(self) -> FloatArray:
        """How much more clusters may get."""
        return np.maximum(self._left_cr, 0)

    def steps(self, attempts: Iterable[Attempt]) -> tuple[PlanStep, ...]:
        """Feasible in any order."""
        by_key = {each.key: each for each in attempts}
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
        """Where the binding is once it has moved."""
        moved = self.moved.get(attempt.key)
        return moved.after if moved else attempt.candidate.clusters

    def move(
        self,
        attempt: Attempt,
        why: Mapping[str, str],
        *,
        guide_c: IntArray | None = None,
        closed: Collection[int] = (),
    ) -> str:
        """Why the binding does not leave these clusters, "" where it does from now on.

        It gets no more than ``guide_c`` units in a cluster, and none in those at ``closed``.
        """
        refusal = self._moved(attempt, why, guide_c, closed)
        if refusal:
            self.refusals[attempt.key] = refusal
        return refusal

    def take_back(self, attempts: Iterable[Attempt], closed: Collection[str] = ()) -> None:
        """Those of them that have moved are where they were, until they move once more: from there
        with all that they have left. Nobody comes to clusters that are ``closed``: what is left
        there is not looked at any more.
        """
        keys_in: dict[str, set[str]] = {}
        for attempt in attempts:
            moved = self.moved.pop(attempt.key, None)
            if moved is None:
                continue
            here = {each.name for each in attempt.candidate.clusters}
            for name in {each.name for each in moved.after}.difference(here, closed):
                keys_in.setdefault(name, set()).add(attempt.candidate.key)
            self._peers.forget(attempt)
            self._count(attempt, moved, 1)
            self._left[attempt.key] = moved.why
        self.working.let_go(keys_in)

    def _moved(
        self,
        attempt: Attempt,
        why: Mapping[str, str],
        guide_c: IntArray | None,
        closed: Collection[int],
    ) -> str:
        if self._tries.left <= 0:
            return TOO_LONG
        self._tries.left -= 1
        moved = self.moved.get(attempt.key)
        here = {each.name for each in attempt.candidate.clusters}
        leaves = dict(moved.why if moved else self._left.get(attempt.key, {}))
        leaves |= {name: text for name, text in why.items() if name in here}
        if why_not := too_much(attempt.candidate, leaves, self._limits):
            return why_not
        if moved is None and len(self.moved) >= self._limits.most_moves:
            return BEYOND
        if moved is None:
            return self._take(attempt, leaves, guide_c, closed)
        # What it would have got is free for it again, unless it stays.
        state = self.working, self.moved, self._peers, self._left_cr
        self.working, self.moved = self.working.branch(), self.moved.copy()
        self._peers, self._left_cr = self._peers.copy(), self._left_cr.copy()
        self.take_back([attempt])
        refusal = self._take(attempt, leaves, guide_c, closed)
        if refusal:
            self.working, self.moved, self._peers, self._left_cr = state
        return refusal

    def _take(
        self,
        attempt: Attempt,
        leaves: Mapping[str, str],
        guide_c: IntArray | None,
        closed: Collection[int],
    ) -> str:
        most_c = self._most(attempt)
        if guide_c is not None:
            most_c = np.minimum(most_c, guide_c)
        most_c[[*closed]] = 0
        attempt.planned = PlannedMove(why=leaves, most_c=most_c)
        refusal = refused(self.working, attempt, self.now, self._peers)
        if not refusal:
            self._put(attempt, Moved(after=attempt.verdict.decision.clusters, why=leaves))
        return refusal

    def _put(self, attempt: Attempt, moved: Moved) -> None:
        self.moved[attempt.key] = moved
        self._count(attempt, moved, -1)

    def _count(self, attempt: Attempt, moved: Moved, sign: int) -> None:
        """What it gets where it gets more is there no more, or again."""
        request_r = self._request(attempt)
        before = {each.name: each.replicas for each in attempt.candidate.clusters}
        positions = self.working.snapshot.positions
        for target in moved.after:
            more = target.replicas - before.get(target.name, 0)
            if more > 0:
                units = more // unit_replicas(attempt.candidate)
                self._left_cr[positions[target.name]] += sign * units * request_r

    def _most(self, attempt: Attempt) -> IntArray:
        request_r = self._request(attempt)
        asks_r = request_r > 0
        parts_cr = self._left_cr[:, asks_r] // request_r[asks_r]
        least_c = parts_cr.min(axis=1, initial=float(2**31 - 1))
        units_c: IntArray = np.maximum(least_c, 0).astype(np.int64)
        return units_c

    def _request(self, attempt: Attempt) -> FloatArray:
        asked = asked_by(attempt.candidate)
        return np.array([asked.get(name, 0) for name in self._names], dtype=np.float64)


def shares_of(
    search: Search, attempts: Iterable[Attempt], scope: Collection[str]
) -> list[ClusterShare]:
    """Where everything is by now, of the clusters in scope."""
    every = shares_in(attempts, search.working.snapshot.positions, search.clusters_of)
    return [each for each in every if each.name in scope]


def has_left(search: Search, share: ClusterShare) -> bool:
    """Whether the share is not where it was any more."""
    return share.name not in {each.name for each in search.clusters_of(share.attempt)}


def unfixed_shares(
    shares: Iterable[ClusterShare], why: Callable[[ClusterShare], str]
) -> list[Unfixed]:
    """Shares that stay where they are, each with its reason, by binding and cluster."""
    return [
        Unfixed(
            namespace=each.attempt.key[0],
            name=each.attempt.key[1],
            replicas=each.replicas,
            reason=why(each),
        )
        for each in sorted(shares, key=lambda each: (each.attempt.key, each.name))
    ]


def guides(shares: Sequence[ClusterShare], units_bc: FloatArray) -> dict[BindingName, IntArray]:
    """What bindings get in each cluster at most, by the relaxed best; those that it moves."""
    units: dict[BindingName, FloatArray] = {}
    for share, units_c in zip(shares, units_bc, strict=True):
        if units_c.any():
            key = share.attempt.key
            units[key] = units[key] + units_c if key in units else units_c
    return {key: np.ceil(units_c.round(DIGITS)).astype(np.int64) for key, units_c in units.items()}


def refused(working: WorkingCopy, attempt: Attempt, now: float, peers: PlannedPeers) -> str:
    """Why it does not move, "" where its room is taken now."""
    read = attempt.peers
    attempt.peers = peers.of(attempt)
    try:
        decide_all(working, [attempt], now)
    finally:
        attempt.peers = read
    if attempt.error is not None:
        why, attempt.error = str(attempt.error), None
        return why
    decision = attempt.verdict.decision
    if decision.outcome is not Outcome.SCHEDULED:
        return str(decision.reason)
    peers.add(attempt)
    return ""


def infeasible(
    working: WorkingCopy, attempts: Sequence[Attempt], steps: Sequence[PlanStep], now: float
) -> tuple[PlanStep, str] | None:
    """The first step that cannot be done any more after those before it, and why; None: all can."""
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
    look: Callable[[Mapping[BindingName, str]], Search],
) -> tuple[Search, dict[BindingName, str]]:
    """Moves that ordinary decisions keep to, of those that ``look`` finds without others; and why
    those others cannot move.
    """
    barred: dict[BindingName, str] = {}
    while True:
        search = look(barred)
        strays = _strays(working.anew(), attempts, search, now)
        if not strays:
            return search, barred
        barred |= strays


def _strays(
    working: WorkingCopy, attempts: Iterable[Attempt], search: Search, now: float
) -> dict[BindingName, str]:
    """Whom ordinary decisions would not leave where it moves, and why."""
    peers, strays = PlannedPeers(), {}
    for attempt in attempts:
        moved = search.moved.get(attempt.key)
        if moved is None:
            continue
        trial = copy(attempt)
        before = attempt.candidate.clusters
        trial.planned = PlannedMove(why=moved.why, before=before, after=moved.after)
        trial.candidate = trial.planned.candidate(attempt.candidate)
        if why := refused(working, trial, now, peers):
            strays[attempt.key] = why
    return strays


def stays(attempt: Attempt, limits: PlanLimits) -> str:
    """Why the binding is not asked to move, "" where it is."""
    if attempt.error is not None:
        return str(attempt.error)
    if not limits.selects(attempt.candidate):
        return "it does not have the labels that were asked for"
    if is_pinned(attempt.candidate):
        return f"it is pinned by {DO_NOT_MOVE}"
    if attempt.known is not None and attempt.known.wait is not None:
        return "it waits for room for other replicas"
    if attempt.candidate.eviction_tasks:
        return "it is being moved already"
    return ""


def unmovable(
    attempts: Iterable[Attempt], limits: PlanLimits, barred: Mapping[BindingName, str]
) -> dict[BindingName, str]:
    """Those that may not be moved where they need not move, and why."""
    return {
        each.key: why
        for each in attempts
        if (why := stays(each, limits) or _is_fixed(each) or barred.get(each.key, ""))
    }


def _is_fixed(attempt: Attempt) -> str:
    """Why its placement leaves no choice of where its replicas are, "" where it does."""
    division = attempt.candidate.placement.replica_scheduling
    if division.type is SchedulingType.DUPLICATED and not attempt.candidate.components:
        return "it has all its replicas in each of its clusters"
    is_weighted = division.preference is DivisionPreference.WEIGHTED
    if division.type is SchedulingType.DIVIDED and is_weighted and not division.dynamic:
        return "its replicas are divided by fixed weights"
    return ""


def too_much(binding: Binding, why: Mapping[str, str], limits: PlanLimits) -> str:
    """Why it may not leave that much, "" where it may."""
    leaves = sum(each.replicas for each in binding.clusters if each.name in why)
    everything = sum(each.replicas for each in binding.clusters)
    if leaves * 100 <= everything * limits.moved_percent:
        return ""
    return f"the plan may move {limits.moved_percent} % of a binding at most"


class PlannedPeers:
    """Where those of workload affinity groups go by the plan, beside where they are."""

    def __init__(self) -> None:
        self._placed: dict[BindingName, tuple[str, str, frozenset[str]]] = {}

    def copy(self) -> PlannedPeers:
        made = PlannedPeers()
        made._placed = self._placed.copy()
        return made

    def add(self, attempt: Attempt) -> None:
        if is_grouped(attempt.candidate):
            names = frozenset(each.name for each in attempt.verdict.decision.clusters)
            self._placed[attempt.key] = (*groups_of(attempt.candidate), names)

    def forget(self, attempt: Attempt) -> None:
        self._placed.pop(attempt.key, None)

    def of(self, attempt: Attempt) -> Peers:
        if not (self._placed and is_grouped(attempt.candidate)):
            return attempt.peers
        own, own_anti = groups_of(attempt.candidate)
        together, apart = [*attempt.peers.affinity], [*attempt.peers.anti_affinity]
        for (namespace, _), (group, anti_group, names) in self._placed.items():
            if namespace == attempt.candidate.namespace:
                together += [names] if own and own == group else []
                apart += [names] if own_anti and own_anti == anti_group else []
        return Peers(affinity=tuple(together), anti_affinity=tuple(apart))
