"""The fleet in memory: one mutable owner, and the immutable snapshots everybody reads.

Must not write to the store: what is put here was committed before. Belongs to one event loop;
snapshots may go to any thread.
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
    Given,
    Happening,
    Ledgers,
    Reported,
    by_cluster,
)
from federation.services.fleet.snapshot import ClusterPicture, FleetSnapshot, check_named, shown_of
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterChanged,
    LedgerVersion,
    Position,
    ReportAdvanced,
    StoredReservations,
)
from federation.services.ports import ModelObserver, Store
from federation.services.troubles import tell
from federation.services.values import ClusterView, KnownCluster

NO_MODEL = ResourceModel()

# Told of every change after it was applied; again when a part of it had to wait for its turn.
ChangeObserver = Callable[[Change], None]


class FleetOwner:
    """The clusters as last committed, with their newest reports, their promises and their agents.

    A change marks its cluster; the next reader of ``snapshot`` pays for all marked clusters at
    once, and for those only. ``known_estimates`` are shared by all who ask what fits. Everything
    before ``position`` in the journal was applied.
    """

    def __init__(self, store: Store, *, modeling_enabled: bool = True) -> None:
        self.known_estimates = KnownEstimates()
        self.position = Position()
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
        """Take over what the store holds; call once, before anything else.

        Nobody was heard while nobody listened: until ``grace_until`` (Unix seconds) no cluster is
        stale.
        """
        await self.reload()
        for name, presence in self._presences.items():
            self.put_presence(name, replace(presence, silent_after=grace_until))
        # Else whoever asks first would wait for all of it.
        self._renew()

    async def reload(self, *, anew: bool = False) -> None:
        """Take over what the store holds in place of what is known (``anew``: even where that is
        newer); presences stay.

        What is committed meanwhile may be missed, but for what the journal holds from ``position``
        on: applying that leads to the same ledgers.
        """
        async with self._store.reading() as read:
            position = await read.journal.position()
            stored = await read.clusters.all()
            rows = await read.reservations.all()
        presences = dict(self._presences) if anew else {}
        kept = frozenset[str]() if anew else {each.cluster.name for each in stored}
        for name in self._states.keys() - kept:
            self.remove(name)
        self._ledgers.clear_holders()
        for each in stored:
            name = each.cluster.name
            self.put_cluster(each.cluster)
            self._presences[name] = presences.get(name, self._presences[name])
            self.put_facts(name, each.facts)
        self.restore(
            {
                each.cluster.name: LedgerVersion(each.ledger_version, each.history)
                for each in stored
            },
            rows,
            {
                each.cluster.name: (each.report, each.received_at or 0.0)
                for each in stored
                if each.report is not None
            },
        )
        self.position = position

    def observe_models(self, observer: ModelObserver) -> None:
        """From now on tell ``observer`` of every cluster whose model in force changed."""
        self._model_observers.append(observer)

    def observe(self, observer: ChangeObserver, *kinds: type[Change]) -> None:
        """From now on tell ``observer`` of every change of these kinds (none: of any) after it was
        applied.

        It may be told twice of one that makes no version of any ledger.
        """
        for kind in kinds or get_args(Change):
            self._observers[kind].append(observer)

    @property
    def snapshot(self) -> FleetSnapshot:
        return self._renew()

    def view(self, name: str) -> ClusterView:
        """A cluster with its room, which may have to be packed. Raises NotFound."""
        known, room = self.known(name), self._room(name)
        return ClusterView.of(known, room, () if room else self.ledger(name).outstanding())

    def known(self, name: str) -> KnownCluster:
        """Raises NotFound."""
        state = self._states.get(name)
        if state is None:
            raise NotFound(f"There is no cluster {name!r}.")
        return KnownCluster(state=state, presence=self._presences[name])

    def presence(self, name: str) -> AgentPresence | None:
        """The agent of a cluster, None when there is no such cluster."""
        return self._presences.get(name)

    @property
    def size(self) -> int:
        """How many clusters there are."""
        return len(self._states)

    def has(self, name: str) -> bool:
        return name in self._states

    def pools(self, name: str) -> Pools | None:
        """Those of a cluster's newest report."""
        return self._rooms.pools(name)

    def check_known(self, clusters: Iterable[str]) -> None:
        """Raises InvalidRequest for the field ``clusters``."""
        check_named(clusters, self._states)

    def is_of(self, name: str, uid: str) -> bool:
        """Whether the cluster of that name exists and is the Kubernetes cluster with that uid."""
        state = self._states.get(name)
        return state is not None and state.cluster.uid == uid

    def ledger(self, name: str) -> ClusterLedger:
        """What is promised in a cluster. Raises NotFound."""
        if name not in self._states:
            raise NotFound(f"There is no cluster {name!r}.")
        return self._ledgers.of(name)

    def version(self, name: str) -> LedgerVersion:
        """The state of a cluster's ledger; the cluster exists."""
        return self._ledgers.version(name)

    def report(self, name: str) -> CapacityReport | None:
        """The newest report of a cluster that exists, without its pools and echoes."""
        return self._states[name].report

    def holdings(self, key: str) -> tuple[str, ...]:
        """The clusters where a binding holds something, ascending."""
        return self._ledgers.holdings(key)

    @property
    def owners(self) -> Mapping[str, Owner]:
        """The workloads of the bindings that hold something, where known."""
        return self._ledgers.owners

    @property
    def uids(self) -> Mapping[str, str]:
        """The uids of the bindings that hold something, where known."""
        return self._ledgers.uids

    def behind(self) -> list[str]:
        """Clusters of which a change came before an earlier one."""
        return self._ledgers.behind()

    def model_in_force(self, name: str) -> ResourceModel:
        """The model that reports are graded by; without grades when modelling is off."""
        cluster = self.known(name).cluster
        on = self._modeling_enabled and cluster.modeling_enabled
        return cluster.model if on else NO_MODEL

    def put_cluster(self, cluster: Cluster, *, is_locked: bool = False) -> None:
        """A cluster as committed. An older version changes nothing, but that of a locked row."""
        name = cluster.name
        before = self._states.get(name)
        if before is None:
            self._presences[name] = AgentPresence()
            self._ledgers.put(ClusterLedger(cluster=name, version=FIRST_VERSION))
            self._put_state(name, ClusterState(cluster=cluster))
            return
        if not is_locked and cluster.resource_version < before.cluster.resource_version:
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
            tell(self._model_observers, name)

    def put_facts(self, name: str, facts: AgentFacts) -> None:
        """What the agent says of itself and of the cluster's APIs, as committed."""
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
        before = self._presences[name]
        if shown_of(presence) != shown_of(before):
            self.changed.add(name)
        self._presences[name] = presence
        if presence.follows_claims is not before.follows_claims:
            self._empty_room(name)

    def remove(self, name: str) -> None:
        """A cluster whose deletion is committed."""
        if self._states.pop(name, None) is not None:
            del self._presences[name]
            self._rooms.remove(name)
            self._ledgers.remove(name)
            self.changed.add(name)

    async def pack_ahead(self, reports: Iterable[tuple[str, CapacityReport]]) -> None:
        """To be called before newer reports are put: it would hold up the event loop then."""
        coming = {
            name: ComingReport(
                report, self.ledger(name), self.pools(name), self._follows_claims(name)
            )
            for name, report in reports
            if self.has(name)
        }
        await self._rooms.ahead.pack(coming)

    def put_report(
        self,
        name: str,
        report: CapacityReport,
        received_at: float,
        ledger_version: int | None = None,
        nonce: int = 0,
    ) -> None:
        """A report as committed; one that is known already or older changes nothing.

        It is taken when the cluster's ledger is next to come to ``ledger_version``; at once when
        that is not said, for fleets without a store.
        """
        known = self._states[name].report
        order = (report.epoch, report.sequence)
        if known is not None and order <= (known.epoch, known.sequence):
            return
        if ledger_version is None:
            ledger_version = self.ledger(name).version + 1
        happening = Reported(
            version=ledger_version, report=report, received_at=received_at, nonce=nonce
        )
        self._tell(self._advance(name, ledger_version, happening))

    def confirm_report(self, name: str, report: CapacityReport, as_of: float) -> None:
        """The newest report, with a later snapshot's time, was still true ``as_of`` (our clock)."""
        self._put_state(name, replace(self._states[name], report=report, as_of=as_of))

    def apply(self, change: Change) -> None:
        """A change as committed; what is known of it already changes nothing.

        In every cluster it waits until all earlier ones were applied. The body of a newer report
        comes by ``put_report``; one that was never seen is passed over.
        """
        told: list[Change] = []
        match change:
            case BindingChanged():
                for name, given in change.clusters.items():
                    happening = Given(change=change, given=given)
                    told += self._advance(name, given.version, happening)
                if not change.clusters:
                    told.append(change)
            case ReportAdvanced():
                passed = Reported(version=change.version, nonce=change.nonce)
                told += self._advance(change.cluster, change.version, passed)
            case ClusterChanged():
                self._empty(change.cluster, LedgerVersion(change.emptied, change.nonce))
                told.append(change)
        self._tell(told)

    def adopt(
        self, base: FleetSnapshot, after: FleetSnapshot, changes: Sequence[BindingChanged]
    ) -> None:
        """Changes that were decided on a snapshot and are committed, and what they made of it.

        Taken over as a whole where nothing else happened to the clusters since, nor waits to.
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
        self._tell(changes)

    def restore(
        self,
        versions: Mapping[str, LedgerVersion],
        rows: Sequence[StoredReservations],
        reports: Mapping[str, tuple[CapacityReport, float]],
    ) -> None:
        """Clusters' promises and newest reports as stored, in place of all known. Of the rows, and
        of what they hold elsewhere, only the parts of these clusters count.
        """
        for row in rows:
            self._ledgers.note_holder(row)
        held = by_cluster(rows)
        for name, at in versions.items():
            report, received_at = reports.get(name, (None, None))
            ledger = ClusterLedger.restored(
                name,
                at.version,
                held.get(name, {}),
                report.interest_version if report else 0,
                report.echoes if report else (),
            )
            self._ledgers.put(ledger, at.history)
            self._empty_room(name)
            if report is not None and received_at is not None:
                self._take_report(name, report, received_at)
            else:
                self._put_state(name, replace(self._states[name], report=None, as_of=None))

    def _advance(self, name: str, version: int, happening: Happening) -> list[Change]:
        """What happened in a cluster because of this, in order."""
        told: list[Change] = []
        for each in self._ledgers.advance(name, version, happening):
            self.changed.add(name)
            self._rooms.changed.add(name)
            if isinstance(each, Given):
                told.append(each.change)
            elif each.report is not None:
                self._take_report(name, each.report, each.received_at)
                told.append(
                    ReportAdvanced(
                        cluster=name,
                        version=each.version,
                        epoch=each.report.epoch,
                        sequence=each.report.sequence,
                    )
                )
        return told

    def _tell(self, changes: Iterable[Change]) -> None:
        """Each once, whatever number of clusters it was about."""
        for change in {id(each): each for each in changes}.values():
            tell(self._observers[type(change)], change)

    def _empty(self, name: str, at: LedgerVersion) -> None:
        version = at.version
        if not self.has(name) or version <= self.ledger(name).version:
            return
        empty = ClusterLedger(cluster=name, version=version, interest_version=version)
        self._ledgers.put(empty, at.history)
        self._put_state(name, replace(self._states[name], report=None, as_of=None))

    def _take_report(self, name: str, report: CapacityReport, received_at: float) -> None:
        """Its pools are kept as arrays, beside the report, and its echoes in the ledger."""
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

    def _empty_room(self, name: str) -> None:
        """Everything outstanding there is to be packed again."""
        self.changed.add(name)
        self._rooms.empty(name)

    def _room(self, name: str) -> Room | None:
        """The cluster's room with all that is outstanding now."""
        known = self._known_room(name)
        if isinstance(known, UnpackedRoom):
            known = packed_room(known)
            self._rooms.put(name, self.ledger(name), known)
        return known

    def _known_room(self, name: str) -> Room | UnpackedRoom | None:
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
            room=self._known_room(name) if needs_room else None,
            presence=self._presences[name],
        )
