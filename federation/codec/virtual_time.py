"""Virtual time of simulations: events from messages, steps and who waits to messages.

Must not decide what follows from an event.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from federation.codec import ranges
from federation.codec.violations import Violations
from federation.model.estimate import MAX_REPLICAS
from federation.model.placement import Binding
from federation.simulation.steps import (
    EventKind,
    FailoverRules,
    FleetEvent,
    VirtualStep,
    WaitingStep,
    event_violations,
)
from federation.v1 import resource_pb2, simulation_pb2

MAX_EVENTS: Final = 1000
MAX_SECONDS: Final = 31_536_000.0
MAX_LOST_SECONDS: Final = 2_419_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRequest:
    """What happens after the beginning, and by which rules."""

    events: tuple[FleetEvent, ...]
    rules: FailoverRules


def events_from_message(
    message: simulation_pb2.VirtualTime,
    path: str,
    clusters: Collection[str],
    bindings: Sequence[Binding],
    found: Violations,
) -> EventsRequest:
    """The broken rules are ``found`` then."""
    count = len(message.events)
    if count > MAX_EVENTS:
        found.add(f"{path}.events", f"must be at most {MAX_EVENTS}, not {count}")
        return EventsRequest(events=(), rules=FailoverRules())
    lost_seconds = message.lost_seconds or FailoverRules().lost_seconds
    if not 1 <= lost_seconds <= MAX_LOST_SECONDS:
        rule = f"must be 1 to {MAX_LOST_SECONDS:.0f}, not {lost_seconds:g}"
        found.add(f"{path}.lostSeconds", rule)
    events = []
    for position, each in enumerate(message.events):
        where = f"{path}.events[{position}]"
        if not (math.isfinite(each.at_seconds) and 0 <= each.at_seconds <= MAX_SECONDS):
            rule = f"must be 0 to {MAX_SECONDS:.0f}, not {each.at_seconds:g}"
            found.add(f"{where}.atSeconds", rule)
        ranges.required(each.kind, f"{where}.kind", found)
        kind = ranges.optional_word(each.kind, EventKind, f"{where}.kind", found)
        if kind is not None:
            events.append((f"{where}.name", FleetEvent(each.at_seconds, kind, each.name)))
    found.extend(event_violations(events, clusters, bindings))
    rules = FailoverRules(lost_seconds=lost_seconds)
    if message.HasField("preempted_replicas"):
        most = _limit(message.preempted_replicas, f"{path}.preemptedReplicas", found)
        rules = rules._replace(preempted_replicas=most)
    if message.HasField("preempted_replicas_of_namespace"):
        where = f"{path}.preemptedReplicasOfNamespace"
        most = _limit(message.preempted_replicas_of_namespace, where, found)
        rules = rules._replace(preempted_replicas_of_namespace=most)
    return EventsRequest(events=tuple(event for _, event in events), rules=rules)


def _limit(most: int, path: str, found: Violations) -> int:
    if not 0 <= most <= MAX_REPLICAS:
        found.add(path, f"must be 0 to {MAX_REPLICAS}, not {most}")
    return most


def put_virtual_time(
    steps: Iterable[VirtualStep],
    queue: Iterable[WaitingStep],
    response: simulation_pb2.SimulateResponse,
) -> None:
    """What happened, and who waits at the end."""
    for step in steps:
        response.steps.add(
            at_seconds=step.at,
            kind=step.kind.value,
            name=step.subject,
            clusters=[
                resource_pb2.TargetCluster(name=each.name, replicas=each.replicas)
                for each in step.clusters
            ],
            reason=step.reason,
        )
    for each in queue:
        response.queue.add(
            namespace=each.binding.namespace,
            name=each.binding.name,
            position=each.position,
            since_seconds=each.since,
            remainder=each.remainder,
            short_of=each.short_of,
            gate=each.gate,
        )
