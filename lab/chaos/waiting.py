"""Whether everybody waits who was told so, and nobody else: the table is compared with decisions.

Must not ask a control plane, nor reckon what fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

QUEUE = """
    SELECT coalesce(b.namespace, w.namespace) || '/' || coalesce(b.name, w.name) AS key,
        b.id IS NOT NULL AS is_there, w.binding_id IS NOT NULL AS waits,
        coalesce(w.priority, 0) AS priority, extract(epoch FROM w.since)::float8 AS since,
        (b.spec ->> 'replicas')::int AS replicas,
        b.spec -> 'placement' -> 'replica_scheduling' ->> 'type' AS scheduling,
        d.id::text AS decision, d.outcome, d.clusters
    FROM binding b FULL JOIN waiting w ON w.binding_id = b.id LEFT JOIN decision d
        ON d.id = b.decision_id
"""
WHOLE = "SCHEDULED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A binding with its newest decision; ``waits``: it stands in the queue."""

    key: str
    is_there: bool
    waits: bool
    priority: int
    since: float | None
    replicas: int | None
    scheduling: str | None
    decision: str | None
    outcome: str | None
    clusters: Any

    @property
    def is_whole(self) -> bool:
        """Whether the newest decision gave every replica a place."""
        shares = [each["replicas"] for each in self.clusters or ()]
        if self.scheduling == "Duplicated":
            is_enough = set(shares) == {self.replicas}
        else:
            is_enough = sum(shares) == self.replicas
        return self.outcome == WHOLE and is_enough


async def read_rows(database: asyncpg.Connection) -> Sequence[Row]:
    """All of one instant."""
    return [Row(**row) for row in await database.fetch(QUEUE)]


def wrong_rows(rows: Iterable[Row]) -> list[str]:
    """Who waits and has a place or is gone, and who has none and does not wait."""
    found = []
    for row in rows:
        if not row.is_there:
            found.append(f"{row.key} is gone and waits")
        elif row.is_whole and row.waits:
            found.append(f"{row.key} waits, and {row.decision} gave it all: {row.clusters}")
        elif not row.is_whole and not row.waits:
            found.append(f"{row.key} is lost: it has too little and does not wait: {row}")
    return found


def lost(rows: Iterable[Row], told: Mapping[str, str]) -> list[str]:
    """Who was told by a decision that it waits, and neither does nor was placed by a later one."""
    found, known = [], {row.key: row for row in rows}
    for key, decision in told.items():
        row = known.get(key)
        if row is None or not (row.waits or (row.is_whole and row.decision != decision)):
            found.append(f"{key} was told by {decision} that it waits, stored is {row}")
    return found


def in_order(rows: Iterable[Row]) -> list[str]:
    """The keys of those that wait, in the order in which equal wants must be placed."""
    waiting = [row for row in rows if row.waits]
    return [row.key for row in sorted(waiting, key=lambda row: (-row.priority, row.since, row.key))]
