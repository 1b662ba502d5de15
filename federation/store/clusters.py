"""Member clusters: their rows, and statements over them.

Must not touch reports, beyond reading the newest one along with its cluster. What has a column of
its own is not repeated in a document.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, Select, Text, any_, bindparam, delete, func, select, update
from sqlalchemy.dialects.postgresql import ARRAY, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.cluster_rows import CLUSTERS, SPECS
from federation.model.cluster import Cluster
from federation.model.grades import DEFAULT_MODEL
from federation.services.agent_values import AgentFacts
from federation.services.member_ports import StoredCluster, StoredReport
from federation.store.document_rows import FACTS
from federation.store.replica_tables import presence
from federation.store.reports import BODY, ReportReader
from federation.store.statements import named
from federation.store.tables import cluster as table
from federation.store.tables import cluster_capacity, cluster_report, unix_seconds


class ClusterStatements:
    """Implements ``ports.Clusters`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self) -> Sequence[StoredCluster]:
        statement = (
            select(
                table,
                BODY,
                cluster_capacity.c.received_at,
                cluster_capacity.c.version.label("ledger_version"),
                cluster_capacity.c.history,
                cluster_capacity.c.report_version,
            )
            .outerjoin(cluster_report, cluster_report.c.cluster_id == table.c.id)
            .outerjoin(cluster_capacity, cluster_capacity.c.cluster_id == table.c.id)
            .order_by(table.c.name)
        )
        reader = ReportReader()
        return [
            replace(
                cluster_of(row),
                ledger_version=row.ledger_version or 0,
                history=row.history or 0,
                report=None
                if row.body is None
                else StoredReport(
                    reader.read(row.body), unix_seconds(row.received_at) or 0.0, row.report_version
                ),
            )
            for row in await self._connection.execute(named("clusters.all", statement))
        ]

    async def find(self, names: Collection[str]) -> Mapping[str, StoredCluster]:
        is_named = table.c.name == any_(bindparam("names", list(names), ARRAY(Text)))
        rows = await self._connection.execute(named("clusters.find", _bare().where(is_named)))
        return {row.name: _without_report(row) for row in rows}

    async def lock(self, name: str) -> StoredCluster | None:
        statement = _bare().where(table.c.name == name).with_for_update(of=table, key_share=True)
        row = (await self._connection.execute(named("clusters.lock", statement))).one_or_none()
        return None if row is None else _without_report(row)

    async def add(self, cluster: Cluster, facts: AgentFacts) -> StoredCluster | None:
        statement = (
            insert(table)
            .values(
                name=cluster.name,
                uid=cluster.uid,
                spec=cluster_spec(cluster),
                generation=1,
                version=1,
                **_facts(facts),
            )
            .on_conflict_do_nothing()
            .returning(table)
        )
        row = (await self._connection.execute(named("clusters.add", statement))).one_or_none()
        if row is None:
            return None
        await self._connection.execute(
            named(
                "clusters.add_capacity",
                insert(cluster_capacity).values(cluster_id=row.id, version=1, epoch=0, sequence=0),
            )
        )
        return replace(cluster_of(row), ledger_version=1)

    async def put(self, cluster_id: int, cluster: Cluster) -> Cluster:
        statement = (
            update(table)
            .where(table.c.id == cluster_id)
            .values(
                spec=cluster_spec(cluster),
                generation=cluster.generation,
                version=table.c.version + 1,
                updated_at=func.now(),
            )
            .returning(table)
        )
        return cluster_of(
            (await self._connection.execute(named("clusters.put", statement))).one()
        ).cluster

    async def put_facts(self, cluster_id: int, facts: AgentFacts) -> None:
        statement = update(table).where(table.c.id == cluster_id).values(**_facts(facts))
        await self._connection.execute(named("clusters.put_facts", statement))

    async def put_uid(self, cluster_id: int, uid: str, nonce: int = 0) -> Cluster:
        statement = (
            update(table)
            .where(table.c.id == cluster_id)
            .values(
                uid=uid,
                version=table.c.version + 1,
                updated_at=func.now(),
                **_facts(AgentFacts()),
            )
            .returning(table)
        )
        written = cluster_of(
            (await self._connection.execute(named("clusters.put_uid", statement))).one()
        ).cluster
        await self._connection.execute(
            named(
                "clusters.reset_capacity",
                update(cluster_capacity)
                .where(cluster_capacity.c.cluster_id == cluster_id)
                .values(
                    version=cluster_capacity.c.version + 1,
                    history=nonce,
                    epoch=0,
                    sequence=0,
                    received_at=None,
                    report_version=0,
                ),
            )
        )
        forgotten = delete(cluster_report).where(cluster_report.c.cluster_id == cluster_id)
        await self._connection.execute(named("clusters.forget_report", forgotten))
        unheard = delete(presence).where(presence.c.cluster_id == cluster_id)
        await self._connection.execute(named("clusters.forget_presence", unheard))
        return written

    async def delete(self, cluster_id: int) -> None:
        await self._connection.execute(
            named("clusters.delete", delete(table).where(table.c.id == cluster_id))
        )


def _bare() -> Select[Any]:
    return select(
        table,
        cluster_capacity.c.version.label("ledger_version"),
        cluster_capacity.c.epoch,
        cluster_capacity.c.sequence,
        cluster_capacity.c.received_at,
    ).outerjoin(cluster_capacity, cluster_capacity.c.cluster_id == table.c.id)


def _without_report(row: Row[Any]) -> StoredCluster:
    return replace(
        cluster_of(row),
        ledger_version=row.ledger_version or 0,
        reported=None if row.received_at is None else (row.epoch, row.sequence),
    )


def _facts(facts: AgentFacts) -> dict[str, object]:
    return {"facts": FACTS.builtins(facts), "kubernetes_version": facts.kubernetes_version}


def cluster_spec(cluster: Cluster) -> dict[str, Any]:
    """Return what has no column of its own, for ``cluster.spec``."""
    spec: dict[str, Any] = SPECS.builtins(cluster)
    return spec


def cluster_of(row: Row[Any]) -> StoredCluster:
    """From the columns of ``cluster``, without a report."""
    subject = f"cluster {row.name!r}"
    facts = FACTS.read(row.facts, subject)
    cluster = CLUSTERS.read({**row.spec, "name": row.name}, subject)
    return StoredCluster(
        id=row.id,
        cluster=replace(
            cluster,
            uid=row.uid,
            generation=row.generation,
            resource_version=row.version,
            api_enablements=facts.api_enablements,
            # One object for nearly all: reading a fleet's models compares identities first.
            model=DEFAULT_MODEL if cluster.model == DEFAULT_MODEL else cluster.model,
        ),
        facts=facts,
    )
