"""Verbs about failover: status, freeze, resume.

Must not interpret what it shows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.fleet import taint_text
from federation.cli.output import Output, unnamed_output_option
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.runtime.terminal import say
from federation.v1 import failover_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp


_F = TypeVar("_F", bound=Callable[..., Any])


@click.group(epilog="Example: fedctl failover status")
def failover() -> None:
    """See how workloads are moved off lost clusters, and stop it or let it go on."""


@failover.command(epilog="Example: fedctl failover status")
@unnamed_output_option
def status(output: Output) -> None:
    """Which clusters are silent or lost, what still leaves them, and whether anything moves."""
    _show(connection().call(lambda api: api.get_failover()), output)


def _place_options(command: _F) -> _F:
    """``--region`` and ``--provider``."""
    for name in ("provider", "region"):
        command = click.option(f"--{name}", default="", help=f"Only the clusters of one {name}.")(
            command
        )
    return command


@failover.command(epilog='Example: fedctl failover freeze --reason "network change, until 14:00"')
@click.option("--reason", required=True, help="Why; everybody who asks is shown it.")
@_place_options
@unnamed_output_option
def freeze(reason: str, region: str, provider: str, output: Output) -> None:
    """Move nothing any more, until somebody resumes it; or nothing off the clusters of a place."""
    _show(
        connection().call(
            lambda api: api.freeze_failover(reason, region=region, provider=provider)
        ),
        output,
    )


@failover.command(epilog="Example: fedctl failover resume")
@_place_options
@click.option("--control-plane", default="", help="Only the clusters that this one heard last.")
@unnamed_output_option
def resume(region: str, provider: str, control_plane: str, output: Output) -> None:
    """Let it go on: clusters that are silent now are lost when their time is over."""
    _show(
        connection().call(
            lambda api: api.resume_failover(
                region=region, provider=provider, control_plane=control_plane
            )
        ),
        output,
    )


def _show(status: failover_pb2.FailoverStatus, output: Output) -> None:
    if output.is_document:
        show.print_document(document_from_message(status), output)
        return
    now = time.time()
    facts = [
        ("Failover", _state(status)),
        *_freeze(status, now),
        ("Rate", f"{status.replicas_per_minute:g} replicas a minute, or 60 bindings"),
    ]
    show.print_facts(facts)
    _print_silent(status, now)
    _print_evacuated(status)
    _print_evictions(status, now)


def _state(status: failover_pb2.FailoverStatus) -> str:
    if not status.enabled:
        return "off (--no-failover)"
    return "frozen: nothing moves" if status.HasField("freeze") else "on"


def _freeze(status: failover_pb2.FailoverStatus, now: float) -> list[tuple[str, str]]:
    places = [_frozen_place(each, now) for each in status.places]
    if not status.HasField("freeze"):
        return places
    freeze = status.freeze
    by = f"{freeze.by}, {_ago(freeze.since, now)} ago"
    return [("Frozen by", by), ("Why", freeze.reason), *places]


def _frozen_place(frozen: failover_pb2.FrozenPlace, now: float) -> tuple[str, str]:
    freeze = frozen.freeze
    if frozen.control_plane:
        place = f"control plane {frozen.control_plane}"
    else:
        place = f"region {frozen.region}" if frozen.region else f"provider {frozen.provider}"
    told = f"by {freeze.by}, {_ago(freeze.since, now)} ago: {freeze.reason}"
    return f"Frozen in {place}", told


def _print_silent(status: failover_pb2.FailoverStatus, now: float) -> None:
    if not status.silent:
        return
    show.print_heading("Silent clusters")
    show.print_table(
        ["CLUSTER", "SILENT FOR", "STATE"],
        [(each.name, _ago(each.since, now), _loss(each, now)) for each in status.silent],
    )


def _loss(silent: failover_pb2.SilentCluster, now: float) -> str:
    if silent.HasField("lost_since"):
        return f"lost for {_ago(silent.lost_since, now)}"
    left = (seconds_from_timestamp(silent.lost_at) or now) - now
    return f"stale, lost in {show.age(left)}" if left > 0 else "stale, lost unless frozen"


def _print_evacuated(status: failover_pb2.FailoverStatus) -> None:
    if not status.evacuated:
        return
    show.print_heading("Clusters that bindings leave")
    show.print_table(
        ["CLUSTER", "BINDINGS LEFT", "REPLICAS LEFT", "TAINTS"],
        [
            (
                each.name,
                each.bindings,
                each.replicas,
                ", ".join(map(taint_text, each.taints)),
            )
            for each in status.evacuated
        ],
        prose=["TAINTS"],
    )


def _print_evictions(status: failover_pb2.FailoverStatus, now: float) -> None:
    if not status.evictions:
        return
    show.print_heading("Evictions that go on")
    show.print_table(
        ["NAMESPACE", "BINDING", "FROM", "REPLICAS", "SINCE", "AT MOST", "WHY"],
        [
            (
                each.namespace,
                each.name,
                each.task.from_cluster,
                each.task.replicas,
                f"{_ago(each.task.creation_timestamp, now)} ago",
                _left(each, now),
                each.task.message,
            )
            for each in status.evictions
        ],
        least=["REPLICAS", "SINCE"],
        prose=["WHY"],
    )
    if status.eviction_count > len(status.evictions):
        say(f"{status.eviction_count} evictions in all", err=True)


def _left(eviction: failover_pb2.Eviction, now: float) -> str:
    if not eviction.HasField("deadline"):
        return "-"
    return show.age(max(0.0, (seconds_from_timestamp(eviction.deadline) or now) - now))


def _ago(moment: Timestamp, now: float) -> str:
    return show.age(max(0.0, now - (seconds_from_timestamp(moment) or now)))
