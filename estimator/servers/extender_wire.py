"""The JSON that kube-scheduler posts to an extender, and takes from it.

Must not judge, nor read a pod: its bytes are handed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from estimator.unreadable import UNREADABLE
from federation.model.errors import InvalidRequest
from federation.runtime.typed_values import from_json

T = TypeVar("T")

_NULL: Final = b"null"


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    uid: str = ""


class _Object(msgspec.Struct, frozen=True):
    metadata: _Named = _Named()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedNodes:
    """The nodes of a filter or prioritize call, in order.

    ``objects`` holds the nodes themselves, as they were sent, when the caller keeps no cache in
    common with us; it is None when it sent only names.
    """

    pod: bytes
    names: list[str]
    objects: Mapping[str, msgspec.Raw] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Victims:
    """The pods that would have to leave a node, by uid."""

    uids: tuple[str, ...]
    disruption_budgets_violated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedVictims:
    """The victims of preemptions that could make room, by node name."""

    pod: bytes
    victims: Mapping[str, Victims]


@dataclass(frozen=True, slots=True, kw_only=True)
class BindOrder:
    """The pod to be bound, and to which node."""

    name: str
    namespace: str
    uid: str
    node: str


def read_nodes(body: bytes) -> OfferedNodes:
    """The body of filter and prioritize. Raises InvalidRequest."""
    keys = _keys(body, "")
    pod = _present(keys, "Pod")
    if "nodenames" in keys:
        names = _decoded(keys["nodenames"], list[str], "NodeNames")
        return OfferedNodes(pod=pod, names=names, objects=None)
    if "nodes" not in keys:
        return OfferedNodes(pod=pod, names=[], objects=None)
    items = _keys(keys["nodes"], "Nodes").get("items")
    raws = [] if items is None else _decoded(items, list[msgspec.Raw], "Nodes.items")
    objects = {_decoded(raw, _Object, "Nodes.items").metadata.name: raw for raw in raws}
    return OfferedNodes(pod=pod, names=list(objects), objects=objects)


def read_victims(body: bytes) -> OfferedVictims:
    """The body of preempt, with victims in full or by uid. Raises InvalidRequest."""
    keys = _keys(body, "")
    pod = _present(keys, "Pod")
    victims: dict[str, Victims] = {}
    for field in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        if field.lower() in keys:
            by_node = _decoded(keys[field.lower()], dict[str, msgspec.Raw], field)
            for node, raw in by_node.items():
                victims[node] = _victims(raw, f"{field}[{node}]")
    return OfferedVictims(pod=pod, victims=victims)


def read_bind(body: bytes) -> BindOrder:
    """The body of bind. Raises InvalidRequest."""
    keys = _keys(body, "")
    name, namespace, uid, node = (
        _decoded(_present(keys, field), str, field)
        for field in ("PodName", "PodNamespace", "PodUID", "Node")
    )
    return BindOrder(name=name, namespace=namespace, uid=uid, node=node)


def filter_answer(
    offered: OfferedNodes,
    names: Sequence[str],
    failed: Mapping[str, str],
    unresolvable: Mapping[str, str],
) -> bytes:
    """Nodes go back in the form they came in: the other form counts as no node at all."""
    answer: dict[str, Any] = {
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }
    if offered.objects is None:
        answer["NodeNames"] = names
    else:
        answer["Nodes"] = {"metadata": {}, "items": [offered.objects[name] for name in names]}
    return msgspec.json.encode(answer)


def prioritize_answer(scores: Mapping[str, int]) -> bytes:
    return msgspec.json.encode([{"Host": name, "Score": score} for name, score in scores.items()])


def preempt_answer(victims_of: Mapping[str, Victims]) -> bytes:
    """Always by uid: kube-scheduler ignores victims that are answered in full."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                node: {
                    "Pods": [{"UID": uid} for uid in victims.uids],
                    "NumPDBViolations": victims.disruption_budgets_violated,
                }
                for node, victims in victims_of.items()
            }
        }
    )


def error_answer(text: str) -> bytes:
    """Filter and bind take this as a failure, with its reason."""
    return msgspec.json.encode({"Error": text})


def _victims(raw: msgspec.Raw, path: str) -> Victims:
    keys = _keys(raw, path)
    pods = _decoded(keys["pods"], list[msgspec.Raw], f"{path}.Pods") if "pods" in keys else []
    count = keys.get("numpdbviolations")
    return Victims(
        uids=tuple(_uid(pod, f"{path}.Pods[{position}]") for position, pod in enumerate(pods)),
        disruption_budgets_violated=(
            0 if count is None else _decoded(count, int, f"{path}.NumPDBViolations")
        ),
    )


def _uid(pod: msgspec.Raw, path: str) -> str:
    """A victim's uid: its own field in a reference, in the metadata of a whole pod."""
    keys = _keys(pod, path)
    if "uid" in keys:
        return _decoded(keys["uid"], str, f"{path}.UID")
    return _decoded(pod, _Object, path).metadata.uid


def _keys(content: bytes | msgspec.Raw, path: str) -> dict[str, bytes]:
    """An object's values by lower-cased key, without those that are null."""
    values = _decoded(content, dict[str, msgspec.Raw], path)
    return {key.lower(): bytes(raw) for key, raw in values.items() if bytes(raw) != _NULL}


def _present(keys: Mapping[str, bytes], field: str) -> bytes:
    value = keys.get(field.lower())
    if value is None:
        raise InvalidRequest.of(field, "is required")
    return value


def _decoded(content: bytes | msgspec.Raw, kind: type[T], path: str) -> T:
    try:
        return from_json(content, kind)
    except UNREADABLE as error:
        raise InvalidRequest.of(path, f"is not what an extender is sent: {error}") from error
