"""Preemption: who loses replicas so that bindings of higher priority have room.

Promises whose pods are on no node yet are taken at once. Who needs the room of pods that run waits
until they have left, and the room is kept for it. Must not commit: the losses and what they make
room for are written together, or not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
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
)
from federation.services.binding_ports import Peers, StoredBinding
from federation.services.journal_ports import Holding, PreemptionLimits
from federation.services.ports import Store, Transaction
from federation.services.scheduling.attempt import Attempt, AttemptRole, StoredFacts
from federation.services.scheduling.attempt_batch import is_together
from federation.services.scheduling.claims import (
    MOST_NOMINATED,
    nominated_now,
    still_there,
    waits_for,
)
from federation.services.scheduling.nominating import ComingPlace, placed_beside, spare_slots
from federation.services.scheduling.together import decide_all, is_atomic, moves_as_group
from federation.services.scheduling.verdicts import tell
from federation.services.scheduling.victims import PossibleVictims, candidates_of, losable_shares
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import Threads
from federation.services.values import Scheduled

DEFAULT_LIMITS: Final = PreemptionLimits(
    replicas=MAX_PREEMPTED, in_namespace=MAX_PREEMPTED_IN_NAMESPACE
)
# Of the least urgent ones.
MOST_BINDINGS: Final = 100
CROWDED: Final = Reason.of(ReasonCode.PREEMPTION_CROWDED, Amount(MOST_NOMINATED))


def wants_preemption(attempts: Sequence[Attempt]) -> bool:
    """Whether others are to make room for these, now that they find none: for one, or for all that
    are placed together.
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
    """Those of a batch that others are to make room for, with all that they are placed with."""
    units = [attempts] if is_atomic(attempts) else [[attempt] for attempt in attempts]
    return [attempt for unit in units if wants_preemption(unit) for attempt in unit]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """What is known when victims are chosen; ``spent`` are the replicas that were preempted within
    the last minute, by namespace.
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
        lost = self.by_namespace(losses)
        return are_within(limits.replicas, limits.in_namespace, lost, self.spent)

    def by_namespace(self, losses: Losses) -> Counter[str]:
        counted = Counter[str]()
        for candidate, loss in zip(self.possible.candidates, losses, strict=True):
            counted[self.possible.victims[candidate.binding].binding.namespace] += loss
        return +counted


class Preemption:
    """Makes room for bindings that ask for it."""

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
        """``plan``, where others are to make room for the attempts; else as they are."""
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
        """The victims and the attempts, which have room then, or once the victims have left; or the
        attempts alone, told why not.

        The working copy is the one that they were decided on.
        """
        # Who does not wait for room does not wait for others to leave.
        may_wait = all(attempt.wait and not attempt.atomic for attempt in attempts)
        kept_for = nominated_now(attempts[0], now) + len(attempts)
        is_crowded = may_wait and kept_for > MOST_NOMINATED
        avoided = _avoided(working, attempts) if may_wait and not is_crowded else None
        shares = await threads.run(losable_shares, working, attempts, avoided)
        below = min(attempt.candidate.priority for attempt in attempts)
        known = await read.bindings.preemptible(shares.keys(), below, MOST_BINDINGS)
        holdings = await read.reservations.holdings(known.keys())
        peers = {
            key: await read.bindings.peers(stored.binding)
            for key, stored in known.items()
            if is_grouped(stored.binding)
        }
        victims = {
            stored.binding.key: victim
            for key, stored in known.items()
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
        return await threads.run(_planned, working, choice)

    def _victim(
        self, stored: StoredBinding, holding: Holding | None, peers: Peers | None
    ) -> Attempt | None:
        try:
            profile = self._profiles.profile_of(stored.binding)
        except InvalidRequest:
            # Nobody can say what its promises are to be worth.
            return None
        nobody: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
        nobody.cancel()
        facts = StoredFacts(stored=stored, holding=holding or Holding(), peers=peers or Peers())
        return Attempt(
            binding=stored.binding,
            role=AttemptRole.VICTIM,
            answer=nobody,
            profile=profile,
            facts=facts,
        )


def is_wholly_in(working: WorkingCopy, stored: StoredBinding) -> bool:
    """Whether the fleet has every cluster of a binding, so that all that stays is counted."""
    return all(each.name in working.snapshot.positions for each in stored.binding.clusters)


def _avoided(working: WorkingCopy, attempts: Sequence[Attempt]) -> frozenset[str]:
    """Clusters where those that were to leave for one of the attempts have not, in time."""
    found: set[str] = set()
    for attempt in attempts:
        wait = attempt.stored_wait
        if wait is not None and wait.nominated is not None:
            found.update(wait.nominated.avoids)
            leaving = wait.nominated.leaving
            found.update(each.cluster for each in leaving if still_there(working, each))
    return frozenset(found)


def _planned(working: WorkingCopy, choice: _Choice) -> tuple[WorkingCopy, Sequence[Attempt]]:
    """Raises nothing: who finds no victims is told so."""
    possible, attempts = choice.possible, choice.attempts

    spare = spare_slots(working, {each.cluster for each in possible.candidates})
    known: dict[Hashable, Sequence[ComingPlace] | None] = {}
    # Who comes of it knows what others found out.
    fresh = working.anew()

    def places(losses: Losses) -> Sequence[ComingPlace] | None:
        if not possible.are_spare(losses):
            return None
        effect = possible.effect(losses)
        if effect not in known:
            trial = fresh.anew()
            known[effect] = None
            if possible.shrunk(trial, losses, is_trial=True) is not None:
                coming = possible.coming(losses)
                known[effect] = placed_beside(trial, attempts, coming, spare, possible.now)
        return known[effect]

    losses = least_loss(possible.candidates, lambda each: places(each) is not None)
    found = None if losses is None else places(losses)
    if losses is None or found is None or not choice.is_within_limits(losses):
        why = SPENT if found else CROWDED if choice.is_crowded else NOTHING_HELPS
        for attempt in attempts:
            if attempt.error is None and not attempt.is_placed:
                tell(attempt, why)
        return working, attempts
    made = working.anew()
    victims = possible.shrunk(made, losses) or []
    if any(place.has_to_wait for place in found):
        _nominate(working, choice, losses, found)
    else:
        decide_all(made, attempts, possible.now)
        if any(attempt.error or not attempt.is_placed for attempt in attempts):
            return working, attempts
    _note(choice, losses)
    return made, [*victims, *attempts]


def _nominate(
    working: WorkingCopy, choice: _Choice, losses: Losses, places: Sequence[ComingPlace]
) -> None:
    """They wait, and room is kept for them, until those that run have left."""
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
        attempt.result.awaits = waits_for(
            attempt.result.nominated, [each.replicas for each in leaving]
        )
        tell(attempt, attempt.result.awaits)
        # That others lose is news, even where it was refused before in the same words.
        attempt.result.standing = None


def _note(choice: _Choice, losses: Losses) -> None:
    """What its decision says of them, and what counts against the limits."""
    told = loss_reasons(choice.possible.candidates, losses)
    for attempt in choice.attempts:
        decision = attempt.decision
        decision = replace(decision, trace=replace(decision.trace, preempted=told))
        attempt.result.verdict = replace(attempt.result.verdict, decision=decision)
    first = choice.attempts[0]
    first.result.losses, first.result.limits = choice.by_namespace(losses), choice.limits
