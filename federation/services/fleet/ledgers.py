"""Ledgers of all clusters in memory, brought forward version by version from any source.

Must not apply a version before all earlier ones of its cluster: a later version waits. Must not
know where changes come from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from federation.capacity.ledger import ClusterLedger
from federation.model.cluster import CapacityReport
from federation.model.echoes import Owner
from federation.model.reservations import Reservation
from federation.services.journal import (
    BindingChanged,
    ClusterShares,
    LedgerVersion,
    StoredReservations,
)

# Adding a cluster makes the first version of its ledger.
FIRST_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationEvent:
    """A change of a binding, and the shares that it has in one cluster from then on."""

    change: BindingChanged
    shares: ClusterShares

    @property
    def nonce(self) -> int:
        return self.change.nonce

    def on(self, ledger: ClusterLedger) -> ClusterLedger:
        """Return the ledger after this event."""
        if not self.shares.shares:
            return ledger.released(self.change.key)
        return ledger.decided(
            self.change.key, self.change.decision, self.shares.shares, self.shares.adopted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportEvent:
    """A version that a report made, and when the report was received (Unix seconds).

    ``report`` is None where its body was never read, because a newer report is on its way.
    """

    version: int
    report: CapacityReport | None = None
    received_at: float = 0.0
    nonce: int = 0

    def on(self, ledger: ClusterLedger) -> ClusterLedger:
        """Return the ledger after this event."""
        if self.report is None:
            return ledger.passed()
        return ledger.reported(self.report.interest_version, self.report.echoes)


LedgerEvent: TypeAlias = ReservationEvent | ReportEvent


@dataclass(slots=True, kw_only=True, eq=False)
class _Log:
    """A cluster's ledger, and by version the events that arrived before their turn."""

    ledger: ClusterLedger
    history: int
    waiting: dict[int, LedgerEvent] = field(default_factory=dict)


class Ledgers:
    """The ledgers by cluster, and the bindings that have reservations in them.

    ``uids`` and ``owners`` are those of such bindings, by binding key, where they are known.
    """

    def __init__(self) -> None:
        self.owners: dict[str, Owner] = {}
        self.uids: dict[str, str] = {}
        self._logs: dict[str, _Log] = {}
        self._holdings: dict[str, set[str]] = {}

    def __contains__(self, cluster: object) -> bool:
        return cluster in self._logs

    def of(self, cluster: str) -> ClusterLedger:
        return self._logs[cluster].ledger

    def version(self, cluster: str) -> LedgerVersion:
        log = self._logs[cluster]
        return LedgerVersion(log.ledger.version, log.history)

    def holdings(self, binding: str) -> tuple[str, ...]:
        """Return the clusters in which a binding has reservations, ascending."""
        return tuple(sorted(self._holdings.get(binding, ())))

    def is_behind(self, cluster: str) -> bool:
        """Return whether a ledger lacks a version before one that has arrived."""
        return bool(self._logs[cluster].waiting)

    def behind(self) -> list[str]:
        """Return the clusters whose ledgers lack such a version."""
        return [name for name, log in self._logs.items() if log.waiting]

    def put(self, ledger: ClusterLedger, history: int = 0) -> None:
        """Replace a cluster's ledger, and drop all events that wait.

        Those events are in this ledger, or they are of an older cluster of that name.
        """
        replaced = self._logs.get(ledger.cluster)
        self._logs[ledger.cluster] = _Log(ledger=ledger, history=history)
        bindings = set(ledger.bindings())
        for binding in bindings:
            self._holdings.setdefault(binding, set()).add(ledger.cluster)
        if replaced is not None:
            self._leave(set(replaced.ledger.bindings()) - bindings, ledger.cluster)

    def remove(self, cluster: str) -> None:
        """Forget a cluster and the reservations of bindings in it."""
        log = self._logs.pop(cluster, None)
        if log is not None:
            self._leave(log.ledger.bindings(), cluster)

    def clear_holders(self) -> None:
        """Forget uids and owners of all bindings."""
        self.owners.clear()
        self.uids.clear()

    def note_holder(self, holder: BindingChanged | StoredReservations) -> None:
        """Keep the uid and the owner of a binding that has reservations."""
        if holder.uid:
            self.uids[holder.key] = holder.uid
        if holder.owner is not None:
            self.owners[holder.key] = holder.owner

    def adopt(
        self, ledgers: Mapping[str, ClusterLedger], changes: Iterable[BindingChanged]
    ) -> None:
        """Take over the ledgers that changes led to.

        Each change must be the next of its clusters, and no event may wait in them.
        """
        for cluster, ledger in ledgers.items():
            self._logs[cluster].ledger = ledger
        for change in changes:
            for cluster in change.clusters:
                self._logs[cluster].history ^= change.nonce
            self._note(change, change.clusters)

    def advance(self, cluster: str, version: int, event: LedgerEvent) -> Sequence[LedgerEvent]:
        """Apply an event and those that waited for it; keep it if an earlier version is missing.

        Return the applied events in order: none for an unknown cluster, or an old version.
        """
        log = self._logs.get(cluster)
        if log is None or version <= log.ledger.version:
            return ()
        waiting = log.waiting.get(version)
        if waiting is None or (isinstance(waiting, ReportEvent) and waiting.report is None):
            log.waiting[version] = event
        applied = []
        while (turn := log.waiting.pop(log.ledger.version + 1, None)) is not None:
            log.ledger = turn.on(log.ledger)
            log.history ^= turn.nonce
            if isinstance(turn, ReservationEvent):
                self._note(turn.change, {cluster: turn.shares})
            applied.append(turn)
        return applied

    def _note(self, change: BindingChanged, clusters: Mapping[str, ClusterShares]) -> None:
        """Note in which of these clusters the binding of a change has reservations now."""
        for cluster, part in clusters.items():
            if part.shares:
                self._holdings.setdefault(change.key, set()).add(cluster)
            else:
                self._leave([change.key], cluster)
        if change.key in self._holdings:
            self.note_holder(change)

    def _leave(self, bindings: Iterable[str], cluster: str) -> None:
        """Forget that bindings have reservations in a cluster, and all of those without any."""
        for binding in bindings:
            clusters = self._holdings.get(binding, set())
            clusters.discard(cluster)
            if not clusters:
                self._holdings.pop(binding, None)
                self.uids.pop(binding, None)
                self.owners.pop(binding, None)


def by_cluster(
    rows: Iterable[StoredReservations],
) -> dict[str, dict[str, list[Reservation]]]:
    """Return the reservations of all rows by cluster, then by binding key."""
    by_name: defaultdict[str, dict[str, list[Reservation]]] = defaultdict(dict)
    for row in rows:
        for reservation in row.reservations:
            by_name[reservation.cluster].setdefault(reservation.binding, []).append(reservation)
    return by_name
