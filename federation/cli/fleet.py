"""Verbs about the whole fleet: top, how full it is, and failover, whether anything moves.

Must not add up what the control plane does not say: running and promised are its own numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.arguments import Kinds
from federation.cli.clusters import taint_text
from federation.cli.connection import connection
from federation.cli.decisions import requested_pods
from federation.cli.kinds import show_list
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options
from federation.cli.output import Output, unnamed_output_option
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.model.resources import CPU, MEMORY, PODS, amount_of
from federation.runtime.terminal import say
from federation.v1 import failover_pb2, resource_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from federation.client import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Fullness:
    """A cluster, and by resource what its pods have and what is promised beside them, in base
    units.
    """

    cluster: resource_pb2.Cluster
    promised: Mapping[str, int]

    def allocatable(self, resource: str) -> int | None:
        """The allocatable amount; None where the agent does not report the resource."""
        text = self.cluster.status.resource_summary.allocatable.get(resource)
        return None if text is None else amount_of(resource, text)

    def running(self, resource: str) -> int:
        return amount_of(
            resource, self.cluster.status.resource_summary.allocated.get(resource, "0")
        )

    def percent(self, resource: str) -> float | None:
        """How much of it pods and promises take."""
        allocatable = self.allocatable(resource)
        if not allocatable:
            return None
        taken = self.running(resource) + self.promised.get(resource, 0)
        return round(100 * taken / allocatable, 1)

    def document(self) -> dict[str, Any]:
        resources = {
            resource: {
                "allocatable": show.amount(resource, allocatable),
                "running": show.amount(resource, self.running(resource)),
                "promised": show.amount(resource, self.promised.get(resource, 0)),
                "fullPercent": self.percent(resource),
            }
            for resource in sorted(self.cluster.status.resource_summary.allocatable)
            if (allocatable := self.allocatable(resource)) is not None
        }
        return {"cluster": self.cluster.metadata.name, "resources": resources}


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUse:
    """Replicas and amounts, in base units, that bindings of a namespace ask for and have."""

    namespace: str
    bindings: int = 0
    asked: int = 0
    placed: int = 0
    amounts: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        placed = {name: show.amount(name, self.amounts[name]) for name in sorted(self.amounts)}
        return {
            "namespace": self.namespace,
            "bindings": self.bindings,
            "replicas": self.asked,
            "placed": self.placed,
            "resources": placed,
        }


def _percent_text(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.0f}%"


def _columns_of(resource: str) -> Iterable[ListColumn[Fullness]]:
    word, is_wide = resource.upper(), resource == PODS

    def of(row: Fullness, base_units: int | None) -> str:
        has_none = base_units is None or row.allocatable(resource) is None
        return "-" if has_none else show.amount(resource, base_units or 0)

    yield ListColumn(
        word,
        lambda row, _: of(row, row.allocatable(resource)),
        order=lambda row: row.allocatable(resource),
        wide=True,
    )
    yield ListColumn(
        f"{word} RUNNING",
        lambda row, _: of(row, row.running(resource)),
        order=lambda row: row.running(resource),
        wide=is_wide,
    )
    yield ListColumn(
        f"{word} PROMISED",
        lambda row, _: of(row, row.promised.get(resource, 0)),
        order=lambda row: row.promised.get(resource, 0),
        wide=is_wide,
    )
    yield ListColumn(
        f"{word} FULL",
        lambda row, _: _percent_text(row.percent(resource)),
        order=lambda row: row.percent(resource),
    )


TOP_CLUSTERS: Final[ListedKind[Fullness]] = ListedKind(
    word="cluster",
    named=lambda row: row.cluster.metadata.name,
    labels=lambda row: row.cluster.metadata.labels,
    document=Fullness.document,
    columns=(
        ListColumn("NAME", lambda row, _: row.cluster.metadata.name),
        *_columns_of(CPU),
        *_columns_of(MEMORY),
        *_columns_of(PODS),
    ),
    least=("MEMORY RUNNING", "CPU RUNNING", "MEMORY PROMISED", "CPU PROMISED", "PODS FULL"),
    empty="No clusters. Let one join: fedctl join-token create --cluster NAME",
)
TOP_NAMESPACES: Final[ListedKind[NamespaceUse]] = ListedKind(
    word="namespace",
    named=lambda row: row.namespace,
    document=NamespaceUse.document,
    columns=(
        ListColumn("NAMESPACE", lambda row, _: row.namespace or "-"),
        ListColumn("BINDINGS", lambda row, _: row.bindings),
        ListColumn("REPLICAS", lambda row, _: row.asked),
        ListColumn("PLACED", lambda row, _: row.placed),
        ListColumn(
            "CPU PLACED",
            lambda row, _: show.amount(CPU, row.amounts.get(CPU, 0)),
            order=lambda row: row.amounts.get(CPU, 0),
        ),
        ListColumn(
            "MEMORY PLACED",
            lambda row, _: show.amount(MEMORY, row.amounts.get(MEMORY, 0)),
            order=lambda row: row.amounts.get(MEMORY, 0),
        ),
    ),
    least=("BINDINGS", "REPLICAS"),
    empty="No bindings. Schedule a workload: fedctl schedule -f FILE",
)


@click.group(cls=Kinds, epilog="Example: fedctl top clusters")
def top() -> None:
    """Show how full clusters are, and what namespaces hold."""


@top.command("clusters", epilog="Example: fedctl top clusters --sort-by -cpu-full")
@listing_options(TOP_CLUSTERS)
def top_clusters(listing: Listing) -> None:
    """Show what pods on nodes have, what is promised beside them, and how full clusters are."""
    show_list(TOP_CLUSTERS, listing, _fullness)


@top.command("namespaces", epilog="Example: fedctl top namespaces --sort-by -cpu-placed")
@listing_options(TOP_NAMESPACES)
def top_namespaces(listing: Listing) -> None:
    """How many replicas the bindings of each namespace ask for, and what has a cluster of it.

    What a binding holds is what each of its replicas asks for, times those that have a cluster.
    """
    show_list(TOP_NAMESPACES, listing, _holdings)


async def _fullness(api: Client) -> Sequence[Fullness]:
    clusters = await api.list_clusters(include_packable=True)
    return [Fullness(cluster=cluster, promised=_promised(cluster)) for cluster in clusters]


def _promised(cluster: resource_pb2.Cluster) -> Counter[str]:
    """Amounts of promises that have no pod in the newest report yet."""
    amounts: Counter[str] = Counter()
    for promise in cluster.status.packable.promises:
        # What is credited takes the place of pods that are there.
        _add(amounts, promise.requirements, max(0, promise.replicas - promise.credited))
    return amounts


async def _holdings(api: Client) -> Sequence[NamespaceUse]:
    by_namespace: dict[str, list[resource_pb2.ResourceBindingSpec]] = {}
    for binding in await api.list_bindings():
        by_namespace.setdefault(binding.metadata.namespace, []).append(binding.spec)
    return [holding_of(namespace, specs) for namespace, specs in sorted(by_namespace.items())]


def holding_of(namespace: str, specs: Sequence[resource_pb2.ResourceBindingSpec]) -> NamespaceUse:
    """Sums of what these bindings, all of one namespace, hold."""
    amounts: Counter[str] = Counter()
    placed = 0
    for spec in specs:
        shapes = {component.name: component.replica_requirements for component in spec.components}
        for target in spec.clusters:
            placed += target.replicas
            for part in target.components:
                shape = shapes.get(part.name, resource_pb2.ReplicaRequirements())
                _add(amounts, shape, part.replicas)
            if not target.components:
                _add(amounts, spec.replica_requirements, target.replicas)
    return NamespaceUse(
        namespace=namespace,
        bindings=len(specs),
        asked=sum(map(requested_pods, specs)),
        placed=placed,
        amounts=amounts,
    )


def _add(
    amounts: Counter[str], requirements: resource_pb2.ReplicaRequirements, replicas: int
) -> None:
    """Each of so many replicas is a pod, too."""
    amounts[PODS] += replicas
    for name, text in requirements.resource_request.items():
        amounts[name] += replicas * amount_of(name, text)


@click.group(epilog="Example: fedctl failover status")
def failover() -> None:
    """Show failover, freeze it, or let it go on."""


@failover.command(epilog="Example: fedctl failover status")
@unnamed_output_option
def status(output: Output) -> None:
    """Which clusters are silent or lost, what still leaves them, and whether anything moves."""
    _show(connection().call(lambda api: api.get_failover()), output)


def _place_options(command: Any) -> Any:
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
