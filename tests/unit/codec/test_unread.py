"""Nothing is accepted and forgotten in silence: every field is read, or named where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from federation.codec.bindings import binding_from_message
from federation.codec.clusters import cluster_from_message
from federation.codec.descriptors import fields_of, inner_message, map_values
from federation.codec.unread import (
    MAX_NAMED,
    dropped_from_documents,
    unread_in_message,
    warning_of,
)
from federation.model.errors import InvalidRequest
from federation.v1 import resource_pb2

Path = tuple[Any, ...]

# A valid value of each field by message or else by name, and another one.
VALUES = {
    "SelectorRequirement.operator": ("In", "NotIn"),
    "Toleration.operator": ("Equal", "Exists"),
    "key": ("region", "zone"),
    "effect": ("NoSchedule", "NoExecute"),
    "spread_by_field": ("cluster", "region"),
    "replica_scheduling_type": ("Divided", "Duplicated"),
    "replica_division_preference": ("Weighted", "Aggregated"),
    "dynamic_weight": ("AvailableReplicas", ""),
    "tie_break": ("hash", "karmada"),
    "certificate": ("careful", "strict"),
    "preemption_policy": ("Never", "PreemptLowerPriority"),
    "resource_version": ("1", "0-1-2"),
    "ResourceModelRange.name": ("cpu", "memory"),
    "ResourceModelRange.min": ("0", "1"),
    "ResourceModelRange.max": ("9223372036854775807", "9"),
}
# What a message is not valid without.
NEEDED = {
    "affinity_name",
    "effect",
    "from_cluster",
    "key",
    "max",
    "min",
    "name",
    "operator",
    "size",
    "values",
}
# Kept by Kubernetes about the object, or only answered here: they ask for nothing.
KEPT_ABOUT_OBJECTS = ("metadata.creationTimestamp", "status.")
CLUSTERS_HAVE_NO_NAMESPACE = "metadata.namespace"
REFERENCES_NAME_NO_VERSION = "spec.resource.resourceVersion"


def leaves(descriptor: Any, before: tuple[str, ...] = ()) -> Iterator[Path]:
    for field in fields_of(descriptor):
        inner = inner_message(field)
        if inner is None:
            yield (field,)
        elif inner.full_name not in before:
            yield from ((field, *path) for path in leaves(inner, (*before, inner.full_name)))


def held(message: Any, path: Path) -> Any:
    """The message that has the last field of a path; those on the way are made, and made valid."""
    for field in path[:-1]:
        value = getattr(message, field.name)
        if field.is_repeated:
            message = value[0] if len(value) else value.add()
        else:
            value.SetInParent()
            message = value
        for each in fields_of(message.DESCRIPTOR):
            if each.name in NEEDED and inner_message(each) is None:
                put(message, each, 0)
    if message.DESCRIPTOR.name == "ResourceModel":
        put_at(message, (message.DESCRIPTOR.fields_by_name["ranges"], *RANGE_NAME), 0)
    return message


RANGE_NAME = (resource_pb2.ResourceModelRange.DESCRIPTOR.fields_by_name["name"],)


def put_at(message: Any, path: Path, which: int) -> None:
    put(held(message, path), path[-1], which)


def put(message: Any, field: Any, which: int) -> None:
    """One of the two values of a field."""
    by_message = VALUES.get(f"{message.DESCRIPTOR.name}.{field.name}")
    value: Any = (by_message or VALUES.get(field.name, ("one", "two")))[which]
    if field.type in (field.TYPE_INT32, field.TYPE_INT64):
        value = which + 1
    if (values := map_values(field)) is not None:
        kept = getattr(message, field.name)
        kept["cpu"] = "12"[which] if values.type == values.TYPE_STRING else which
    elif field.message_type is not None:
        getattr(message, field.name).seconds = which + 1
    elif field.is_repeated:
        del getattr(message, field.name)[:]
        getattr(message, field.name).append(value)
    elif field.type == field.TYPE_BOOL:
        setattr(message, field.name, bool(which))
    elif field.type == field.TYPE_DOUBLE:
        setattr(message, field.name, float(which))
    else:
        setattr(message, field.name, value)


def written(path: Path) -> str:
    return ".".join(
        f"{field.json_name}[]" if field.is_repeated and inner_message(field) else field.json_name
        for field in path
    )


def outcome(read: Callable[[Any], Any], message: Any) -> Any:
    try:
        return read(message)
    except InvalidRequest as error:
        return error.violations


def is_read(read: Callable[[Any], Any], message_class: Any, path: Path) -> bool:
    """Whether it makes a difference if the field is set, or to what."""
    seen = []
    for which in (None, 0, 1):
        message = message_class(metadata=resource_pb2.ObjectMeta(name="web"))
        if message_class is resource_pb2.ResourceBinding:
            message.spec.placement.SetInParent()
        if which is None:
            held(message, path).ClearField(path[-1].name)
        else:
            put_at(message, path, which)
        seen.append(outcome(read, message))
    # What a caller expects of a binding is no part of what makes two of them equal.
    return any((each, repr(each)) != (seen[0], repr(seen[0])) for each in seen)


@pytest.mark.parametrize("path", list(leaves(resource_pb2.ResourceBinding.DESCRIPTOR)), ids=written)
def test_every_field_of_a_binding_is_read_or_named(path: Path) -> None:
    name = written(path)
    message = resource_pb2.ResourceBinding()
    put_at(message, path, 1)
    named = any(name.startswith(each) for each in unread_in_message(message))
    if name.startswith(KEPT_ABOUT_OBJECTS) or name == REFERENCES_NAME_NO_VERSION:
        assert not named
    else:
        assert named is not is_read(binding_from_message, resource_pb2.ResourceBinding, path)


@pytest.mark.parametrize("path", list(leaves(resource_pb2.Cluster.DESCRIPTOR)), ids=written)
def test_every_field_of_a_cluster_is_read(path: Path) -> None:
    name = written(path)
    if not name.startswith(KEPT_ABOUT_OBJECTS) and name != CLUSTERS_HAVE_NO_NAMESPACE:
        assert is_read(cluster_from_message, resource_pb2.Cluster, path)


def test_fields_that_fedsched_drops_are_named_once() -> None:
    documents = [
        {
            "kind": "PropagationPolicy",
            "metadata": {"name": "p", "finalizers": ["x"]},
            "spec": {"failover": {"cluster": {}}, "conflictResolution": "Abort", "placement": {}},
        },
        {"kind": "PropagationPolicy", "spec": {"conflictResolution": "Overwrite"}},
        {"kind": "ResourceBinding", "spec": {"gracefulEvictionTasks": [{"gracePeriodSeconds": 9}]}},
        {"kind": "Cluster", "spec": {"syncMode": "Pull", "region": "eu"}},
        {"kind": "Deployment", "spec": {"failover": {}}},
    ]
    assert dropped_from_documents(documents) == [
        "spec.failover",
        "spec.conflictResolution",
        "spec.gracefulEvictionTasks[].gracePeriodSeconds",
        "spec.syncMode",
    ]
    told = warning_of(dropped_from_documents(documents))
    assert told.endswith(
        "reads spec.failover, spec.conflictResolution, "
        "spec.gracefulEvictionTasks[].gracePeriodSeconds, spec.syncMode"
    )


def test_the_list_of_names_is_bounded() -> None:
    names = [f"spec.field{number}" for number in range(MAX_NAMED + 3)]
    assert warning_of(names).endswith("and 3 more")
    assert warning_of([]) == ""
