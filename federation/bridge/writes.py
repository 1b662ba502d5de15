"""Writes to Karmada's API server: the two patches of a binding as pure functions, and events.

Must not decide anything, nor write a value that is there already. Changes of others are read again
and never undone.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from estimator.kube.client import KubeClient, decoded
from estimator.kube.events import event_body, second_of
from federation.bridge.objects import (
    APPLIED_PLACEMENT,
    SCHEDULED,
    Document,
    KarmadaBinding,
    KarmadaCluster,
    RawBinding,
    binding_from_raw,
)
from federation.bridge.steps import is_rescheduled, meaning, parsed_placement
from federation.codec.clusters import CLUSTER_API_VERSION
from federation.model.errors import Conflict, FederationError, NotFound, PreconditionFailed
from federation.model.placement import EVICTION_PRODUCER

SUCCESS: Final = "Success"
UNSCHEDULABLE: Final = "Unschedulable"
NO_CLUSTER_FIT: Final = "NoClusterFit"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
SCHEDULER_ERROR: Final = "SchedulerError"
SCHEDULED_TEXT: Final = "Binding has been scheduled successfully."
NOT_BRIDGED: Final = "ClusterNotBridged"
# Kubernetes' limit of a condition's message.
MAX_CONDITION_CHARACTERS: Final = 32_768

BINDING: Final = "/apis/work.karmada.io/v1alpha2/namespaces/{namespace}/resourcebindings/{name}"
CLUSTER_BINDING: Final = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings/{name}"
BINDING_API_VERSION: Final = "work.karmada.io/v1alpha2"
EVENTS: Final = "/api/v1/namespaces/{namespace}/events"
MERGE_PATCH: Final = "application/merge-patch+json"
MAX_TRIES: Final = 5
# Patches travel side by side; more do not make an API server faster.
MAX_CONCURRENT_PATCHES: Final = 8
# Bindings whose events wait; events of further ones are left out.
MAX_WAITING_EVENTS: Final = 5_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingVerdict:
    """The result of a decision for a binding.

    ``targets`` are replicas by cluster, None where the binding keeps what it has; ``affinity`` is
    the chosen term of several; ``evictions`` are of clusters that it is moved off. A verdict that
    ``is_passing`` is soon requested again.
    """

    reason: str
    message: str
    targets: Mapping[str, int] | None = None
    affinity: str = ""
    evictions: tuple[Document, ...] = ()
    is_passing: bool = False

    @property
    def is_scheduled(self) -> bool:
        return self.reason == SUCCESS


class Overtaken(Conflict):
    """The binding was replaced, or asks for something else by now."""


def main_patch(binding: KarmadaBinding, verdict: BindingVerdict) -> Document | None:
    """Return placement and the annotation of the applied placement; None: both are right.

    It names the version that was read, so that no newer change is undone.
    """
    patch: Document = {}
    if verdict.targets is None:
        return None
    if not _is_applied(binding):
        text = json.dumps(binding.placement, separators=(",", ":"), ensure_ascii=False)
        patch["metadata"] = {"annotations": {APPLIED_PLACEMENT: text}}
    targets = _targets(binding, verdict.targets)
    if {target["name"]: target.get("replicas", 0) for target in targets} != binding.targets:
        patch["spec"] = {"clusters": targets or None, **_evictions(binding, verdict)}
    return _of_version(binding, patch)


def status_patch(binding: KarmadaBinding, verdict: BindingVerdict, now: str) -> Document | None:
    """Return karmada-scheduler's part of the status; ``now`` is in RFC 3339.

    ``binding`` is as the main patch left it. Failures leave the observed generation and the time:
    a requested reschedule stays due.
    """
    status: Document = {}
    condition = {
        "type": SCHEDULED,
        "status": "True" if verdict.is_scheduled else "False",
        "reason": verdict.reason,
        "message": verdict.message[:MAX_CONDITION_CHARACTERS],
    }
    current = binding.condition(SCHEDULED) or {}
    if any(current.get(key) != value for key, value in condition.items()):
        is_transition = current.get("status") != condition["status"]
        time = now if is_transition else current.get("lastTransitionTime", now)
        rest = [entry for entry in binding.conditions if entry.get("type") != SCHEDULED]
        status["conditions"] = [*rest, {**condition, "lastTransitionTime": time}]
    if verdict.is_scheduled:
        if binding.observed_generation != binding.generation:
            status["schedulerObservedGeneration"] = binding.generation
        if verdict.affinity and verdict.affinity != binding.observing_affinity:
            status["schedulerObservingAffinityName"] = verdict.affinity
        if status or is_rescheduled(binding) or not binding.last_scheduled_time:
            status["lastScheduledTime"] = now
    return _of_version(binding, {"status": status} if status else {})


def closing_patch(binding: KarmadaBinding) -> Document | None:
    """Return the status of a newest generation that was seen and changes nothing."""
    if binding.observed_generation == binding.generation:
        return None
    return _of_version(binding, {"status": {"schedulerObservedGeneration": binding.generation}})


def events_of(
    binding: KarmadaBinding, verdict: BindingVerdict, *, scheduler: str, now: str
) -> list[Document]:
    """Return one event at the binding, and one at its workload."""
    message = verdict.message
    if verdict.is_scheduled:
        targets = verdict.targets or {}
        shares = ", ".join(f"{name}:{targets[name]}" for name in sorted(targets))
        colon = ":" if binding.namespace else ""
        message = f"{verdict.message} Result{colon} {{{shares}}}"
    workload = binding.spec.get("resource") or {}
    keys = ("apiVersion", "kind", "namespace", "name", "uid")
    abouts: list[Document] = [
        {
            "apiVersion": BINDING_API_VERSION,
            "kind": binding.kind,
            "namespace": binding.namespace,
            "name": binding.name,
            "uid": binding.uid,
        },
        {key: workload.get(key) or "" for key in keys},
    ]
    return [
        event_body(
            about,
            component=scheduler,
            is_warning=not verdict.is_scheduled,
            reason="ScheduleBindingSucceed" if verdict.is_scheduled else "ScheduleBindingFailed",
            message=message,
            now=now,
        )
        for about in abouts
        if about["name"]
    ]


def _evictions(binding: KarmadaBinding, verdict: BindingVerdict) -> Document:
    """Return changed eviction tasks, {} where none changes.

    A cluster that the binding leaves gets a task, and one that it is back in loses ours: Karmada
    keeps the replicas there until it ends the task.
    """
    targets = verdict.targets or {}
    tasks: list[Document] = list(binding.spec.get("gracefulEvictionTasks") or ())
    staying = [
        task
        for task in tasks
        if task.get("producer") != EVICTION_PRODUCER or not targets.get(task.get("fromCluster", ""))
    ]
    evicted = {task.get("fromCluster") for task in staying}
    new = [
        task
        for task in verdict.evictions
        if (name := task["fromCluster"]) in binding.targets
        and name not in targets
        and name not in evicted
        and task.get("producer") == EVICTION_PRODUCER
    ]
    changed = [*staying, *new]
    return {} if changed == tasks else {"gracefulEvictionTasks": changed or None}


def _targets(binding: KarmadaBinding, targets: Mapping[str, int]) -> list[Document]:
    """Return the clusters in karmada-scheduler's form: replicas only where some are divided."""
    if not binding.is_workload or binding.spec.get("components"):
        return [{"name": name} for name in targets]
    return [{"name": name, "replicas": count} for name, count in targets.items() if count]


def _is_applied(binding: KarmadaBinding) -> bool:
    applied = parsed_placement(binding.applied_placement or "")
    return applied is not None and bool(meaning(applied) == meaning(binding.placement or {}))


def _of_version(binding: KarmadaBinding, patch: Document) -> Document | None:
    if not patch:
        return None
    metadata = {**patch.get("metadata", {}), "resourceVersion": binding.version}
    return {**patch, "metadata": metadata}


class KarmadaWrites:
    """Writes of one scheduler. ``clock`` is in Unix seconds."""

    def __init__(self, client: KubeClient, scheduler: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._patching = asyncio.Semaphore(MAX_CONCURRENT_PATCHES)
        # Events must not be in the way of patches.
        self._telling = asyncio.Lock()
        self._waiting_events = 0
        self._scheduler = scheduler
        self._clock = clock

    async def write(
        self, binding: KarmadaBinding, verdict: BindingVerdict
    ) -> tuple[KarmadaBinding, BindingVerdict]:
        """Return the written binding and verdict; a webhook's refusal is the verdict then.

        Raises Overtaken, NotFound, Unavailable and the errors of calls.
        """
        async with self._patching:
            try:
                binding = await self._patched(binding, lambda current: main_patch(current, verdict))
            except PreconditionFailed as error:
                verdict = _refused(error)
            now = self._now()
            written = await self._patched(
                binding, lambda current: status_patch(current, verdict, now), status=True
            )
            return written, verdict

    async def close(self, binding: KarmadaBinding) -> KarmadaBinding:
        """Write that the newest generation changes nothing. Raises as ``write``."""
        async with self._patching:
            return await self._patched(binding, closing_patch, status=True)

    async def is_gone(self, namespace: str, name: str) -> bool:
        """Whether Karmada has no such binding: a list may have missed it."""
        binding = KarmadaBinding(
            namespace=namespace, name=name, uid="", version="", generation=0, spec={}
        )
        try:
            await self._call("GET", binding)
        except NotFound:
            return True
        return False

    async def report(self, binding: KarmadaBinding, verdict: BindingVerdict) -> None:
        """Write events, for people: nothing depends on them."""
        if self._waiting_events >= MAX_WAITING_EVENTS:
            return
        events = events_of(binding, verdict, scheduler=self._scheduler, now=self._now())
        self._waiting_events += 1
        try:
            await self._write_events(events, f"binding {binding.key}")
        finally:
            self._waiting_events -= 1

    async def warn(self, cluster: KarmadaCluster, message: str) -> None:
        """Write an event at a cluster that cannot be bridged as it is."""
        about: Document = {
            "apiVersion": CLUSTER_API_VERSION,
            "kind": "Cluster",
            "name": cluster.name,
            "uid": cluster.uid,
        }
        event = event_body(
            about,
            component=self._scheduler,
            is_warning=True,
            reason=NOT_BRIDGED,
            message=message,
            now=self._now(),
        )
        await self._write_events([event], f"cluster {cluster.name}")

    async def _write_events(self, events: list[Document], about: str) -> None:
        try:
            async with self._telling:
                for event in events:
                    namespace = event["metadata"]["namespace"]
                    await self._client.request(
                        "POST", EVENTS, event, names={"namespace": namespace}
                    )
        except FederationError as error:
            logger.info("no event at %s: %s", about, error.message)

    async def _patched(
        self,
        binding: KarmadaBinding,
        patch_of: Callable[[KarmadaBinding], Document | None],
        *,
        status: bool = False,
    ) -> KarmadaBinding:
        """Return the patched binding; it is read again as long as others are faster."""
        current = binding
        for _ in range(MAX_TRIES):
            patch = patch_of(current)
            if patch is None:
                return current
            try:
                return await self._call("PATCH", current, patch, status=status)
            except Conflict:
                current = await self._call("GET", current)
                if (current.uid, current.generation) != (binding.uid, binding.generation):
                    raise Overtaken(f"binding {binding.key} was changed meanwhile") from None
        raise Overtaken(f"binding {binding.key} is changed again and again")

    async def _call(
        self, verb: str, binding: KarmadaBinding, body: object = None, *, status: bool = False
    ) -> KarmadaBinding:
        path = BINDING if binding.namespace else CLUSTER_BINDING
        content = await self._client.request(
            verb,
            f"{path}/status" if status else path,
            body,
            content_type=MERGE_PATCH,
            names={"namespace": binding.namespace, "name": binding.name},
        )
        return binding_from_raw(decoded(content, RawBinding))

    def _now(self) -> str:
        return second_of(self._clock())


def _refused(error: PreconditionFailed) -> BindingVerdict:
    reason = QUOTA_EXCEEDED if error.reason == QUOTA_EXCEEDED else SCHEDULER_ERROR
    return BindingVerdict(reason=reason, message=error.message.partition(": ")[2] or error.message)
