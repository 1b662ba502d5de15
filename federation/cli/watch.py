"""``fedctl watch``: a line, or a document, for everything that happens, until it is interrupted.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import click
from google.protobuf.message import Message

from federation.cli.connection import connection
from federation.cli.names import Kinds, list_namespace_options
from federation.cli.queueing import lack_text, state_text
from federation.client import Client, WatchMessage
from federation.codec.written import document_from_message
from federation.model.placement import binding_key
from federation.runtime.terminal import json_text, say
from federation.v1 import clusters_pb2, resource_pb2, scheduling_pb2

E = TypeVar("E", scheduling_pb2.BindingEvent, clusters_pb2.ClusterEvent)


@click.group(cls=Kinds, epilog="Example: fedctl watch bindings -n shop")
def watch() -> None:
    """Print every change of bindings or clusters."""


@watch.command("bindings", epilog="Example: fedctl watch bindings -n shop -o json")
@list_namespace_options
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def watch_bindings(namespace: str, output: str) -> None:
    """Bindings and where they run. With -o json an object a line, with the binding as it is."""

    def opened(api: Client) -> AsyncGenerator[WatchMessage[scheduling_pb2.BindingEvent]]:
        return api.watch_bindings(namespace)

    _follow(opened, _binding_line, as_json=output == "json")


@watch.command("clusters", epilog="Example: fedctl watch clusters")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def watch_clusters(output: str) -> None:
    """Member clusters. With -o json an object a line, with the cluster as it is."""

    def opened(api: Client) -> AsyncGenerator[WatchMessage[clusters_pb2.ClusterEvent]]:
        return api.watch_clusters()

    _follow(opened, _cluster_line, as_json=output == "json")


def _follow(
    opened: Callable[[Client], AsyncGenerator[WatchMessage[E]]],
    line: Callable[[E], str],
    *,
    as_json: bool,
) -> None:
    try:
        for message in connection().iterate(opened):
            if message.relist:
                say("what is there:", err=True)
            for event in message.events:
                if event.type != resource_pb2.EVENT_TYPE_BOOKMARK:
                    say(_json(event) if as_json else line(event))
    except KeyboardInterrupt:
        return


def _json(event: Message) -> str:
    return json_text(document_from_message(event))


def _binding_line(event: scheduling_pb2.BindingEvent) -> str:
    meta, spec = event.binding.metadata, event.binding.spec
    name = binding_key(meta.namespace, meta.name)
    if event.type == resource_pb2.EVENT_TYPE_DELETED:
        return f"DELETED  {name}"
    worth = {each.cluster: f" {each.certificate}" for each in event.promises}
    shares = (f"{at.name}={at.replicas}{worth.get(at.name, '')}" for at in spec.clusters)
    placed = ", ".join(shares) or "-"
    told = f"UPDATED  {name}  replicas {spec.replicas}  clusters {placed}  {event.decision_id}"
    if not event.HasField("wait"):
        return told
    over = "timed out" if event.wait.timed_out else ""
    parts = filter(None, (state_text(event.wait), over, lack_text(event.wait)))
    return f"{told}  waits: {', '.join(parts)}"


def _cluster_line(event: clusters_pb2.ClusterEvent) -> str:
    name, status = event.cluster.metadata.name, event.cluster.status
    if event.type == resource_pb2.EVENT_TYPE_DELETED:
        return f"DELETED  {name}"
    conditions = ", ".join(f"{each.type} {each.status}" for each in status.conditions)
    report = f"report {status.agent.report_epoch}/{status.agent.report_sequence}"
    return f"UPDATED  {name}  {conditions}  {report}"
