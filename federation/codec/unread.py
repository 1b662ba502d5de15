"""Fields that are accepted, as Karmada writes them, and that nothing here reads: told, not refused.

What Kubernetes keeps about an object (metadata, status) asks for nothing and is not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from google.protobuf.message import Message

from federation.codec.descriptors import fields_of, inner_message
from federation.codec.documents import Document
from federation.codec.karmada_fields import READ_OVER, ROOTS
from federation.codec.violations import joined
from federation.v1 import resource_pb2

# More are counted.
MAX_NAMED: Final = 20

_KEPT_ABOUT_OBJECTS: Final = frozenset({"metadata", "status"})
# By message, fields that travel and that no binding is read from.
_UNREAD: Final[Mapping[str, frozenset[str]]] = {
    "GracefulEvictionTask": frozenset({"clustersBeforeFailover"}),
    "OverflowClusterAffinity": frozenset({"affinityName"}),
    "Suspension": frozenset({"dispatching", "dispatchingOnClusters"}),
    "TargetCluster": frozenset({"components"}),
}
_ROOT_MESSAGES: Final = {
    kind: message
    for message in (
        resource_pb2.Cluster,
        resource_pb2.ResourceBinding,
        resource_pb2.PropagationPolicy,
    )
    for kind in ROOTS[message.DESCRIPTOR.name][1]
}


def unread_in_message(message: Message) -> list[str]:
    """The fields of a binding's spec that are set and not read, with positions left out."""
    found: dict[str, None] = {}
    for field, value in message.ListFields():
        if field.json_name not in _KEPT_ABOUT_OBJECTS:
            _look_into(field, value, field.json_name, found)
    return list(found)


def _look_into(field: Any, value: Any, path: str, found: dict[str, None]) -> None:
    inner = inner_message(field)
    if inner is None or not _leads_on(inner):
        return
    here = f"{path}[]" if field.is_repeated else path
    unread = _UNREAD.get(inner.name, frozenset())
    for message in value if field.is_repeated else [value]:
        for each, content in message.ListFields():
            if each.json_name in unread:
                found[f"{here}.{each.json_name}"] = None
            else:
                _look_into(each, content, f"{here}.{each.json_name}", found)


@cache
def _leads_on(descriptor: Any) -> bool:
    """Whether a message, or one in it, has a field that is not read: only those are looked at."""
    inner = (inner_message(field) for field in fields_of(descriptor))
    return descriptor.name in _UNREAD or any(_leads_on(each) for each in inner if each is not None)


def dropped_from_documents(documents: Iterable[Document]) -> list[str]:
    """The fields of clusters, bindings and policies that fedsched does not keep at all."""
    found: dict[str, None] = {}
    for document in documents:
        kind = document.get("kind")
        if isinstance(kind, str) and kind in _ROOT_MESSAGES:
            _dropped(_ROOT_MESSAGES[kind].DESCRIPTOR, document, "", found)
    return list(found)


def _dropped(descriptor: Any, value: Any, path: str, found: dict[str, None]) -> None:
    if isinstance(value, list):
        for each in value:
            _dropped(descriptor, each, f"{path}[]", found)
    elif isinstance(value, Mapping):
        fields = {field.json_name: field for field in fields_of(descriptor)}
        dropped = READ_OVER.get(descriptor.name, {})
        for name, content in value.items():
            here = joined(path, str(name))
            if not path and name in _KEPT_ABOUT_OBJECTS:
                continue
            if name in dropped and name not in fields:
                found[here] = None
            elif name in fields and (inner := inner_message(fields[name])) is not None:
                _dropped(inner, content, here, found)


def warning_of(fields: Iterable[str]) -> str:
    """One sentence about all of them, "" where there are none."""
    names = list(fields)
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"accepted, but nothing here reads {', '.join(names[:MAX_NAMED])}{more}"
