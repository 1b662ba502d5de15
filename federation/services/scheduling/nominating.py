"""Places for bindings in room that others have not left yet.

Plain functions of their arguments, for one thread of their own. Must not promise such room: it is
kept, and promised once reports show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import ceil, lcm
from typing import Final, NamedTuple, TypeAlias

from federation.capacity.cluster_room import Room
from federation.capacity.reserve import Refused
from federation.model.estimate import MAX_REPLICAS, Estimates, Source
from federation.model.pools.bounds import per_replica
from federation.model.pools.matching import Match
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Amount, Reason
from federation.model.resources import PODS
from federation.model.workload import Component, ReplicaRequirements, TargetCluster
from federation.scheduler.decide import Decided, Draft, OfferedCapacity
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.claims import beside_claims
from federation.services.scheduling.shares import Reserved
from federation.services.scheduling.trial_capacity import TrialCapacity, tried_together
from federation.services.scheduling.verdicts import request_room, take_over
from federation.services.scheduling.working_copy import WorkingCopy

# Where more nodes may have them, so many small pods would have to leave for a large one, until one
# node surely has the room, that nobody would want it.
MOST_SHARED_NODES: Final = 8
# So many are looked for in what is free; others wait for room that comes.
MOST_COMPONENTS: Final = 8


class LeavingPods(NamedTuple):
    """Pods that have to leave a cluster, and what each asked for."""

    requirements: ReplicaRequirements
    replicas: int


# The room of pods that leave, by cluster.
Coming: TypeAlias = Mapping[str, Sequence[LeavingPods]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingPlace:
    """Where an attempt gets more; not all of that is free where it ``has_to_wait``."""

    attempt: Attempt
    shares: tuple[TargetCluster, ...]
    has_to_wait: bool


def holds(leaving: ReplicaRequirements, wanted: ReplicaRequirements, spare_slots: int = 0) -> int:
    """How many replicas surely fit where a pod was, on whichever node that is: reports do not say
    which pods share a node. Every node has so many pod slots to spare.
    """
    if leaving.node_claim != wanted.node_claim:
        return 0
    fitting = [
        leaving.request.get(name, 0) // amount
        for name, amount in per_replica(wanted.request).items()
        if name != PODS
    ]
    return min(*fitting, 1 + spare_slots) if fitting else 1 + spare_slots


def pods_for_one(leaving: ReplicaRequirements, wanted: ReplicaRequirements) -> int:
    """How many pods have to leave one node, so that a replica surely fits there; 0: that never is
    so.
    """
    if leaving.node_claim != wanted.node_claim:
        return 0
    most = 1
    for name, amount in per_replica(wanted.request).items():
        left = 1 if name == PODS else leaving.request.get(name, 0)
        if not left:
            return 0
        most = max(most, -(-amount // left))
    return most


def fit_wherever(pods: Iterable[tuple[int, int]], nodes: int) -> int:
    """How many replicas surely fit once pods have left, however they shared that many nodes.

    ``pods`` are counts, each with how many of such make room for one on a node. By the worst spread
    each node is left with the largest part of a replica that is no whole one.
    """
    counted = [(count, for_one) for count, for_one in pods if for_one]
    part = Fraction(1, lcm(*(for_one for _, for_one in counted)))
    left = sum(Fraction(count, for_one) for count, for_one in counted)
    return max(0, ceil(left - nodes * (1 - part)))


def placed_beside(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    coming: Coming,
    spare: Mapping[int, int],
    now: float,
) -> list[ComingPlace] | None:
    """Where each of the attempts goes, all together, in what is free and what is coming; None where
    one finds no place. Only the working copy is changed. ``spare`` are the spare pod slots.
    """
    left = {working.snapshot.positions[name]: [*pods] for name, pods in coming.items()}
    kept = {position: working.room(position) for position in left}

    def capacity_of(trial: Attempt) -> ComingCapacity:
        return ComingCapacity(
            working=working,
            decision=trial.id,
            attempt=trial,
            now=now,
            left=left,
            ways={
                position: _ways(working, trial, position, room, spare.get(position, 0))
                for position, room in kept.items()
            },
        )

    capacities = tried_together(attempts, capacity_of)
    if capacities is None:
        return None
    return [capacity.place(attempt) for attempt, capacity in zip(attempts, capacities, strict=True)]


@dataclass(kw_only=True, eq=False)
class ComingCapacity(TrialCapacity):
    """What can be promised now, and what is ``left`` of the pods that leave, by position.

    ``ways`` say how the replicas of the attempt may use that.
    """

    left: Mapping[int, list[LeavingPods]]
    ways: Mapping[int, _Ways | _SetWays]
    more: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def free(self) -> Estimates:
        """The capacity that is free already, beside the claims of bindings that come first."""
        working, trial = self.working, self.attempt
        asked = trial.candidate.certificate or trial.profile.certificate
        available = working.availability(trial.candidate, asked)
        return beside_claims(working, trial, available, self.now).estimates

    def available(self, draft: Draft) -> OfferedCapacity:  # noqa: ARG002 - of one attempt
        """Return what is free and what is coming."""
        return OfferedCapacity(_with_coming(self.free, self.left, self.ways))

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Promise what is free already; the rest is taken of the room of the pods that leave."""
        working, trial = self.working, self.attempt
        take_over(trial, draft, decided, working.snapshot, self.now)
        self.more = _more(trial)
        self.late = _late(working, trial, self.free, self.more)
        for name, count in self.late.items():
            position = working.snapshot.positions[name]
            if position not in self.ways or not self.ways[position].take(
                self.left[position], count
            ):
                units = self.more[name]
                why = Reason.of(ReasonCode.ROOM_TOO_SMALL, Amount(units - count), Amount(units))
                return Refused(reasons={name: why})
        now_placed = _less(decided.decision.clusters, self.late)
        return working.reserve(request_room(working, trial, draft.certificate, now_placed))

    def place(self, attempt: Attempt) -> ComingPlace:
        """Return where the attempt gets more, once that is reserved."""
        more = sorted(self.more.items())
        shares = tuple(TargetCluster(name=name, replicas=count) for name, count in more)
        return ComingPlace(attempt=attempt, shares=shares, has_to_wait=bool(self.late))


def spare_slots(working: WorkingCopy, clusters: Iterable[str]) -> Mapping[int, int]:
    """How many pod slots every node of these clusters has to spare, by position."""
    positions = {working.snapshot.positions[name] for name in clusters}
    return {position: _spare_slots(working.room(position)) for position in positions}


def _spare_slots(room: Room | None) -> int:
    """How many pod slots every node of a cluster has, whatever is promised lands on it."""
    cells = room.pools.cells if room else None
    if room is None or cells is None or PODS not in cells.resources or not len(cells):
        return 0
    least = int(cells.min_rk[cells.resources.index(PODS)].min())
    return max(0, least - sum(each.to_pack for each in room.outstanding))


def _nodes(room: Room | None, wanted: ReplicaRequirements) -> int:
    """How many nodes of a cluster it may be on, and so may those that ask for the same nodes."""
    cells = room.pools.cells if room else None
    if room is None or cells is None:
        return 0
    verdict_p = room.kinds.verdicts(wanted.node_claim)
    if verdict_p is None:
        return int(cells.count_k.sum())
    suits_k = verdict_p[room.site.kind_p[cells.pool_k]] != Match.NO
    return int(cells.count_k[suits_k].sum())


class _Ways(NamedTuple):
    """How replicas may use room that comes in a cluster: where one pod was that is as large, or
    where several were on one node, if there are few nodes.
    """

    wanted: ReplicaRequirements
    spare_slots: int
    nodes: int

    def most(self, pods: Sequence[LeavingPods]) -> int:
        """How many replicas these leave room for."""
        alone = sum(each.replicas * self._holds(each) for each in pods)
        return alone + self._in_shared(pods)

    def take(self, pods: list[LeavingPods], replicas: int) -> bool:
        """Whether so many fit where these pods were; the smallest that hold one are used first,
        then all that are smaller: nobody else may count on what is left of those.
        """
        fitting = sorted((self._holds(each), place) for place, each in enumerate(pods))
        for each_holds, place in fitting:
            if each_holds and replicas > 0:
                used = min(pods[place].replicas, -(-replicas // each_holds))
                pods[place] = pods[place]._replace(replicas=pods[place].replicas - used)
                replicas -= used * each_holds
        if replicas > 0:
            replicas -= self._in_shared(pods)
            pods[:] = [each for each in pods if self._holds(each)]
        return replicas <= 0

    def _holds(self, each: LeavingPods) -> int:
        return holds(each.requirements, self.wanted, self.spare_slots)

    def _in_shared(self, pods: Iterable[LeavingPods]) -> int:
        if not 0 < self.nodes <= MOST_SHARED_NODES:
            return 0
        smaller = [each for each in pods if not self._holds(each)]
        counted = [
            (each.replicas, pods_for_one(each.requirements, self.wanted)) for each in smaller
        ]
        return fit_wherever(counted, self.nodes)


class _SetWays(NamedTuple):
    """The same of a workload of components, for a whole set: for those that are not in what is
    free, and how many replicas they have.
    """

    components: Sequence[tuple[_Ways, int]]

    def most(self, pods: Sequence[LeavingPods]) -> int:
        """How many sets these leave room for: one, or none."""
        return int(self.take([*pods], 1))

    def take(self, pods: list[LeavingPods], replicas: int) -> bool:
        """Whether a set fits where these pods were, one component after the other."""
        del replicas
        return all(ways.take(pods, count) for ways, count in self.components)


def _ways(
    working: WorkingCopy, attempt: Attempt, position: int, room: Room | None, spare_slots: int
) -> _Ways | _SetWays:
    wanted = attempt.candidate
    if not wanted.components:
        asked = wanted.requirements
        return _Ways(asked, spare_slots, _nodes(room, asked))
    free = _free_components(working, attempt, position)
    # Each of them might use the same slots to spare: none does.
    return _SetWays(
        [
            (_Ways(each.requirements, 0, _nodes(room, each.requirements)), each.replicas)
            for each in wanted.components
            if each.name not in free
        ]
    )


def _free_components(working: WorkingCopy, attempt: Attempt, position: int) -> set[str]:
    """Those that fit in what is free in a cluster, beside each other."""
    wanted, free = attempt.candidate, list[Component]()
    asked = wanted.certificate or attempt.profile.certificate
    for each in wanted.components[:MOST_COMPONENTS]:
        beside = replace(wanted, components=(*free, each))
        if working.availability(beside, asked).replicas_c[position] > 0:
            free.append(each)
    return {each.name for each in free}


def _with_coming(
    available: Estimates,
    left: Mapping[int, Sequence[LeavingPods]],
    ways: Mapping[int, _Ways | _SetWays],
) -> Estimates:
    replicas_c = available.replicas_c.copy()
    for position, pods in left.items():
        if available.source_c[position] != Source.NONE:
            more = ways[position].most(pods)
            replicas_c[position] = min(int(replicas_c[position]) + more, MAX_REPLICAS)
    return replace(available, replicas_c=replicas_c)


def _more(attempt: Attempt) -> dict[str, int]:
    """What it gets by cluster beyond what it has there."""
    had = {each.name: each.replicas for each in attempt.candidate.clusters}
    clusters = attempt.decision.clusters
    more = {each.name: each.replicas - had.get(each.name, 0) for each in clusters}
    return {name: count for name, count in more.items() if count > 0}


def _late(
    working: WorkingCopy, attempt: Attempt, available: Estimates, more: Mapping[str, int]
) -> dict[str, int]:
    """What of that is not free yet; a set of components as a whole."""
    free = {name: int(available.replicas_c[working.snapshot.positions[name]]) for name in more}
    if attempt.candidate.components:
        return {name: count for name, count in more.items() if not free[name]}
    return {name: count - free[name] for name, count in more.items() if count > free[name]}


def _less(clusters: Sequence[TargetCluster], late: Mapping[str, int]) -> Iterator[TargetCluster]:
    for target in clusters:
        replicas = target.replicas - late.get(target.name, 0)
        if replicas > 0:
            yield TargetCluster(name=target.name, replicas=replicas)
