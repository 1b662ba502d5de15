"""Statements over what bindings hold.

Must not know how a ledger changes: rows are replaced as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    LargeBinary,
    Select,
    Text,
    bindparam,
    func,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.reservations import Reservation
from federation.model.shapes import ReservationKey
from federation.services.journal import StoredReservations
from federation.services.journal_ports import Finished, Holding
from federation.store.reservation_rows import (
    COLUMNS,
    clusters_of,
    packed_reservations,
    reservations_of,
)
from federation.store.rows import unix_seconds
from federation.store.tables import reservation as table

NAMES = ("namespaces", "names")
# Clusters travel as one text each: arrays of arrays would have to be equally long. No name of a
# cluster has a space.
PUT = text("""
    INSERT INTO reservation AS stored (namespace, name, uid, clusters, body, lease_expires_at)
    SELECT namespace, name, uid, string_to_array(clusters, ' '), body,
        now() + seconds * interval '1 second'
    FROM unnest(:namespaces, :names, :uids, :clusters, :bodies, :seconds)
        AS given (namespace, name, uid, clusters, body, seconds)
    ORDER BY namespace, name
    ON CONFLICT (namespace, name) DO UPDATE
    SET uid = excluded.uid, clusters = excluded.clusters, body = excluded.body,
        lease_expires_at = CASE
            WHEN stored.namespace || '/' || stored.name = ANY(:leased)
            THEN excluded.lease_expires_at ELSE stored.lease_expires_at
        END
""").bindparams(
    *(bindparam(name, type_=ARRAY(Text)) for name in (*NAMES, "uids", "clusters", "leased")),
    bindparam("bodies", type_=ARRAY(LargeBinary)),
    bindparam("seconds", type_=ARRAY(BigInteger)),
)
DELETE = text("""
    DELETE FROM reservation USING unnest(:namespaces, :names) AS given (namespace, name)
    WHERE reservation.namespace = given.namespace AND reservation.name = given.name
""").bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in NAMES))

HOLDINGS = text("""
    SELECT reservation.namespace, reservation.name, clusters,
        coalesce(lease_expires_at <= now(), false) AS has_expired
    FROM reservation JOIN unnest(:namespaces, :names) AS given (namespace, name)
        ON reservation.namespace = given.namespace AND reservation.name = given.name
""").bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in NAMES))

# So many are unpacked in less than 5 ms; then it is others' turn on the event loop. Not in a
# thread: rows are read under locks, which must not wait for one.
ROWS_AT_ONCE = 100


class ReservationStatements:
    """Implements ``journal_ports.Reservations`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self) -> Sequence[StoredReservations]:
        return await self._fetched(_all())

    async def in_clusters(self, clusters: Collection[str]) -> Sequence[StoredReservations]:
        return await self._fetched(_in_clusters(clusters))

    async def of(self, namespace: str, name: str) -> StoredReservations | None:
        named = select(*COLUMNS).where(table.c.namespace == namespace, table.c.name == name)
        found = await self._fetched(named)
        return found[0] if found else None

    async def holdings(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Holding]:
        given = {
            "namespaces": [namespace for namespace, _ in keys],
            "names": [name for _, name in keys],
        }
        return {
            (row.namespace, row.name): Holding(
                clusters=tuple(sorted(row.clusters)), has_expired=row.has_expired
            )
            for row in await self._connection.execute(HOLDINGS, given)
        }

    async def put(
        self, rows: Sequence[StoredReservations], lease_seconds: Mapping[str, int | None]
    ) -> None:
        kept = [row for row in rows if row.reservations]
        if kept:
            await self._connection.execute(
                PUT,
                {
                    "namespaces": [row.namespace for row in kept],
                    "names": [row.name for row in kept],
                    "uids": [row.uid for row in kept],
                    "clusters": [" ".join(clusters_of(row)) for row in kept],
                    "bodies": [packed_reservations(row) for row in kept],
                    "seconds": [lease_seconds.get(row.key) for row in kept],
                    "leased": [
                        f"{row.namespace}/{row.name}" for row in kept if row.key in lease_seconds
                    ],
                },
            )
        emptied = [row for row in rows if not row.reservations]
        if emptied:
            await self._connection.execute(
                DELETE,
                {
                    "namespaces": [row.namespace for row in emptied],
                    "names": [row.name for row in emptied],
                },
            )

    async def leave(self, cluster: str) -> None:
        rows = await self._fetched(_in_clusters([cluster]).with_for_update())
        await self.put([_without(row, cluster) for row in rows], {})

    async def finish(self, finished: Sequence[Finished]) -> None:
        known = {
            (each.cluster, ReservationKey(each.binding, each.component, each.shape)): each.finished
            for each in finished
        }
        keys = sorted({_parts(each.binding) for each in finished})
        named = _all().where(tuple_(table.c.namespace, table.c.name).in_(keys))
        rows = await self._fetched(named.with_for_update())
        await self.put([_finished(row, known) for row in rows], {})

    async def renew(self, key: str, seconds: int) -> float | None:
        namespace, name = _parts(key)
        statement = (
            update(table)
            .where(
                table.c.namespace == namespace,
                table.c.name == name,
                table.c.lease_expires_at > func.now(),
            )
            .values(lease_expires_at=func.now() + timedelta(seconds=seconds))
            .returning(table.c.lease_expires_at)
        )
        row = (await self._connection.execute(statement)).one_or_none()
        return None if row is None else unix_seconds(row.lease_expires_at)

    async def expired(self, limit: int) -> Sequence[tuple[str, str]]:
        statement = (
            select(table.c.namespace, table.c.name)
            .where(table.c.lease_expires_at <= func.now())
            .order_by(table.c.lease_expires_at, table.c.namespace, table.c.name)
            .limit(limit)
        )
        rows = await self._connection.execute(statement)
        return [(row.namespace, row.name) for row in rows]

    async def has_expired(self, namespace: str, name: str) -> bool:
        statement = select(table.c.name).where(
            table.c.namespace == namespace,
            table.c.name == name,
            table.c.lease_expires_at <= func.now(),
        )
        return (await self._connection.execute(statement)).one_or_none() is not None

    async def _fetched(self, statement: Select[Any]) -> list[StoredReservations]:
        rows = (await self._connection.execute(statement)).all()
        unpacked: list[StoredReservations] = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            unpacked += reservations_of(rows[start : start + ROWS_AT_ONCE])
        return unpacked


def _all() -> Select[Any]:
    return select(*COLUMNS).order_by(table.c.namespace, table.c.name)


def _in_clusters(clusters: Collection[str]) -> Select[Any]:
    # Seldom asked: an index over every cluster of every binding would cost each decision more.
    return _all().where(table.c.clusters.overlap(list(clusters)))


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


def _without(row: StoredReservations, cluster: str) -> StoredReservations:
    left = tuple(each for each in row.reservations if each.cluster != cluster)
    return replace(row, reservations=left)


def _finished(
    row: StoredReservations, known: Mapping[tuple[str, ReservationKey], int]
) -> StoredReservations:
    def raised(each: Reservation) -> Reservation:
        finished = known.get((each.cluster, each.key), 0)
        return each._replace(finished=finished) if finished > each.finished else each

    return replace(row, reservations=tuple(map(raised, row.reservations)))
