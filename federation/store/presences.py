"""Statements over which replica heard which agent, and which replicas run.

Must not decide what is stale: it tells when something was heard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta

from sqlalchemy import BigInteger, Double, Text, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.errors import Conflict
from federation.services.journal_ports import Replica, StoredPresence
from federation.store.replica_tables import presence
from federation.store.replica_tables import replica as replica_table
from federation.store.statements import named
from federation.store.tables import cluster

# In the order of the clusters' ids, so that two replicas never wait for each other.
PUT = text("""
    INSERT /* fedsched:presences.put */ INTO presence AS stored (
        cluster_id, replica, epoch, heard_at, clock_offset_seconds, confirmed_sequence,
        blind_seconds, blind_reason, blind_message, skipped_objects
    )
    SELECT cluster.id, replica, epoch, now(), clock_offset, confirmed,
        blind_seconds, blind_reason, blind_message, skipped
    FROM unnest(:names, :replicas, :epochs, :offsets, :confirmed,
            :blind_seconds, :blind_reasons, :blind_messages, :skipped)
        AS given (name, replica, epoch, clock_offset, confirmed,
            blind_seconds, blind_reason, blind_message, skipped)
    JOIN cluster USING (name)
    ORDER BY cluster.id
    ON CONFLICT (cluster_id) DO UPDATE
    SET replica = excluded.replica, epoch = excluded.epoch, heard_at = excluded.heard_at,
        clock_offset_seconds = excluded.clock_offset_seconds,
        confirmed_sequence = excluded.confirmed_sequence, blind_seconds = excluded.blind_seconds,
        blind_reason = excluded.blind_reason, blind_message = excluded.blind_message,
        skipped_objects = excluded.skipped_objects
    WHERE stored.epoch <= excluded.epoch
""").bindparams(
    bindparam("names", type_=ARRAY(Text)),
    bindparam("replicas", type_=ARRAY(Text)),
    bindparam("epochs", type_=ARRAY(BigInteger)),
    bindparam("offsets", type_=ARRAY(Double)),
    bindparam("confirmed", type_=ARRAY(BigInteger)),
    bindparam("blind_seconds", type_=ARRAY(Double)),
    bindparam("blind_reasons", type_=ARRAY(Text)),
    bindparam("blind_messages", type_=ARRAY(Text)),
    bindparam("skipped", type_=ARRAY(BigInteger)),
)
LEAVE = text("""
    WITH /* fedsched:presences.leave */ ended AS (
        SELECT cluster_id FROM presence JOIN cluster ON cluster.id = cluster_id
        WHERE name = ANY (:names) AND replica = :replica
        ORDER BY cluster_id FOR UPDATE OF presence
    )
    UPDATE presence SET replica = '', heard_at = now()
    FROM ended WHERE presence.cluster_id = ended.cluster_id
""").bindparams(bindparam("names", type_=ARRAY(Text)))
UNHEARD_SECONDS = text("""
    SELECT /* fedsched:presences.unheard_seconds */
        name, extract(epoch FROM now() - greatest(heard_at, received_at))::float8 AS seconds
    FROM cluster JOIN cluster_capacity ON cluster_capacity.cluster_id = cluster.id
    LEFT JOIN presence ON presence.cluster_id = cluster.id
    WHERE received_at IS NOT NULL
""")
# A replica that crashed did not say goodbye.
FORGOTTEN = timedelta(days=1)


class PresenceStatements:
    """Implements ``journal_ports.Presences`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, presences: Sequence[StoredPresence]) -> None:
        """Raises Conflict where a cluster is deleted at the same time."""
        try:
            await self._connection.execute(
                PUT,
                {
                    "names": [each.cluster for each in presences],
                    "replicas": [each.replica for each in presences],
                    "epochs": [each.epoch for each in presences],
                    "offsets": [each.clock_offset_seconds for each in presences],
                    "confirmed": [each.confirmed_sequence for each in presences],
                    "blind_seconds": [each.blind_seconds for each in presences],
                    "blind_reasons": [each.blind_reason for each in presences],
                    "blind_messages": [each.blind_message for each in presences],
                    "skipped": [each.skipped_objects for each in presences],
                },
            )
        except IntegrityError as error:
            # It is there no more: the row of presence has no cluster to be of.
            raise Conflict("A cluster was deleted while its presence was written.") from error

    async def leave(self, clusters: Collection[str], replica: str) -> None:
        await self._connection.execute(LEAVE, {"names": list(clusters), "replica": replica})

    async def all(self, heard_since: float = 0.0) -> Sequence[StoredPresence]:
        statement = (
            select(presence, cluster.c.name)
            .join(cluster, cluster.c.id == presence.c.cluster_id)
            .where(presence.c.heard_at >= func.to_timestamp(heard_since))
            .order_by(cluster.c.name)
        )
        return [
            StoredPresence(
                cluster=row.name,
                replica=row.replica,
                epoch=row.epoch,
                heard_at=row.heard_at.timestamp(),
                clock_offset_seconds=row.clock_offset_seconds,
                confirmed_sequence=row.confirmed_sequence,
                blind_seconds=row.blind_seconds,
                blind_reason=row.blind_reason,
                blind_message=row.blind_message,
                skipped_objects=row.skipped_objects,
            )
            for row in await self._connection.execute(named("presences.all", statement))
        ]

    async def unheard_seconds(self) -> Mapping[str, float]:
        rows = await self._connection.execute(UNHEARD_SECONDS)
        return {row.name: row.seconds for row in rows}


class ReplicaStatements:
    """Implements ``journal_ports.Replicas`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, replica: Replica) -> None:
        await self._connection.execute(
            named(
                "replicas.forget",
                delete(replica_table).where(replica_table.c.heard_at < func.now() - FORGOTTEN),
            )
        )
        given = insert(replica_table).values(
            id=replica.id, endpoint=replica.endpoint, heard_at=func.now()
        )
        statement = given.on_conflict_do_update(
            index_elements=[replica_table.c.id],
            set_={"endpoint": given.excluded.endpoint, "heard_at": given.excluded.heard_at},
        )
        await self._connection.execute(named("replicas.put", statement))

    async def all(self, heard_within_seconds: float) -> Sequence[Replica]:
        statement = (
            select(replica_table)
            .where(replica_table.c.heard_at >= func.now() - timedelta(seconds=heard_within_seconds))
            .order_by(replica_table.c.id)
        )
        rows = await self._connection.execute(named("replicas.all", statement))
        return [Replica(id=row.id, endpoint=row.endpoint) for row in rows]

    async def remove(self, replica_id: str) -> None:
        await self._connection.execute(
            named("replicas.remove", delete(replica_table).where(replica_table.c.id == replica_id))
        )
