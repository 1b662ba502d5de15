"""Whether Karmada's scheduler would decide a binding again, and why: its rules, in its order.

Pure. Must not know what the control plane would answer.
"""

from __future__ import annotations

import json
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, Final

from federation.bridge.karmada import Document, KarmadaBinding

_DIFFERENT: Final = (
    "clusterAffinity",
    "clusterTolerations",
    "spreadConstraints",
    "replicaScheduling",
)


def trigger_of(binding: KarmadaBinding, deleting: AbstractSet[str]) -> str:
    """Why it is to be decided, "" where it is not. ``deleting`` clusters are to be left."""
    if is_placement_new(binding):
        return "its placement changed"
    if _replicas_changed(binding):
        return "its replicas changed"
    if is_rescheduled(binding):
        return "a reschedule was triggered"
    if not binding.is_workload or binding.is_duplicated:
        return "it goes to every cluster that matches"
    if not deleting.isdisjoint(binding.targets):
        return "a cluster of it is being deleted"
    return ""


def is_rescheduled(binding: KarmadaBinding) -> bool:
    """Strictly later than it was scheduled last, which is known in whole seconds."""
    triggered, last = binding.spec.get("rescheduleTriggeredAt"), binding.last_scheduled_time
    return bool(triggered and last and _time(triggered) > _time(last))


def is_placement_new(binding: KarmadaBinding) -> bool:
    """Whether the placement was changed since its clusters were chosen; so it is where no
    annotation says by which placement they were.
    """
    if binding.applied_placement is None:
        return True
    applied = _parsed(binding.applied_placement)
    if applied is None:
        return False
    now, before = meaning(_without_limits(binding.placement or {})), meaning(applied)
    if now == before:
        return False
    if any(now.get(each) != before.get(each) for each in _DIFFERENT):
        return True
    observing = binding.observing_affinity
    return not observing or _term(now, observing) != _term(before, observing)


def applied_placement(binding: KarmadaBinding) -> Document:
    """The placement that its clusters were chosen by; empty where nothing says which."""
    return _parsed(binding.applied_placement or "{}") or {}


def _without_limits(placement: Document) -> Document:
    """The placement as Karmada has it: limits by cluster are those of Jobs that run."""
    strategy = placement.get("replicaScheduling")
    if not isinstance(strategy, dict) or "clusterLimits" not in strategy:
        return placement
    strategy = {key: value for key, value in strategy.items() if key != "clusterLimits"}
    return {**placement, "replicaScheduling": strategy}


def _parsed(text: str) -> Document | None:
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
        return any(each != replicas for each in targets.values())
    return sum(targets.values()) != replicas


def meaning(value: Any) -> Any:
    """The value without what says nothing: an omitted field, null, and an empty list are one."""
    if isinstance(value, dict):
        kept = {key: meaning(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each not in (None, [], {}, "", 0, False)}
    return [meaning(each) for each in value] if isinstance(value, list) else value


def _term(placement: Document, name: str) -> Document | None:
    terms: list[Document] = placement.get("clusterAffinities", [])
    return next((each for each in terms if each.get("affinityName") == name), None)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
