"""Rows to values and back.

Must not talk to the database. What has a column of its own is not repeated in a document.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Row

from federation.model.cluster import Cluster
from federation.model.grades import DEFAULT_MODEL
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision, Outcome
from federation.services.packed_previews import unpacked_preview
from federation.services.packed_traces import unpacked_trace
from federation.services.ports import StoredBinding, StoredCluster, StoredPreview
from federation.services.values import AgentFacts, DecisionRecord

Document = dict[str, Any]

CLUSTER_COLUMNS = ("name", "uid", "generation", "resource_version", "api_enablements", "ready")
BINDING_COLUMNS = (
    "namespace",
    "name",
    "uid",
    "generation",
    "resource_version",
    "clusters",
    "fresh",
    "last_scheduled_time",
)
BINDING_SPEC = tuple(each.name for each in fields(Binding) if each.name not in BINDING_COLUMNS)


def document_of(value: object) -> Any:
    """A value as builtins, for a JSONB column."""
    return msgspec.to_builtins(value, str_keys=True)


def cluster_spec(cluster: Cluster) -> Document:
    return _without(cluster, CLUSTER_COLUMNS)


def cluster_of(row: Row[Any]) -> StoredCluster:
    """From the columns of ``cluster``, without a report."""
    facts = msgspec.convert(row.facts, AgentFacts)
    cluster = msgspec.convert({**row.spec, "name": row.name}, Cluster)
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


def binding_spec(binding: Binding) -> Document:
    """Its parts are encoded with the whole that it becomes a part of."""
    return {name: getattr(binding, name) for name in BINDING_SPEC}


def binding_of(row: Row[Any]) -> StoredBinding:
    named = {**row.spec, "namespace": row.namespace, "name": row.name}
    binding = replace(
        msgspec.convert(named, Binding),
        uid=row.uid,
        generation=row.generation,
        resource_version=row.version,
        clusters=targets_of(row.clusters),
        last_scheduled_time=unix_seconds(row.last_scheduled_at),
    )
    return StoredBinding(
        id=row.id,
        binding=binding,
        decision_id=str(row.decision_id or ""),
        observed_affinity=row.observed_affinity,
    )


def json_text(value: object) -> str:
    """For an array of JSON documents, which travel as texts."""
    return msgspec.json.encode(value).decode()


def targets_of(clusters: Any) -> tuple[TargetCluster, ...]:
    return msgspec.convert(clusters, tuple[TargetCluster, ...])


def record_of(row: Row[Any], plans: tuple[NodePlan, ...]) -> DecisionRecord:
    trace, evidence, promises = unpacked_trace(row.trace)
    return DecisionRecord(
        id=str(row.id),
        namespace=row.namespace,
        name=row.name,
        binding_generation=row.binding_generation,
        created_at=row.created_at.timestamp(),
        decision=Decision(
            outcome=Outcome(row.outcome),
            clusters=targets_of(row.clusters),
            remainder=row.remainder,
            reason=row.reason,
            trace=trace,
        ),
        evidence=evidence,
        promises=promises,
        node_plans=plans,
    )


def preview_of(row: Row[Any]) -> StoredPreview:
    binding, verdict = unpacked_preview(row.body)
    return StoredPreview(
        id=row.id,
        secret_hash=row.secret_hash,
        binding_id=row.binding_id,
        binding_generation=row.binding_generation,
        binding=binding,
        verdict=verdict,
        decision_id=str(row.decision_id or ""),
    )


def node_plan_of(body: Any) -> NodePlan:
    return msgspec.convert(body, NodePlan)


def unix_seconds(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _without(value: object, columns: tuple[str, ...]) -> Document:
    document: Document = document_of(value)
    return {name: part for name, part in document.items() if name not in columns}
