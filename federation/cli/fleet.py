"""Verbs about member clusters: get, describe, apply; and the lists of everything else.

Must not interpret what it shows.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import click

from federation.cli import inputs
from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.history import get_decisions
from federation.cli.joining import get_joiners
from federation.cli.names import Kinds, named_binding
from federation.cli.output import Format, output_option
from federation.cli.queueing import get_queue
from federation.cli.reservations import describe_binding, get_reservations
from federation.client import Client
from federation.codec.clusters import LOST, OVER_COMMITTED, cluster_from_message
from federation.codec.document_files import documents_of
from federation.codec.documents import Document
from federation.codec.strict import message_from_document
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.unread import dropped_from_documents
from federation.codec.written import document_from_message
from federation.model.errors import InvalidRequest, NotFound
from federation.model.placement import SchedulingType
from federation.model.resources import amount_of
from federation.runtime.terminal import say
from federation.v1 import resource_pb2

TOLERATED_CLOCK_SECONDS = 5.0
RESTORED = "restored"
# What a narrow terminal leaves out, the first one first.
LEAST_OF_CLUSTERS = (
    *("SEQUENCE", "AGENT VERSION", "UID", "KUBERNETES", "PODS FREE", "REGION", "NODES"),
    *("MEMORY FREE", "CPU FREE", "REPORT AGE", "AGENT"),
)


@click.group(cls=Kinds, epilog="Example: fedctl get clusters -o wide")
def get() -> None:
    """List what the control plane knows."""


GET_CLUSTERS_EPILOG = """Examples:

\b
fedctl get clusters -o json
fedctl get cluster member1
fedctl get clusters --for-simulate > fleet.yaml
"""
GET_BINDINGS_EPILOG = """Examples:

\b
fedctl get bindings -n shop
fedctl get binding shop/checkout-deployment -o yaml
"""


@get.command("clusters", epilog=GET_CLUSTERS_EPILOG)
@click.argument("name", required=False)
@click.option(
    "--for-simulate",
    is_flag=True,
    help="Write node pools and promises too: simulate and estimate --from then count as here.",
)
@output_option
def get_clusters(name: str | None, output: Format, *, for_simulate: bool) -> None:
    """Member clusters, or the one named, with what their agents report.

    FREE is what the pods on nodes leave, in all: what fits also depends on how it is spread over
    nodes. Pods that wait for a node are not in it; describe cluster shows them as ALLOCATING.
    REPORT AGE is "restored" until an agent is heard by a control plane that has started anew.
    """
    if for_simulate:
        every = connection().call(lambda api: api.list_clusters(include_packable=True))
        clusters = [each for each in every if name in (None, each.metadata.name)]
        if not clusters:
            raise NotFound(f"There is no cluster {name!r}.")
        output = output if output.is_document else Format.YAML
    elif name is None:
        clusters = connection().call(lambda api: api.list_clusters())
    else:
        clusters = [connection().call(lambda api: api.get_cluster(name))]
    if output.is_document:
        documents = [document_from_message(each) for each in clusters]
        show.print_document(documents if name is None else documents[0], output)
        return
    wide = output is Format.WIDE
    columns = ["NAME", "READY", "AGENT", "REGION", "NODES", "CPU FREE", "MEMORY FREE", "PODS FREE"]
    columns += ["REPORT AGE", *(["UID", "AGENT VERSION", "KUBERNETES", "SEQUENCE"] if wide else [])]
    now = time.time()
    show.print_table(
        columns,
        [_cluster_row(each, now, wide=wide) for each in clusters],
        least=LEAST_OF_CLUSTERS,
        empty="No clusters. Let one join: fedctl join-token create --cluster NAME",
    )


@get.command("bindings", epilog=GET_BINDINGS_EPILOG)
@click.argument("name", metavar="[NAMESPACE/BINDING]", required=False)
@click.option("-n", "--namespace", default="", help="Only this namespace.")
@output_option
def get_bindings(name: str | None, namespace: str, output: Format) -> None:
    """Bindings, or the one named, and where they run.

    PLACED is how many pods have a cluster, of those that the workload asks for in these clusters.
    """
    if name is None:
        bindings = connection().call(lambda api: api.list_bindings(namespace))
    else:
        key = named_binding(name if "/" in name or not namespace else f"{namespace}/{name}")
        bindings = [connection().call(lambda api: api.get_binding(*key)).binding]
    if output.is_document:
        documents = [document_from_message(each) for each in bindings]
        show.print_document(documents if name is None else documents[0], output)
        return
    show.print_table(
        ["NAMESPACE", "NAME", "WORKLOAD", "REPLICAS", "PLACED", "CLUSTERS"],
        [
            (
                each.metadata.namespace,
                each.metadata.name,
                f"{each.spec.resource.kind}/{each.spec.resource.name}",
                each.spec.replicas,
                placed_text(each.spec),
                ", ".join(f"{at.name}={at.replicas}" for at in each.spec.clusters) or "-",
            )
            for each in bindings
        ],
        least=["WORKLOAD", "REPLICAS"],
        prose=["CLUSTERS"],
        empty="No bindings. Schedule a workload: fedctl schedule -f FILE",
    )


def placed_text(spec: resource_pb2.ResourceBindingSpec) -> str:
    """Pods with a cluster of those asked for, ``3/5``; yes or no for what has no pods."""
    asked = sum(each.replicas for each in spec.components) if spec.components else spec.replicas
    if not asked:
        return "yes" if spec.clusters else "no"
    scheduling = spec.placement.replica_scheduling
    is_divided = (
        spec.placement.HasField("replica_scheduling")
        and scheduling.replica_scheduling_type != SchedulingType.DUPLICATED
    )
    if spec.components or not is_divided:
        # Each of the clusters gets all of it.
        asked *= max(1, len(spec.clusters))
    return f"{sum(each.replicas for each in spec.clusters)}/{asked}"


@click.group(cls=Kinds, epilog="Example: fedctl describe cluster member1")
def describe() -> None:
    """Show one object in full."""


@describe.command("cluster", epilog="Example: fedctl describe cluster member1")
@click.argument("name")
@output_option
def describe_cluster(name: str, output: Format) -> None:
    """One member cluster: what people say of it and what its agent reports."""
    cluster = connection().call(lambda api: api.get_cluster(name))
    if output.is_document:
        show.print_document(document_from_message(cluster), output)
        return
    _print_cluster(cluster)


describe.add_command(describe_binding)
get.add_command(get_reservations)
get.add_command(get_queue)
get.add_command(get_decisions)
get.add_command(get_joiners)


@click.command(epilog="Example: fedctl apply -f cluster.yaml")
@click.option("-f", "--filename", "paths", multiple=True, required=True, help="File, or - .")
def apply(paths: Sequence[str]) -> None:
    """Change what is said about member clusters: labels, taints, region, resource models."""
    clusters = _clusters(documents_of(paths))
    for cluster in clusters:
        stored = connection().call(partial(Client.update_cluster, cluster=cluster))
        say(f"cluster/{stored.metadata.name} configured")


def _clusters(documents: Sequence[Document]) -> list[resource_pb2.Cluster]:
    """The clusters in files, all of them checked: nothing is changed when one is wrong."""
    if not documents:
        raise InvalidRequest.of("files", "hold no Cluster")
    messages = []
    for (path, _), document in zip(inputs.by_name(documents), documents, strict=True):
        if document.get("kind") != "Cluster":
            raise InvalidRequest.of(
                f"{path}.kind", f"must be Cluster, not {document.get('kind')!r}"
            )
        message = message_from_document(document, resource_pb2.Cluster, path)
        cluster_from_message(message, path)
        messages.append(message)
    inputs.warn_of_unread(dropped_from_documents(documents))
    return messages


def _cluster_row(cluster: resource_pb2.Cluster, now: float, *, wide: bool) -> list[object]:
    status, agent = cluster.status, cluster.status.agent
    free = free_amounts(status.resource_summary)
    row: list[object] = [
        cluster.metadata.name,
        _readiness(cluster),
        "connected" if agent.connected else "away",
        cluster.spec.region or "-",
        f"{status.node_summary.graded_num}/{status.node_summary.total_num}",
        *(free.get(name, "-") for name in ("cpu", "memory", "pods")),
        _report_age(agent, now),
    ]
    if wide:
        row += [cluster.metadata.uid, agent.version, status.kubernetes_version]
        row.append(agent.report_sequence)
    return row


def _print_cluster(cluster: resource_pb2.Cluster) -> None:
    spec, status, agent = cluster.spec, cluster.status, cluster.status.agent
    nodes = status.node_summary
    show.print_facts(
        [
            ("Name", cluster.metadata.name),
            ("UID", cluster.metadata.uid),
            ("Labels", _pairs(cluster.metadata.labels)),
            ("Provider", spec.provider or "-"),
            ("Region", spec.region or "-"),
            ("Zones", ", ".join(spec.zones) or "-"),
            ("Taints", ", ".join(map(taint_text, spec.taints)) or "-"),
            ("Ready", _readiness(cluster)),
            *([("Cordoned", _cordoned(status))] if status.cordoned else []),
            *(("Note", each.message) for each in status.conditions if each.message),
            ("Kubernetes", status.kubernetes_version or "-"),
            ("Agent", f"{'connected' if agent.connected else 'away'}, version {agent.version}"),
            ("Agent's clock", _clock(agent)),
            ("Report", _report(agent)),
            (
                "Nodes",
                f"{nodes.total_num}, {nodes.ready_num} ready, {nodes.graded_num} capacity",
            ),
            *(
                [("Kept back", _kept_back(status.careful_reserve))]
                if status.careful_reserve
                else []
            ),
            *([("Skipped", _skipped(agent))] if agent.skipped_objects else []),
        ]
    )
    _print_summary(status.resource_summary)


def _cordoned(status: resource_pb2.ClusterStatus) -> str:
    by = f"by {status.cordoned_by}" if status.cordoned_by else ""
    return ", ".join(filter(None, (by, status.cordon_reason))) or "yes"


def _kept_back(replicas: int) -> str:
    return f"up to {replicas} replicas of a careful promise"


def _print_summary(summary: resource_pb2.ResourceSummary) -> None:
    free = free_amounts(summary)
    parts = (summary.allocatable, summary.allocated, summary.allocating)
    show.print_heading("Resources")
    show.print_table(
        ["RESOURCE", "ALLOCATABLE", "ALLOCATED", "ALLOCATING", "FREE"],
        [
            (
                name,
                *(show.amount(name, amount_of(name, part.get(name, "0"))) for part in parts),
                free[name],
            )
            for name in sorted(summary.allocatable)
        ],
    )
    if summary.allocatable_modelings:
        show.print_heading("Nodes per grade of the resource model")
        show.print_table(
            ["GRADE", "NODES"],
            [(each.grade, each.count) for each in summary.allocatable_modelings],
        )


def free_amounts(summary: resource_pb2.ResourceSummary) -> dict[str, str]:
    """What the pods on nodes leave of each allocatable resource, never below 0."""
    return {
        name: show.amount(
            name, amount_of(name, total) - amount_of(name, summary.allocated.get(name, "0"))
        )
        for name, total in summary.allocatable.items()
    }


def taint_text(taint: resource_pb2.Taint) -> str:
    """As kubectl writes it."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _readiness(cluster: resource_pb2.Cluster) -> str:
    """As kubectl says it of nodes, with the reason where there is one."""
    ready = next((each for each in cluster.status.conditions if each.type == "Ready"), None)
    words = [ready.status if ready else "Unknown", ready.reason if ready else ""]
    words.append("Held" if cluster.status.held else "")
    words.append("Cordoned" if cluster.status.cordoned else "")
    conditions = {each.type: each.status for each in cluster.status.conditions}
    words += [each for each in (LOST, OVER_COMMITTED) if conditions.get(each) == "True"]
    return ",".join(filter(None, words))


def _clock(agent: resource_pb2.AgentStatus) -> str:
    ahead = agent.clock_offset_seconds
    if abs(ahead) <= TOLERATED_CLOCK_SECONDS:
        return "right"
    return f"{show.age(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}: check which one is wrong"


def _report(agent: resource_pb2.AgentStatus) -> str:
    if not agent.HasField("last_report_time"):
        return "none yet"
    age = _report_age(agent, time.time())
    if age == RESTORED:
        return f"sequence {agent.report_sequence}, restored: its agent was not heard since"
    return f"sequence {agent.report_sequence}, {age} old"


def _skipped(agent: resource_pb2.AgentStatus) -> str:
    return f"{agent.skipped_objects} objects that cannot be read; the agent's log names them"


def _report_age(agent: resource_pb2.AgentStatus, now: float) -> str:
    received_at = seconds_from_timestamp(agent.last_report_time)
    if received_at is None or not agent.HasField("last_report_time"):
        return "-"
    if not agent.HasField("last_heartbeat_time"):
        # The picture may have been confirmed until the control plane ended: only the agent knows.
        return RESTORED
    return show.age(now - received_at)


def _pairs(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "-"
