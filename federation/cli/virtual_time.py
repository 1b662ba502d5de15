"""Virtual time of ``simulate``: clusters that fall silent and come back, and what came of it.

Must not decide anything: ``federation.failover.virtual_time`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import click

from federation.cli import output as show
from federation.cli.output import Format
from federation.cli.times import seconds_of
from federation.failover.virtual_time import FleetEvent, VirtualFleet, VirtualStep, WaitingStep
from federation.model.errors import InvalidRequest
from federation.model.workload import TargetCluster

_F = TypeVar("_F", bound=Callable[..., Any])
DEFAULT_LOST_SECONDS = 300.0


def virtual_time_options(command: _F) -> _F:
    """``--lose``, ``--back`` and ``--lost-seconds``."""
    for option in (
        click.option(
            "--lost-seconds",
            type=click.FloatRange(1, 2_419_200),
            default=DEFAULT_LOST_SECONDS,
            show_default=True,
            help="How long a cluster is silent before it is lost.",
        ),
        click.option(
            "--back", multiple=True, metavar="CLUSTER@SPAN", help="It is heard again then."
        ),
        click.option(
            "--lose",
            multiple=True,
            metavar="CLUSTER[@SPAN]",
            help="It falls silent so long after the beginning, as in member1@90s.",
        ),
    ):
        command = option(command)
    return command


def fleet_events(
    lose: Sequence[str], back: Sequence[str], names: Collection[str]
) -> list[FleetEvent]:
    """Raises InvalidRequest."""
    return [
        *(_event(text, "--lose", names, is_silent=True) for text in lose),
        *(_event(text, "--back", names, is_silent=False) for text in back),
    ]


def show_virtual_time(fleet: VirtualFleet, output: Format) -> None:
    waiting = fleet.waiting()
    if output.is_document:
        written = {
            "steps": [_step(each) for each in fleet.steps],
            "bindings": [
                {"binding": each.key, "clusters": _shares(each.clusters)} for each in fleet.bindings
            ],
            "queue": [_waiting(each) for each in waiting],
        }
        show.print_document(written, output)
        return
    rows = [
        (f"{each.at:g}s", each.kind.value, each.subject, _text(each.clusters), each.reason or "-")
        for each in fleet.steps
    ]
    columns = ["AT", "WHAT", "WHO", "CLUSTERS", "REASON"]
    show.print_table(columns, rows, prose=["CLUSTERS", "REASON"])
    show.print_heading("Who waits at the end")
    show.print_table(
        ["POSITION", "BINDING", "PRIORITY", "SINCE", "REMAINDER", "SHORT OF"],
        [
            (
                each.position or "-",
                each.binding.key,
                each.binding.priority,
                f"{each.since:g}s",
                each.remainder,
                each.gate or each.short_of,
            )
            for each in waiting
        ],
        prose=["SHORT OF"],
        empty="Nothing waits.",
    )


def _event(text: str, option: str, names: Collection[str], *, is_silent: bool) -> FleetEvent:
    name, at, span = text.partition("@")
    if name not in names:
        raise InvalidRequest.of(option, f"names no cluster that is given: {name!r}")
    if not at and not is_silent:
        raise InvalidRequest.of(option, f"must say when, as in {name}@20m")
    return FleetEvent(float(seconds_of(span, option)) if at else 0.0, name, is_silent)


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
    return " ".join(f"{each.name}={each.replicas}" for each in clusters) or "-"
