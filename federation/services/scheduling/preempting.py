"""Preemption: who loses replicas so that a binding of higher priority has room.

Only promises are taken whose pods are on no node yet: their room is free at once. Must not commit:
the losses and what they make room for are written together, or not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, TypeAlias

from federation.model.errors import InvalidRequest
from federation.model.placement import (
    Binding,
    BindingName,
    PreemptionPolicy,
    SchedulingType,
    is_grouped,
)
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.plugins.profile import Profiles
from federation.scheduler.preemption import Candidate, Losses, least_loss
from federation.scheduler.trace import undivided_trace
from federation.services.journal_ports import Holding, PreemptionLimits
from federation.services.ports import Peers, StoredBinding, Transaction
from federation.services.scheduling.decide import request_room, reserve, tell
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.together import decide_all, is_placeable
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.threads import Threads
from federation.services.values import Scheduled, Verdict

DEFAULT_LIMITS: Final = PreemptionLimits(replicas=1000, in_namespace=100)
# Of the least urgent ones.
MOST_BINDINGS, MOST_CANDIDATES = 100, 128
NOTHING_HELPS: Final = "nothing of lower priority makes room that is on no node yet"
SPENT: Final = "no more replicas may be preempted within this minute"

# How many replicas that are on no node yet bindings have in clusters.
_Open: TypeAlias = Mapping[BindingName, Mapping[str, int]]


def wants_preemption(attempt: Attempt) -> bool:
    """Whether others are to make room for it, now that it finds none."""
    return (
        attempt.candidate.preemption_policy is PreemptionPolicy.PREEMPT_LOWER_PRIORITY
        and not attempt.atomic
        and attempt.error is None
        and attempt.verdict.decision.outcome is Outcome.UNSCHEDULABLE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Urgency:
    """What is known when victims are chosen for an attempt; ``spent`` are the replicas that were
    preempted within the last minute, by namespace.
    """

    attempt: Attempt
    victims: Mapping[str, Attempt]
    candidates: Sequence[Candidate]
    limits: PreemptionLimits
    spent: Mapping[str, int]
    now: float

    def is_within_limits(self, losses: Losses) -> bool:
        by_namespace = self.by_namespace(losses)
        if by_namespace.total() + sum(self.spent.values()) > self.limits.replicas:
            return False
        return all(
            count + self.spent.get(namespace, 0) <= self.limits.in_namespace
            for namespace, count in by_namespace.items()
        )

    def by_namespace(self, losses: Losses) -> Counter[str]:
        counted = Counter[str]()
        for candidate, loss in zip(self.candidates, losses, strict=True):
            counted[self.victims[candidate.binding].binding.namespace] += loss
        return +counted


class Preemption:
    """Makes room for bindings that ask for it."""

    def __init__(self, profiles: Profiles, limits: PreemptionLimits) -> None:
        self._profiles = profiles
        self._limits = limits

    async def plan(
        self,
        read: Transaction,
        working: WorkingCopy,
        attempt: Attempt,
        threads: Threads,
        now: float,
    ) -> tuple[WorkingCopy, list[Attempt]]:
        """Its victims and the attempt, which has room then; or the attempt alone, told why not.

        The working copy is the one that they were decided on.
        """
        open_there = await threads.run(_open, working, attempt)
        spent = await read.preemptions.spent()
        known = await read.bindings.preemptible(
            open_there.keys(), attempt.candidate.priority, MOST_BINDINGS
        )
        holdings = await read.reservations.holdings(known.keys())
        peers = {
            key: await read.bindings.peers(stored.binding)
            for key, stored in known.items()
            if is_grouped(stored.binding)
        }
        victims = {
            stored.binding.key: victim
            for key, stored in known.items()
            if (victim := self._victim(stored, holdings.get(key), peers.get(key)))
        }
        urgency = _Urgency(
            attempt=attempt,
            victims=victims,
            candidates=_candidates(attempt, victims, open_there),
            limits=self._limits,
            spent=spent,
            now=now,
        )
        return await threads.run(_planned, working, urgency)

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
        victim = Attempt(binding=stored.binding, is_victim=True, answer=nobody, profile=profile)
        victim.known, victim.holding = stored, holding or Holding()
        victim.peers = peers or Peers()
        return victim


def _open(working: WorkingCopy, attempt: Attempt) -> _Open:
    """In the clusters that the attempt may go to."""
    filtering = attempt.verdict.decision.trace.filtering
    open_there: dict[BindingName, Counter[str]] = {}
    for position, refusal in enumerate(filtering.refusal_c.tolist()):
        if refusal >= 0 and filtering.refusals[refusal].filter != "Capacity":
            continue
        cluster = working.snapshot.names[position]
        for each in working.ledger(position).outstanding():
            namespace, _, name = each.binding.rpartition("/")
            if each.to_pack:
                open_there.setdefault((namespace, name), Counter())[cluster] += each.to_pack
    open_there.pop(attempt.key, None)
    return open_there


def _candidates(
    attempt: Attempt, victims: Mapping[str, Attempt], open_there: _Open
) -> list[Candidate]:
    """The least urgent ones, in the tie order."""
    found = [
        candidate
        for victim in victims.values()
        for target in victim.binding.clusters
        if (candidate := _candidate(victim, target, open_there[victim.key][target.name]))
    ]
    found.sort(key=lambda each: each.priority)
    uid = attempt.candidate.resource.uid

    def tie_order(candidate: Candidate) -> tuple[bytes, str, str]:
        text = f"{uid}\0{candidate.cluster}\0{candidate.binding}".encode()
        hashed = blake2b(text, digest_size=8).digest() if uid else b""
        return hashed, candidate.cluster, candidate.binding

    return sorted(found[:MOST_CANDIDATES], key=tie_order)


def _candidate(victim: Attempt, target: TargetCluster, open_replicas: int) -> Candidate | None:
    """What a binding may lose in a cluster: of a share that may shrink what is on no node yet, else
    all of it where nothing is.
    """
    binding = victim.binding
    total = sum(each.replicas for each in binding.clusters)
    may_shrink = (
        binding.placement.partial
        and not binding.components
        and binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    )
    spare = min(open_replicas, target.replicas, total - (binding.min_available or 0))
    if may_shrink and spare > 0:
        replicas = spare
    elif 0 < target.replicas <= open_replicas and _may_lose(binding, target.replicas):
        replicas, may_shrink = target.replicas, False
    else:
        return None
    return Candidate(
        binding=binding.key,
        cluster=target.name,
        priority=binding.priority,
        replicas=replicas,
        divisible=may_shrink,
        placed_at=binding.last_scheduled_time or 0.0,
    )


def _may_lose(binding: Binding, replicas: int) -> bool:
    """Whether as many as it asks for are left, or none."""
    left = sum(each.replicas for each in binding.clusters) - replicas
    return not left or left >= (binding.min_available or 0)


def _planned(working: WorkingCopy, urgency: _Urgency) -> tuple[WorkingCopy, list[Attempt]]:
    """Raises nothing: who finds no victims is told so."""
    attempt, candidates = urgency.attempt, urgency.candidates

    def fits(losses: Losses) -> bool:
        trial = working.anew()
        return _shrunk(trial, urgency, losses) is not None and is_placeable(
            trial, attempt, urgency.now
        )

    losses = least_loss(candidates, fits)
    if losses is None or not urgency.is_within_limits(losses):
        tell(attempt, NOTHING_HELPS if losses is None else SPENT)
        return working, [attempt]
    made = working.anew()
    victims = _shrunk(made, urgency, losses) or []
    decide_all(made, [attempt], urgency.now)
    if attempt.error or not attempt.is_placed:
        return working, [attempt]
    _note(urgency, losses)
    return made, [*victims, attempt]


def _note(urgency: _Urgency, losses: Losses) -> None:
    """What its decision says of them, and what counts against the limits."""
    attempt = urgency.attempt
    told = tuple(
        f"{candidate.binding}: {loss} in {candidate.cluster}, priority {candidate.priority}"
        for candidate, loss in zip(urgency.candidates, losses, strict=True)
        if loss
    )
    decision = attempt.verdict.decision
    decision = replace(decision, trace=replace(decision.trace, preempted=told))
    attempt.verdict = replace(attempt.verdict, decision=decision)
    attempt.losses, attempt.limits = urgency.by_namespace(losses), urgency.limits


def _shrunk(working: WorkingCopy, urgency: _Urgency, losses: Losses) -> list[Attempt] | None:
    """The victims, with so much less on the working copy; None where that cannot be."""
    lost: dict[str, dict[str, int]] = {}
    for candidate, loss in zip(urgency.candidates, losses, strict=True):
        if loss:
            lost.setdefault(candidate.binding, {})[candidate.cluster] = loss
    shrunk = []
    for key, by_cluster in lost.items():
        victim = urgency.victims[key]
        if not _may_lose(victim.binding, sum(by_cluster.values())):
            return None
        _decide_loss(working, victim, by_cluster, urgency)
        request_room(working, victim, victim.binding.certificate or victim.profile.certificate)
        if reserve(working, victim) is not None:
            return None
        shrunk.append(victim)
    return shrunk


def _decide_loss(
    working: WorkingCopy, victim: Attempt, lost: Mapping[str, int], urgency: _Urgency
) -> None:
    binding, snapshot = victim.binding, working.snapshot
    left = tuple(_left(binding, lost))
    victim.candidate = replace(binding, clusters=left)
    by = f"preempted by {urgency.attempt.binding.key}"
    where = ", ".join(f"{count} in {name}" for name, count in sorted(lost.items()))
    is_divided = binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    missing = binding.replicas - sum(each.replicas for each in left)
    victim.verdict = Verdict(
        decision=Decision(
            outcome=Outcome.PARTIAL if left else Outcome.UNSCHEDULABLE,
            clusters=left,
            remainder=max(missing, 0) if is_divided else sum(lost.values()),
            reason=f"{by}: {where}",
            trace=undivided_trace(
                snapshot.names,
                urgency.now,
                {
                    snapshot.positions[each.name]: each.replicas
                    for each in left
                    if each.name in snapshot.positions
                },
                by,
            ),
        ),
        evidence=snapshot.evidence_at(urgency.now),
    )


def _left(binding: Binding, lost: Mapping[str, int]) -> Iterator[TargetCluster]:
    for target in binding.clusters:
        replicas = target.replicas - lost.get(target.name, 0)
        if replicas or target.name not in lost:
            yield TargetCluster(name=target.name, replicas=replicas)
