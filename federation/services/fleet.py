"""The fleet in memory: one mutable owner, and the immutable snapshots everybody reads.

Must not write to the store: what is put here was committed before. Belongs to one event loop;
snapshots may go to any thread.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from federation.model.capacity import FleetCapacity
from federation.model.cluster import CapacityReport, Cluster, ClusterState, ReportedPools
from federation.model.errors import NotFound
from federation.model.grades import ResourceModel
from federation.model.pools.fleet_cells import FleetCells
from federation.model.pools.values import Pools
from federation.model.reported_pools import pools_of
from federation.scheduler.fleet import Fleet
from federation.services.known_estimates import KnownEstimates
from federation.services.ports import ModelObserver, Store
from federation.services.values import AgentFacts, AgentPresence, ClusterView

NO_MODEL = ResourceModel()
STALE = "is stale: its agent is silent"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetSnapshot:
    """All clusters at one instant, by ascending name.

    ``generation`` names the set of clusters and thereby their order: the same clusters give the
    same generation in every process. ``positions`` finds a name's place on the arrays' axis c.
    ``silent_after_c`` is when each cluster becomes stale unless its agent is heard, Unix seconds.
    """

    generation: str
    names: tuple[str, ...]
    positions: Mapping[str, int]
    fleet: Fleet
    capacity: FleetCapacity
    cells: FleetCells
    silent_after_c: npt.NDArray[np.float64]

    def fleet_at(self, now: float) -> Fleet:
        """The fleet for decisions made at ``now``: stale clusters get no new replicas."""
        return self.fleet.without(self.silent_after_c < now, STALE)

    @property
    def states(self) -> tuple[ClusterState, ...]:
        return self.capacity.states

    def names_after(self, after: str, limit: int) -> tuple[str, ...]:
        """At most ``limit`` names that come after ``after``."""
        start = bisect_right(self.names, after)
        return self.names[start : start + limit]


class FleetOwner:
    """The clusters as last committed, with their newest reports and their agents.

    A change marks its cluster; the next reader of ``snapshot`` pays for all marked clusters at
    once, and for those only. ``known_estimates`` are shared by all who ask what fits.
    """

    def __init__(self, store: Store, *, modeling_enabled: bool = True) -> None:
        self.known_estimates = KnownEstimates()
        self._store = store
        self._modeling_enabled = modeling_enabled
        self._states: dict[str, ClusterState] = {}
        self._presences: dict[str, AgentPresence] = {}
        self._pools: dict[str, Pools] = {}
        self._pooled: set[str] = set()
        self._observers: list[ModelObserver] = []
        self._changed: set[str] = set()
        self._respecified = False
        self._snapshot = self._built_anew()

    async def load(self, *, grace_until: float) -> None:
        """Take over what the store holds; call once, before anything else.

        Nobody was heard while nobody listened: until ``grace_until`` (Unix seconds) no cluster is
        stale.
        """
        async with self._store.reading() as read:
            stored = await read.clusters.all()
        for each in stored:
            self.put_cluster(each.cluster)
            self.put_facts(each.cluster.name, each.facts)
            presence = replace(self._presences[each.cluster.name], silent_after=grace_until)
            self.put_presence(each.cluster.name, presence)
            if each.report is not None and each.received_at is not None:
                self.put_report(each.cluster.name, each.report, each.received_at)

    def observe_models(self, observer: ModelObserver) -> None:
        """From now on tell ``observer`` of every cluster whose model in force changed."""
        self._observers.append(observer)

    @property
    def snapshot(self) -> FleetSnapshot:
        if self._changed:
            self._snapshot = self._brought_up_to_date()
            self._changed.clear()
            self._pooled.clear()
            self._respecified = False
        return self._snapshot

    def view(self, name: str) -> ClusterView:
        """Raises NotFound."""
        state = self._states.get(name)
        if state is None:
            raise NotFound(f"There is no cluster {name!r}.")
        return ClusterView(state=state, presence=self._presences[name])

    @property
    def size(self) -> int:
        """How many clusters there are."""
        return len(self._states)

    def has(self, name: str) -> bool:
        return name in self._states

    def is_of(self, name: str, uid: str) -> bool:
        """Whether the cluster of that name exists and is the Kubernetes cluster with that uid."""
        state = self._states.get(name)
        return state is not None and state.cluster.uid == uid

    def model_in_force(self, name: str) -> ResourceModel:
        """The model that reports are graded by; without grades when modelling is off."""
        cluster = self.view(name).cluster
        on = self._modeling_enabled and cluster.modeling_enabled
        return cluster.model if on else NO_MODEL

    def put_cluster(self, cluster: Cluster) -> None:
        """A cluster as committed. A version older than the known one changes nothing."""
        name = cluster.name
        before = self._states.get(name)
        if before is None:
            self._presences[name] = AgentPresence()
            self._put_state(name, ClusterState(cluster=cluster))
            return
        if cluster.resource_version < before.cluster.resource_version:
            return
        if cluster.uid != before.cluster.uid:
            # Another Kubernetes cluster took over the name: nothing is known of it.
            before = ClusterState(cluster=replace(cluster, api_enablements=None))
            self._presences[name] = AgentPresence()
        model_before = self.model_in_force(name)
        # What the agent says arrives by put_facts; this writer may have read it earlier.
        cluster = replace(cluster, api_enablements=before.cluster.api_enablements)
        self._put_state(name, replace(before, cluster=cluster))
        if self.model_in_force(name) != model_before:
            for observer in self._observers:
                observer(name)

    def put_facts(self, name: str, facts: AgentFacts) -> None:
        """What the agent says of itself and of the cluster's APIs, as committed."""
        self._presences[name] = replace(
            self._presences[name],
            agent_version=facts.agent_version,
            kubernetes_version=facts.kubernetes_version,
            placer=facts.placer,
        )
        state = self._states[name]
        if state.cluster.api_enablements != facts.api_enablements:
            cluster = replace(state.cluster, api_enablements=facts.api_enablements)
            self._put_state(name, replace(state, cluster=cluster))

    def put_presence(self, name: str, presence: AgentPresence) -> None:
        if presence.silent_after != self._presences[name].silent_after:
            self._changed.add(name)
        self._presences[name] = presence

    def remove(self, name: str) -> None:
        """A cluster whose deletion is committed."""
        if self._states.pop(name, None) is not None:
            del self._presences[name]
            self._pools.pop(name, None)
            self._respecified = True
            self._changed.add(name)

    def put_report(self, name: str, report: CapacityReport, received_at: float) -> None:
        """A report as committed, or the known one confirmed; an older one changes nothing.

        Its pools are kept as arrays, beside the report.
        """
        state = self._states[name]
        known = state.report
        if known and (report.epoch, report.sequence) < (known.epoch, known.sequence):
            return
        if known is None or (report.epoch, report.sequence) != (known.epoch, known.sequence):
            self._put_pools(name, report.pools)
        bare = replace(report, pools=None)
        self._put_state(name, replace(state, report=bare, received_at=received_at))

    def _put_pools(self, name: str, reported: ReportedPools | None) -> None:
        if reported is not None:
            self._pools[name] = pools_of(reported)
        else:
            self._pools.pop(name, None)
        self._pooled.add(name)

    def _put_state(self, name: str, state: ClusterState) -> None:
        before = self._states.get(name)
        self._states[name] = state
        self._changed.add(name)
        if state.report is None:
            self._put_pools(name, None)
        if before is None or before.cluster != state.cluster:
            self._respecified = True

    def _brought_up_to_date(self) -> FleetSnapshot:
        old = self._snapshot
        if old.positions.keys() != self._states.keys():
            return self._built_anew()
        changes = {old.positions[name]: self._states[name] for name in self._changed}
        capacity = old.capacity.with_clusters(changes)
        fleet = old.fleet
        if self._respecified:
            fleet = Fleet.of([state.cluster for state in capacity.states])
        cells = old.cells
        if self._pooled:
            newer = {old.positions[name]: self._pools.get(name) for name in self._pooled}
            cells = cells.with_clusters(newer)
        silent_after_c = old.silent_after_c.copy()
        for name in self._changed:
            silent_after_c[old.positions[name]] = self._presences[name].silent_after
        return replace(
            old, capacity=capacity, cells=cells, fleet=fleet, silent_after_c=silent_after_c
        )

    def _built_anew(self) -> FleetSnapshot:
        names = tuple(sorted(self._states))
        states: Sequence[ClusterState] = [self._states[name] for name in names]
        return FleetSnapshot(
            generation=_generation(names),
            names=names,
            positions={name: position for position, name in enumerate(names)},
            fleet=Fleet.of([state.cluster for state in states]),
            capacity=FleetCapacity.of(states, modeling_enabled=self._modeling_enabled),
            cells=FleetCells.of(self._pools.get(name) for name in names),
            silent_after_c=np.array(
                [self._presences[name].silent_after for name in names], dtype=np.float64
            ),
        )


def _generation(names: tuple[str, ...]) -> str:
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()
