"""What is written to a binding: main patch, status patch, events.

Pure: what was read, and what was decided, to merge patches. Must not write what says nothing new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from federation.bridge.karmada import APPLIED_PLACEMENT, SCHEDULED, Document, KarmadaBinding
from federation.bridge.triggers import is_rescheduled, meaning
from federation.model.placement import EVICTION_PRODUCER

SUCCESS: Final = "Success"
UNSCHEDULABLE: Final = "Unschedulable"
NO_CLUSTER_FIT: Final = "NoClusterFit"
QUOTA_EXCEEDED: Final = "QuotaExceeded"
SCHEDULER_ERROR: Final = "SchedulerError"
SCHEDULED_TEXT: Final = "Binding has been scheduled successfully."
# Kubernetes takes so much of a condition's message, and so much of an event's.
MOST_CONDITION_CHARACTERS: Final = 32_768
MOST_EVENT_CHARACTERS: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingVerdict:
    """What became of a binding.

    ``targets`` are replicas by cluster, None where the binding keeps what it has; ``affinity`` is
    the term of several that was taken; ``evictions`` are of clusters that it is moved off. What
    ``is_passing`` is to be asked again soon.
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


def main_patch(binding: KarmadaBinding, verdict: BindingVerdict) -> Document | None:
    """Placement and the annotation that says which placement was applied; None: both are right.

    It names the version that was read: whoever changed the binding since is not undone.
    """
    patch: Document = {}
    if verdict.targets is not None and not _is_applied(binding):
        spelled = json.dumps(binding.placement, separators=(",", ":"), ensure_ascii=False)
        patch["metadata"] = {"annotations": {APPLIED_PLACEMENT: spelled}}
    if verdict.targets is not None:
        targets = _targets(binding, verdict.targets)
        if {each["name"]: each.get("replicas", 0) for each in targets} != binding.targets:
            patch["spec"] = {"clusters": targets or None, **_evictions(binding, verdict)}
    return _of_version(binding, patch)


def status_patch(binding: KarmadaBinding, verdict: BindingVerdict, now: str) -> Document | None:
    """What karmada-scheduler says in the status, all at once; ``now`` is in RFC 3339.

    ``binding`` is as the main patch left it. Failures leave the observed generation and the time:
    a reschedule that was asked for stays due.
    """
    status: Document = {}
    message = verdict.message[:MOST_CONDITION_CHARACTERS]
    condition = {
        "type": SCHEDULED,
        "status": "True" if verdict.is_scheduled else "False",
        "reason": verdict.reason,
        "message": message,
    }
    before = binding.condition(SCHEDULED) or {}
    if any(before.get(each) != condition[each] for each in condition):
        moved = before.get("status") != condition["status"]
        condition["lastTransitionTime"] = now if moved else before.get("lastTransitionTime", now)
        others = [each for each in binding.conditions if each.get("type") != SCHEDULED]
        status["conditions"] = [*others, condition]
    if verdict.is_scheduled:
        if binding.observed_generation != binding.generation:
            status["schedulerObservedGeneration"] = binding.generation
        if verdict.affinity and verdict.affinity != binding.observing_affinity:
            status["schedulerObservingAffinityName"] = verdict.affinity
        if status or is_rescheduled(binding) or not binding.last_scheduled_time:
            status["lastScheduledTime"] = now
    return _of_version(binding, {"status": status} if status else {})


def closing_patch(binding: KarmadaBinding) -> Document | None:
    """Say that the newest generation was seen and asks for nothing new."""
    if binding.observed_generation == binding.generation:
        return None
    return _of_version(binding, {"status": {"schedulerObservedGeneration": binding.generation}})


def event_body(
    about: Document, *, scheduler: str, is_warning: bool, reason: str, message: str, now: str
) -> Document:
    """An event at an object. Those of cluster-scoped objects are in the namespace default."""
    namespace = about.get("namespace") or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name'][:200]}.", "namespace": namespace},
        "involvedObject": {key: each for key, each in about.items() if each},
        "type": "Warning" if is_warning else "Normal",
        "reason": reason,
        "message": message[:MOST_EVENT_CHARACTERS],
        "source": {"component": scheduler},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def events_of(
    binding: KarmadaBinding, verdict: BindingVerdict, *, scheduler: str, now: str
) -> list[Document]:
    """One at the binding, and one at what it binds."""
    message = verdict.message
    if verdict.is_scheduled:
        targets = verdict.targets or {}
        shares = ", ".join(f"{name}:{targets[name]}" for name in sorted(targets))
        colon = ":" if binding.namespace else ""
        message = f"{verdict.message} Result{colon} {{{shares}}}"
    workload = binding.spec.get("resource") or {}
    abouts: list[Document] = [
        {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": binding.kind,
            "namespace": binding.namespace,
            "name": binding.name,
            "uid": binding.uid,
        },
        {
            key: workload.get(key) or ""
            for key in ("apiVersion", "kind", "namespace", "name", "uid")
        },
    ]
    reason = "ScheduleBindingSucceed" if verdict.is_scheduled else "ScheduleBindingFailed"
    return [
        event_body(
            about,
            scheduler=scheduler,
            is_warning=not verdict.is_scheduled,
            reason=reason,
            message=message,
            now=now,
        )
        for about in abouts
        if about["name"]
    ]


def _evictions(binding: KarmadaBinding, verdict: BindingVerdict) -> Document:
    """Clusters that are left get a task, and those that it is back in lose ours: Karmada keeps what
    runs there until it ends the task. {}: nothing changes.
    """
    targets = verdict.targets or {}
    tasks: list[Document] = list(binding.spec.get("gracefulEvictionTasks") or ())
    kept = [
        each
        for each in tasks
        if each.get("producer") != EVICTION_PRODUCER or not targets.get(each.get("fromCluster", ""))
    ]
    known = {each.get("fromCluster") for each in kept}
    new = [
        each
        for each in verdict.evictions
        if (name := each["fromCluster"]) in binding.targets
        and name not in targets
        and name not in known
        and each.get("producer") == EVICTION_PRODUCER
    ]
    now = [*kept, *new]
    return {} if now == tasks else {"gracefulEvictionTasks": now or None}


def _targets(binding: KarmadaBinding, targets: Mapping[str, int]) -> list[Document]:
    """As karmada-scheduler writes them: no replicas for what has none to divide."""
    names_only = not binding.is_workload or bool(binding.spec.get("components"))
    if names_only:
        return [{"name": name} for name in targets]
    return [{"name": name, "replicas": count} for name, count in targets.items() if count]


def _is_applied(binding: KarmadaBinding) -> bool:
    if binding.applied_placement is None:
        return False
    try:
        applied: Any = json.loads(binding.applied_placement)
    except ValueError:
        return False
    return bool(meaning(applied) == meaning(binding.placement or {}))


def _of_version(binding: KarmadaBinding, patch: Document) -> Document | None:
    if not patch:
        return None
    metadata = {**patch.get("metadata", {}), "resourceVersion": binding.version}
    return {**patch, "metadata": metadata}
