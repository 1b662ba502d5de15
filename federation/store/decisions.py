"""Decisions, the node plans that agents answer, and previews: their rows, and statements over them.

Must not change a decision once it is stored, nor decide whether a preview may still be committed,
but by its time.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import msgspec
from sqlalchemy import (
    Date,
    LargeBinary,
    Row,
    Text,
    Uuid,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.bodies import NewerBody
from federation.history.trace_files import TracedDecision, TracedDeletion
from federation.history.workload_rows import target_rows
from federation.model.node_plans import NodePlan
from federation.model.placement import groups_of
from federation.model.reasons import stored_reason
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.scheduler.trace import unread_trace
from federation.services.binding_ports import StoredBinding
from federation.services.decision_ports import (
    DecisionFilter,
    DecisionPage,
    DecisionPlace,
    NewDecision,
    NewPreview,
    PackedResult,
    Settled,
    StoredPreview,
)
from federation.services.packed_traces import unpacked_preview, unpacked_trace
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble
from federation.services.values import DecisionRecord, ReportEvidence, worth_now
from federation.store.bindings import binding_spec, targets_of
from federation.store.decision_inputs import SharedBodyStatements
from federation.store.decision_lists import (
    decision_page,
    deletions_between,
    microseconds_of,
    prune_deletions,
    recorded_after,
)
from federation.store.decision_tables import decision as table
from federation.store.decision_tables import node_plan
from federation.store.decision_tables import preview as preview_table
from federation.store.document_rows import NODE_PLANS
from federation.store.floors import AUDIT, JOURNAL, HeldFloors
from federation.store.lists import is_one_of
from federation.store.partitions import drop_partition, oldest_partition
from federation.store.prepared import Prepared
from federation.store.statements import named
from federation.store.tables import unix_seconds

# A spec that stays is put back as it is stored: an equal one that is written anew would make
# PostgreSQL write all indexes of the row, because indexes read the spec.
# A day that cannot be that of the id is refused after the statement, which tells the time.
# Bindings and decisions name each other: both are there when the statement ends. A new binding has
# the version that it would have if it had been added before it was decided.
_ADD: Final = """
    WITH /* fedsched:decisions.add */ given AS MATERIALIZED (
        SELECT * FROM ROWS FROM (
            json_to_recordset(CAST(:rows AS json)) AS (
                decision_id uuid, binding_id bigint, namespace text, name text, uid text,
                generation bigint, spec jsonb, clusters jsonb, affinity_group text,
                anti_affinity_group text, observed text, placed boolean,
                scheduled_at double precision, outcome text, decided jsonb, remainder bigint,
                reason text, revision bigint, triggers text[]
            ),
            unnest(:traces)
        ) AS given (decision_id, binding_id, namespace, name, uid, generation, spec, clusters,
            affinity_group, anti_affinity_group, observed, placed, scheduled_at, outcome, decided,
            remainder, reason, revision, triggers, trace)
    ), added AS (
        INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters,
            decision_id, observed_affinity, affinity_group, anti_affinity_group, last_scheduled_at)
        SELECT namespace, name, uid, generation, 2, spec, clusters,
            decision_id, observed, affinity_group, anti_affinity_group,
            CASE WHEN placed THEN now() ELSE to_timestamp(scheduled_at) END
        FROM given WHERE binding_id IS NULL
        ORDER BY namespace COLLATE "C", name COLLATE "C"
        ON CONFLICT DO NOTHING
        RETURNING id, namespace, name, version, last_scheduled_at
    ), put AS (
        UPDATE binding
        SET uid = given.uid, generation = given.generation, version = binding.version + 1,
            spec = CASE WHEN binding.spec = given.spec THEN binding.spec ELSE given.spec END,
            clusters = given.clusters,
            decision_id = given.decision_id, observed_affinity = given.observed,
            affinity_group = given.affinity_group, anti_affinity_group = given.anti_affinity_group,
            last_scheduled_at = CASE WHEN placed THEN now() ELSE binding.last_scheduled_at END,
            updated_at = now()
        FROM given WHERE binding.id = given.binding_id
        RETURNING binding.id, binding.namespace, binding.name, binding.version,
            binding.last_scheduled_at
    ), settled AS (
        SELECT * FROM added UNION ALL SELECT * FROM put
    ), decided AS (
        INSERT INTO decision (id, binding_id, namespace, name, binding_generation, outcome,
            clusters, remainder, reason, algorithm_revision, trace, triggers, day)
        SELECT decision_id, settled.id, namespace, name, generation, outcome,
            decided, remainder, reason, revision, trace, triggers,
            CASE WHEN decision_day(decision_id) BETWEEN today - 1 AND today + 1
                THEN decision_day(decision_id) ELSE today END
        FROM given JOIN settled USING (namespace, name),
            LATERAL (SELECT (now() AT TIME ZONE 'utc')::date AS today) AS days
    )
    SELECT id, namespace, name, version, last_scheduled_at, now(), ({journal_floor}),
        ({audit_floor}) FROM settled
"""
ADD = Prepared(
    text(_ADD.format(journal_floor=JOURNAL.take, audit_floor=AUDIT.take)).bindparams(
        bindparam("rows", type_=Text), bindparam("traces", type_=ARRAY(LargeBinary))
    )
)


# The newest decision of each binding outlives its day.
KEEP = """
    UPDATE /* fedsched:decisions.keep */ decision SET day = '-infinity' FROM (
        SELECT old.id, old.day FROM {partition} old
        JOIN binding ON binding.id = old.binding_id AND binding.decision_id = old.id
        LIMIT :limit
    ) AS standing
    WHERE decision.id = standing.id AND decision.day = standing.day
    RETURNING decision.id
"""
# Those that are not the newest any more.
PRUNE_KEPT = text("""
    DELETE /* fedsched:decisions.prune_kept */ FROM decision WHERE (id, day) IN (
        SELECT id, day FROM decision_kept
        WHERE NOT EXISTS (
            SELECT FROM binding
            WHERE binding.id = decision_kept.binding_id AND decision_id = decision_kept.id
        )
        LIMIT :limit
    ) RETURNING id
""")
# An id is looked for in its day and among those that outlived theirs; one of an earlier release,
# which carries no day, in all partitions.
IS_THERE = """
    CASE WHEN decision_day({id}) IS NULL THEN EXISTS (SELECT FROM decision WHERE id = {id})
        ELSE EXISTS (
            SELECT FROM decision WHERE id = {id} AND day IN (decision_day({id}), '-infinity')
        ) END
"""
_PRUNE_PLANS = """
    DELETE /* fedsched:decisions.prune_node_plans */
        FROM node_plan WHERE (decision_id, cluster_name) IN (
        SELECT decision_id, cluster_name FROM node_plan
        WHERE created_at < now() - make_interval(secs => :age)
            AND NOT {is_there}
        LIMIT :limit
    ) RETURNING decision_id
"""
PRUNE_PLANS = text(_PRUNE_PLANS.format(is_there=IS_THERE.format(id="node_plan.decision_id")))

# Decisions that were forgotten, or lost by a restore, meanwhile are left out.
_PUT_PLANS = """
    INSERT /* fedsched:decisions.put_node_plans */ INTO node_plan (decision_id, cluster_name, body)
    SELECT given.id, cluster, given.body::jsonb FROM unnest(:ids, :clusters, :bodies)
        AS given (id, cluster, body)
    WHERE {is_there}
    ORDER BY given.id, cluster
    ON CONFLICT (decision_id, cluster_name) DO UPDATE SET body = excluded.body
"""
PUT_PLANS = text(_PUT_PLANS.format(is_there=IS_THERE.format(id="given.id"))).bindparams(
    bindparam("ids", type_=ARRAY(Uuid)),
    bindparam("clusters", type_=ARRAY(Text)),
    bindparam("bodies", type_=ARRAY(Text)),
)

VERSION_WITH_DAY: Final = 7
_KEPT_DAY: Final = literal_column("'-infinity'", Date)
_ids: Final = func.unnest(bindparam("ids", type_=ARRAY(Uuid))).table_valued("id").render_derived()
FIND: Final = named(
    "decisions.find",
    select(table).join(
        _ids,
        (table.c.id == _ids.c.id) & table.c.day.in_([func.decision_day(_ids.c.id), _KEPT_DAY]),
    ),
)

UNREAD = "the trace and the promises of the decision were written by a newer release: run that"

SKIPPED: Final = Trouble(
    logging.getLogger(__name__),
    "a body of a newer release is passed over",
    level=logging.ERROR,
    again_seconds=TOLD_AGAIN_SECONDS,
)


@dataclass(frozen=True, slots=True)
class StoredDecision:
    """A decision as its row has it; its trace is packed."""

    row: Row[Any]
    plans: tuple[NodePlan, ...] = ()

    @property
    def id(self) -> str:
        return str(self.row.id)

    @property
    def at(self) -> int:
        return microseconds_of(self.row.created_at)

    @property
    def packed(self) -> PackedResult:
        row = self.row
        clusters = targets_of(row.clusters)
        return PackedResult(
            Outcome(row.outcome), clusters, row.remainder, row.reason, bytes(row.trace)
        )

    def unpacked(self) -> DecisionRecord:
        """Takes long where the fleet is large."""
        row = self.row
        try:
            trace, evidence, promises = unpacked_trace(row.trace)
        except NewerBody as error:
            SKIPPED.met(error)
            trace, evidence, promises = unread_trace(UNREAD), ReportEvidence(), ()
        return DecisionRecord(
            id=self.id,
            namespace=row.namespace,
            name=row.name,
            binding_generation=row.binding_generation,
            created_at=row.created_at.timestamp(),
            decision=Decision(
                outcome=Outcome(row.outcome),
                clusters=targets_of(row.clusters),
                remainder=row.remainder,
                reason=stored_reason(row.reason),
                trace=trace,
            ),
            evidence=evidence,
            promises=worth_now(promises, self.plans),
            node_plans=self.plans,
        )


class DecisionStatements:
    """Implements ``decision_ports.Decisions`` within one transaction."""

    def __init__(
        self, connection: AsyncConnection, bodies: SharedBodyStatements, floors: HeldFloors
    ) -> None:
        self._connection = connection
        self._bodies = bodies
        self._floors = floors

    async def add_all(self, decisions: Sequence[NewDecision]) -> Settled:
        given = {(each.binding.namespace, each.binding.name): each for each in decisions}
        await self._bodies.put(shared for each in decisions for shared in each.trace.shared)
        written = {
            "rows": _json_text([_row(each) for each in given.values()]),
            "traces": [each.trace.body for each in given.values()],
        }
        rows = await ADD.execute(self._connection, written)
        at, bindings = 0.0, {}
        for binding_id, namespace, name, version, scheduled_at, now, floor, _ in rows.all():
            key = namespace, name
            bindings[key] = _stored(given[key], binding_id, version, unix_seconds(scheduled_at))
            at, self._floors.journal, self._floors.has_audit = now.timestamp(), floor, True
        return Settled(bindings, at)

    async def get(self, decision_id: str) -> StoredDecision | None:
        return next(iter((await self.find([decision_id])).values()), None)

    async def find(self, decision_ids: Collection[str]) -> Mapping[str, StoredDecision]:
        known = list(filter(None, map(_uuid, decision_ids)))
        if not known:
            return {}
        dated = [one for one in known if one.version == VERSION_WITH_DAY]
        undated = [one for one in known if one.version != VERSION_WITH_DAY]
        rows: list[Row[Any]] = []
        if dated:
            rows += (await self._connection.execute(FIND, {"ids": dated})).all()
        if undated:
            everywhere = select(table).where(is_one_of(table.c.id, undated))
            rows += (
                await self._connection.execute(named("decisions.find_undated", everywhere))
            ).all()
        plans = await self._connection.execute(
            named(
                "decisions.find_node_plans",
                select(node_plan.c.decision_id, node_plan.c.body)
                .where(is_one_of(node_plan.c.decision_id, known))
                .order_by(node_plan.c.cluster_name),
            )
        )
        by_decision = defaultdict[UUID, list[NodePlan]](list)
        for row in plans:
            by_decision[row.decision_id].append(NODE_PLANS.read(row.body))
        return {str(row.id): StoredDecision(row, tuple(by_decision[row.id])) for row in rows}

    async def shared(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        return await self._bodies.find(names)

    async def prune_shared(self, unused_seconds: float, limit: int) -> int:
        return await self._bodies.prune(unused_seconds, limit)

    async def page(
        self, query: DecisionFilter, after: DecisionPlace | None, limit: int
    ) -> DecisionPage:
        return await decision_page(self._connection, query, after, limit)

    async def recorded_after(
        self, query: DecisionFilter, after: DecisionPlace, max_bytes: int
    ) -> Sequence[TracedDecision]:
        return await recorded_after(self._connection, query, after, max_bytes)

    async def deletions_between(self, since: int, until: int) -> Sequence[TracedDeletion]:
        return await deletions_between(self._connection, since, until)

    async def prune_deletions(self, keep_seconds: float, limit: int) -> int:
        return await prune_deletions(self._connection, keep_seconds, limit)

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        partition = await oldest_partition(self._connection, "decision", older_than_seconds)
        given = {"age": older_than_seconds, "limit": limit}
        if partition is None:
            pruned = [
                len((await self._connection.execute(each, given)).all())
                for each in (PRUNE_KEPT, PRUNE_PLANS)
            ]
            return max(pruned)
        keep = text(KEEP.format(partition=partition))
        moved = (await self._connection.execute(keep, {"limit": limit})).all()
        if not moved:
            await drop_partition(self._connection, partition)
        return limit

    async def put_node_plans(self, plans: Mapping[str, Sequence[NodePlan]]) -> None:
        newest = {
            (decision_id, plan.cluster): plan
            for decision_id, answered in plans.items()
            for plan in answered
        }
        await self._connection.execute(
            PUT_PLANS,
            {
                "ids": [UUID(decision_id) for decision_id, _ in newest],
                "clusters": [cluster for _, cluster in newest],
                "bodies": [NODE_PLANS.json(plan) for plan in newest.values()],
            },
        )


class PreviewStatements:
    """Implements ``ports.Previews`` within one transaction."""

    def __init__(self, connection: AsyncConnection, bodies: SharedBodyStatements) -> None:
        self._connection = connection
        self._bodies = bodies

    async def add(self, preview: NewPreview, ttl_seconds: int) -> float:
        await self._connection.execute(
            named(
                "previews.prune",
                delete(preview_table).where(preview_table.c.expires_at < func.now()),
            )
        )
        await self._bodies.put(preview.body.shared)
        statement = (
            insert(preview_table)
            .values(
                id=preview.id,
                secret_hash=preview.secret_hash,
                binding_id=preview.base.id if preview.base else None,
                binding_generation=preview.base.binding.generation if preview.base else None,
                body=preview.body.body,
                expires_at=func.now() + timedelta(seconds=ttl_seconds),
            )
            .returning(preview_table.c.expires_at)
        )
        expires_at = (await self._connection.execute(named("previews.add", statement))).scalar_one()
        return float(expires_at.timestamp())

    async def lock(self, preview_id: str) -> StoredPreview | None:
        statement = (
            select(preview_table)
            .where(preview_table.c.id == preview_id, preview_table.c.expires_at > func.now())
            .with_for_update()
        )
        row = (await self._connection.execute(named("previews.lock", statement))).one_or_none()
        try:
            return None if row is None else _preview_of(row)
        except NewerBody as error:
            # As one that has expired: who asked for it asks again.
            SKIPPED.met(error)
            return None

    async def settle(self, preview_id: str, decision_id: str) -> None:
        statement = update(preview_table).where(preview_table.c.id == preview_id)
        await self._connection.execute(
            named("previews.settle", statement.values(decision_id=UUID(decision_id)))
        )


def _row(new: NewDecision) -> dict[str, Any]:
    binding, decision = new.binding, new.verdict.decision
    group, anti_group = groups_of(binding)
    return {
        "decision_id": new.id,
        "binding_id": new.binding_id,
        "namespace": binding.namespace,
        "name": binding.name,
        "uid": binding.uid,
        "generation": binding.generation,
        "spec": binding_spec(binding),
        "clusters": target_rows(_clusters(new)),
        "affinity_group": group,
        "anti_affinity_group": anti_group,
        "observed": new.observed_affinity,
        "placed": new.placed,
        "scheduled_at": binding.last_scheduled_time,
        "outcome": decision.outcome,
        "decided": target_rows(decision.clusters),
        "remainder": decision.remainder,
        "reason": str(decision.reason),
        "revision": decision.trace.algorithm_revision,
        "triggers": tuple(map(str, decision.trace.triggers)),
    }


def _clusters(new: NewDecision) -> tuple[TargetCluster, ...]:
    return new.verdict.decision.clusters if new.placed else new.binding.clusters


def _stored(
    new: NewDecision, binding_id: int, version: int, scheduled_at: float | None
) -> StoredBinding:
    return StoredBinding(
        id=binding_id,
        binding=replace(
            new.binding,
            clusters=_clusters(new),
            resource_version=version,
            stored_id=binding_id,
            expected_version=None,
            last_scheduled_time=scheduled_at,
            fresh=False,
        ),
        decision_id=new.id,
        observed_affinity=new.observed_affinity,
    )


def _uuid(decision_id: str) -> UUID | None:
    try:
        return UUID(decision_id)
    except ValueError:
        return None


def _preview_of(row: Row[Any]) -> StoredPreview:
    binding, verdict, wait = unpacked_preview(row.body)
    return StoredPreview(
        id=row.id,
        secret_hash=row.secret_hash,
        binding_id=row.binding_id,
        binding_generation=row.binding_generation,
        binding=binding,
        verdict=verdict,
        wait=wait,
        decision_id=str(row.decision_id or ""),
    )


def _json_text(value: object) -> str:
    """The rows as one JSON document."""
    return msgspec.json.encode(value).decode()
