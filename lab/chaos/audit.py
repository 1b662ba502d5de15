"""Whether what is in PostgreSQL keeps every promise: the journal is replayed version by version.

Must not ask a control plane, nor know what was done to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import asyncpg

from federation.capacity.cluster_room import ReportId
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterChanged,
    ClusterShares,
    ReportAdvanced,
)
from lab.chaos.records import Events, Standing, read_events, read_standing
from lab.chaos.slow_ledger import SeenReport, SlowLedger

# A report as its agent sent it, by cluster.
Sent = Mapping[tuple[str, ReportId], SeenReport]


@dataclass(slots=True, kw_only=True)
class Audit:
    """Ledgers by cluster as far as the journal was read. ``sent`` grows while agents report.

    ``early`` are changes by cluster and version that came before one that is to be first, and
    ``placed`` the ids of the entries in which bindings were given something first, by key.
    """

    sent: Sent
    ledgers: dict[str, SlowLedger] = field(default_factory=dict)
    early: dict[str, dict[int, Callable[[SlowLedger], None]]] = field(default_factory=dict)
    newest_id: int = 0
    violations: list[str] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    decided: set[str] = field(default_factory=set)
    placed: dict[str, int] = field(default_factory=dict)

    async def begin(self, database: asyncpg.Connection) -> None:
        """From here on: nothing was promised nor reported yet."""
        standing = await read_standing(database, 0)
        for name, capacity in standing.capacities.items():
            self.ledgers[name] = SlowLedger(cluster=name, version=capacity.version)
        self.seen = {entry_id for entry_id, _ in standing.events.journal}

    async def follow(self, database: asyncpg.Connection) -> None:
        """Judge what was committed since the last time."""
        self._take(await read_events(database, self.newest_id))

    async def finish(self, database: asyncpg.Connection) -> Standing:
        """Judge the rest, and what it all came to; nobody writes any more."""
        standing = await read_standing(database, self.newest_id)
        self._take(standing.events)
        for cluster, changes in self.early.items():
            if changes:
                ledger = self._ledger(cluster)
                self.violations.append(
                    f"{cluster}: version {ledger.version + 1} is missing, {min(changes)} is there"
                )
        for name, ledger in self.ledgers.items():
            self.violations += ledger.violations
            self._check_standing(name, ledger, standing)
        self._check_bindings(standing)
        return standing

    @property
    def checked(self) -> int:
        return sum(each.checked for each in self.ledgers.values())

    @property
    def overcommitted(self) -> int:
        return sum(each.overcommitted for each in self.ledgers.values())

    def _ledger(self, cluster: str) -> SlowLedger:
        return self.ledgers[cluster]

    def _take(self, events: Events) -> None:
        for entry_id, change in events.journal:
            if entry_id in self.seen:
                continue
            self.seen.add(entry_id)
            self.newest_id = max(self.newest_id, entry_id)
            if isinstance(change, BindingChanged) and change.clusters:
                self.placed.setdefault(change.key, entry_id)
            self._take_one(change, events)

    def _take_one(self, change: Change, events: Events) -> None:
        if isinstance(change, ReportAdvanced):
            self._keep(change.cluster, change.version, self._reporting(change))
        elif isinstance(change, ClusterChanged):
            if change.emptied or change.deleted:
                self.violations.append(f"{change.cluster} was emptied by nobody")
        else:
            # What is weakened later keeps its decision, and may stand beside a newer report.
            is_first = change.decision not in self.decided
            self.decided.add(change.decision)
            named = events.named.get(change.decision, {}) if is_first else {}
            for name, given in change.clusters.items():
                self._keep(name, given.version, _deciding(change, given, named.get(name)))

    def _keep(self, cluster: str, version: int, apply: Callable[[SlowLedger], None]) -> None:
        """Apply it in its turn."""
        ledger, early = self._ledger(cluster), self.early.setdefault(cluster, {})
        if version <= ledger.version or version in early:
            self.violations.append(f"{cluster}: version {version} is there twice")
            return
        early[version] = apply
        while (following := early.pop(ledger.version + 1, None)) is not None:
            following(ledger)

    def _reporting(self, change: ReportAdvanced) -> Callable[[SlowLedger], None]:
        report = ReportId(change.epoch, change.sequence)

        def apply(ledger: SlowLedger) -> None:
            ledger.reported(change.version, self.sent[change.cluster, report])

        return apply

    def _check_standing(self, name: str, ledger: SlowLedger, standing: Standing) -> None:
        """The tables say the same as the journal."""
        capacity = standing.capacities.get(name)
        report = ledger.report.report if ledger.report else ReportId(0, 0)
        if capacity is None or (capacity.version, capacity.report) != (ledger.version, report):
            self.violations.append(
                f"{name}: {capacity} is stored, {ledger.version} and {report} are in the journal"
            )
        stored = {
            (each.binding, each.component): each.replicas
            for row in standing.reservations.values()
            for each in row.reservations
            if each.cluster == name
        }
        if stored != ledger.newest():
            different = stored.items() ^ ledger.newest().items()
            self.violations.append(f"{name}: rows and journal differ in {sorted(different)}")
        if not ledger.is_overcommitted and not ledger.packs():
            self.violations.append(f"{name}: what is outstanding does not pack at the end")

    def _check_bindings(self, standing: Standing) -> None:
        """A binding runs where its newest placing decision says."""
        for key in standing.reservations.keys() - standing.bindings.keys():
            self.violations.append(f"{key} is gone and still holds something")
        for key, (_, decision) in standing.bindings.items():
            if decision not in standing.decisions:
                self.violations.append(f"{key}: its decision {decision!r} is not there")


def _deciding(
    change: BindingChanged, given: ClusterShares, named: ReportId | None
) -> Callable[[SlowLedger], None]:
    def apply(ledger: SlowLedger) -> None:
        if given.shares:
            ledger.decided(given.version, change.key, given.shares, given.adopted, named)
        else:
            ledger.released(given.version, change.key)

    return apply
