"""What control planes left in PostgreSQL, read in one instant without asking any of them.

Must not judge: ``lab.chaos.audit`` does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import asyncpg

from federation.capacity.cluster_room import ReportId
from federation.services.journal import BindingChanged, Change, StoredReservations
from federation.store.decisions import StoredDecision
from federation.store.journal import change_of
from federation.store.reservations import reservations_of
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
