"""Verbs about failover: status, freeze, resume.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from federation.cli import output as show
from federation.cli.clusters import taint_text
from federation.cli.connection import connection
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
    """Show failover, freeze it, or let it go on."""


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
    now = seconds_from_timestamp(status.time) if status.HasField("time") else None
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


def _freeze(status: failover_pb2.FailoverStatus, now: float | None) -> list[tuple[str, str]]:
    places = [_frozen_place(frozen, now) for frozen in status.places]
    if not status.HasField("freeze"):
        return places
    freeze = status.freeze
    by = f"{freeze.by}, {_ago(freeze.since, now)}"
    return [("Frozen by", by), ("Why", freeze.reason), *places]


def _frozen_place(frozen: failover_pb2.FrozenPlace, now: float | None) -> tuple[str, str]:
    freeze = frozen.freeze
    if frozen.control_plane:
        place = f"control plane {frozen.control_plane}"
    else:
        place = f"region {frozen.region}" if frozen.region else f"provider {frozen.provider}"
    words = f"by {freeze.by}, {_ago(freeze.since, now)}: {freeze.reason}"
    return f"Frozen in {place}", words


def _print_silent(status: failover_pb2.FailoverStatus, now: float | None) -> None:
    if not status.silent:
        return
    show.print_heading("Silent clusters")
    show.print_table(
        ["CLUSTER", "SILENT FOR", "STATE"],
        [
            (silent.name, _lasting(silent.since, now), _loss(silent, now))
            for silent in status.silent
        ],
    )


def _loss(silent: failover_pb2.SilentCluster, now: float | None) -> str:
    if silent.HasField("lost_since"):
        for_or_since = "since" if now is None else "for"
        return f"lost {for_or_since} {_lasting(silent.lost_since, now)}"
    if now is None:
        return f"stale, lost at {silent.lost_at.ToJsonString()} unless frozen"
    seconds_left = (seconds_from_timestamp(silent.lost_at) or now) - now
    return (
        f"stale, lost in {show.age(seconds_left)}"
        if seconds_left > 0
        else "stale, lost unless frozen"
    )


def _print_evacuated(status: failover_pb2.FailoverStatus) -> None:
    if not status.evacuated:
        return
    show.print_heading("Clusters that bindings leave")
    show.print_table(
        ["CLUSTER", "BINDINGS LEFT", "REPLICAS LEFT", "TAINTS"],
        [
            (
                cluster.name,
                cluster.bindings,
                cluster.replicas,
                ", ".join(map(taint_text, cluster.taints)),
            )
            for cluster in status.evacuated
        ],
        prose=["TAINTS"],
    )


def _print_evictions(status: failover_pb2.FailoverStatus, now: float | None) -> None:
    if not status.evictions:
        return
    show.print_heading("Evictions that go on")
    show.print_table(
        ["NAMESPACE", "BINDING", "FROM", "REPLICAS", "SINCE", "AT MOST", "WHY"],
        [
            (
                eviction.namespace,
                eviction.name,
                eviction.task.from_cluster,
                eviction.task.replicas,
                _ago(eviction.task.creation_timestamp, now),
                _left(eviction, now),
                eviction.task.message,
            )
            for eviction in status.evictions
        ],
        least=["REPLICAS", "SINCE"],
        prose=["WHY"],
    )
    if status.eviction_count > len(status.evictions):
        say(f"{status.eviction_count} evictions in all", err=True)


def _left(eviction: failover_pb2.Eviction, now: float | None) -> str:
    if not eviction.HasField("deadline"):
        return "-"
    if now is None:
        return eviction.deadline.ToJsonString()
    return show.age(max(0.0, (seconds_from_timestamp(eviction.deadline) or now) - now))


def _ago(moment: Timestamp, now: float | None) -> str:
    return _lasting(moment, now) if now is None else f"{_lasting(moment, now)} ago"


def _lasting(moment: Timestamp, now: float | None) -> str:
    """The age by the control plane's clock; the moment itself where that clock is not known.

    An older control plane does not say its time, and the clock here may differ from its clock.
    """
    if now is None:
        return moment.ToJsonString()
    return show.age(max(0.0, now - (seconds_from_timestamp(moment) or now)))
