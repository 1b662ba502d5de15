"""Every cluster's ledger in memory, brought forward version by version, whoever told of it first.

Must not take a version before all earlier ones of its cluster: it waits for them. Must not know
where changes come from.
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
class Given:
    """What a binding has in a cluster from now on."""

    change: BindingChanged
    given: ClusterShares

    @property
    def nonce(self) -> int:
        return self.change.nonce

    def on(self, ledger: ClusterLedger) -> ClusterLedger:
        if not self.given.shares:
            return ledger.released(self.change.key)
        return ledger.decided(
            self.change.key, self.change.decision, self.given.shares, self.given.adopted
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The report that made a version, with when it came.

    Without one: another is newer still, and yet to come.
    """

    version: int
    report: CapacityReport | None = None
    received_at: float = 0.0
    nonce: int = 0

    def on(self, ledger: ClusterLedger) -> ClusterLedger:
        if self.report is None:
            return ledger.passed()
        return ledger.reported(self.report.interest_version, self.report.echoes)


Happening: TypeAlias = Given | Reported


@dataclass(slots=True, kw_only=True, eq=False)
class _Log:
    """A ledger, and by version what came before its turn."""

    ledger: ClusterLedger
    history: int
    waiting: dict[int, Happening] = field(default_factory=dict)


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
        """Where a binding holds something, ascending."""
        return tuple(sorted(self._holdings.get(binding, ())))

    def is_behind(self, cluster: str) -> bool:
        """Whether it waits for a version while a later one is here already."""
        return bool(self._logs[cluster].waiting)

    def behind(self) -> list[str]:
        """All clusters that do."""
        return [name for name, log in self._logs.items() if log.waiting]

    def put(self, ledger: ClusterLedger, history: int = 0) -> None:
        """A cluster's ledger as it is now, and nothing waits.

        What was told before is in it, or was told of another cluster of that name.
        """
        replaced = self._logs.get(ledger.cluster)
        self._logs[ledger.cluster] = _Log(ledger=ledger, history=history)
        bindings = set(ledger.bindings())
        for binding in bindings:
            self._holdings.setdefault(binding, set()).add(ledger.cluster)
        if replaced is not None:
            self._leave(set(replaced.ledger.bindings()) - bindings, ledger.cluster)

    def remove(self, cluster: str) -> None:
        """Forget a cluster and what bindings hold in it."""
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
        """What changes led to, where each was the next of its clusters and none waited."""
        for cluster, ledger in ledgers.items():
            self._logs[cluster].ledger = ledger
        for change in changes:
            for cluster in change.clusters:
                self._logs[cluster].history ^= change.nonce
            self._note(change, change.clusters)

    def advance(self, cluster: str, version: int, happening: Happening) -> Sequence[Happening]:
        """Let something happen when its turn comes; what happened now, with all that waited for it.

        Nothing where the version is known already, or the cluster is not.
        """
        log = self._logs.get(cluster)
        if log is None or version <= log.ledger.version:
            return ()
        known = log.waiting.get(version)
        if known is None or (isinstance(known, Reported) and known.report is None):
            log.waiting[version] = happening
        done = []
        while (turn := log.waiting.pop(log.ledger.version + 1, None)) is not None:
            log.ledger = turn.on(log.ledger)
            log.history ^= turn.nonce
            if isinstance(turn, Given):
                self._note(turn.change, {cluster: turn.given})
            done.append(turn)
        return done

    def _note(self, change: BindingChanged, clusters: Mapping[str, ClusterShares]) -> None:
        """The binding has that in those clusters now, and elsewhere what it had."""
        for cluster, given in clusters.items():
            if given.shares:
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
    """What is held, by cluster and binding."""
    held: defaultdict[str, dict[str, list[Reservation]]] = defaultdict(dict)
    for row in rows:
        for each in row.reservations:
            held[each.cluster].setdefault(each.binding, []).append(each)
    return held
