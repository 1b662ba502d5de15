"""The fleet in memory: one mutable owner of all clusters, and the immutable snapshots of it.

Must not write to the store: callers commit a change before they put it here. Belongs to one event
loop; snapshots may go to any thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import get_args

from federation.capacity.cluster_room import Room
from federation.capacity.fleet_rooms import UnpackedRoom, packed_room
from federation.capacity.ledger import ClusterLedger
from federation.model.cluster import CapacityReport, Cluster, ClusterState
from federation.model.echoes import Owner
from federation.model.errors import NotFound
from federation.model.grades import ResourceModel
from federation.model.pools.values import Pools
from federation.services.agent_values import AgentFacts, AgentPresence
from federation.services.fleet.current_snapshot import ComingReport, CurrentSnapshot
from federation.services.fleet.known_estimates import KnownEstimates
from federation.services.fleet.ledgers import (
    FIRST_VERSION,
    LedgerEvent,
    Ledgers,
    ReportEvent,
    ReservationEvent,
    by_cluster,
)
from federation.services.fleet.snapshot import ClusterPicture, FleetSnapshot, check_named, shown_of
from federation.services.journal import (
    START,
    BindingChanged,
    Change,
    ClusterChanged,
    LedgerVersion,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.member_ports import StoredReport
from federation.services.ports import ModelObserver, Store
from federation.services.troubles import tell
from federation.services.values import ClusterView, KnownCluster

NO_MODEL = ResourceModel()

# Called with every change after it was applied, and again if a ledger applied its part later.
ChangeObserver = Callable[[Change], None]


class FleetOwner:
    """The clusters as last committed, with their newest reports, promises and agents.

    A change marks its cluster; the next read of ``snapshot`` renews the marked clusters only.
    ``known_estimates`` is a cache that all estimates share. All journal entries before ``position``
    were applied.
    """

    def __init__(self, store: Store, *, modeling_enabled: bool = True) -> None:
        self.known_estimates = KnownEstimates()
        self.position = START
        self._store = store
        self._modeling_enabled = modeling_enabled
        self._states: dict[str, ClusterState] = {}
        self._presences: dict[str, AgentPresence] = {}
        self._ledgers = Ledgers()
        self._model_observers: list[ModelObserver] = []
        self._observers: dict[type[Change], list[ChangeObserver]] = defaultdict(list)
        self._current = CurrentSnapshot(modeling_enabled=modeling_enabled)
        self._rooms = self._current.rooms
        self.changed = self._current.changed

    async def load(self, *, grace_until: float) -> None:
        """Read the whole fleet from the store; call once, before anything else.

        No cluster is stale until ``grace_until`` (Unix seconds), because agents could not report
        while the control plane was down.
        """
        await self.reload()
        for name, presence in self._presences.items():
            self.put_presence(name, replace(presence, silent_after=grace_until))
        # The first caller that needs a snapshot would wait for all rooms to be packed.
        self._renew()

    async def reload(self, *, anew: bool = False) -> None:
        """Read clusters, reports and reservations from the store again; keep presences.

        With ``anew``, drop everything in memory first, also what is newer than the store. Changes
        that are committed during the read may be missed. The journal has them after ``position``,
        and applying them leads to the same ledgers.
        """
        async with self._store.reading() as read:
            position = await read.journal.position()
            stored = await read.clusters.all()
            rows = await read.reservations.all()
        presences = dict(self._presences) if anew else {}
        remaining = frozenset[str]() if anew else {member.cluster.name for member in stored}
        for name in self._states.keys() - remaining:
            self.remove(name)
        self._ledgers.clear_holders()
        for member in stored:
            name = member.cluster.name
            self.put_cluster(member.cluster)
            self._presences[name] = presences.get(name, self._presences[name])
            self.put_facts(name, member.facts)
        self.restore(
            {
                member.cluster.name: LedgerVersion(member.ledger_version, member.history)
                for member in stored
            },
            rows,
            {member.cluster.name: member.report for member in stored if member.report is not None},
        )
        # Floors of open transactions may lie before entries that were read already.
        self.position = position if anew else max(position, self.position)

    def observe_models(self, observer: ModelObserver) -> None:
        """Call ``observer`` with the name of every cluster whose model in force changes."""
        self._model_observers.append(observer)

    def observe(self, observer: ChangeObserver, *kinds: type[Change]) -> None:
        """Call ``observer`` with every change of these kinds (default: all) after it was applied.

        A change that makes no version of any ledger may be passed twice.
        """
        for kind in kinds or get_args(Change):
            self._observers[kind].append(observer)

    @property
    def snapshot(self) -> FleetSnapshot:
        return self._renew()

    def view(self, name: str) -> ClusterView:
        """Return a cluster with its room, which is packed now if necessary. Raises NotFound."""
        cluster, room = self.known(name), self._packed_room(name)
        return ClusterView.of(cluster, room, () if room else self.ledger(name).outstanding())

    def known(self, name: str) -> KnownCluster:
        """Return a cluster's state and its agent's presence. Raises NotFound."""
        state = self._states.get(name)
        if state is None:
            raise NotFound(f"There is no cluster {name!r}.")
        return KnownCluster(state=state, presence=self._presences[name])

    def presence(self, name: str) -> AgentPresence | None:
        """Return the presence of a cluster's agent; None when there is no such cluster."""
        return self._presences.get(name)

    @property
    def size(self) -> int:
        """The number of clusters."""
        return len(self._states)

    def has(self, name: str) -> bool:
        return name in self._states

    def pools(self, name: str) -> Pools | None:
        """Return the pools of a cluster's newest report."""
        return self._rooms.pools(name)

    def check_known(self, clusters: Iterable[str]) -> None:
        """Raise InvalidRequest for names in the field ``clusters`` that no cluster has."""
        check_named(clusters, self._states)

    def is_of(self, name: str, uid: str) -> bool:
        """Return whether a cluster has this name and this uid of its ``kube-system`` namespace."""
        state = self._states.get(name)
        return state is not None and state.cluster.uid == uid

    def ledger(self, name: str) -> ClusterLedger:
        """Return all reservations in a cluster. Raises NotFound."""
        if name not in self._states:
            raise NotFound(f"There is no cluster {name!r}.")
        return self._ledgers.of(name)

    def version(self, name: str) -> LedgerVersion:
        """Return the version of a cluster's ledger; the cluster must exist."""
        return self._ledgers.version(name)

    def report(self, name: str) -> CapacityReport | None:
        """Return a cluster's newest report without pools and echoes; the cluster must exist."""
        return self._states[name].report

    def holdings(self, key: str) -> tuple[str, ...]:
        """Return the clusters in which a binding has reservations, ascending."""
        return self._ledgers.holdings(key)

    @property
    def owners(self) -> Mapping[str, Owner]:
        """Workloads of bindings with reservations, by binding key, where they are known."""
        return self._ledgers.owners

    @property
    def uids(self) -> Mapping[str, str]:
        """Uids of bindings with reservations, by binding key, where they are known."""
        return self._ledgers.uids

    def behind(self) -> list[str]:
        """Return the clusters whose ledgers lack a version before one that has arrived."""
        return self._ledgers.behind()

    def model_in_force(self, name: str) -> ResourceModel:
        """Return the model that reports are graded by; without grades when modelling is off."""
        cluster = self.known(name).cluster
        on = self._modeling_enabled and cluster.modeling_enabled
        return cluster.model if on else NO_MODEL

    def put_cluster(self, cluster: Cluster, *, is_locked: bool = False) -> None:
        """Put a committed cluster. Ignore an older version, unless its row is locked."""
        name = cluster.name
        state = self._states.get(name)
        if state is None:
            self._presences[name] = AgentPresence()
            self._ledgers.put(ClusterLedger(cluster=name, version=FIRST_VERSION))
            self._put_state(name, ClusterState(cluster=cluster))
            return
        if not is_locked and cluster.resource_version < state.cluster.resource_version:
            return
        if cluster.uid != state.cluster.uid:
            # The name belongs to another Kubernetes cluster now, without an agent or a report yet.
            state = ClusterState(cluster=replace(cluster, api_enablements=None))
            self._presences[name] = AgentPresence()
        previous_model = self.model_in_force(name)
        # The agent's facts arrive by put_facts; the writer of this row may have read older ones.
        cluster = replace(cluster, api_enablements=state.cluster.api_enablements)
        self._put_state(name, replace(state, cluster=cluster))
        if self.model_in_force(name) != previous_model:
            tell(self._model_observers, name)

    def put_facts(self, name: str, facts: AgentFacts) -> None:
        """Put committed facts: versions of an agent and its cluster, and the cluster's APIs."""
        presence = replace(
            self._presences[name],
            agent_version=facts.agent_version,
            kubernetes_version=facts.kubernetes_version,
            placer=facts.placer,
        )
        self.put_presence(name, presence)
        state = self._states[name]
        if state.cluster.api_enablements != facts.api_enablements:
            cluster = replace(state.cluster, api_enablements=facts.api_enablements)
            self._put_state(name, replace(state, cluster=cluster))

    def put_presence(self, name: str, presence: AgentPresence) -> None:
        """Put the presence of a cluster's agent; the cluster must exist."""
        previous = self._presences[name]
        if shown_of(presence) != shown_of(previous):
            self.changed.add(name)
        self._presences[name] = presence
        if presence.follows_claims is not previous.follows_claims:
            self._repack_room(name)

    def remove(self, name: str) -> None:
        """Remove a cluster whose deletion is committed."""
        if self._states.pop(name, None) is not None:
            del self._presences[name]
            self._rooms.remove(name)
            self._ledgers.remove(name)
            self.changed.add(name)

    async def pack_ahead(self, reports: Iterable[tuple[str, CapacityReport]]) -> None:
        """Pack the rooms of reports on a thread, before the reports are put.

        Without this call the event loop packs them when somebody reads them.
        """
        coming = {
            name: ComingReport(
                report, self.ledger(name), self.pools(name), self._follows_claims(name)
            )
            for name, report in reports
            if self.has(name)
        }
        await self._rooms.pack_ahead(coming)

    def put_report(
        self,
        name: str,
        report: CapacityReport,
        received_at: float,
        ledger_version: int | None = None,
        nonce: int = 0,
    ) -> None:
        """Put a committed report; ignore one that is not newer than the last.

        It takes effect when the cluster's ledger reaches ``ledger_version``. Without a version, as
        in fleets without a store, it takes effect now.
        """
        newest = self._states[name].report
        order = (report.epoch, report.sequence)
        if newest is not None and order <= (newest.epoch, newest.sequence):
            return
        if ledger_version is None:
            ledger_version = self.ledger(name).version + 1
        event = ReportEvent(
            version=ledger_version, report=report, received_at=received_at, nonce=nonce
        )
        self._notify(self._advance(name, ledger_version, event))

    def confirm_report(self, name: str, report: CapacityReport, as_of: float) -> None:
        """Put the newest report again: it was still true at ``as_of`` (Unix seconds, our clock)."""
        self._put_state(name, replace(self._states[name], report=report, as_of=as_of))

    def apply(self, change: Change) -> None:
        """Apply a committed change; ignore the parts that were applied already.

        In each cluster a change waits until all earlier versions of the ledger were applied. The
        body of a report must have come by ``put_report``; without a body, only the ledger's version
        advances.
        """
        applied: list[Change] = []
        match change:
            case BindingChanged():
                for name, shares in change.clusters.items():
                    event = ReservationEvent(change=change, shares=shares)
                    applied += self._advance(name, shares.version, event)
                if not change.clusters:
                    applied.append(change)
            case ReportAdvanced():
                missed = ReportEvent(version=change.version, nonce=change.nonce)
                applied += self._advance(change.cluster, change.version, missed)
            case ClusterChanged():
                self._empty(change.cluster, LedgerVersion(change.emptied, change.nonce))
                applied.append(change)
        self._notify(applied)

    def adopt(
        self, base: FleetSnapshot, after: FleetSnapshot, changes: Sequence[BindingChanged]
    ) -> None:
        """Apply committed changes that were decided on ``base`` and made ``after`` of it.

        ``after`` becomes the newest snapshot if no other change has come to these clusters since;
        otherwise the changes are applied one by one.
        """
        names = {name for change in changes for name in change.clusters}
        if self._current.value is not base or any(
            not self.has(name)
            or name in self._rooms.changed
            or self._ledgers.is_behind(name)
            or self.ledger(name) is not base.ledgers[base.positions[name]]
            for name in names
        ):
            for change in changes:
                self.apply(change)
            return
        ledgers = {name: after.ledgers[after.positions[name]] for name in names}
        self._ledgers.adopt(ledgers, changes)
        self._current.adopt(after, names)
        self._notify(changes)

    def restore(
        self,
        versions: Mapping[str, LedgerVersion],
        rows: Sequence[StoredReservations],
        reports: Mapping[str, StoredReport],
    ) -> None:
        """Replace the ledgers and the newest reports of clusters by what the store has.

        ``rows`` may also have reservations in other clusters, which are ignored.
        """
        for row in rows:
            self._ledgers.note_holder(row)
        reservations = by_cluster(rows)
        for name, at in versions.items():
            stored = reports.get(name)
            ledger = ClusterLedger.restored(
                name,
                at.version,
                reservations.get(name, {}),
                stored.report.interest_version if stored else 0,
                stored.report.echoes if stored else (),
                stored.ledger_version if stored else 0,
            )
            self._ledgers.put(ledger, at.history)
            self._repack_room(name)
            if stored is not None:
                self._take_report(name, stored.report, stored.received_at)
            else:
                self._put_state(name, replace(self._states[name], report=None, as_of=None))

    def _advance(self, name: str, version: int, event: LedgerEvent) -> list[Change]:
        """Pass an event to a cluster's ledger; return the changes that it applied, in order."""
        changes: list[Change] = []
        for applied in self._ledgers.advance(name, version, event):
            self.changed.add(name)
            self._rooms.changed.add(name)
            if isinstance(applied, ReservationEvent):
                changes.append(applied.change)
            elif applied.report is not None:
                self._take_report(name, applied.report, applied.received_at)
                changes.append(
                    ReportAdvanced(
                        cluster=name,
                        version=applied.version,
                        epoch=applied.report.epoch,
                        sequence=applied.report.sequence,
                    )
                )
        return changes

    def _notify(self, changes: Iterable[Change]) -> None:
        """Call the observers once for each change, also for one of many clusters."""
        for change in {id(change): change for change in changes}.values():
            tell(self._observers[type(change)], change)

    def _empty(self, name: str, at: LedgerVersion) -> None:
        """Replace a cluster's ledger by an empty one at this version, unless it is newer."""
        version = at.version
        if not self.has(name) or version <= self.ledger(name).version:
            return
        empty = ClusterLedger(cluster=name, version=version, interest_version=version)
        self._ledgers.put(empty, at.history)
        self._put_state(name, replace(self._states[name], report=None, as_of=None))

    def _take_report(self, name: str, report: CapacityReport, received_at: float) -> None:
        """Keep a report without its pools and echoes: rooms and ledgers have those."""
        self._rooms.put_report(name, report, follows_claims=self._follows_claims(name))
        self.changed.add(name)
        bare = replace(report, pools=None, echoes=())
        as_of = received_at - report.picture_age_seconds
        self._put_state(name, replace(self._states[name], report=bare, as_of=as_of))

    def _put_state(self, name: str, state: ClusterState) -> None:
        self._states[name] = state
        self.changed.add(name)
        if state.report is None:
            self._rooms.forget_report(name)

    def _repack_room(self, name: str) -> None:
        """Have all outstanding replicas of a cluster packed again when its room is needed."""
        self.changed.add(name)
        self._rooms.empty(name)

    def _packed_room(self, name: str) -> Room | None:
        """Return a cluster's room with all that is outstanding now; None without pools."""
        room = self._room(name)
        if isinstance(room, UnpackedRoom):
            room = packed_room(room)
            self._rooms.put(name, self.ledger(name), room)
        return room

    def _room(self, name: str) -> Room | UnpackedRoom | None:
        report = self._states[name].report
        if report is None:
            return None
        return self._current.room(
            name, report, self.ledger(name), follows_claims=self._follows_claims(name)
        )

    def _follows_claims(self, name: str) -> bool:
        return self._presences[name].follows_claims

    def _renew(self) -> FleetSnapshot:
        return self._current.renew(self._states.keys(), self._picture)

    def _picture(self, name: str, needs_room: bool) -> ClusterPicture:
        return ClusterPicture(
            state=self._states[name],
            ledger=self.ledger(name),
            room=self._room(name) if needs_room else None,
            presence=self._presences[name],
        )
