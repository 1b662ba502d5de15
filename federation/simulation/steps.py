"""Events that happen to a fleet in virtual time, and the steps that follow.

Plain values. Must not decide which steps follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from federation.failover.breaker import BreakerLimits
from federation.model.errors import Violation
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.preemption import MAX_PREEMPTED, MAX_PREEMPTED_IN_NAMESPACE


class EventKind(StrEnum):
    """A cluster's agent falls silent, or is heard again; a binding comes, or is deleted."""

    LOSE = "lose"
    BACK = "back"
    ARRIVE = "arrive"
    DELETE = "delete"

    @property
    def is_of_cluster(self) -> bool:
        return self in {EventKind.LOSE, EventKind.BACK}


class FleetEvent(NamedTuple):
    """An event of a cluster or binding, by its name, ``at`` seconds after the beginning."""

    at: float
    kind: EventKind
    subject: str


class FailoverRules(NamedTuple):
    """Settings of failover, named as a control plane's."""

    lost_seconds: float = 300.0
    percent_a_minute: float = 10.0
    breaker: BreakerLimits = BreakerLimits()
    preempted_replicas: int = MAX_PREEMPTED
    preempted_replicas_of_namespace: int = MAX_PREEMPTED_IN_NAMESPACE


class StepKind(StrEnum):
    """The kind of a VirtualStep."""

    PLACED = "placed"
    WAITS = "waits"
    PREEMPTED = "preempted"
    EARMARKED = "earmarked"
    MOVED = "moved"
    STAYS = "stays"
    RETURNED = "returned"
    TIMED_OUT = "timedOut"
    DELETED = "deleted"
    STALE = "stale"
    LOST = "lost"
    BACK = "back"
    FROZEN = "frozen"
    THAWED = "thawed"


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStep:
    """A change of a binding, a cluster or the fleet, ``at`` seconds after the beginning."""

    at: float
    kind: StepKind
    subject: str
    clusters: tuple[TargetCluster, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStep:
    """A binding that waits at the end; ``position`` 0: it is gated."""

    binding: Binding
    position: int
    since: float
    remainder: int
    short_of: str
    gate: str = ""


def event_violations(
    events: Sequence[tuple[str, FleetEvent]],
    clusters: Collection[str],
    bindings: Sequence[Binding],
) -> Iterator[Violation]:
    """Yield the violations of events, with their paths."""
    by_key = {binding.key: binding for binding in bindings}
    came = {event.subject: event.at for _, event in events if event.kind is EventKind.ARRIVE}
    seen: set[tuple[EventKind, str]] = set()
    for path, event in events:
        name = event.subject
        if event.kind.is_of_cluster:
            if name not in clusters:
                yield Violation(field=path, rule=f"names no cluster that is given: {name!r}")
            continue
        if name not in by_key:
            yield Violation(field=path, rule=f"names no binding that is given: {name!r}")
        elif by_key[name].clusters:
            # Reports count its pods, which no event takes away.
            yield Violation(field=path, rule=f"names a binding that runs already: {name!r}")
        elif (event.kind, name) in seen:
            yield Violation(field=path, rule=f"names a second time: {name!r}")
        elif event.kind is EventKind.DELETE and event.at < came.get(name, 0.0):
            yield Violation(field=path, rule=f"is before {name!r} arrives")
        seen.add((event.kind, name))
