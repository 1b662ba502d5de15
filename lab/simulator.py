"""A whole federation on a virtual clock: callers, a control plane that reserves, member clusters.

Everything follows from the seed, so that what goes wrong goes wrong again. Must not sleep, nor
know more than the real control plane: what it learns comes in reports.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from federation.capacity.cluster_room import Room
from federation.capacity.fleet_rooms import UnpackedRoom
from federation.capacity.ledger import ClusterLedger
from federation.capacity.reserve import Refused
from federation.model.cluster import Cluster, ClusterState
from federation.model.echoes import Interest
from federation.model.placement import Binding, Certificate, ReplicaScheduling
from federation.model.reservations import PromiseCertificate
from federation.model.workload import NodeClaim, TargetCluster
from federation.scheduler import decide as deciding
from federation.scheduler.decide import Draft, decide
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.scheduler.state import BindingContext
from federation.scheduler.triggers import is_settled
from federation.services.agent_values import AgentPresence, Placer
from federation.services.fleet.snapshot import ClusterPicture, FleetSnapshot
from federation.services.scheduling.deciding import PackedCapacity
from federation.services.scheduling.shares import Reserved, shares_of
from federation.services.scheduling.working_copy import WorkingCopy
from lab.promising import Promise, interests_of, promises_of
from lab.simulator_cluster import Order, SimulatedCluster, Snapshot
from lab.workloads import DYNAMIC, workload

BY_CAPACITY = DYNAMIC

AnyDecided: TypeAlias = deciding.Decided[Reserved]


class Shown(NamedTuple):
    """A decision that is not committed: the draft, and the way it was decided."""

    draft: Draft
    decided: AnyDecided


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A decision that is committed: what it promised, and the rooms it looked at."""

    shown: Shown
    binding: Binding
    decision: str
    promises: tuple[Promise, ...]
    rooms: Mapping[str, Room]

    def order(self, target: TargetCluster) -> Order:
        """Its promises in a cluster."""
        # What was promised last is for the pods that are new.
        promises = [promise for promise in self.promises if promise.cluster == target.name]
        promise = promises[-1] if promises else None
        return Order(
            binding=self.binding.uid,
            decision=self.decision,
            requirements=self.binding.requirements,
            replicas=target.replicas,
            report=promise.report if promise else None,
            holding=promise.holding if promise else None,
        )


class ControlPlane:
    """The fleet's snapshot and the bindings of a control plane, without a store.

    Production code decides and promises: ``decide`` on a ``WorkingCopy`` of the snapshot.
    ``refusals`` say why bindings were not placed, by their uid, the newest only.
    """

    def __init__(self, names: Iterable[str], follows_claims: Collection[str] = ()) -> None:
        self.follows_claims = frozenset(follows_claims)
        self.reports: dict[str, Snapshot] = {}
        self.bindings: dict[str, Binding] = {}
        self.refusals: dict[str, str] = {}
        self.decisions = 0
        pictures = [(name, self._picture(name, ClusterLedger(cluster=name))) for name in names]
        self.snapshot = FleetSnapshot.of(pictures, modeling_enabled=True)

    @property
    def names(self) -> tuple[str, ...]:
        return self.snapshot.names

    def restart(self) -> None:
        """Make the snapshot again from what is stored: the reports and the ledgers."""
        pictures = [(name, self._picture(name, self.ledger(name))) for name in self.names]
        self.snapshot = FleetSnapshot.of(pictures, modeling_enabled=True)

    def room(self, cluster: str) -> Room | None:
        return self.snapshot.rooms.rooms[self.snapshot.positions[cluster]]

    def ledger(self, cluster: str) -> ClusterLedger:
        return self.snapshot.ledgers[self.snapshot.positions[cluster]]

    def interests(self, cluster: str) -> tuple[Interest, ...]:
        """What the agent of a cluster has to look for."""
        uids = {binding.key: uid for uid, binding in self.bindings.items()}
        return interests_of(self.ledger(cluster), {}, uids)

    def accept(self, cluster: str, snapshot: Snapshot) -> bool:
        """Take a report unless a newer one is here already."""
        known = self.reports.get(cluster)
        if known is not None and snapshot.report <= known.report:
            return False
        self.reports[cluster] = snapshot
        ledger = self.ledger(cluster).reported(snapshot.interest_version, snapshot.echoes)
        self._show({cluster: self._picture(cluster, ledger)})
        return True

    def submit(self, binding: Binding, *, looks_again: bool = False) -> Decided | None:
        """Decide, promise and commit; None where it is refused and everything stays as it was.

        ``binding.clusters`` of a binding nobody knew say where it runs already.
        """
        working = WorkingCopy(self.snapshot)
        draft = self._draft(binding)
        capacity = self._capacity(working, draft.binding, looks_again=looks_again)
        decided = decide(self.snapshot.fleet, draft, capacity, 0.0)
        return self._committed(working, Shown(draft, decided))

    def preview(self, binding: Binding) -> Shown | None:
        """What would be decided now, which is not kept."""
        draft = self._draft(binding)
        capacity = self._capacity(WorkingCopy(self.snapshot), draft.binding, looks_again=False)
        decided = decide(self.snapshot.fleet, draft, capacity, 0.0)
        if decided.decision.outcome is not Outcome.SCHEDULED:
            self.refusals[binding.uid] = str(decided.decision.reason)
            return None
        # What was shown may be granted as to a new request, which gets a second look.
        return Shown(draft, replace(decided, is_refined=True))

    def commit(self, shown: Shown) -> Decided | None:
        """Promise what was shown, whatever was promised since; None where it is refused."""
        working = WorkingCopy(self.snapshot)
        capacity = self._capacity(working, shown.draft.binding, looks_again=False)
        reserved = capacity.reserve(shown.draft, shown.decided)
        if isinstance(reserved, Refused):
            self.refusals[shown.draft.binding.uid] = str(reserved.reasons)
            return None
        decided = replace(shown.decided, reserved=reserved)
        return self._committed(working, Shown(shown.draft, decided))

    def branch(self) -> ControlPlane:
        """Another one that knows the same, as it is now."""
        other = ControlPlane(self.names, self.follows_claims)
        other.snapshot = self.snapshot
        other.reports, other.bindings = dict(self.reports), dict(self.bindings)
        return other

    def delete(self, uid: str) -> None:
        key = self.bindings.pop(uid).key
        ledgers = [ledger for ledger in self.snapshot.ledgers if ledger.of_binding(key)]
        self._change(ledger.released(key) for ledger in ledgers)

    def without_plan(self, cluster: str, uids: Iterable[str]) -> int:
        """The agent has no plan for these: how many planned promises are careful from now on."""
        ledger = self.ledger(cluster)
        downgraded = 0
        for key in [self.bindings[uid].key for uid in uids if uid in self.bindings]:
            newest = [*ledger.newest(key)]
            if any(each.certificate is PromiseCertificate.PLANNED for each in newest):
                (share,) = shares_of(newest)
                share = share._replace(certificate=PromiseCertificate.CAREFUL)
                ledger = ledger.decided(key, newest[0].decision, [share])
                downgraded += 1
        if downgraded:
            self._change([ledger])
        return downgraded

    def _draft(self, binding: Binding) -> Draft:
        known = self.bindings.get(binding.uid)
        candidate = replace(binding, clusters=known.clusters if known else binding.clusters)
        around = BindingContext(is_settled=is_settled(known, candidate))
        return Draft(
            binding=candidate,
            remaining=candidate,
            profile=DEFAULT_PROFILE,
            surroundings=around,
        )

    def _capacity(
        self, working: WorkingCopy, binding: Binding, *, looks_again: bool
    ) -> PackedCapacity:
        ledgers = self.snapshot.ledgers
        return PackedCapacity(
            working=working,
            decision=f"decision-{self.decisions + 1}",
            held=[each.cluster for each in ledgers if each.of_binding(binding.key)],
            adopts=binding.uid not in self.bindings,
            looks_again=looks_again,
        )

    def _committed(self, working: WorkingCopy, shown: Shown) -> Decided | None:
        """What was promised in the working copy is this control plane's; None: nothing was."""
        binding, decision = shown.draft.binding, shown.decided.decision
        if decision.outcome is not Outcome.SCHEDULED or shown.decided.reserved is None:
            self.refusals[binding.uid] = str(decision.reason)
            return None
        self.decisions += 1
        self.refusals.pop(binding.uid, None)
        self.snapshot = working.after_commit
        self.bindings[binding.uid] = replace(binding, clusters=decision.clusters)
        names = [target.name for target in decision.clusters if target.replicas]
        positions = [self.snapshot.positions[name] for name in names]
        rooms = {name: self.room(name) for name in names}
        promises = promises_of(self.snapshot.rooms, self.names, binding.key, positions)
        return Decided(
            shown=shown,
            binding=self.bindings[binding.uid],
            decision=f"decision-{self.decisions}",
            promises=tuple(promises),
            rooms={name: room for name, room in rooms.items() if room is not None},
        )

    def _change(self, ledgers: Iterable[ClusterLedger]) -> None:
        """Show other ledgers of some clusters, whose reports are the same."""
        pictures = {}
        for ledger in ledgers:
            room, picture = self.room(ledger.cluster), self._picture(ledger.cluster, ledger)
            if room is not None:
                following = room.following(ledger.order())
                picture = picture if following is None else replace(picture, room=following)
            pictures[ledger.cluster] = picture
        self._show(pictures)

    def _show(self, pictures: Mapping[str, ClusterPicture]) -> None:
        self.snapshot = self.snapshot.with_pictures(pictures, pictures.keys())

    def _picture(self, name: str, ledger: ClusterLedger) -> ClusterPicture:
        snapshot, follows_claims = self.reports.get(name), name in self.follows_claims
        room = None
        if snapshot is not None:
            room = UnpackedRoom(snapshot.report, snapshot.pools, follows_claims, ledger.order())
        placer = Placer.EXTENDER if follows_claims else Placer.NONE
        return ClusterPicture(
            state=ClusterState(cluster=Cluster(name=name)),
            ledger=ledger,
            room=room,
            presence=AgentPresence(connected=True, placer=placer, silent_after=math.inf),
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
            self.clusters,
            [name for name, cluster in self.clusters.items() if cluster.follows_claims],
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
        version, interests = (
            self.control.ledger(name).interest_version,
            self.control.interests(name),
        )

        def arrive() -> None:
            cluster = self.clusters[name]
            cluster.told(version, interests)
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
