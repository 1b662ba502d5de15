"""Asks the control plane about bindings, and reads what its answers mean for Karmada.

Must not write to Karmada.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from google.protobuf.json_format import MessageToDict

from federation.bridge.karmada import Document, KarmadaBinding
from federation.bridge.patches import (
    NO_CLUSTER_FIT,
    SCHEDULED_TEXT,
    SCHEDULER_ERROR,
    SUCCESS,
    UNSCHEDULABLE,
    BindingVerdict,
)
from federation.bridge.requests import request_of
from federation.client import Client
from federation.model.errors import InvalidRequest
from federation.v1 import resource_pb2, scheduling_pb2
from federation.v1.scheduling_pb2 import Decision, ScheduleBatchItem, ScheduleBatchResult

AFFINITY_GROUP: Final = "affinityGroup"
# Of one request; messages may have 4 MiB.
MOST_BYTES: Final = 1024 * 1024
_PLACED: Final = (scheduling_pb2.OUTCOME_SCHEDULED, scheduling_pb2.OUTCOME_PARTIAL)


class Answers:
    """``unknown`` counts fields of newer Karmada versions, by path; ``is_current`` says whether
    Karmada's clusters are known as they are now.
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
        self._is_current = is_current
        self._client = client
        self._scheduler = scheduler
        self._as_karmada = as_karmada
        self._failover = failover
        self._unknown = unknown

    async def ask(
        self, bindings: Sequence[KarmadaBinding], deleting: Collection[str]
    ) -> dict[str, tuple[BindingVerdict, str]]:
        """By binding its verdict and the decision's id. Raises what a call raises."""
        # Many are much to write down, and the loop has others to serve.
        asked, items, answers = await asyncio.to_thread(self._items, bindings)
        results: list[ScheduleBatchResult] = []
        for start, end in _batches(items):
            results += await self._client.schedule_batch(items[start:end])
        for binding, result in zip(asked, results, strict=True):
            verdict = await self._verdict(binding, result, deleting)
            answers[binding.key] = verdict, result.decision.id
        return answers

    def _items(
        self, bindings: Sequence[KarmadaBinding]
    ) -> tuple[
        list[KarmadaBinding], list[ScheduleBatchItem], dict[str, tuple[BindingVerdict, str]]
    ]:
        """Those that can be asked about, as they are asked; and what is wrong with the others."""
        answers: dict[str, tuple[BindingVerdict, str]] = {}
        asked: list[KarmadaBinding] = []
        items: list[ScheduleBatchItem] = []
        for binding in bindings:
            try:
                message = self._request(binding)
            except InvalidRequest as error:
                answers[binding.key] = (
                    BindingVerdict(reason=SCHEDULER_ERROR, message=error.message),
                    "",
                )
                continue
            asked.append(binding)
            # Without a key, which would cost as much as the decision: what is stored says which
            # generation was asked for.
            items.append(ScheduleBatchItem(binding=message, adopt=True))
        return asked, items, answers

    def _request(self, binding: KarmadaBinding) -> resource_pb2.ResourceBinding:
        return request_of(
            binding,
            scheduler=self._scheduler,
            as_karmada=self._as_karmada,
            failover=self._failover,
            unknown=self._unknown,
        )

    async def of_stored(
        self, binding: KarmadaBinding, stored: scheduling_pb2.GetBindingResponse
    ) -> BindingVerdict | None:
        """What the newest decision means; None where it placed nothing."""
        if stored.decision.outcome not in _PLACED or stored.binding.metadata.uid != binding.uid:
            return None
        targets = {each.name: each.replicas for each in stored.binding.spec.clusters}
        evictions = tuple(map(_eviction, stored.binding.spec.graceful_eviction_tasks))
        verdict = await self._scheduled(binding, stored.decision.id, targets)
        return replace(verdict, evictions=evictions)

    async def _verdict(
        self, binding: KarmadaBinding, result: ScheduleBatchResult, deleting: Collection[str]
    ) -> BindingVerdict:
        decision = result.decision
        if decision.outcome in _PLACED:
            if result.clusters_omitted:
                decision = await self._client.get_decision(decision.id)
            placed = {each.name: each.replicas for each in decision.clusters}
            return await self._scheduled(binding, decision.id, placed)
        if decision.outcome == scheduling_pb2.OUTCOME_INVALID:
            rules = [f"{each.field}: {each.rule}" for each in result.violations]
            message = "; ".join(rules) or decision.reason
            is_lasting = result.error_reason == InvalidRequest.reason
            return BindingVerdict(
                reason=SCHEDULER_ERROR, message=message, is_passing=not is_lasting
            )
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
            trace = (await self._client.get_decision(decision_id)).trace
            affinity = next((e.value for e in trace.facts if e.name == AFFINITY_GROUP), "")
        return BindingVerdict(
            reason=SUCCESS, message=SCHEDULED_TEXT, targets=targets, affinity=affinity
        )

    async def _fits_nowhere(self, decision: Decision) -> bool:
        """Whether a filter refused every cluster; else it was the spread that found no choice."""
        clusters = (await self._client.get_decision(decision.id)).trace.clusters
        return bool(clusters) and all(each.filter for each in clusters)


def _eviction(task: resource_pb2.GracefulEvictionTask) -> Document:
    """As Karmada writes it. Who was there before is told by our own history."""
    written: Document = MessageToDict(task)
    written.pop("clustersBeforeFailover", None)
    if "replicas" in written:
        written["replicas"] = int(written["replicas"])
    return written


def _batches(items: Sequence[ScheduleBatchItem]) -> Iterator[tuple[int, int]]:
    """From where to where the items of each request go: as many as it may be large."""
    start, size = 0, 0
    for position, item in enumerate(items):
        item_bytes = item.ByteSize()
        if size and size + item_bytes > MOST_BYTES:
            yield start, position
            start, size = position, 0
        size += item_bytes
    if items:
        yield start, len(items)


def _without(binding: KarmadaBinding, deleting: Collection[str]) -> dict[str, int] | None:
    """Where nothing new is found, clusters that are deleted are left all the same: Karmada waits
    for that. None: it stays as it is.
    """
    targets = binding.targets
    staying = {name: count for name, count in targets.items() if name not in deleting}
    return None if staying == targets else staying
