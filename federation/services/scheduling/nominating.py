"""Nomination: places for preempting bindings in capacity that other pods have not left yet.

Pure functions, run in a thread. Must not promise such capacity: it is earmarked, and promised
once reports show that the pods have left.
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
from federation.services.scheduling.deciding import TrialCapacity, tried_together
from federation.services.scheduling.earmarks import capacity_after_earmarks
from federation.services.scheduling.shares import Reserved
from federation.services.scheduling.verdicts import request_room, take_over
from federation.services.scheduling.working_copy import WorkingCopy

# Several small pods make room for a large one only if they leave the same node. On more nodes than
# these, too many of them would have to leave until one node surely has the capacity.
MAX_SHARED_NODES: Final = 8
# Components of a set that are tried in free capacity; the rest waits for pods to leave.
MAX_COMPONENTS: Final = 8


class LeavingPods(NamedTuple):
    """Pods that have to leave a cluster, and the requirements of one of them."""

    requirements: ReplicaRequirements
    replicas: int


# The pods that leave, by name of the cluster.
Coming: TypeAlias = Mapping[str, Sequence[LeavingPods]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingPlace:
    """The additional shares of an attempt; it ``has_to_wait`` if not all of them are free."""

    attempt: Attempt
    shares: tuple[TargetCluster, ...]
    has_to_wait: bool


def fit_in_place_of(
    leaving: ReplicaRequirements, replica: ReplicaRequirements, spare_slots: int
) -> int:
    """Return how many replicas surely fit in the place of one leaving pod.

    Reports do not say which pods share a node, so only that pod's own request counts.
    ``spare_slots`` are pod slots that every node has free.
    """
    if leaving.node_claim != replica.node_claim:
        return 0
    fitting = [
        leaving.request.get(name, 0) // amount
        for name, amount in per_replica(replica.request).items()
        if name != PODS
    ]
    return min(*fitting, 1 + spare_slots) if fitting else 1 + spare_slots


def pods_per_replica(leaving: ReplicaRequirements, replica: ReplicaRequirements) -> int:
    """Return how many pods have to leave one node so that a replica surely fits; 0: no number."""
    if leaving.node_claim != replica.node_claim:
        return 0
    pods = 1
    for name, amount in per_replica(replica.request).items():
        released = 1 if name == PODS else leaving.request.get(name, 0)
        if not released:
            return 0
        pods = max(pods, -(-amount // released))
    return pods


def least_fit(pods: Iterable[tuple[int, int]], nodes: int) -> int:
    """Return how many replicas surely fit after pods left, however these shared that many nodes.

    ``pods`` are pairs of a count n and the number k of such pods that make room for one replica on
    a node (0: no number does). With m the least common multiple of all k, each node wastes at most
    ``(m - 1) / m`` of a replica: ``ceil(sum(n / k) - nodes * (m - 1) / m)`` replicas fit.
    """
    useful = [(count, for_one) for count, for_one in pods if for_one]
    part = Fraction(1, lcm(*(for_one for _, for_one in useful)))
    released = sum(Fraction(count, for_one) for count, for_one in useful)
    return max(0, ceil(released - nodes * (1 - part)))


def place_with_leaving(
    working: WorkingCopy,
    attempts: Sequence[Attempt],
    coming: Coming,
    spare: Mapping[int, int],
    now: float,
) -> list[ComingPlace] | None:
    """Place all attempts in capacity that is free or that leaving pods release.

    Return None if one of them finds no place. This changes only the working copy. ``spare`` are the
    pod slots that every node of a cluster has free, by position.
    """
    leaving = {working.snapshot.positions[name]: [*pods] for name, pods in coming.items()}
    rooms = {position: working.room(position) for position in leaving}

    def capacity_of(trial: Attempt) -> ComingCapacity:
        return ComingCapacity(
            working=working,
            decision=trial.id,
            attempt=trial,
            now=now,
            leaving=leaving,
            fits={
                position: _fit_of(working, trial, position, room, spare.get(position, 0))
                for position, room in rooms.items()
            },
        )

    capacities = tried_together(attempts, capacity_of)
    if capacities is None:
        return None
    return [capacity.place(attempt) for attempt, capacity in zip(attempts, capacities, strict=True)]


@dataclass(kw_only=True, eq=False)
class ComingCapacity(TrialCapacity):
    """Free capacity, and that of pods which are ``leaving``, by position of the cluster.

    An attempt takes pods out of ``leaving``. ``fits`` count how many of its replicas fit in their
    place. ``added`` are the additional units of the attempt by cluster, and ``late`` those among
    them that wait for pods to leave.
    """

    leaving: Mapping[int, list[LeavingPods]]
    fits: Mapping[int, _ReplicaFit | _SetFit]
    added: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def free(self) -> Estimates:
        """The capacity that is free already, less the earmarks of more urgent bindings."""
        working, trial = self.working, self.attempt
        certificate = trial.candidate.certificate or trial.profile.certificate
        available = working.availability(trial.candidate, certificate)
        return capacity_after_earmarks(working, trial, available, self.now).estimates

    def available(self, draft: Draft) -> OfferedCapacity:  # noqa: ARG002 - of one attempt
        """Return the capacity that is free or that leaving pods release."""
        return OfferedCapacity(_with_coming(self.free, self.leaving, self.fits))

    def reserve(self, draft: Draft, decided: Decided[Reserved]) -> Reserved | Refused | None:
        """Promise the free part of the shares, and take the rest in the place of leaving pods."""
        working, trial = self.working, self.attempt
        take_over(trial, draft, decided, working.snapshot, self.now)
        self.added = _added(trial)
        self.late = _late(working, trial, self.free, self.added)
        for name, count in self.late.items():
            position = working.snapshot.positions[name]
            fit = self.fits.get(position)
            if fit is None or not fit.take(self.leaving[position], count):
                units = self.added[name]
                why = Reason.of(ReasonCode.ROOM_TOO_SMALL, Amount(units - count), Amount(units))
                return Refused(reasons={name: why})
        now_placed = _less(decided.decision.clusters, self.late)
        return working.reserve(request_room(working, trial, draft.certificate, now_placed))

    def place(self, attempt: Attempt) -> ComingPlace:
        """Return the additional shares of the attempt, after ``reserve``."""
        added = sorted(self.added.items())
        shares = tuple(TargetCluster(name=name, replicas=count) for name, count in added)
        return ComingPlace(attempt=attempt, shares=shares, has_to_wait=bool(self.late))


def spare_slots(working: WorkingCopy, clusters: Iterable[str]) -> Mapping[int, int]:
    """Return the pod slots that every node of a cluster has free, by position of the cluster."""
    positions = {working.snapshot.positions[name] for name in clusters}
    return {position: _spare_slots(working.room(position)) for position in positions}


def _spare_slots(room: Room | None) -> int:
    """Return the pod slots that every node has free, even if all promised pods land on it."""
    cells = room.pools.cells if room else None
    if room is None or cells is None or PODS not in cells.resources or not len(cells):
        return 0
    fewest = int(cells.min_rk[cells.resources.index(PODS)].min())
    return max(0, fewest - sum(promise.to_pack for promise in room.outstanding))


def _nodes(room: Room | None, requirements: ReplicaRequirements) -> int:
    """Return how many nodes of a cluster suit the requirements."""
    cells = room.pools.cells if room else None
    if room is None or cells is None:
        return 0
    verdict_p = room.kinds.verdicts(requirements.node_claim)
    if verdict_p is None:
        return int(cells.count_k.sum())
    suits_k = verdict_p[room.cluster.kind_p[cells.pool_k]] != Match.NO
    return int(cells.count_k[suits_k].sum())


class _ReplicaFit(NamedTuple):
    """The fit of replicas in the place of leaving pods of one cluster.

    A replica fits in the place of one pod that requested as much. If at most MAX_SHARED_NODES
    ``nodes`` suit it, a replica also fits in the place of several smaller pods.
    """

    replica: ReplicaRequirements
    spare_slots: int
    nodes: int

    def count(self, pods: Sequence[LeavingPods]) -> int:
        """Return how many replicas fit in the place of all these pods."""
        in_single_places = sum(group.replicas * self._holds(group) for group in pods)
        return in_single_places + self._in_shared_places(pods)

    def take(self, pods: list[LeavingPods], replicas: int) -> bool:
        """Take the places of pods for so many replicas. Return whether the places suffice.

        The smallest pods whose place holds a replica go first. If these do not suffice, all smaller
        pods go, because what several of them leave on a node cannot be counted twice.
        """
        by_size = sorted((self._holds(group), index) for index, group in enumerate(pods))
        for held_by_one, index in by_size:
            if held_by_one and replicas > 0:
                used = min(pods[index].replicas, -(-replicas // held_by_one))
                pods[index] = pods[index]._replace(replicas=pods[index].replicas - used)
                replicas -= used * held_by_one
        if replicas > 0:
            replicas -= self._in_shared_places(pods)
            pods[:] = [group for group in pods if self._holds(group)]
        return replicas <= 0

    def _holds(self, group: LeavingPods) -> int:
        return fit_in_place_of(group.requirements, self.replica, self.spare_slots)

    def _in_shared_places(self, pods: Iterable[LeavingPods]) -> int:
        if not 0 < self.nodes <= MAX_SHARED_NODES:
            return 0
        smaller = [group for group in pods if not self._holds(group)]
        counts = [
            (group.replicas, pods_per_replica(group.requirements, self.replica))
            for group in smaller
        ]
        return least_fit(counts, self.nodes)


class _SetFit(NamedTuple):
    """The fit of one whole set of components in the place of leaving pods of one cluster.

    ``components`` are those that do not fit in free capacity, with their numbers of replicas.
    """

    components: Sequence[tuple[_ReplicaFit, int]]

    def count(self, pods: Sequence[LeavingPods]) -> int:
        """Return 1 if a set fits in the place of these pods, else 0."""
        return int(self.take([*pods], 1))

    def take(self, pods: list[LeavingPods], replicas: int) -> bool:
        """Take places for one set, component by component. Return whether the places suffice."""
        del replicas
        return all(fit.take(pods, count) for fit, count in self.components)


def _fit_of(
    working: WorkingCopy, attempt: Attempt, position: int, room: Room | None, spare_slots: int
) -> _ReplicaFit | _SetFit:
    binding = attempt.candidate
    if not binding.components:
        replica = binding.requirements
        return _ReplicaFit(replica, spare_slots, _nodes(room, replica))
    free = _free_components(working, attempt, position)
    # No component counts spare pod slots, because all of them might use the same slots.
    return _SetFit(
        [
            (_ReplicaFit(part.requirements, 0, _nodes(room, part.requirements)), part.replicas)
            for part in binding.components
            if part.name not in free
        ]
    )


def _free_components(working: WorkingCopy, attempt: Attempt, position: int) -> set[str]:
    """Return the components that fit in the free capacity of a cluster together."""
    binding, free = attempt.candidate, list[Component]()
    certificate = binding.certificate or attempt.profile.certificate
    for component in binding.components[:MAX_COMPONENTS]:
        trial = replace(binding, components=(*free, component))
        if working.availability(trial, certificate).replicas_c[position] > 0:
            free.append(component)
    return {component.name for component in free}


def _with_coming(
    available: Estimates,
    leaving: Mapping[int, Sequence[LeavingPods]],
    fits: Mapping[int, _ReplicaFit | _SetFit],
) -> Estimates:
    replicas_c = available.replicas_c.copy()
    for position, pods in leaving.items():
        if available.source_c[position] != Source.NONE:
            coming = fits[position].count(pods)
            replicas_c[position] = min(int(replicas_c[position]) + coming, MAX_REPLICAS)
    return replace(available, replicas_c=replicas_c)


def _added(attempt: Attempt) -> dict[str, int]:
    """Return the units that the decision adds, by name of the cluster."""
    present = {target.name: target.replicas for target in attempt.candidate.clusters}
    added = {
        target.name: target.replicas - present.get(target.name, 0)
        for target in attempt.decision.clusters
    }
    return {name: count for name, count in added.items() if count > 0}


def _late(
    working: WorkingCopy, attempt: Attempt, available: Estimates, added: Mapping[str, int]
) -> dict[str, int]:
    """Return the added units that are not free yet; a set is free or late as a whole."""
    free = {name: int(available.replicas_c[working.snapshot.positions[name]]) for name in added}
    if attempt.candidate.components:
        return {name: count for name, count in added.items() if not free[name]}
    return {name: count - free[name] for name, count in added.items() if count > free[name]}


def _less(clusters: Sequence[TargetCluster], late: Mapping[str, int]) -> Iterator[TargetCluster]:
    for target in clusters:
        replicas = target.replicas - late.get(target.name, 0)
        if replicas > 0:
            yield TargetCluster(name=target.name, replicas=replicas)
