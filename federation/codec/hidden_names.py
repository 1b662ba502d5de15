"""Names of others in what is told: who may see some namespaces alone reads that there is somebody,
and not who.

Must not change anything but names. Sentences of plug-ins, agents and people are quoted and left
out as a whole. Those of ``claims``, ``preemption`` and ``victims`` are known here; a test makes
each of them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from federation.failover.moves import PREEMPTED, PREEMPTED_BY
from federation.model.access import EVERYTHING, Scope
from federation.model.quotations import without_quotations
from federation.model.waiting import Wait
from federation.v1 import resource_pb2, scheduling_pb2

HIDDEN: Final = "a binding of another namespace"
# As names of namespaces and objects may be: nothing else is a binding's key.
_KEY: Final = r"[a-z0-9](?:[-a-z0-9]*/[a-z0-9])?[-.a-z0-9]*"
_SENTENCES: Final = re.compile(
    rf"(?P<kept>(?<=\broom is kept for ){_KEY}(?:, {_KEY})*(?=, which waited before))"
    rf"|(?<=\breplica of ){_KEY}(?= to leave )"
    rf"|(?<=\breplicas of ){_KEY}(?= to leave )"
    rf"|(?<=\bpreempted by ){_KEY}(?=: |$|;|,)"
    rf"|(?P<lost>(?<=\blost their room, )\d+ of {_KEY}(?:, \d+ of {_KEY})*)"
    rf"|^{_KEY}(?=: \d+ in \S+, priority -?\d+$)"
)
_WHOLE_KEY: Final = re.compile(_KEY)
_TEXT: Final = FieldDescriptor.TYPE_STRING


def hidden_in(text: str, scope: Scope) -> str:
    """A text for people, as who may see a scope reads it: without sentences of others."""
    if not text or scope == EVERYTHING:
        return text
    text = without_quotations(text)
    # A key alone stands in a field of its own.
    if not scope.namespaces or " " not in text:
        return text

    def named(found: re.Match[str]) -> str:
        if found["lost"] is not None:
            shares = (share.partition(" of ") for share in found["lost"].split(", "))
            return ", ".join(f"{count} of {hidden_key(key, scope)}" for count, _, key in shares)
        if found["kept"] is None:
            return hidden_key(found[0], scope)
        # Those that may be seen first, and the others once.
        keys = dict.fromkeys(hidden_key(key, scope) for key in found["kept"].split(", "))
        return ", ".join(keys)

    return _SENTENCES.sub(named, text)


def hidden_key(key: str, scope: Scope) -> str:
    """A binding's key, or what stands for it."""
    return key if not key or scope.sees_namespace(key.rpartition("/")[0]) else HIDDEN


def hidden_wait(wait: Wait, scope: Scope) -> Wait:
    """How a binding waits, as who may see a scope reads it."""
    if scope == EVERYTHING:
        return wait
    return replace(
        wait,
        short_of=hidden_in(wait.short_of, scope),
        gate=hidden_in(wait.gate, scope),
        overtaken_by=hidden_key(wait.overtaken_by, scope),
    )


def hide_names(message: Message, scope: Scope) -> None:
    """In all texts of an answer or an event, as who may see a scope reads it.

    Keys of bindings in fields of their own are hidden by the scope alone.
    """
    if scope != EVERYTHING:
        _hide(message, scope)


def _hide(message: Message, scope: Scope) -> None:
    match message:
        case scheduling_pb2.Wait():
            message.overtaken_by = hidden_key(message.overtaken_by, scope)
            for leaving in message.nominated.leaving:
                leaving.binding = hidden_key(leaving.binding, scope)
        case scheduling_pb2.NodePlacement() if not scope.sees_cluster(message.cluster):
            # The decision names its clusters to all who may read it; nodes are of the cluster.
            del message.nodes[:]
            message.message = ""
            return
        case resource_pb2.GracefulEvictionTask():
            _hide_in_eviction(message, scope)
        case resource_pb2.ResourceBinding():
            # All else was written by those who may see it, and may be written back.
            for task in message.spec.graceful_eviction_tasks:
                _hide(task, scope)
            return
        case resource_pb2.Cluster():
            _hide(message.status, scope)
            return
        case _:
            pass
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _hide_in_map(field.message_type, value, scope)
        elif isinstance(value, Message):
            _hide(value, scope)
        elif isinstance(value, str):
            _replace(message, field.name, value, scope)
        elif field.message_type is not None:
            for part in value:
                _hide(part, scope)
        elif field.cpp_type == FieldDescriptor.CPPTYPE_STRING and field.type == _TEXT:
            hidden = [hidden_in(text, scope) for text in value]
            if hidden != list(value):
                value[:] = hidden


def _replace(message: Message, name: str, text: str, scope: Scope) -> None:
    hidden = hidden_in(text, scope)
    if hidden != text:
        setattr(message, name, hidden)


def _hide_in_map(entry: Descriptor, value: Any, scope: Scope) -> None:
    """Keys stay: they name resources, labels and plug-ins."""
    kind = entry.fields_by_name["value"]
    if kind.message_type is not None:
        for part in value.values():
            _hide(part, scope)
    elif kind.type == _TEXT:
        for key, text in value.items():
            value[key] = hidden_in(text, scope)


def _hide_in_eviction(task: resource_pb2.GracefulEvictionTask, scope: Scope) -> None:
    """By its reason: the message of a preemption is the key of the binding that caused it."""
    if task.reason != PREEMPTED:
        return
    key = task.message.removeprefix(PREEMPTED_BY)
    is_key = task.message.startswith(PREEMPTED_BY) and _WHOLE_KEY.fullmatch(key) is not None
    task.message = f"{PREEMPTED_BY}{hidden_key(key, scope) if is_key else HIDDEN}"
