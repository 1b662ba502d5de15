"""Decisions about attempts, by ``federation.scheduler.decide`` on a working copy of the fleet.

The capacity of a working copy, as an attempt sees it live and in a trial, and attempts as a batch.
Plain functions of their arguments, for one thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from typing import Final, Self, TypeAlias, TypeVar

from federation.capacity.reserve import Refused
from federation.model.errors import FederationError
from federation.model.estimate import Estimates
from federation.model.placement import Binding, groups_of
from federation.model.reasons import Reason
from federation.model.workload import TargetCluster
from federation.scheduler.decide import Decided, Draft, OfferedCapacity, Places, Scarcity, decide
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.plugins.profile import Filter, Profile, Score
from federation.scheduler.plugins.run import is_in_tree
from federation.scheduler.promisable import looked_again
from federation.scheduler.state import BindingContext
from federation.scheduler.triggers import evicting_taints, leaving
from federation.services.binding_ports import Peers
from federation.services.scheduling.attempt import NO_PEERS, Attempt, Result
from federation.services.scheduling.earmarks import awaited_pods, capacity_after_earmarks
from federation.services.scheduling.eligible_clusters import context_of, find_eligible
from federation.services.scheduling.fresh_reports import unseen_in
from federation.services.scheduling.hooks import keep, let_go
from federation.services.scheduling.known_answers import KnownRefusal, question_of
from federation.services.scheduling.quotas import beyond
from federation.services.scheduling.read import draft_of
from federation.services.scheduling.shares import Reserved
from federation.services.scheduling.verdicts import (
    refuse,
    request_room,
    standing_of,
    take,
    take_over,
    tell,
    verdict_of,
)
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import Verdict


@dataclass(kw_only=True, eq=False)
class PackedCapacity:
    """A ``CapacityModel`` of one draft, whose decision gets the id ``decision``.

    The binding holds something in the clusters ``held``. With ``adopts`` its replicas run already
    and are new to the ledgers. Only with ``looks_again`` a refusal is looked at a second time.
    """

    working: WorkingCopy
    decision: str
    held: Iterable[str] = ()
    adopts: bool = False
    looks_again: bool = True

    def available(self, draft: Draft) -> OfferedCapacity:
        """Return all that can be promised."""
        return OfferedCapacity(self.working.availability(draft.binding, draft.certificate))

    def refine(
        self, draft: Draft, decided: Decided[Reserved], estimates: Estimates
    ) -> Estimates | None:
        """Look again, for the binding without the clusters that it has to leave."""
        if not self.looks_again:
            return None
        binding = decided.inputs.binding
        return looked_again(self.working.rooms, binding, draft.certificate, estimates)

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Promise all shares in the working copy, or none."""
        return self.working.reserve(
            self.working.request(
                draft.binding,
                self.decision,
                decided.decision.clusters,
                certificate=draft.certificate,
                held=self.held,
                adopts=self.adopts,
                refines=decided.is_refined,
                placed=draft.binding.clusters,
            )
        )

    def scarcity(self, draft: Draft) -> Scarcity | None:
        """Return the means to say what is scarce on the working copy."""
        certificate = draft.certificate
        return Scarcity(
            estimate=partial(
                self.working.availability, certificate=certificate, leaves_large=False
            ),
            remembered=self.working.scarcities(certificate),
        )


# No plugin that comes with the scheduler tells bindings apart by these.
_NAMES: Final = frozenset({"namespace", "name", "uid", "labels", "annotations", "priority"})
_asks_of = attrgetter(*(field.name for field in fields(Binding) if field.name not in _NAMES))


def tell_as_before(
    working: WorkingCopy, attempt: Attempt, available: Estimates, now: float, peers: Peers
) -> bool:
    """Whether one that asks the same was refused: this one is then, with the same reason."""
    if not _is_like_others(attempt, peers):
        return False
    refusal = working.answers.refusals.get(_question(attempt))
    if refusal is None:
        return False
    inputs, candidate = refusal.inputs, attempt.candidate
    if (
        refusal.available is not available
        or refusal.outstanding is not working.snapshot.outstanding
        or inputs.fleet is not working.snapshot.fleet_at(now)
        or inputs.profile is not attempt.profile
        or _asks_of(inputs.binding) != _asks_of(candidate)
    ):
        return False
    attempt.result.verdict = Verdict(
        decision=replace(refusal.decision, trace=replace(refusal.decision.trace, now=now)),
        evidence=working.snapshot.evidence_at(now),
        inputs=replace(inputs, binding=candidate),
    )
    attempt.result.evictions, attempt.result.unseen_in = (), refusal.unseen_in
    return True


def remember(working: WorkingCopy, attempt: Attempt, available: Estimates, peers: Peers) -> None:
    """That it was refused with the reason that it has, where others may be told the same at any
    time.
    """
    inputs = attempt.result.verdict.inputs
    if not isinstance(inputs, DecisionInputs) or not _is_like_others(attempt, peers):
        return
    tolerations = attempt.candidate.placement.tolerations
    if _is_all_in_tree(attempt.profile) and all(t.toleration_seconds is None for t in tolerations):
        working.answers.refusals[_question(attempt)] = KnownRefusal(
            available=available,
            outstanding=working.snapshot.outstanding,
            inputs=inputs,
            decision=attempt.decision,
            unseen_in=attempt.result.unseen_in,
        )


def _is_like_others(attempt: Attempt, peers: Peers) -> bool:
    """Whether it is new, and nothing but what it asks for tells it from others."""
    candidate = attempt.candidate
    return (
        attempt.facts.stored is None
        and attempt.stated is None
        and peers == NO_PEERS
        and not (candidate.clusters or candidate.eviction_tasks or candidate.gang)
    )


def _is_all_in_tree(profile: Profile) -> bool:
    plugins = chain[Filter | Score](profile.filters, profile.scores)
    return not profile.permits and all(map(is_in_tree, plugins))


def _question(attempt: Attempt) -> Hashable:
    """Return what a refusal is remembered by: one for all bindings that ask the same."""
    candidate = attempt.candidate
    certificate = candidate.certificate or attempt.profile.certificate
    return question_of(candidate, certificate), candidate.replicas, attempt.has_waited_for_reports


@dataclass(kw_only=True, eq=False)
class LiveCapacity(PackedCapacity):
    """All that can be promised now, to an attempt: beside claims, within quotas, with plugins."""

    attempt: Attempt
    now: float

    @cached_property
    def offer(self) -> OfferedCapacity:
        """Estimates beside the claims of bindings that come first, within a stated move."""
        working, attempt = self.working, self.attempt
        certificate = attempt.candidate.certificate or attempt.profile.certificate
        estimates = working.availability(attempt.candidate, certificate)
        estimates, kept_for = capacity_after_earmarks(working, attempt, estimates, self.now)
        if attempt.stated is not None:
            estimates = attempt.stated.within(estimates, working.snapshot.positions)
        return OfferedCapacity(estimates, kept_for)

    def available(self, draft: Draft) -> OfferedCapacity:  # noqa: ARG002 - of one attempt
        """Return the offer to the attempt."""
        return self.offer

    def refine(
        self, draft: Draft, decided: Decided[Reserved], estimates: Estimates
    ) -> Estimates | None:
        """Look again at a binding that is about to be refused for good.

        Reports that are asked for now may help otherwise. A waiting binding is decided again with
        newer reports anyway, and a plan does not count on luck.
        """
        attempt = self.attempt
        if attempt.is_retried or attempt.stated is not None:
            return None
        if unseen_in(self.working, attempt, decided.decision):
            return None
        return super().refine(draft, decided, estimates)

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Take what its quota leaves, what plugins keep for it, and room for its shares.

        Nothing is taken where one of them is not to be had, nor where the newest decision still
        stands. Raises PreconditionFailed where a stated move would come out otherwise.
        """
        working, attempt = self.working, self.attempt
        take_over(attempt, draft, decided, working.snapshot, self.now)
        attempt.result.is_refined = decided.is_refined
        if attempt.stated is not None:
            attempt.stated.check(attempt.candidate, decided.decision)
        requested = request_room(working, attempt, draft.certificate)
        attempt.result.standing = standing_of(attempt)
        if attempt.result.standing is not None:
            return None
        if objection := beyond(attempt) or keep(working, attempt, self.now):
            return Refused(reasons={"": objection})
        reserved = working.reserve(requested)
        if isinstance(reserved, Refused):
            let_go([attempt])
        return reserved


def decide_anew(working: WorkingCopy, attempt: Attempt, now: float, peers: Peers) -> None:
    """Decide anew, whatever was decided until now. A FederationError becomes its ``error``."""
    let_go([attempt])
    attempt.result, attempt.error = Result(), None
    try:
        _decide(working, attempt, now, peers)
    except FederationError as error:
        attempt.error = error


def _decide(working: WorkingCopy, attempt: Attempt, now: float, peers: Peers) -> None:
    """Decide, and reserve the shares where there is capacity. Raises FederationError."""
    attempt.result.awaits = awaited_pods(working, attempt.facts.stored, now)
    capacity = LiveCapacity(working=working, decision=attempt.id, attempt=attempt, now=now)
    estimates, kept_for = capacity.offer
    if not kept_for and tell_as_before(working, attempt, estimates, now, peers):
        return
    fleet = working.snapshot.fleet_at(now)
    decided = decide(fleet, draft_of(attempt, fleet, now, peers), capacity, now)
    if decided.reserved is not None:
        take(attempt, decided.reserved)
    if not decided.decision.is_placed:
        attempt.result.verdict = verdict_of(decided, working.snapshot, now)
        attempt.result.is_refined, attempt.result.requested = decided.is_refined, None
        if "" not in decided.refused:
            attempt.result.unseen_in = unseen_in(working, attempt, decided.decision)
        if not decided.refused:
            if not kept_for:
                remember(working, attempt, estimates, peers)
            if attempt.result.awaits:
                tell(attempt, attempt.result.awaits)
        attempt.result.standing = standing_of(attempt)
    if attempt.is_retried and not attempt.has_progressed:
        # A binding that waits keeps what there was for it.
        context = context_of(attempt, attempt.facts.peers)
        attempt.result.seen = find_eligible(
            working, attempt.candidate, attempt.profile, context, now
        )


# An attempt that goes with another one, and the names of the clusters where it counts.
Companion: TypeAlias = tuple[Attempt, frozenset[str]]


@dataclass(kw_only=True, eq=False)
class AttemptBatch:
    """A ``Batch`` of attempts. Decisions and errors are written into the attempts."""

    working: WorkingCopy
    attempts: Sequence[Attempt]
    now: float

    def __post_init__(self) -> None:
        self._reset_quotas()

    @property
    def count(self) -> int:
        """Return how many attempts there are."""
        return len(self.attempts)

    @cached_property
    def remaining(self) -> Sequence[Binding]:
        """The bindings without the clusters that they have to leave."""
        fleet = self.working.snapshot.fleet_at(self.now)
        candidates = [attempt.candidate for attempt in self.attempts]
        return [
            leaving(candidate, evicting_taints(candidate, fleet, self.now))
            for candidate in candidates
        ]

    def decide(self, position: int, places: Places) -> bool:
        """Decide an attempt anew, beside those that go with it."""
        attempt = self.attempts[position]
        decided = position if is_together(attempt) else 0
        peers = peers_beside(attempt, self._companions(position, places, decided))
        decide_anew(self.working, attempt, self.now, peers)
        return has_place(attempt)

    def room(self, position: int, places: Places) -> Mapping[str, int]:
        """Return the room in each cluster, wherever the group of the binding goes."""
        attempt = self.attempts[position]
        peers = peers_beside(attempt, self._companions(position, places, 0))
        context = BindingContext(
            affinity_peers=peers.affinity,
            anti_affinity_peers=peers.anti_affinity,
            observed_affinity=attempt.observed_affinity,
        )
        return find_eligible(
            self.working, self.remaining[position], attempt.profile, context, self.now
        ).room

    def lack(self, position: int) -> Reason:
        """Return what an attempt without a place lacks."""
        return self.attempts[position].lack

    def undo(self) -> None:
        """Give back all that was promised in the working copy, and all that quotas gave."""
        self.working.drop_promises()
        self._reset_quotas()

    def withdraw(self, position: int, why: Reason) -> None:
        """Let nothing come of a decision. An error of the first one is that of its companions."""
        attempt = self.attempts[position]
        attempt.result.requested = attempt.result.reserved = None
        let_go([attempt])
        if attempt.is_companion:
            attempt.error = attempt.error or self.attempts[0].error
        if attempt.error is not None or not why:
            return
        if attempt.is_placed:
            refuse(attempt, {"": why})
            attempt.result.standing = standing_of(attempt)
        else:
            tell(attempt, why)

    def _reset_quotas(self) -> None:
        for attempt in self.attempts:
            if attempt.facts.quota is not None:
                attempt.facts.quota.used = attempt.facts.quota.read

    def _companions(self, position: int, places: Places, decided: int) -> Iterator[Companion]:
        """Yield the other attempts: of so many that are decided, the clusters where they went.

        Those without a place, and those that are not decided yet, count at ``places``.
        """
        for other, attempt in enumerate(self.attempts):
            if other < decided and has_place(attempt):
                yield attempt, _names(attempt.decision.clusters)
            elif other != position and other in places:
                yield attempt, places[other]


def is_together(attempt: Attempt) -> bool:
    """Tell whether it is placed with others or not at all."""
    return bool(attempt.atomic) or attempt.is_joining or attempt.is_companion


def has_place(attempt: Attempt) -> bool:
    """Tell whether a decision was made that places it."""
    return attempt.error is None and attempt.is_placed


def placed(attempts: Iterable[Attempt]) -> Iterator[Companion]:
    """Yield the attempts whose decisions place them, each with the names of its clusters."""
    for attempt in attempts:
        if has_place(attempt):
            yield attempt, _names(attempt.decision.clusters)


def peers_beside(attempt: Attempt, companions: Iterable[Companion]) -> Peers:
    """Return the peers as they were read, with companions where these are by now."""
    group, anti_group = groups_of(attempt.candidate)
    if not (group or anti_group):
        return attempt.facts.peers
    together, apart = [*attempt.facts.peers.affinity], [*attempt.facts.peers.anti_affinity]
    for companion, names in companions:
        if companion.binding.namespace != attempt.binding.namespace:
            continue
        its_group, its_anti_group = groups_of(companion.candidate)
        former = _names(companion.former.clusters if companion.former else ())
        for own, other, places in (
            (group, its_group, together),
            (anti_group, its_anti_group, apart),
        ):
            if own and own == other:
                if former in places:
                    places.remove(former)
                if names:
                    places.append(names)
    return Peers(affinity=tuple(together), anti_affinity=tuple(apart))


def _names(clusters: Iterable[TargetCluster]) -> frozenset[str]:
    return frozenset(target.name for target in clusters)


@dataclass(kw_only=True, eq=False)
class TrialCapacity(PackedCapacity):
    """All that can be promised now to an attempt, whatever is kept for bindings that wait.

    Only the working copy and the attempt are changed. No trial asks plugins or quotas, looks
    again, or says what is scarce.
    """

    attempt: Attempt
    now: float

    @classmethod
    def of(cls, working: WorkingCopy, attempt: Attempt, now: float) -> Self:
        """Return the capacity for a trial of an attempt."""
        return cls(working=working, decision=attempt.id, attempt=attempt, now=now)

    def refine(self, draft: Draft, decided: Decided[Reserved], estimates: Estimates) -> None:
        """Return None: a trial is not looked at again."""

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Make the decision the attempt's, and promise what it asks for."""
        take_over(self.attempt, draft, decided, self.working.snapshot, self.now)
        return self.working.reserve(request_room(self.working, self.attempt, draft.certificate))

    def scarcity(self, draft: Draft) -> Scarcity | None:  # noqa: ARG002 - of no draft
        """Return None: nobody reads the reason of a trial."""
        return None


T = TypeVar("T", bound=TrialCapacity)


def tried_together(
    attempts: Iterable[Attempt], capacity_of: Callable[[Attempt], T]
) -> list[T] | None:
    """Place all attempts, each beside those before it; None where one has no place.

    Returns the capacities, each with a copy of its attempt that has the decision.
    """
    capacities: list[T] = []
    for attempt in attempts:
        capacity = capacity_of(attempt.trial())
        working, trial, now = capacity.working, capacity.attempt, capacity.now
        fleet = working.snapshot.fleet_at(now)
        peers = peers_beside(trial, placed(former.attempt for former in capacities))
        decided = decide(fleet, draft_of(trial, fleet, now, peers), capacity, now)
        if not decided.decision.is_placed:
            return None
        capacities.append(capacity)
    return capacities
