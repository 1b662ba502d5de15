"""The next step about one binding: when Karmada would decide it again, and what stays fixed.

Pure, and level-triggered: how it came to be so does not matter, and at rest there is nothing to do.
Must not know what the control plane would answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from federation.bridge.objects import Document, KarmadaBinding
from federation.model.waiting import SUSPENDED
from federation.v1 import resource_pb2
from federation.v1.scheduling_pb2 import BindingEvent

# On the control plane's copy of a binding: which of Karmada's schedulers it is bridged as.
KARMADA_SCHEDULER: Final = "fedsched.io/karmada-scheduler"
# And the newest of its generations that a decision was requested for.
KARMADA_GENERATION: Final = "fedsched.io/karmada-generation"
_PLACEMENT_PARTS: Final = (
    "clusterAffinity",
    "clusterTolerations",
    "spreadConstraints",
    "replicaScheduling",
)
_EMPTY: Final[tuple[object, ...]] = (None, [], {}, "", 0, False)


class BridgeStep(StrEnum):
    """REST: nothing. SCHEDULE: request a decision. WRITE: write a decision that the control plane
    made by itself.

    FORGET, SUSPEND and RESUME are for the control plane's copy of the binding.
    """

    REST = "rest"
    SCHEDULE = "schedule"
    WRITE = "write"
    FORGET = "forget"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingCopy:
    """The control plane's copy: replicas by cluster, and the newest decision about it.

    ``replicas`` is how many it asks for. ``requested_generation`` is that of Karmada's binding when
    the decision was requested.
    """

    uid: str
    replicas: int = 0
    requested_generation: int = -1
    targets: Mapping[str, int] = field(default_factory=dict)
    decision_id: str = ""
    is_suspended: bool = False

    @classmethod
    def of(cls, event: BindingEvent) -> BindingCopy:
        binding = event.binding
        return cls(
            uid=binding.metadata.uid,
            replicas=binding.spec.replicas,
            requested_generation=requested_generation(binding),
            targets={target.name: target.replicas for target in binding.spec.clusters},
            decision_id=event.decision_id,
            is_suspended=event.wait.gate == SUSPENDED,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRequest:
    """The newest request for a decision, and which decision is written, or was refused."""

    uid: str
    generation: int
    leaving: frozenset[str] = frozenset()
    decision_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNames:
    """The clusters that a step depends on.

    ``stored`` ones are in the control plane; ``missing`` ones only in Karmada yet; all bindings
    leave those that are ``deleting``.
    """

    stored: AbstractSet[str] = frozenset()
    missing: AbstractSet[str] = frozenset()
    deleting: AbstractSet[str] = frozenset()


def requested_generation(message: resource_pb2.ResourceBinding) -> int:
    """The generation of Karmada's binding that the control plane's copy was requested with.

    -1 where none is named: people may write annotations, too.
    """
    text = message.metadata.annotations.get(KARMADA_GENERATION, "")
    return int(text) if text.isascii() and text.isdigit() else -1


def next_step(
    binding: KarmadaBinding | None,
    stored: BindingCopy | None,
    request: LastRequest | None,
    clusters: ClusterNames,
    *,
    scheduler: str,
) -> BridgeStep:
    """``request`` is None where nothing was requested yet, or has to be requested again."""
    if binding is None or binding.is_deleting or not binding.is_for(scheduler):
        return BridgeStep.FORGET if stored else BridgeStep.REST
    if stored and stored.uid and stored.uid != binding.uid:
        return BridgeStep.FORGET
    if binding.is_suspended:
        return BridgeStep.SUSPEND if stored and not stored.is_suspended else BridgeStep.REST
    if stored and stored.is_suspended:
        return BridgeStep.RESUME
    if not _may_be_requested(binding, stored, clusters):
        return BridgeStep.REST
    is_newest = request and (request.uid, request.generation) == (binding.uid, binding.generation)
    if request is None or not is_newest:
        if request or not stored:
            return BridgeStep.SCHEDULE
        return _step_after_restart(binding, stored, clusters)
    if not leaving(binding, clusters) <= request.leaving:
        return BridgeStep.SCHEDULE
    if stored and stored.decision_id != request.decision_id:
        return _step_of_own_decision(binding, stored)
    return BridgeStep.REST


def _step_after_restart(
    binding: KarmadaBinding, stored: BindingCopy, clusters: ClusterNames
) -> BridgeStep:
    step = _step_of_own_decision(binding, stored)
    if step is BridgeStep.WRITE and stored.requested_generation == binding.generation:
        # Another process ended before it wrote the decision: a second one would decide twice.
        return step
    is_seen = binding.observed_generation == binding.generation
    # All bindings leave clusters that are deleted, whatever was requested earlier.
    is_settled = is_seen and not leaving(binding, clusters)
    return step if is_settled else BridgeStep.SCHEDULE


def leaving(binding: KarmadaBinding, clusters: ClusterNames) -> frozenset[str]:
    """The clusters of a binding that it has to leave."""
    return frozenset(binding.targets.keys() & clusters.deleting)


def _step_of_own_decision(binding: KarmadaBinding, stored: BindingCopy) -> BridgeStep:
    """The control plane decides by itself, too: a waiting binding fits by now."""
    is_moved = bool(stored.targets) and not _is_written(binding, stored)
    return BridgeStep.WRITE if is_moved else BridgeStep.REST


def _is_written(binding: KarmadaBinding, stored: BindingCopy) -> bool:
    if not binding.is_workload or binding.spec.get("components"):
        return binding.targets.keys() == stored.targets.keys()
    return binding.targets == {name: count for name, count in stored.targets.items() if count}


def _may_be_requested(
    binding: KarmadaBinding, stored: BindingCopy | None, clusters: ClusterNames
) -> bool:
    """Not while the control plane lacks a cluster of the binding, which it would take for gone.

    A binding at rest that names clusters unknown to both sides is left alone: it would be moved.
    """
    targets = binding.targets.keys()
    if not targets.isdisjoint(clusters.missing):
        return False
    is_at_rest = binding.observed_generation == binding.generation
    strange = targets - clusters.stored - clusters.deleting
    return bool(stored) or not (is_at_rest and strange)


def trigger_of(binding: KarmadaBinding, deleting: AbstractSet[str]) -> str:
    """Why Karmada's scheduler would decide it again, by its rules in its order; "" where not.

    All bindings leave clusters that are ``deleting``.
    """
    if is_placement_new(binding):
        return "its placement changed"
    if _replicas_changed(binding):
        return "its replicas changed"
    if is_rescheduled(binding):
        return "a reschedule was triggered"
    if binding.goes_everywhere:
        return "it goes to every cluster that matches"
    if not deleting.isdisjoint(binding.targets):
        return "a cluster of it is being deleted"
    return ""


def is_rescheduled(binding: KarmadaBinding) -> bool:
    """Strictly later than it was scheduled last, which is stored in whole seconds."""
    triggered, last = binding.spec.get("rescheduleTriggeredAt"), binding.last_scheduled_time
    return bool(
        triggered and last and datetime.fromisoformat(triggered) > datetime.fromisoformat(last)
    )


def is_placement_new(binding: KarmadaBinding) -> bool:
    """Whether the placement was changed since its clusters were chosen; so it is without the
    annotation that names the applied placement.
    """
    if binding.applied_placement is None:
        return True
    applied = parsed_placement(binding.applied_placement)
    if applied is None:
        return False
    current, chosen_by = meaning(_without_limits(binding.placement or {})), meaning(applied)
    if current == chosen_by:
        return False
    if any(current.get(part) != chosen_by.get(part) for part in _PLACEMENT_PARTS):
        return True
    observing = binding.observing_affinity
    return not observing or _term(current, observing) != _term(chosen_by, observing)


def applied_placement(binding: KarmadaBinding) -> Document:
    """The placement that its clusters were chosen by; empty where none is named."""
    return parsed_placement(binding.applied_placement or "{}") or {}


def _without_limits(placement: Document) -> Document:
    """The placement as Karmada has it: limits by cluster are those of running Jobs."""
    strategy = placement.get("replicaScheduling")
    if not isinstance(strategy, dict) or "clusterLimits" not in strategy:
        return placement
    strategy = {key: value for key, value in strategy.items() if key != "clusterLimits"}
    return {**placement, "replicaScheduling": strategy}


def parsed_placement(text: str) -> Document | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _replicas_changed(binding: KarmadaBinding) -> bool:
    if not (binding.placement or {}).get("replicaScheduling"):
        return False
    if binding.spec.get("components"):
        return not binding.targets
    targets, replicas = binding.targets, binding.replicas
    if binding.is_duplicated:
        return any(count != replicas for count in targets.values())
    return sum(targets.values()) != replicas


def meaning(value: Any) -> Any:
    """The value without empty parts: an omitted field, null, and an empty list are one."""
    if isinstance(value, dict):
        parts = {key: meaning(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part not in _EMPTY}
    return [meaning(item) for item in value] if isinstance(value, list) else value


def _term(placement: Document, name: str) -> Document | None:
    terms: list[Document] = placement.get("clusterAffinities", [])
    return next((term for term in terms if term.get("affinityName") == name), None)


def is_running_job(binding: KarmadaBinding) -> bool:
    """Whether shares of a Job are in clusters already.

    Their completions are fixed: a member's API server refuses changed ones.
    """
    resource = binding.spec.get("resource") or {}
    is_job = resource.get("kind") == "Job" and str(resource.get("apiVersion")).startswith("batch/")
    return is_job and not binding.is_duplicated and any(binding.targets.values())


def with_fixed_shares(binding: KarmadaBinding, stored: BindingCopy | None) -> KarmadaBinding:
    """The binding as a decision is requested: a running Job keeps all shares, and its replicas.

    A share that has to leave its cluster goes to clusters that have none.
    """
    if not is_running_job(binding):
        return binding
    shares = {name: count for name, count in binding.targets.items() if count}
    limits: list[Document] = [
        {"targetCluster": {"clusterNames": [name]}, "min": count, "max": count}
        for name, count in shares.items()
    ]
    placement = binding.placement or {}
    strategy = {**placement.get("replicaScheduling", {}), "clusterLimits": limits}
    spec = {
        **binding.spec,
        "replicas": _fixed_replicas(binding, stored),
        "placement": {**placement, "replicaScheduling": strategy},
    }
    return binding.with_spec(spec)


def keeps_shares(binding: KarmadaBinding, targets: Mapping[str, int] | None) -> bool:
    """Whether no share of a running Job becomes another one; it may leave clusters."""
    if targets is None or not is_running_job(binding):
        return True
    return all(targets.get(name, count) == count for name, count in binding.targets.items())


def fixed_shares_note(binding: KarmadaBinding, targets: Mapping[str, int]) -> str:
    """Why a running Job has other replicas than its spec asks for; "" where it has not."""
    placed = sum(targets.values())
    if not is_running_job(binding) or placed == binding.replicas:
        return ""
    return (
        f"spec.replicas is {binding.replicas} and {placed} stay: the completions of a Job are "
        "divided once, when it is placed"
    )


def _fixed_replicas(binding: KarmadaBinding, stored: BindingCopy | None) -> int:
    placed = sum(binding.targets.values())
    if stored is not None:
        return max(stored.replicas, placed)
    # Evicted replicas have to run elsewhere.
    return max(binding.replicas, placed) if binding.spec.get("gracefulEvictionTasks") else placed
