"""Whether what is in PostgreSQL keeps every promise: the journal is replayed version by version.

Must not ask a control plane, nor know what was done to it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import asyncpg

from federation.capacity.cluster_room import ReportId
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterChanged,
    ClusterShares,
    ReportAdvanced,
    StoredReservations,
)
from federation.store.decisions import StoredDecision
from federation.store.journal import change_of
from federation.store.reservations import reservations_of
from lab.chaos.slow_ledger import SeenReport, SlowLedger
from lab.databases import connect

# Entries are not committed in the order of their ids: those of this many before may come late.
LATE = 2000
JOURNAL = "SELECT id, kind, body, nonce FROM journal WHERE id > $1 ORDER BY id"
CAPACITIES = """
    SELECT name, c.version, epoch, sequence FROM cluster_capacity c JOIN cluster ON id = cluster_id
"""
RESERVATIONS = "SELECT namespace, name, uid, body, lease_expires_at FROM reservation"
BINDINGS = "SELECT namespace, name, clusters, decision_id::text FROM binding"
TRACES = """
    SELECT id::text, namespace, name, binding_generation, outcome, clusters, remainder, reason,
        algorithm_revision, created_at, trace
    FROM decision WHERE id = ANY($1::uuid[])
"""
DECISIONS = "SELECT id::text, namespace, name, outcome, clusters FROM decision"

Shares = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A cluster's ledger version and its newest report."""

    version: int
    report: ReportId


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """The journal from somewhere on, and by decision the report that each of its shares names."""

    journal: Sequence[tuple[int, Change]]
    named: Mapping[str, Mapping[str, ReportId]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Everything of one instant: by binding key where it runs and its decision, and so on.

    ``decided`` counts decisions by binding key and outcome.
    """

    events: Events
    capacities: Mapping[str, Capacity]
    reservations: Mapping[str, StoredReservations]
    bindings: Mapping[str, tuple[Shares, str]]
    decisions: Mapping[str, tuple[str, Shares]]
    decided: Mapping[str, Counter[str]]


async def open_database(url: str) -> asyncpg.Connection:
    connection = await connect(url)
    await connection.set_type_codec(
        "jsonb", encoder=json.dumps, decoder=json.loads, schema="pg_catalog"
    )
    return connection


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[asyncpg.Connection]:
    """As long as the block lasts."""
    database = await open_database(url)
    try:
        yield database
    finally:
        await database.close(timeout=1.0)


async def read_events(database: asyncpg.Connection, after: int) -> Events:
    """``after``: the highest id that was seen; some before it come again."""
    rows = await database.fetch(JOURNAL, max(0, after - LATE))
    journal = [(row["id"], change_of(row["kind"], row["body"], row["nonce"])) for row in rows]
    ids = {
        change.decision
        for _, change in journal
        if isinstance(change, BindingChanged) and change.decision
    }
    traces = await database.fetch(TRACES, sorted(ids))
    records = [StoredDecision(cast(Any, SimpleNamespace(**row))).unpacked() for row in traces]
    return Events(
        journal=journal,
        named={
            record.id: {
                each.cluster: ReportId(each.report_epoch, each.report_sequence)
                for each in record.promises
            }
            for record in records
        },
    )


async def read_standing(database: asyncpg.Connection, after: int) -> Standing:
    async with database.transaction(isolation="repeatable_read", readonly=True):
        events = await read_events(database, after)
        capacities = await database.fetch(CAPACITIES)
        reservations = await database.fetch(RESERVATIONS)
        bindings = await database.fetch(BINDINGS)
        decisions = await database.fetch(DECISIONS)
    held = reservations_of(cast(Any, SimpleNamespace(**row)) for row in reservations)
    return Standing(
        events=events,
        capacities={
            row["name"]: Capacity(
                version=row["version"], report=ReportId(row["epoch"], row["sequence"])
            )
            for row in capacities
        },
        reservations={each.key: each for each in held},
        bindings={
            _key(row): (_shares(row["clusters"]), row["decision_id"] or "") for row in bindings
        },
        decisions={row["id"]: (_key(row), _shares(row["clusters"])) for row in decisions},
        decided=_outcomes(decisions),
    )


def _outcomes(decisions: Iterable[asyncpg.Record]) -> Mapping[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for row in decisions:
        found.setdefault(_key(row), Counter())[row["outcome"]] += 1
    return found


def _key(row: asyncpg.Record) -> str:
    return f"{row['namespace']}/{row['name']}"


def _shares(clusters: Any) -> Shares:
    return {each["name"]: each["replicas"] for each in clusters}


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
