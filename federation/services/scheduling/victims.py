"""Who may lose replicas to bindings of higher priority, and what that leaves them.

Plain functions of their arguments. Must not choose: ``preempting`` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from federation.failover.moves import PREEMPTED, with_evictions
from federation.model.placement import Binding, BindingName, SchedulingType
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.demand import Demand
from federation.scheduler.preemption import Candidate, Losses
from federation.scheduler.trace import undivided_trace
from federation.services.scheduling.decide import request_room, reserve
from federation.services.scheduling.nominating import Coming, LeavingPods, holds
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import Verdict

# Of the least urgent ones.
MOST_CANDIDATES: Final = 128
# Who may lose something is looked for among so many.
MOST_LOOKED_AT: Final = 10_000


class LosableShare(NamedTuple):
    """Replicas of a binding in a cluster: on no node yet, and on nodes. The latter are 0 where
    their room is too small for anybody who needs some.
    """

    waiting: int
    running: int
    requirements: ReplicaRequirements


# What may be lost, by binding and cluster.
LosableShares: TypeAlias = Mapping[BindingName, Mapping[str, LosableShare]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleVictims:
    """Those that may lose something to ``attempts``, as they would be decided on then."""

    attempts: Sequence[Attempt]
    victims: Mapping[str, Attempt]
    shares: LosableShares
    candidates: Sequence[Candidate]
    now: float

    @property
    def by(self) -> str:
        """Who preempts."""
        return self.attempts[0].binding.key

    def share(self, candidate: Candidate) -> LosableShare:
        return self.shares[self.victims[candidate.binding].key][candidate.cluster]

    def running(self, candidate: Candidate, loss: int) -> int:
        """How many of the replicas that it loses are on nodes: those that are not go first."""
        return max(0, loss - self.share(candidate).waiting)

    def coming(self, losses: Losses) -> Coming:
        """The room of which pods have to leave first, by cluster."""
        found: dict[str, list[LeavingPods]] = {}
        for candidate, loss in zip(self.candidates, losses, strict=True):
            if count := self.running(candidate, loss):
                pods = LeavingPods(self.share(candidate).requirements, count)
                found.setdefault(candidate.cluster, []).append(pods)
        return found

    def shrunk(self, working: WorkingCopy, losses: Losses) -> list[Attempt] | None:
        """The victims, with so much less on the working copy; None where that cannot be."""
        lost: dict[str, dict[str, int]] = {}
        leaving: dict[str, set[str]] = {}
        for candidate, loss in zip(self.candidates, losses, strict=True):
            if loss:
                lost.setdefault(candidate.binding, {})[candidate.cluster] = loss
            if self.running(candidate, loss):
                leaving.setdefault(candidate.binding, set()).add(candidate.cluster)
        shrunk = []
        for key, by_cluster in lost.items():
            victim = self.victims[key]
            if not _may_lose(victim.binding, sum(by_cluster.values())):
                return None
            self._decide_loss(working, victim, by_cluster, leaving.get(key, ()))
            request_room(working, victim, victim.binding.certificate or victim.profile.certificate)
            if reserve(working, victim) is not None:
                return None
            shrunk.append(victim)
        return shrunk

    def _decide_loss(
        self,
        working: WorkingCopy,
        victim: Attempt,
        lost: Mapping[str, int],
        leaving: Collection[str],
    ) -> None:
        binding, snapshot = victim.binding, working.snapshot
        left = tuple(_left(binding, lost))
        by = f"preempted by {self.by}"
        why = dict.fromkeys(leaving, by)
        tasks = with_evictions(binding, PREEMPTED, why, left, self.now)
        victim.candidate = replace(binding, clusters=left, eviction_tasks=tasks)
        where = ", ".join(f"{count} in {name}" for name, count in sorted(lost.items()))
        is_divided = binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
        missing = binding.replicas - sum(each.replicas for each in left)
        positions = snapshot.positions
        stays = {positions[e.name]: e.replicas for e in left if e.name in positions}
        victim.verdict = Verdict(
            decision=Decision(
                outcome=Outcome.PARTIAL if left else Outcome.UNSCHEDULABLE,
                clusters=left,
                remainder=max(missing, 0) if is_divided else sum(lost.values()),
                reason=f"{by}: {where}",
                trace=undivided_trace(snapshot.names, self.now, stays, by),
            ),
            evidence=snapshot.evidence_at(self.now),
        )


def losable_shares(
    working: WorkingCopy, attempts: Sequence[Attempt], avoided: Collection[str] | None
) -> LosableShares:
    """What others have in the clusters that one of the attempts may go to; with what runs there,
    but for ``avoided`` clusters, unless that is None.
    """
    own = {attempt.binding.key for attempt in attempts}
    names = working.snapshot.names
    found: dict[BindingName, dict[str, LosableShare]] = {}
    for position in sorted(_open_to(attempts)):
        cluster = names[position]
        with_running = avoided is not None and cluster not in avoided
        for key, share in _losable_in(working, position, attempts, with_running=with_running):
            if key not in own and len(found) < MOST_LOOKED_AT:
                namespace, _, name = key.rpartition("/")
                found.setdefault((namespace, name), {})[cluster] = share
    return found


def candidates_of(
    attempts: Sequence[Attempt], victims: Mapping[str, Attempt], shares: LosableShares
) -> list[Candidate]:
    """The least urgent ones, in the tie order."""
    found = [
        candidate
        for victim in victims.values()
        for target in victim.binding.clusters
        if target.name in shares[victim.key]
        and (candidate := _candidate(victim.binding, target, shares[victim.key][target.name]))
    ]
    found.sort(key=lambda each: each.priority)
    uid = attempts[0].candidate.resource.uid

    def tie_order(candidate: Candidate) -> tuple[bytes, str, str]:
        text = f"{uid}\0{candidate.cluster}\0{candidate.binding}".encode()
        hashed = blake2b(text, digest_size=8).digest() if uid else b""
        return hashed, candidate.cluster, candidate.binding

    return sorted(found[:MOST_CANDIDATES], key=tie_order)


def _open_to(attempts: Sequence[Attempt]) -> set[int]:
    """The clusters, by position, that let in one of them, had it room there."""
    found: set[int] = set()
    for attempt in attempts:
        filtering = attempt.verdict.decision.trace.filtering
        found |= {
            position
            for position, refusal in enumerate(filtering.refusal_c.tolist())
            if refusal < 0 or filtering.refusals[refusal].filter == "Capacity"
        }
    return found


def _losable_in(
    working: WorkingCopy, position: int, attempts: Sequence[Attempt], *, with_running: bool
) -> Iterator[tuple[str, LosableShare]]:
    ledger = working.ledger(position)
    waiting: dict[str, int] = {}
    for each in ledger.outstanding():
        waiting[each.binding] = waiting.get(each.binding, 0) + each.to_pack
    if not with_running:
        for key, count in waiting.items():
            if count:
                yield key, LosableShare(count, 0, ledger.newest(key)[0].requirements)
        return
    # Bindings that ask for the same mostly share one value.
    is_enough: dict[int, bool] = {}
    for key in ledger.bindings():
        first, *others = ledger.of_binding(key)
        asked = first.requirements
        if id(asked) not in is_enough:
            is_enough[id(asked)] = any(holds(asked, each.candidate) for each in attempts)
        # Of several shapes or components nobody knows which leave.
        is_counted = not others and not first.component and is_enough[id(asked)]
        count = waiting.get(key, 0)
        running = max(0, first.replicas - count) if is_counted else 0
        if count or running:
            yield key, LosableShare(count, running, asked)


def _candidate(binding: Binding, target: TargetCluster, share: LosableShare) -> Candidate | None:
    """What a binding may lose in a cluster: of a share that may shrink single replicas, else all of
    it. One that ignores what fits would grow back at once: it does not shrink by what runs.
    """
    total = sum(each.replicas for each in binding.clusters)
    may_shrink = (
        binding.placement.partial
        and not binding.components
        and binding.placement.replica_scheduling.type is SchedulingType.DIVIDED
    )
    every = share.waiting + share.running
    spare = every if Demand.of(binding).rule.heeds_capacity else share.waiting
    spare = min(spare, target.replicas, total - (binding.min_available or 0))
    if may_shrink and spare > 0:
        replicas = spare
    elif 0 < target.replicas <= every and _may_lose(binding, target.replicas):
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


def _left(binding: Binding, lost: Mapping[str, int]) -> Iterator[TargetCluster]:
    for target in binding.clusters:
        replicas = target.replicas - lost.get(target.name, 0)
        if replicas or target.name not in lost:
            yield TargetCluster(name=target.name, replicas=replicas)
