"""A whole federation on a virtual clock: callers, a control plane that reserves, member clusters.

Everything follows from the seed, so that what goes wrong goes wrong again. Must not sleep, nor
know more than the real control plane: what it learns comes in reports.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.fleet_rooms import UnpackedRoom, packed_room
from federation.capacity.pool_estimates import pool_bounds
from federation.capacity.reserve import (
    FleetRooms,
    Refused,
    certificate_for,
    packable_c,
)
from federation.model.cluster import Cluster
from federation.model.estimate import MAX_REPLICAS, Bound, Estimates, Source
from federation.model.placement import Binding, Certificate, ReplicaScheduling
from federation.model.reservations import PromiseCertificate, Share
from federation.model.workload import NodeClaim, TargetCluster
from federation.scheduler.cycle import schedule
from federation.scheduler.decision import Outcome
from federation.scheduler.fleet import Fleet
from federation.scheduler.promisable import looked_again, terms_of
from lab.promising import Ledger, Promise, asked_of, interests_by_name, promises_of
from lab.simulator_cluster import Order, SimulatedCluster, Snapshot
from lab.workloads import DYNAMIC, workload

BY_CAPACITY = DYNAMIC


class Shown(NamedTuple):
    """A binding as it was decided, and where it would go."""

    candidate: Binding
    clusters: tuple[TargetCluster, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision that is committed: what it promised, and the rooms it looked at."""

    binding: Binding
    decision: str
    promises: tuple[Promise, ...]
    rooms: Mapping[str, Room]

    def order(self, target: TargetCluster) -> Order:
        """What it wants of a cluster."""
        promise = next((each for each in self.promises if each.cluster == target.name), None)
        return Order(
            binding=self.binding.uid,
            decision=self.decision,
            requirements=self.binding.requirements,
            replicas=target.replicas,
            report=promise.report if promise else None,
            holding=promise.holding if promise else None,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class ControlPlane:
    """Decides and reserves in memory. ``ledger``, ``reports`` and ``bindings`` survive a crash.

    ``refusals`` say why bindings were not placed, by their uid, the newest only.
    """

    names: tuple[str, ...]
    follows_claims: frozenset[str] = frozenset()
    ledger: Ledger = field(default_factory=Ledger)
    reports: dict[str, Snapshot] = field(default_factory=dict)
    bindings: dict[str, Binding] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    decisions: int = 0
    rooms: FleetRooms = field(init=False)
    fleet: Fleet = field(init=False)

    def __post_init__(self) -> None:
        self.fleet = Fleet.of(Cluster(name=name) for name in self.names)
        self.names = self.fleet.names
        self.restart()

    def restart(self) -> None:
        """Make the rooms again from what is stored."""
        self.rooms = FleetRooms.of(self._room(name) for name in self.names)

    def room(self, cluster: str) -> Room | None:
        return self.rooms.rooms[self.fleet.index[cluster]]

    def accept(self, cluster: str, snapshot: Snapshot) -> bool:
        """Take a report unless a newer one is here already."""
        known = self.reports.get(cluster)
        if known is not None and snapshot.report <= known.report:
            return False
        self.reports[cluster] = snapshot
        self.ledger = self.ledger.reported(cluster, snapshot.interest_version, snapshot.echoes)
        self._change({cluster: self._room(cluster)})
        return True

    def submit(self, binding: Binding, *, looks_again: bool = False) -> Decided | None:
        """Decide, reserve and commit; None where it is refused and everything stays as it was.

        ``binding.clusters`` of a binding nobody knew say where it runs already.
        """
        shown = self.preview(binding, looks_again=looks_again)
        return None if shown is None else self.commit(shown)

    def preview(self, binding: Binding, *, looks_again: bool = False) -> Shown | None:
        """What would be decided now, which is not kept."""
        known = self.bindings.get(binding.uid)
        candidate = replace(binding, clusters=known.clusters if known else binding.clusters)
        available = self.availability(candidate)
        decision = schedule(candidate, self.fleet, available, now=0.0)
        if looks_again and decision.outcome is Outcome.UNSCHEDULABLE:
            more = looked_again(self.rooms, candidate, candidate.certificate, available)
            if more is not None:
                decision = schedule(candidate, self.fleet, more, now=0.0)
        if decision.outcome is not Outcome.SCHEDULED:
            self.refusals[binding.uid] = str(decision.reason)
            return None
        return Shown(candidate, decision.clusters)

    def commit(self, shown: Shown) -> Decided | None:
        """Reserve what was shown, whatever was promised since; None where it is refused."""
        is_new = shown.candidate.uid not in self.bindings
        return self._commit(shown.candidate, shown.clusters, is_new=is_new)

    def branch(self) -> ControlPlane:
        """Another one that knows the same, as it is now."""
        made = ControlPlane(names=self.names, follows_claims=self.follows_claims)
        made.ledger, made.rooms = self.ledger, self.rooms
        made.reports, made.bindings = dict(self.reports), dict(self.bindings)
        return made

    def delete(self, uid: str) -> None:
        changed = self.ledger.clusters_of(uid)
        self.ledger = self.ledger.released(uid)
        del self.bindings[uid]
        self._change({name: self._without(name, uid) for name in changed})

    def without_plan(self, cluster: str, uids: Iterable[str]) -> int:
        """The agent has no plan for these: how many planned promises are careful from now on."""
        ledger = self.ledger.of(cluster)
        planned = [
            uid
            for uid in uids
            for newest in ledger.newest(uid)
            if newest.certificate is PromiseCertificate.PLANNED
        ]
        for uid in planned:
            self._downgrade(uid, cluster)
        return len(planned)

    def _downgrade(self, uid: str, cluster: str) -> None:
        ledger = self.ledger.of(cluster)
        (newest,) = ledger.newest(uid)
        share = Share(
            requirements=newest.requirements,
            replicas=newest.replicas,
            certificate=PromiseCertificate.CAREFUL,
        )
        changed = ledger.decided(uid, newest.decision, [share])
        self.ledger = Ledger(clusters={**self.ledger.clusters, cluster: changed})
        asks = {self.fleet.index[cluster]: changed.outstanding_of(uid)}
        promised = asked_of(self.rooms, self.names, uid, asks)
        assert not isinstance(promised, Refused)
        self.rooms = promised

    def availability(self, binding: Binding) -> Estimates:
        """The smaller of what the cells prove and what can be packed beside all promises."""
        requirements = binding.requirements
        bounds = pool_bounds(self.rooms.filled, requirements)
        own = {
            self.fleet.index[target.name]: (
                room.without(binding.uid),
                self._kept_there(binding, target),
            )
            for target in binding.clusters
            if (room := self.room(target.name)) is not None
        }
        packable = packable_c(self.rooms, requirements, binding.certificate, own)
        # Without the binding more is free than the bounds of all rooms say.
        weighed_c = bounds.lower_c.copy()
        weighed_c[list(own)] = MAX_REPLICAS
        return Estimates(
            replicas_c=np.where(bounds.answered_c, np.minimum(weighed_c, packable), 0),
            source_c=np.where(bounds.answered_c, np.int8(Source.POOLS), np.int8(Source.NONE)),
            bound_c=np.full(len(self.names), Bound.LOWER, dtype=np.int8),
            reasons={},
        )

    def _kept_there(self, binding: Binding, target: TargetCluster) -> int:
        """Replicas that stay where they are and need room for that: not those seen there."""
        share = Share(requirements=binding.requirements, replicas=target.replicas)
        ledger = self.ledger.of(target.name)
        if not ledger.of_binding(binding.uid):
            return 0
        kept = ledger.decided(binding.uid, "", [share]).outstanding_of(binding.uid)
        return sum(each.to_pack for each in kept)

    def _commit(
        self, candidate: Binding, clusters: tuple[TargetCluster, ...], *, is_new: bool
    ) -> Decided | None:
        uid, decision = candidate.uid, f"decision-{self.decisions + 1}"
        before = set(self.ledger.clusters_of(uid))
        shares = {
            target.name: [
                Share(
                    requirements=candidate.requirements,
                    replicas=target.replicas,
                    certificate=certificate_for(
                        candidate.certificate, self.room(target.name), candidate.requirements
                    ),
                )
            ]
            for target in clusters
        }
        adopted = {target.name: {"": target.replicas} for target in candidate.clusters}
        ledger = self.ledger.decided(uid, decision, shares, adopted if is_new else None)
        asks = {
            self.fleet.index[name]: ledger.of(name).outstanding_of(uid) if name in shares else ()
            for name in sorted(before | shares.keys())
        }
        terms = replace(
            terms_of(candidate, refines=True),
            placed=frozenset(self.fleet.index[target.name] for target in candidate.clusters),
        )
        promised = asked_of(self.rooms, self.names, uid, asks, terms)
        if isinstance(promised, Refused):
            self.refusals[uid] = str(promised.reasons)
            return None
        self.decisions += 1
        self.refusals.pop(uid, None)
        self.ledger = ledger
        self.bindings[uid] = replace(candidate, clusters=clusters)
        self.rooms = promised
        kept = {name: self.room(name) for name in shares}
        return Decided(
            binding=self.bindings[uid],
            decision=decision,
            promises=tuple(promises_of(promised, self.names, uid, asks)),
            rooms={name: room for name, room in kept.items() if room is not None},
        )

    def _without(self, cluster: str, uid: str) -> Room | None:
        room = self.room(cluster)
        return room.without(uid) if room else None

    def _change(self, rooms: Mapping[str, Room | None]) -> None:
        self.rooms = self.rooms.with_rooms(
            {self.fleet.index[name]: room for name, room in rooms.items()}
        )

    def _room(self, cluster: str) -> Room | None:
        snapshot = self.reports.get(cluster)
        if snapshot is None:
            return None
        return packed_room(
            UnpackedRoom(
                snapshot.report,
                snapshot.pools,
                cluster in self.follows_claims,
                self.ledger.of(cluster).outstanding(),
            )
        )


def divided(
    uid: str,
    request: Mapping[str, int],
    replicas: int,
    certificate: Certificate | None = None,
    scheduling: ReplicaScheduling = DYNAMIC,
    claim: NodeClaim | None = None,
) -> Binding:
    """A binding to be divided by capacity, unless said otherwise."""
    more: Any = {"namespace": "", "certificate": certificate}
    return workload(uid, request, replicas, scheduling, claim=claim, uid=uid, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """The longest that things take, in virtual seconds; each time a random part of it."""

    order: float = 2.0
    report: float = 1.0
    report_every: float = 30.0
    placing: float = 20.0


class Simulation:
    """Events in the order of their times. Every random choice comes from the seed.

    Orders and reports travel by themselves, each on time or late; of two reports the later one
    may come first. ``unkept`` counts planned promises that agents could not turn into claims.
    """

    def __init__(
        self, clusters: Iterable[SimulatedCluster], seed: int, delays: Delays | None = None
    ) -> None:
        self.clusters = {cluster.name: cluster for cluster in clusters}
        self.control = ControlPlane(
            names=tuple(self.clusters),
            follows_claims=frozenset(
                name for name, cluster in self.clusters.items() if cluster.follows_claims
            ),
        )
        self.now = 0.0
        self.unkept = 0
        self.decided: list[Decided] = []
        self.accepted: Counter[str] = Counter()
        self._delays = delays or Delays()
        self._random = np.random.default_rng(seed)
        self._serial = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._arrived: dict[str, float] = {}
        for name in self.clusters:
            self._report(name)

    def at(self, time: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._serial), what))

    def run(self, until: float) -> None:
        """Let happen all that happens until then."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def submit(self, binding: Binding) -> None:
        """A caller asks; what is decided is ordered from the clusters."""
        before = self.control.bindings.get(binding.uid)
        decided = self.control.submit(binding)
        if decided is None:
            return
        self.decided.append(decided)
        self.accepted[binding.uid] = binding.replicas
        kept = {target.name for target in decided.binding.clusters}
        for target in before.clusters if before else ():
            if target.name not in kept:
                self._send(target.name, lambda c: c.remove(binding.uid))
        for target in decided.binding.clusters:
            self._order(decided, target)

    def delete(self, uid: str) -> None:
        binding = self.control.bindings.get(uid)
        if binding is None:
            return
        self.control.delete(uid)
        del self.accepted[uid]
        for target in binding.clusters:
            self._send(target.name, lambda c: c.remove(uid))

    def crash_agent(self, name: str) -> None:
        """The agent starts again, reports at once, and is told what to look for."""
        self.clusters[name].crash()
        self._deliver_report(name, self.clusters[name].snapshot())
        self._tell(name)

    def crash_control_plane(self) -> None:
        self.control.restart()

    def _order(self, decided: Decided, target: TargetCluster) -> None:
        name, order = target.name, decided.order(target)

        def carry_out(cluster: SimulatedCluster) -> None:
            cluster.run(order)
            self.at(self._later(self._delays.placing), lambda: self._place(name, order.binding))

        self._send(name, carry_out)

    def _place(self, name: str, uid: str) -> None:
        """Give every waiting pod of a binding its turn, and later again those that still wait."""
        cluster = self.clusters[name]
        pods = [pod for pod in cluster.waiting if pod.binding == uid]
        cluster.place([pods[i] for i in self._random.permutation(len(pods))], self._random)
        if any(pod.node is None for pod in pods):
            self.at(self._later(2 * self._delays.placing), lambda: self._place(name, uid))

    def _tell(self, name: str) -> None:
        self._send(name, lambda _: None)

    def _send(self, name: str, what: Callable[[SimulatedCluster], None]) -> None:
        """Messages to one cluster arrive in the order they were sent, after what to look for."""
        time = max(self._later(self._delays.order), self._arrived.get(name, 0.0))
        self._arrived[name] = time
        ledger = self.control.ledger.of(name)

        def arrive() -> None:
            cluster = self.clusters[name]
            cluster.told(ledger.interest_version, interests_by_name(ledger))
            what(cluster)
            if cluster.follows_claims:
                self.unkept += self.control.without_plan(name, sorted(cluster.unplanned))

        self.at(time, arrive)

    def _report(self, name: str) -> None:
        """Report now and, for ever, about as often as reports come."""
        self._deliver_report(name, self.clusters[name].snapshot())
        self.at(self._later(2 * self._delays.report_every), lambda: self._report(name))

    def _deliver_report(self, name: str, snapshot: Snapshot) -> None:
        self.at(self._later(self._delays.report), lambda: self._accept(name, snapshot))

    def _accept(self, name: str, snapshot: Snapshot) -> None:
        self.control.accept(name, snapshot)

    def _later(self, longest: float) -> float:
        return self.now + float(self._random.uniform(0.0, longest))
