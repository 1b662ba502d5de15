"""Kubernetes' nodes and pods as the values capacity depends on.

Pure. Must not fetch anything. What an API server would refuse raises Untranslatable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import Final

from estimator.kube.objects import (
    Affinity,
    NodeStatus,
    PodSpec,
    PodStatus,
    RawNode,
    RawPod,
    RawRequirement,
)
from estimator.kube.origins import belonging_of
from estimator.kube.shapes import pod_shape
from estimator.nodes import Node, Pod, PodState, Repulsion
from federation.model.cluster import Taint, TaintEffect
from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import base_units_down
from federation.model.selectors import UNSCHEDULABLE
from federation.model.tolerations import NOT_READY, UNREACHABLE
from federation.model.workload import Operator, Requirement

# Python 3.11 is slow to look a member of an enum up.
_BOUND: Final = PodState.BOUND
_WAITING: Final = PodState.WAITING
_GATED: Final = PodState.GATED

_SUCCEEDED: Final = "Succeeded"
_TERMINAL: Final = frozenset({_SUCCEEDED, "Failed"})


class Untranslatable(ValueError):
    """An object holds something no API server stores; the text names the object."""


def node_from_raw(raw: RawNode) -> Node:
    """A node, with the taints that the node controller would give it for its state.

    Where no node controller runs, nothing taints a cordoned or unreachable node, and pods must
    not be promised there all the same.
    """
    ready_status = _ready_status(raw.status)
    unschedulable = bool(raw.spec.unschedulable)
    try:
        allocatable = {
            name: max(0, base_units_down(name, parse_quantity(text)))
            for name, text in (raw.status.allocatable or {}).items()
        }
        taints = [
            Taint(key=taint.key, value=taint.value or "", effect=TaintEffect(taint.effect))
            for taint in raw.spec.taints or ()
        ]
    except (QuantityError, ValueError) as error:
        raise Untranslatable(f"node {raw.metadata.name}: {error}") from error
    for implied, applies in (
        (UNSCHEDULABLE, unschedulable),
        (UNREACHABLE, ready_status == "Unknown"),
        (NOT_READY, ready_status not in ("True", "Unknown")),
    ):
        if applies and all((each.key, each.effect) != _identity(implied) for each in taints):
            taints.append(implied)
    return Node(
        name=raw.metadata.name,
        uid=raw.metadata.uid or "",
        labels=raw.metadata.labels or {},
        taints=tuple(taints),
        ready=ready_status == "True",
        unschedulable=unschedulable,
        allocatable=allocatable,
        provider_id=raw.spec.provider_id or "",
        kubelet_version=raw.status.node_info.kubelet_version if raw.status.node_info else "",
    )


def pod_from_raw(raw: RawPod) -> Pod:
    """A pod with its request; what has ended without a node asks for what it would have had."""
    metadata, spec, status = raw.metadata, raw.spec, raw.status
    # One text for all pods of a node: the cache looks its place up by it.
    node = intern(spec.node_name) if spec.node_name else ""
    try:
        shape = pod_shape(spec, status)
        created_at = unix_seconds(metadata.creation_timestamp)
        unschedulable_since = _unschedulable_since(status) if not node else None
        repulsions = tuple(_repulsions(raw)) if spec.affinity is not None else ()
    except ValueError as error:
        raise Untranslatable(f"pod {metadata.namespace}/{metadata.name}: {error}") from error
    owner, revision, origin = belonging_of(metadata)
    return Pod(
        # In the order of the fields: naming them doubles the cost.
        metadata.uid or f"{metadata.namespace}/{metadata.name}",
        metadata.namespace or "",
        metadata.name,
        _pod_state(node, status.phase, spec.scheduling_gates),
        node,
        shape.counted,
        shape.request.nonzero_placed,
        owner,
        revision,
        created_at,
        unschedulable_since,
        repulsions,
        origin,
        _selects_by(spec),
        (status.nominated_node_name or "") if not node else "",
        spec.priority or 0,
    )


def _pod_state(node: str, phase: str, gates: Sequence[object] | None) -> PodState:
    if phase not in _TERMINAL:
        if node:
            return _BOUND
        return _GATED if gates else _WAITING
    if not node:
        return PodState.DROPPED
    return PodState.SUCCEEDED if phase == _SUCCEEDED else PodState.DONE


def unix_seconds(timestamp: str | None) -> float:
    """A timestamp of Kubernetes', 0 for none. Raises ValueError."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def requirements(raw: Iterable[RawRequirement] | None) -> tuple[Requirement, ...]:
    """Expressions over labels or fields. Raises ValueError for an operator that there is not."""
    return tuple(
        Requirement(key=each.key, operator=Operator(each.operator), values=tuple(each.values or ()))
        for each in raw or ()
    )


def _selects_by(spec: PodSpec) -> tuple[str, ...]:
    """The node labels that the pod's selector and its required affinity look at."""
    if spec.node_selector is None and spec.affinity is None:
        return ()
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    terms = (required.node_selector_terms if required is not None else None) or ()
    expressions = (each for term in terms for each in term.match_expressions or ())
    return _shared(
        tuple(dict.fromkeys([*(spec.node_selector or ()), *(e.key for e in expressions)]))
    )


@lru_cache(maxsize=1024)
def _shared(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The same tuple for all pods that look at the same labels."""
    return keys


def _repulsions(raw: RawPod) -> Iterator[Repulsion]:
    """What the pod keeps away; a selector that is missing selects nothing."""
    affinity = raw.spec.affinity or Affinity()
    terms = affinity.pod_anti_affinity.required if affinity.pod_anti_affinity is not None else None
    for term in terms or ():
        selector = term.label_selector
        if selector is None:
            continue
        labels = tuple(
            Requirement(key=key, operator=Operator.IN, values=(value,))
            for key, value in (selector.match_labels or {}).items()
        )
        named = frozenset(term.namespaces or [raw.metadata.namespace or ""])
        yield Repulsion(
            namespaces=named if term.namespace_selector is None else None,
            requirements=labels + requirements(selector.match_expressions),
        )


def _unschedulable_since(status: PodStatus) -> float | None:
    for condition in status.conditions or ():
        if condition.type == "PodScheduled":
            found_no_node = condition.status == "False" and condition.reason == "Unschedulable"
            return unix_seconds(condition.last_transition_time) if found_no_node else None
    return None


def _identity(taint: Taint) -> tuple[str, TaintEffect]:
    return taint.key, taint.effect


def _ready_status(status: NodeStatus) -> str:
    """The Ready condition; a node that has none was registered and has not reported yet."""
    for condition in status.conditions or ():
        if condition.type == "Ready":
            return condition.status
    return "False"
