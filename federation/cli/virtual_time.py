"""Virtual time of ``simulate``: clusters that fall silent and come back, bindings that come and
go, and what came of it.

Must not decide anything: ``federation.failover.virtual_time`` does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from federation.cli import inputs
from federation.cli import output as show
from federation.cli.decisions import share_text
from federation.cli.durations import seconds_of
from federation.cli.output import Output
from federation.failover.virtual_steps import (
    EventKind,
    FailoverRules,
    FleetEvent,
    VirtualStep,
    WaitingStep,
    event_violations,
)
from federation.failover.virtual_time import VirtualFleet
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.runtime.terminal import say


def rules_of(limits: Mapping[str, Any]) -> FailoverRules:
    """As the options of ``FAILOVER_LIMITS`` say."""
    return FailoverRules(**limits)


def fleet_events(
    given: Mapping[EventKind, Sequence[str]], clusters: Collection[str], bindings: Sequence[Binding]
) -> list[FleetEvent]:
    """What the options say. Raises InvalidRequest."""
    events = [
        (f"--{kind.value}", _event(text, kind)) for kind, texts in given.items() for text in texts
    ]
    violations = [*event_violations(events, clusters, bindings)]
    if violations:
        raise InvalidRequest(violations)
    return [event for _, event in events]


def written_time(fleet: VirtualFleet) -> dict[str, Any]:
    """All that happened, and how it stands at the end."""
    return {
        "steps": [_step(each) for each in fleet.steps],
        "bindings": [
            {"binding": each.key, "clusters": _shares(each.clusters)} for each in fleet.bindings
        ],
        "queue": [_waiting(each) for each in fleet.waiting()],
    }


def show_virtual_time(
    fleet: VirtualFleet, output: Output, warnings: Mapping[str, Sequence[str]]
) -> None:
    """Show all that happened, and the ``warnings`` by binding."""
    if output.is_document:
        some = {name: each for name, each in warnings.items() if each}
        show.print_document({**written_time(fleet), "warnings": some}, output)
        return
    rows = [
        (f"{each.at:g}s", each.kind.value, each.subject, _text(each.clusters), each.reason or "-")
        for each in fleet.steps
    ]
    columns = ["AT", "WHAT", "WHO", "CLUSTERS", "REASON"]
    show.print_table(columns, rows, prose=["CLUSTERS", "REASON"])
    _print_waiting(fleet)
    inputs.warn_of_bindings(warnings)


def _print_waiting(fleet: VirtualFleet) -> None:
    waiting = [
        (
            each.position or "-",
            each.binding.key,
            each.binding.priority,
            f"{each.since:g}s",
            each.remainder,
            each.gate or each.short_of,
        )
        for each in fleet.waiting()
    ]
    if not waiting:
        say("")
        say("No binding waits at the end.")
        return
    show.print_heading("Who waits at the end")
    columns = ["POSITION", "BINDING", "PRIORITY", "SINCE", "REMAINDER", "SHORT OF"]
    show.print_table(columns, waiting, prose=["SHORT OF"])


def _event(text: str, kind: EventKind) -> FleetEvent:
    option = f"--{kind.value}"
    name, at, span = text.rpartition("@")
    if not at and kind is EventKind.LOSE:
        return FleetEvent(0.0, kind, text)
    if not at:
        raise InvalidRequest.of(option, f"must say when, as in {text}@20m")
    return FleetEvent(seconds_of(span, option), kind, name)


def _step(step: VirtualStep) -> dict[str, Any]:
    return {
        "at": step.at,
        "what": step.kind.value,
        "who": step.subject,
        "clusters": _shares(step.clusters),
        "reason": step.reason,
    }


def _waiting(waiting: WaitingStep) -> dict[str, Any]:
    return {
        "binding": waiting.binding.key,
        "position": waiting.position,
        "since": waiting.since,
        "remainder": waiting.remainder,
        "shortOf": waiting.short_of,
        "gate": waiting.gate,
    }


def _shares(clusters: Sequence[TargetCluster]) -> list[dict[str, Any]]:
    return [{"name": each.name, "replicas": each.replicas} for each in clusters]


def _text(clusters: Sequence[TargetCluster]) -> str:
    return " ".join(map(share_text, clusters)) or "-"
