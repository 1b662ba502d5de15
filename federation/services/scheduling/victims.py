"""Who may lose replicas to bindings of higher priority, and what that leaves them.

Plain functions of their arguments. Must not choose: ``preempting`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from federation.failover.moves import PREEMPTED, PREEMPTED_BY, with_evictions
from federation.model.placement import Binding, BindingName
from federation.model.workload import ReplicaRequirements
from federation.scheduler.preemption import (
    Candidate,
    Losses,
    candidate_of,
    loss_decision,
    losses_by_binding,
    may_lose,
    open_clusters,
    ordered_candidates,
)
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.nominating import Coming, LeavingPods, pods_for_one
from federation.services.scheduling.verdicts import request_room, reserve_less
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import Verdict

# Who may lose something is looked for among so many.
MOST_LOOKED_AT: Final = 10_000


class LosableShare(NamedTuple):
    """Replicas of a binding in a cluster: on no node yet, and on nodes, by component. There are
    none of the latter where nobody who needs some can use the room of several of them.
    """

    waiting: int
    runs: tuple[LeavingPods, ...] = ()

    @property
    def running(self) -> int:
        return sum(each.replicas for each in self.runs)


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
                runs = self.share(candidate).runs
                # Of components all or none.
                leaving = [runs[0]._replace(replicas=count)] if len(runs) == 1 else [*runs]
                found.setdefault(candidate.cluster, []).extend(leaving)
        return found

    def effect(self, losses: Losses) -> Hashable:
        """Equal for losses that leave the same room."""
        promised = tuple(
            min(loss, self.share(candidate).waiting)
            for candidate, loss in zip(self.candidates, losses, strict=True)
        )
        left = Counter[Hashable]()
        for cluster, pods in self.coming(losses).items():
            for each in pods:
                left[cluster, id(each.requirements)] += each.replicas
        return promised, frozenset(left.items())

    def are_spare(self, losses: Losses) -> bool:
        """Whether each is left with as many as it asks for, or none."""
        lost = losses_by_binding(self.candidates, losses)
        return all(may_lose(self.victims[key].binding, sum(lost[key].values())) for key in lost)

    def shrunk(
        self, working: WorkingCopy, losses: Losses, *, is_trial: bool = False
    ) -> list[Attempt] | None:
        """The victims, with so much less on the working copy; None where that cannot be. In a trial
        those are left out of which nothing was promised: what runs is not in there.
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
        left = decision.clusters
        why = dict.fromkeys(leaving, f"{PREEMPTED_BY}{self.by}")
        tasks = with_evictions(binding, PREEMPTED, why, left, self.now)
        victim.candidate = replace(binding, clusters=left, eviction_tasks=tasks)
        victim.result.verdict = Verdict(decision=decision, evidence=snapshot.evidence_at(self.now))


def losable_shares(
    working: WorkingCopy, attempts: Sequence[Attempt], avoided: Collection[str] | None
) -> LosableShares:
    """What others have in the clusters that one of the attempts may go to; with what runs there,
    but for ``avoided`` clusters, unless that is None.
    """
    own = {attempt.binding.key for attempt in attempts}
    names = working.snapshot.names
    found: dict[BindingName, dict[str, LosableShare]] = {}
    let_in = (open_clusters(attempt.decision) for attempt in attempts)
    for position in sorted(set[int]().union(*let_in)):
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
    found = []
    for victim in victims.values():
        for target in victim.binding.clusters:
            there = shares[victim.key].get(target.name)
            if there is not None:
                waiting, running = there.waiting, there.running
                found.append(candidate_of(victim.binding, target, waiting=waiting, running=running))
    return ordered_candidates(filter(None, found), attempts[0].candidate.resource.uid)


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
    wanted = [part for attempt in attempts for part in _parts(attempt.candidate)]
    # Bindings that ask for the same mostly share one value.
    is_enough: dict[int, bool] = {}
    for key in ledger.bindings():
        held, counts = ledger.of_binding(key), waiting.get(key, Counter[str]())
        for each in held:
            asked = each.requirements
            if id(asked) not in is_enough:
                is_enough[id(asked)] = any(pods_for_one(asked, part) for part in wanted)
        # Of several shapes of one nobody knows which leave.
        is_counted = len({each.component for each in held}) == len(held)
        runs = [
            LeavingPods(each.requirements, each.replicas - counts[each.component])
            for each in held
            if each.replicas > counts[each.component]
        ]
        if not (is_counted and any(is_enough[id(each.requirements)] for each in runs)):
            runs = []
        if counts.total() or runs:
            yield key, LosableShare(counts.total(), tuple(runs))


def _parts(binding: Binding) -> list[ReplicaRequirements]:
    """What one pod of it asks for, by component."""
    return [each.requirements for each in binding.components] or [binding.requirements]
