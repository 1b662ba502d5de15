"""Decisions of the control plane: Karmada's bindings as requests, answers as verdicts.

Must not write to Karmada.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from google.protobuf.json_format import MessageToDict

from federation.bridge.clusters import NO_EXECUTE, NO_SCHEDULE
from federation.bridge.objects import APPLIED_PLACEMENT, Document, KarmadaBinding, known_fields
from federation.bridge.steps import (
    KARMADA_GENERATION,
    KARMADA_SCHEDULER,
    applied_placement,
    is_placement_new,
)
from federation.bridge.writes import (
    NO_CLUSTER_FIT,
    SCHEDULED_TEXT,
    SCHEDULER_ERROR,
    SUCCESS,
    UNSCHEDULABLE,
    BindingVerdict,
)
from federation.client import Client
from federation.codec.bindings import BINDING_API_VERSION
from federation.codec.strict import message_from_document
from federation.model.errors import InvalidRequest
from federation.model.placement import OnClusterLoss
from federation.v1 import resource_pb2, scheduling_pb2
from federation.v1.scheduling_pb2 import Decision, ScheduleBatchItem, ScheduleBatchResult

AFFINITY_GROUP: Final = "affinityGroup"
KARMADA_TIES: Final = "karmada"
# Of one request; messages may have 4 MiB.
MAX_REQUEST_BYTES: Final = 1024 * 1024
PLACED: Final = (scheduling_pb2.OUTCOME_SCHEDULED, scheduling_pb2.OUTCOME_PARTIAL)
# Suspended bindings are not requested; a scheduler's name would be a profile of the control plane.
_OMITTED: Final = ("suspension", "schedulerName")

# A verdict, and the id of its decision.
DecisionAnswer: TypeAlias = tuple[BindingVerdict, str]


class BindingDecisions:
    """Requests of one scheduler. ``unknown`` counts fields of newer Karmada versions, by path.

    ``is_current`` says whether Karmada's clusters are known as they are now.
    """

    def __init__(
        self,
        client: Client,
        *,
        scheduler: str,
        as_karmada: bool,
        failover: bool,
        unknown: Counter[str],
        is_current: Callable[[], bool],
    ) -> None:
        self._client = client
        self._scheduler = scheduler
        self._as_karmada = as_karmada
        self._failover = failover
        self._unknown = unknown
        self._is_current = is_current

    async def request(
        self, bindings: Sequence[KarmadaBinding], deleting: Collection[str]
    ) -> dict[str, DecisionAnswer]:
        """Return the answer about each binding, by its key. Raises what a call raises."""
        # Many take long to translate, and the loop serves others meanwhile.
        requested, items, answers = await asyncio.to_thread(self._items, bindings)
        results: list[ScheduleBatchResult] = []
        for start, end in _batches(items):
            results += await self._client.schedule_batch(items[start:end])
        for binding, result in zip(requested, results, strict=True):
            verdict = await self._verdict(binding, result, deleting)
            answers[binding.key] = verdict, result.decision.id
        return answers

    def _items(
        self, bindings: Sequence[KarmadaBinding]
    ) -> tuple[list[KarmadaBinding], list[ScheduleBatchItem], dict[str, DecisionAnswer]]:
        """The bindings that can be requested, their items, and answers about wrong ones."""
        answers: dict[str, DecisionAnswer] = {}
        requested: list[KarmadaBinding] = []
        items: list[ScheduleBatchItem] = []
        for binding in bindings:
            try:
                message = self._message(binding)
            except InvalidRequest as error:
                verdict = BindingVerdict(reason=SCHEDULER_ERROR, message=error.message)
                answers[binding.key] = verdict, ""
                continue
            requested.append(binding)
            # Without a key, which would cost as much as the decision: the stored binding says
            # which generation was requested.
            items.append(ScheduleBatchItem(binding=message, adopt=True))
        return requested, items, answers

    def _message(self, binding: KarmadaBinding) -> resource_pb2.ResourceBinding:
        return binding_message(
            binding,
            scheduler=self._scheduler,
            as_karmada=self._as_karmada,
            failover=self._failover,
            unknown=self._unknown,
        )

    async def of_stored(
        self, binding: KarmadaBinding, stored: scheduling_pb2.GetBindingResponse
    ) -> BindingVerdict | None:
        """Return the newest decision as a verdict; None where it placed nothing."""
        if stored.decision.outcome not in PLACED or stored.binding.metadata.uid != binding.uid:
            return None
        targets = {target.name: target.replicas for target in stored.binding.spec.clusters}
        evictions = tuple(map(_eviction, stored.binding.spec.graceful_eviction_tasks))
        verdict = await self._scheduled(binding, stored.decision.id, targets)
        return replace(verdict, evictions=evictions)

    async def _verdict(
        self, binding: KarmadaBinding, result: ScheduleBatchResult, deleting: Collection[str]
    ) -> BindingVerdict:
        decision = result.decision
        if decision.outcome in PLACED:
            if result.clusters_omitted:
                decision = await self._client.get_decision(decision.id)
            placed = {target.name: target.replicas for target in decision.clusters}
            return await self._scheduled(binding, decision.id, placed)
        if decision.outcome == scheduling_pb2.OUTCOME_INVALID:
            rules = [f"{violation.field}: {violation.rule}" for violation in result.violations]
            message = "; ".join(rules) or decision.reason
            is_passing = result.error_reason != InvalidRequest.reason
            return BindingVerdict(reason=SCHEDULER_ERROR, message=message, is_passing=is_passing)
        targets = _without(binding, deleting)
        if decision.outcome == scheduling_pb2.OUTCOME_UNSCHEDULABLE:
            return BindingVerdict(reason=UNSCHEDULABLE, message=decision.reason, targets=targets)
        may_empty = self._as_karmada and bool(binding.targets) and self._is_current()
        if may_empty and await self._fits_nowhere(decision):
            targets = {}
        return BindingVerdict(reason=NO_CLUSTER_FIT, message=decision.reason, targets=targets)

    async def _scheduled(
        self, binding: KarmadaBinding, decision_id: str, targets: dict[str, int]
    ) -> BindingVerdict:
        affinity = ""
        if (binding.placement or {}).get("clusterAffinities"):
            facts = (await self._client.get_decision(decision_id)).trace.facts
            affinity = next((fact.value for fact in facts if fact.name == AFFINITY_GROUP), "")
        return BindingVerdict(
            reason=SUCCESS, message=SCHEDULED_TEXT, targets=targets, affinity=affinity
        )

    async def _fits_nowhere(self, decision: Decision) -> bool:
        """Whether a filter refused all clusters; else no choice met the spread constraints."""
        clusters = (await self._client.get_decision(decision.id)).trace.clusters
        return bool(clusters) and all(cluster.filter for cluster in clusters)


def binding_message(
    binding: KarmadaBinding,
    *,
    scheduler: str,
    as_karmada: bool,
    unknown: Counter[str],
    failover: bool = False,
) -> resource_pb2.ResourceBinding:
    """Return the binding with its current clusters. ``as_karmada`` breaks ties in Karmada's order.

    A silent cluster keeps its replicas, as the bridge may be away: Karmada says what is lost. With
    ``failover`` evicting taints evict here, else that is Karmada's own. Raises InvalidRequest.
    """
    spec = {key: value for key, value in binding.spec.items() if key not in _OMITTED}
    placement = binding.placement
    if placement is not None:
        spec["placement"] = _placement(placement, as_karmada=as_karmada, failover=failover)
    spec["clusters"] = [
        {"name": name, "replicas": replicas} for name, replicas in binding.targets.items()
    ]
    annotations = {KARMADA_SCHEDULER: scheduler, KARMADA_GENERATION: str(binding.generation)}
    if placement is not None and is_placement_new(binding):
        applied = _placement(applied_placement(binding), as_karmada=as_karmada, failover=failover)
        annotations[APPLIED_PLACEMENT] = json.dumps(
            known_fields(applied, resource_pb2.Placement.DESCRIPTOR, "spec.placement", unknown)
        )
    status = {
        "lastScheduledTime": binding.last_scheduled_time,
        "schedulerObservingAffinityName": binding.observing_affinity,
    }
    document: Document = {
        "apiVersion": BINDING_API_VERSION,
        "kind": binding.kind,
        "metadata": {
            "namespace": binding.namespace,
            "name": binding.name,
            "uid": binding.uid,
            "labels": _group_labels(binding),
            "annotations": annotations,
        },
        "spec": known_fields(spec, resource_pb2.ResourceBindingSpec.DESCRIPTOR, "spec", unknown),
    }
    if any(status.values()):
        document["status"] = {key: value for key, value in status.items() if value}
    message = message_from_document(document, resource_pb2.ResourceBinding)
    message.spec.on_cluster_loss = OnClusterLoss.WAIT.value
    return message


def _placement(placement: Document, *, as_karmada: bool, failover: bool) -> Document:
    written = dict(placement)
    tolerations: list[Any] = list(written.get("clusterTolerations") or ())
    if tolerations and not failover:
        # Evicting taints are stored as taints that keep away: a toleration holds for both.
        written["clusterTolerations"] = tolerations + [
            {
                **{key: value for key, value in toleration.items() if key != "tolerationSeconds"},
                "effect": NO_SCHEDULE,
            }
            for toleration in tolerations
            if isinstance(toleration, dict) and toleration.get("effect") == NO_EXECUTE
        ]
    if as_karmada:
        written["tieBreak"] = KARMADA_TIES
    return written


def _group_labels(binding: KarmadaBinding) -> dict[str, str]:
    """The labels that the control plane groups workloads by: Karmada has read them already."""
    affinity = (binding.placement or {}).get("workloadAffinity") or {}
    groups = binding.spec.get("workloadAffinityGroups") or {}
    labels = {}
    for term, group in (("affinity", "affinityGroup"), ("antiAffinity", "antiAffinityGroup")):
        key = (affinity.get(term) or {}).get("groupByLabelKey")
        if key and groups.get(group):
            labels[key] = groups[group]
    return labels


def _eviction(task: resource_pb2.GracefulEvictionTask) -> Document:
    """The task as Karmada writes it; earlier clusters stand in our own history."""
    written: Document = MessageToDict(task)
    written.pop("clustersBeforeFailover", None)
    if "replicas" in written:
        written["replicas"] = int(written["replicas"])
    return written


def _batches(items: Sequence[ScheduleBatchItem]) -> Iterator[tuple[int, int]]:
    """Yield the positions of the items of each request: as many as it may be large."""
    start, size = 0, 0
    for position, item in enumerate(items):
        item_bytes = item.ByteSize()
        if size and size + item_bytes > MAX_REQUEST_BYTES:
            yield start, position
            start, size = position, 0
        size += item_bytes
    if items:
        yield start, len(items)


def _without(binding: KarmadaBinding, deleting: Collection[str]) -> dict[str, int] | None:
    """Return the clusters without those that are deleted: Karmada waits until all are left, even
    where no new ones suit. None: it stays as it is.
    """
    targets = binding.targets
    staying = {name: count for name, count in targets.items() if name not in deleting}
    return None if staying == targets else staying
