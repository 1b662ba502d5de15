"""Names of others in what is told: who may see some namespaces alone reads that there is somebody,
and not who.

Must not change anything but names. The sentences are those of ``claims``, ``preemption`` and
``victims``; a test makes each of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from google.protobuf.message import Message

from federation.model.access import Scope
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
    rf"|^{_KEY}(?=: \d+ in \S+, priority -?\d+$)"
)
_Hide = Callable[[str], str]


def hidden_in(text: str, scope: Scope) -> str:
    """A text for people, as who may see a scope reads it."""
    if not (scope.namespaces and text):
        return text

    def named(found: re.Match[str]) -> str:
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
    if not scope.namespaces:
        return wait
    return replace(
        wait,
        short_of=hidden_in(wait.short_of, scope),
        gate=hidden_in(wait.gate, scope),
        overtaken_by=hidden_key(wait.overtaken_by, scope),
    )


def hide_names(message: Message, scope: Scope) -> None:
    """In a decision, a wait, a binding, or what holds them, as who may see a scope reads it."""
    if scope.namespaces:
        _hide(message, scope)


def _hide(message: Message, scope: Scope) -> None:
    if isinstance(message, scheduling_pb2.Decision):
        _hide_in_decision(message, lambda text: hidden_in(text, scope))
    elif isinstance(message, scheduling_pb2.Wait):
        _hide_in_wait(message, scope)
    elif isinstance(message, resource_pb2.ResourceBinding):
        for task in message.spec.graceful_eviction_tasks:
            task.message = hidden_in(task.message, scope)
    elif isinstance(message, scheduling_pb2.ReplayDecisionResponse):
        difference = message.first_difference
        difference.stored = hidden_in(difference.stored, scope)
        difference.replayed = hidden_in(difference.replayed, scope)
    else:
        for field, value in message.ListFields():
            if field.message_type is None:
                continue
            several = value if isinstance(value, Iterable) else (value,)
            for each in several:
                if isinstance(each, Message):
                    _hide(each, scope)


def _hide_in_decision(message: scheduling_pb2.Decision, hide: _Hide) -> None:
    message.reason = hide(message.reason)
    for texts in (message.warnings, message.triggers, message.trace.attempts):
        texts[:] = map(hide, texts)
    for fact in message.trace.facts:
        fact.value = hide(fact.value)
    for cluster in message.trace.clusters:
        if cluster.estimate_note:
            cluster.estimate_note = hide(cluster.estimate_note)


def _hide_in_wait(message: scheduling_pb2.Wait, scope: Scope) -> None:
    message.short_of = hidden_in(message.short_of, scope)
    message.gate = hidden_in(message.gate, scope)
    message.overtaken_by = hidden_key(message.overtaken_by, scope)
    for leaving in message.nominated.leaving:
        leaving.binding = hidden_key(leaving.binding, scope)
