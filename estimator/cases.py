"""Estimates of many small clusters written out, one JSON object a line: for checking and replay.

Must not estimate: ``estimator.estimation`` does. Keys that are not named here are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from estimator.estimation.exact import ExactEstimates
from estimator.nodes import Node
from estimator.snapshot import NodeTable, Snapshot, columns_of
from estimator.unreadable import UNREADABLE
from federation.model.cluster import Taint
from federation.model.errors import InvalidRequest
from federation.model.quantity import QuantityError, parse_quantity
from federation.model.resources import PODS, amounts_of, base_units_down
from federation.model.selectors import UNSCHEDULABLE
from federation.model.workload import Component, NodeClaim, ReplicaRequirements
from federation.runtime.typed_values import from_json

Quantities = dict[str, str | int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePod:
    request: Quantities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseNode:
    name: str
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Quantities = field(default_factory=dict)
    pods: tuple[CasePod, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseComponent:
    name: str = ""
    replicas: int = 1
    request: Quantities | None = None
    node_claim: NodeClaim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``components`` asks for whole sets, else ``request`` and ``node_claim`` for replicas.

    Nodes are taken in the order of ``node_order_seen``, or as listed.
    """

    nodes: tuple[CaseNode, ...]
    request: Quantities | None = None
    node_claim: NodeClaim | None = None
    components: tuple[CaseComponent, ...] | None = None
    assumed: tuple[tuple[CaseComponent, ...], ...] = ()
    node_order_seen: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Identified:
    id: Any = None


def answers(lines: Iterable[str | bytes]) -> Iterator[dict[str, Any]]:
    """One answer a line, in order: replicas or sets, or an error; empty lines are skipped."""
    for line in lines:
        if not line.strip():
            continue
        answer: dict[str, Any] = {"id": None}
        try:
            answer["id"] = from_json(line, _Identified).id
            case = from_json(line, Case)
            key, number = _answer(case)
            answer[key] = number
        except UNREADABLE as error:
            answer["error"] = _error("", str(error))
        except InvalidRequest as error:
            first = error.violations[0]
            answer["error"] = _error(first.field, first.rule)
        yield answer


def _error(field_path: str, message: str) -> dict[str, str]:
    return {"code": "INVALID_ARGUMENT", "message": message, "field": field_path}


def _answer(case: Case) -> tuple[str, int]:
    assumed = [
        [
            _component(component, f"assumed[{place}][{position}].")
            for position, component in enumerate(workload)
        ]
        for place, workload in enumerate(case.assumed)
    ]
    estimates = ExactEstimates(snapshot=_snapshot(case))
    if case.components is None:
        question = CaseComponent(request=case.request, node_claim=case.node_claim)
        return "replicas", estimates.replicas(_component(question, "").requirements, assumed)
    components = [
        _component(component, f"components[{position}].")
        for position, component in enumerate(case.components)
    ]
    return "sets", estimates.sets(components, assumed)


def _component(component: CaseComponent, path: str) -> Component:
    if component.replicas < 0:
        raise InvalidRequest.of(f"{path}replicas", "must not be negative")
    return Component(
        name=component.name,
        replicas=component.replicas,
        requirements=ReplicaRequirements(
            request=amounts_of(_texts(component.request), field=f"{path}request"),
            node_claim=component.node_claim,
        ),
    )


def _snapshot(case: Case) -> Snapshot:
    nodes = _ordered(case)
    requested = []
    for node in nodes:
        total = {PODS: len(node.pods)}
        for position, pod in enumerate(node.pods):
            path = f"nodes[{node.name}].pods[{position}].request"
            for name, amount in amounts_of(_texts(pod.request), field=path).items():
                if name != PODS:
                    total[name] = total.get(name, 0) + amount
        requested.append(total)
    return Snapshot(table=NodeTable.of(map(_node, nodes)), requested=columns_of(requested))


def _ordered(case: Case) -> list[CaseNode]:
    if case.node_order_seen is None:
        return list(case.nodes)
    by_name = {node.name: node for node in case.nodes}
    if by_name.keys() != set(case.node_order_seen) or len(by_name) != len(case.node_order_seen):
        raise InvalidRequest.of("node_order_seen", "must name every node once")
    return [by_name[name] for name in case.node_order_seen]


def _node(node: CaseNode) -> Node:
    path = f"nodes[{node.name}].allocatable"
    allocatable = {}
    for name, text in _texts(node.allocatable).items():
        try:
            allocatable[name] = max(0, base_units_down(name, parse_quantity(text)))
        except QuantityError as error:
            raise InvalidRequest.of(f"{path}[{name}]", str(error)) from error
    return Node(
        name=node.name,
        labels=node.labels,
        taints=(*node.taints, UNSCHEDULABLE) if node.unschedulable else node.taints,
        unschedulable=node.unschedulable,
        allocatable=allocatable,
    )


def _texts(quantities: Quantities | None) -> dict[str, str]:
    return {name: str(value) for name, value in (quantities or {}).items()}
