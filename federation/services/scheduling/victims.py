"""Possible victims of preemption: the replicas that they may lose, and what remains of them.

Functions of a working copy. Must not choose victims: ``preempting`` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias

from federation.failover.moves import PREEMPTED, PREEMPTED_BY, with_evictions
from federation.model.placement import BindingName
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
from federation.scheduler.promisable import requirements_of
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.nominating import Coming, LeavingPods, pods_per_replica
from federation.services.scheduling.verdicts import request_room, reserve_less
from federation.services.scheduling.working_copy import WorkingCopy
from federation.services.values import Verdict

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
