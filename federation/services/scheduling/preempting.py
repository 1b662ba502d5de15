"""Preemption: bindings lose replicas so that bindings of higher priority are placed.

Promises whose pods are on no node yet are taken at once. A binding that needs the capacity of
running pods is nominated: it waits for these pods to leave, and the capacity is earmarked. Must not
commit: victims and preempting bindings are written in one transaction, or not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from federation.failover.moves import PREEMPTED, PREEMPTED_BY, with_evictions
from federation.model.errors import InvalidRequest, NotPlacedTogether
from federation.model.placement import BindingName, PreemptionPolicy, is_grouped
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
    Candidate,
    Losses,
    are_within,
    candidate_of,
    least_loss,
    loss_decision,
    loss_reasons,
    losses_by_binding,
    losses_by_namespace,
    may_lose,
    open_clusters,
    ordered_candidates,
)
from federation.scheduler.promisable import requirements_of
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
from federation.services.scheduling.nominating import (
    Coming,
    ComingPlace,
    LeavingPods,
    place_with_leaving,
    pods_per_replica,
    spare_slots,
)
from federation.services.scheduling.together import decide_all, is_atomic, moves_as_group
from federation.services.scheduling.verdicts import request_room, reserve_less, tell
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import Threads
from federation.services.values import Scheduled, Verdict

# Bindings considered as victims in one preemption.
MAX_CONSIDERED: Final = 10_000


class LosableShare(NamedTuple):
    """The replicas of a binding in a cluster that it may lose.

    ``waiting`` replicas are on no node yet, ``runs`` are on nodes, by component. ``runs`` is empty
    if no preempting binding could use the place of these pods.
    """

    waiting: int
    runs: tuple[LeavingPods, ...] = ()

    @property
    def running(self) -> int:
        return sum(pods.replicas for pods in self.runs)


# Losable shares by binding and cluster.
LosableShares: TypeAlias = Mapping[BindingName, Mapping[str, LosableShare]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleVictims:
    """The bindings that may lose replicas to ``attempts``, as attempts themselves."""

    attempts: Sequence[Attempt]
    victims: Mapping[str, Attempt]
    shares: LosableShares
    candidates: Sequence[Candidate]
    now: float

    @property
    def by(self) -> str:
        """The key of the preempting binding, or of the first one of a group."""
        return self.attempts[0].binding.key

    def share(self, candidate: Candidate) -> LosableShare:
        return self.shares[self.victims[candidate.binding].key][candidate.cluster]

    def running(self, candidate: Candidate, loss: int) -> int:
        """Return how many of the lost replicas are on nodes; replicas on no node go first."""
        return max(0, loss - self.share(candidate).waiting)

    def coming(self, losses: Losses) -> Coming:
        """Return the running pods that have to leave, by cluster."""
        pods_by_cluster: dict[str, list[LeavingPods]] = {}
        for candidate, loss in zip(self.candidates, losses, strict=True):
            if count := self.running(candidate, loss):
                runs = self.share(candidate).runs
                # A set of components leaves as a whole.
                leaving = [runs[0]._replace(replicas=count)] if len(runs) == 1 else [*runs]
                pods_by_cluster.setdefault(candidate.cluster, []).extend(leaving)
        return pods_by_cluster

    def effect(self, losses: Losses) -> Hashable:
        """Return a key that is equal for losses that release the same capacity."""
        promised = tuple(
            min(loss, self.share(candidate).waiting)
            for candidate, loss in zip(self.candidates, losses, strict=True)
        )
        running = Counter[Hashable]()
        for cluster, groups in self.coming(losses).items():
            for pods in groups:
                running[cluster, id(pods.requirements)] += pods.replicas
        return promised, frozenset(running.items())

    def are_allowed(self, losses: Losses) -> bool:
        """Tell whether every victim keeps as many replicas as it must, or none."""
        lost = losses_by_binding(self.candidates, losses)
        return all(may_lose(self.victims[key].binding, sum(lost[key].values())) for key in lost)

    def take_losses(
        self, working: WorkingCopy, losses: Losses, *, is_trial: bool = False
    ) -> list[Attempt] | None:
        """Take the losses from the victims in a working copy. Return the victims with losses.

        Return None if the copy does not allow it. A trial omits victims that lose running pods
        only, because these have no outstanding promises to drop.
        """
        leaving: dict[str, set[str]] = {}
        for candidate, loss in zip(self.candidates, losses, strict=True):
            if self.running(candidate, loss):
                leaving.setdefault(candidate.binding, set()).add(candidate.cluster)
        shrunk = []
        for key, lost in losses_by_binding(self.candidates, losses).items():
            victim = self.victims[key]
            shares = self.shares[victim.key]
            if is_trial and not any(shares[cluster].waiting for cluster in lost):
                continue
            self._decide_loss(working, victim, lost, leaving.get(key, ()))
            request_room(working, victim, victim.binding.certificate or victim.profile.certificate)
            shrunk.append(victim)
        return shrunk if reserve_less(working, shrunk) else None

    def _decide_loss(
        self,
        working: WorkingCopy,
        victim: Attempt,
        lost: Mapping[str, int],
        leaving: Collection[str],
    ) -> None:
        binding, snapshot = victim.binding, working.snapshot
        decision = loss_decision(binding, lost, self.by, snapshot.names, self.now)
        remaining = decision.clusters
        why = dict.fromkeys(leaving, f"{PREEMPTED_BY}{self.by}")
        tasks = with_evictions(binding, PREEMPTED, why, remaining, self.now)
        victim.candidate = replace(binding, clusters=remaining, eviction_tasks=tasks)
        victim.result.verdict = Verdict(decision=decision, evidence=snapshot.evidence_at(self.now))


def losable_shares(
    working: WorkingCopy, attempts: Sequence[Attempt], avoided: Collection[str] | None
) -> LosableShares:
    """Return the shares of other bindings in clusters that one of the attempts may use.

    Running replicas count except in ``avoided`` clusters; if that is None, they count nowhere.
    """
    own = {attempt.binding.key for attempt in attempts}
    names = working.snapshot.names
    shares: dict[BindingName, dict[str, LosableShare]] = {}
    let_in = (open_clusters(attempt.decision) for attempt in attempts)
    for position in sorted(set[int]().union(*let_in)):
        cluster = names[position]
        with_running = avoided is not None and cluster not in avoided
        for key, share in _losable_in(working, position, attempts, with_running=with_running):
            if key not in own and len(shares) < MAX_CONSIDERED:
                namespace, _, name = key.rpartition("/")
                shares.setdefault((namespace, name), {})[cluster] = share
    return shares


def candidates_of(
    attempts: Sequence[Attempt], victims: Mapping[str, Attempt], shares: LosableShares
) -> list[Candidate]:
    """Return the candidates for losses, the least urgent first, ties in the tie order."""
    candidates = [
        candidate_of(victim.binding, target, waiting=share.waiting, running=share.running)
        for victim in victims.values()
        for target in victim.binding.clusters
        if (share := shares[victim.key].get(target.name)) is not None
    ]
    return ordered_candidates(filter(None, candidates), attempts[0].candidate.resource.uid)


def _losable_in(
    working: WorkingCopy, position: int, attempts: Sequence[Attempt], *, with_running: bool
) -> Iterator[tuple[str, LosableShare]]:
    ledger = working.ledger(position)
    waiting: dict[str, Counter[str]] = {}
    for promise in ledger.outstanding():
        waiting.setdefault(promise.binding, Counter())[promise.component] += promise.to_pack
    if not with_running:
        for key, counts in waiting.items():
            if counts.total():
                yield key, LosableShare(counts.total())
        return
    replicas = [part for attempt in attempts for part in requirements_of(attempt.candidate)]
    # Bindings with equal requirements mostly share one value.
    is_useful: dict[int, bool] = {}
    for key in ledger.bindings():
        reservations, counts = ledger.of_binding(key), waiting.get(key, Counter[str]())
        for item in reservations:
            pod = item.requirements
            if id(pod) not in is_useful:
                is_useful[id(pod)] = any(pods_per_replica(pod, replica) for replica in replicas)
        # If a component has several shapes, the shape of the pods that leave is unknown.
        has_one_shape = len({item.component for item in reservations}) == len(reservations)
        runs = [
            LeavingPods(item.requirements, item.replicas - counts[item.component])
            for item in reservations
            if item.replicas > counts[item.component]
        ]
        if not (has_one_shape and any(is_useful[id(pods.requirements)] for pods in runs)):
            runs = []
        if counts.total() or runs:
            yield key, LosableShare(counts.total(), tuple(runs))


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
