"""Preemption: bindings lose replicas so that bindings of higher priority are placed.

Promises whose pods are on no node yet are taken at once. A binding that needs the capacity of
running pods is nominated: it waits for these pods to leave, and the capacity is earmarked. Must not
commit: victims and preempting bindings are written in one transaction, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federation.model.errors import InvalidRequest, NotPlacedTogether
from federation.model.placement import PreemptionPolicy, is_grouped
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.waiting import Leaving, Nomination
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import (
    MAX_PREEMPTED,
    MAX_PREEMPTED_IN_NAMESPACE,
    NOTHING_HELPS,
    SPENT,
    Losses,
    are_within,
    least_loss,
    loss_reasons,
    losses_by_namespace,
)
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.journal_ports import Holding, PreemptionLimits
from federation.services.ports import Store, Transaction
from federation.services.scheduling.attempt import Attempt, AttemptRole, StoredFacts
from federation.services.scheduling.deciding import is_together
from federation.services.scheduling.earmarks import (
    MAX_NOMINATED,
    awaited_pods_of,
    count_nominated,
    remaining_pods,
)
from federation.services.scheduling.nominating import ComingPlace, place_with_leaving, spare_slots
from federation.services.scheduling.together import decide_all, is_atomic, moves_as_group
from federation.services.scheduling.verdicts import tell
from federation.services.scheduling.victims import PossibleVictims, candidates_of, losable_shares
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import Threads
from federation.services.values import Scheduled

DEFAULT_LIMITS: Final = PreemptionLimits(
    replicas=MAX_PREEMPTED, in_namespace=MAX_PREEMPTED_IN_NAMESPACE
)
# Victims to choose from, the least urgent first.
MAX_VICTIMS: Final = 100
CROWDED: Final = Reason.of(ReasonCode.PREEMPTION_CROWDED, Amount(MAX_NOMINATED))


def wants_preemption(attempts: Sequence[Attempt]) -> bool:
    """Tell whether others may lose replicas to the first of the attempts, which was not placed.

    An attempt that is placed together with the rest stands for all of them.
    """
    first = attempts[0] if attempts else None
    if first is None or first.gang.gate or moves_as_group(attempts):
        return False
    group = attempts if is_together(first) else attempts[:1]
    lacking = [attempt for attempt in group if attempt.error is None and not attempt.is_placed]
    return bool(lacking) and all(
        attempt.candidate.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
        and not (attempt.result.awaits or attempt.result.is_beyond_quota)
        and (attempt.error is None or isinstance(attempt.error, NotPlacedTogether))
        and (attempt.is_placed or attempt.decision.outcome is Outcome.UNSCHEDULABLE)
        for attempt in group
    )


def preempting_of(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts of a batch that may preempt, with all that are placed together."""
    units = [attempts] if is_atomic(attempts) else [[attempt] for attempt in attempts]
    return [attempt for unit in units if wants_preemption(unit) for attempt in unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The inputs of a choice of victims.

    ``spent`` are the replicas preempted within the last minute, by namespace. ``is_crowded``: too
    many bindings are nominated already.
    """

    possible: PossibleVictims
    limits: PreemptionLimits
    spent: Mapping[str, int]
    is_crowded: bool

    @property
    def attempts(self) -> Sequence[Attempt]:
        return self.possible.attempts

    def is_within_limits(self, losses: Losses) -> bool:
        limits = self.limits
        lost = losses_by_namespace(self.possible.candidates, losses)
        return are_within(limits.replicas, limits.in_namespace, lost, self.spent)


class Preemption:
    """The preemption of a control plane, with its profiles and limits."""

    def __init__(self, profiles: Profiles, limits: PreemptionLimits) -> None:
        self._profiles = profiles
        self._limits = limits

    async def with_victims(
        self,
        store: Store,
        working: WorkingCopy,
        attempts: Sequence[Attempt],
        threads: Threads,
        now: float,
    ) -> tuple[WorkingCopy, Sequence[Attempt]]:
        """Return the result of ``plan`` if the attempts may preempt, else the arguments."""
        if not wants_preemption(attempts):
            return working, attempts
        async with store.reading() as read:
            return await self.plan(read, working, attempts, threads, now)

    async def plan(
        self,
        read: Transaction,
        working: WorkingCopy,
        attempts: Sequence[Attempt],
        threads: Threads,
        now: float,
    ) -> tuple[WorkingCopy, Sequence[Attempt]]:
        """Return the victims and the attempts, and the working copy that they are decided on.

        The attempts are placed in it, or nominated. If preemption does not help, return the
        attempts alone, with a reason, and the given copy.
        """
        # An attempt that does not wait for capacity does not wait for pods to leave either.
        may_wait = all(attempt.wait and not attempt.atomic for attempt in attempts)
        nominations = count_nominated(attempts[0], now) + len(attempts)
        is_crowded = may_wait and nominations > MAX_NOMINATED
        avoided = _avoided(working, attempts) if may_wait and not is_crowded else None
        shares = await threads.run(losable_shares, working, attempts, avoided)
        below = min(attempt.candidate.priority for attempt in attempts)
        bindings = await read.bindings.preemptible(shares.keys(), below, MAX_VICTIMS)
        holdings = await read.reservations.holdings(bindings.keys())
        peers = {
            key: await read.bindings.peers(stored.binding)
            for key, stored in bindings.items()
            if is_grouped(stored.binding)
        }
        victims = {
            stored.binding.key: victim
            for key, stored in bindings.items()
            if is_wholly_in(working, stored)
            and (victim := self._victim(stored, holdings.get(key), peers.get(key)))
        }
        possible = PossibleVictims(
            attempts=attempts,
            victims=victims,
            shares=shares,
            candidates=candidates_of(attempts, victims, shares),
            now=now,
        )
        choice = _Choice(
            possible=possible,
            limits=self._limits,
            spent=await read.preemptions.spent(),
            is_crowded=is_crowded,
        )
        return await threads.run(_decide_with_losses, working, choice)

    def _victim(
        self, stored: StoredBinding, holding: Holding | None, peers: Peers | None
    ) -> Attempt | None:
        try:
            profile = self._profiles.profile_of(stored.binding)
        except InvalidRequest:
            # Its profile is gone, so the certificate of its promises is unknown.
            return None
        unheard: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
        unheard.cancel()
        facts = StoredFacts(stored=stored, holding=holding or Holding(), peers=peers or Peers())
        return Attempt(
            binding=stored.binding,
            role=AttemptRole.VICTIM,
            answer=unheard,
            profile=profile,
            facts=facts,
        )


def is_wholly_in(working: WorkingCopy, stored: StoredBinding) -> bool:
    """Tell whether the fleet has all clusters of a binding, so that its rest can be counted."""
    return all(target.name in working.snapshot.positions for target in stored.binding.clusters)


def _avoided(working: WorkingCopy, attempts: Sequence[Attempt]) -> frozenset[str]:
    """Return the clusters where pods preempted for these attempts did not leave in time."""
    clusters: set[str] = set()
    for attempt in attempts:
        wait = attempt.stored_wait
        if wait is not None and wait.nominated is not None:
            clusters.update(wait.nominated.avoids)
            leaving = wait.nominated.leaving
            clusters.update(item.cluster for item in leaving if remaining_pods(working, item))
    return frozenset(clusters)


def _decide_with_losses(
    working: WorkingCopy, choice: _Choice
) -> tuple[WorkingCopy, Sequence[Attempt]]:
    """Choose the least losses that help, and decide the attempts after these. Raises nothing."""
    possible, attempts = choice.possible, choice.attempts

    spare = spare_slots(working, {candidate.cluster for candidate in possible.candidates})
    places_by_effect: dict[Hashable, Sequence[ComingPlace] | None] = {}
    # Trials are copies of a first one, so that they share its remembered answers.
    first = working.fresh_copy()

    def places_after(losses: Losses) -> Sequence[ComingPlace] | None:
        if not possible.are_allowed(losses):
            return None
        effect = possible.effect(losses)
        if effect not in places_by_effect:
            trial = first.fresh_copy()
            places_by_effect[effect] = None
            if possible.take_losses(trial, losses, is_trial=True) is not None:
                coming = possible.coming(losses)
                places = place_with_leaving(trial, attempts, coming, spare, possible.now)
                places_by_effect[effect] = places
        return places_by_effect[effect]

    losses = least_loss(possible.candidates, lambda losses: places_after(losses) is not None)
    places = None if losses is None else places_after(losses)
    if losses is None or places is None or not choice.is_within_limits(losses):
        why = SPENT if places else CROWDED if choice.is_crowded else NOTHING_HELPS
        for attempt in attempts:
            if attempt.error is None and not attempt.is_placed:
                tell(attempt, why)
        return working, attempts
    after_losses = working.fresh_copy()
    victims = possible.take_losses(after_losses, losses) or []
    if any(place.has_to_wait for place in places):
        _nominate(working, choice, losses, places)
    else:
        decide_all(after_losses, attempts, possible.now)
        if any(attempt.error or not attempt.is_placed for attempt in attempts):
            return working, attempts
    _record_losses(choice, losses)
    return after_losses, [*victims, *attempts]


def _nominate(
    working: WorkingCopy, choice: _Choice, losses: Losses, places: Sequence[ComingPlace]
) -> None:
    """Let the attempts wait, with an earmark, for running pods of the victims to leave."""
    possible = choice.possible
    leaving = tuple(
        Leaving(candidate.binding, candidate.cluster, count, possible.victims[candidate.binding].id)
        for candidate, loss in zip(possible.candidates, losses, strict=True)
        if (count := possible.running(candidate, loss))
    )
    avoids = tuple(sorted(_avoided(working, choice.attempts)))
    for place in places:
        attempt = place.attempt
        attempt.result.nominated = Nomination(
            since=possible.now,
            until=possible.now + choice.limits.seconds,
            shares=place.shares,
            leaving=leaving,
            avoids=avoids,
        )
        attempt.result.awaits = awaited_pods_of(
            attempt.result.nominated, [item.replicas for item in leaving]
        )
        tell(attempt, attempt.result.awaits)
        # Losses of victims need a new decision, even if the last refusal had the same reason.
        attempt.result.standing = None


def _record_losses(choice: _Choice, losses: Losses) -> None:
    """Add the losses to the traces of the attempts, and to the spent limits."""
    reasons = loss_reasons(choice.possible.candidates, losses)
    for attempt in choice.attempts:
        decision = attempt.decision
        decision = replace(decision, trace=replace(decision.trace, preempted=reasons))
        attempt.result.verdict = replace(attempt.result.verdict, decision=decision)
    first = choice.attempts[0]
    first.result.losses = losses_by_namespace(choice.possible.candidates, losses)
    first.result.limits = choice.limits
