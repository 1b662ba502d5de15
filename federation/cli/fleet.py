"""Verbs about member clusters: get, describe, apply; and the lists of everything else.

Must not interpret what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click

from federation.cli import output as show
from federation.cli.audit import GET_AUDIT
from federation.cli.connection import connection
from federation.cli.decisions import placed_share, placed_text, shares_text
from federation.cli.history import GET_DECISIONS
from federation.cli.joining import GET_JOIN_TOKENS, GET_JOINERS
from federation.cli.kinds import GetKind, Request, changes_of, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.login import GET_CONTEXTS
from federation.cli.names import NAMES, Kinds
from federation.cli.output import Output, output_option, present_time
from federation.cli.plans import GET_PLANS
from federation.cli.queueing import GET_GANGS, GET_QUEUE
from federation.cli.quota import GET_QUOTAS
from federation.cli.reservations import GET_RESERVATIONS, describe_all, describe_binding
from federation.cli.token import GET_TOKENS
from federation.client import Client
from federation.codec.condition_types import FAILOVER_FROZEN, LOST, OVER_COMMITTED
from federation.codec.timestamps import seconds_from_timestamp
from federation.model.placement import binding_key
from federation.model.readable import plural
from federation.model.resources import amount_of
from federation.runtime.terminal import say
from federation.v1 import resource_pb2

TOLERATED_CLOCK_SECONDS = 5.0
RESTORED = "restored"


@click.group(cls=Kinds, epilog="Example: fedctl get clusters -o wide")
def get() -> None:
    """List objects of a kind: clusters, bindings, queue, plans."""


def _nodes_text(nodes: resource_pb2.NodeSummary) -> str:
    return f"{nodes.graded_num}/{nodes.total_num}"


def _free(resource: str) -> Callable[[resource_pb2.Cluster], int | None]:
    """How much of a resource pods on nodes and promises leave, in base units."""

    def order(cluster: resource_pb2.Cluster) -> int | None:
        has_any = resource in cluster.status.resource_summary.allocatable
        return _free_amount(cluster.status, resource) if has_any else None

    return order


def _free_column(resource: str) -> ListColumn[resource_pb2.Cluster]:
    return ListColumn(
        f"{resource.upper()} FREE",
        lambda each, _: free_amounts(each.status).get(resource, "-"),
        order=_free(resource),
    )


CLUSTERS: Final[ListedKind[resource_pb2.Cluster]] = ListedKind(
    word="cluster",
    named=lambda each: each.metadata.name,
    labels=lambda each: each.metadata.labels,
    columns=(
        ListColumn("NAME", lambda each, _: each.metadata.name),
        ListColumn("READY", lambda each, _: _readiness(each)),
        ListColumn("AGENT", lambda each, _: "connected" if each.status.agent.connected else "away"),
        ListColumn("REGION", lambda each, _: each.spec.region or "-"),
        ListColumn(
            "NODES",
            lambda each, _: _nodes_text(each.status.node_summary),
            order=lambda each: each.status.node_summary.total_num,
        ),
        *map(_free_column, ("cpu", "memory", "pods")),
        ListColumn(
            "REPORT AGE",
            lambda each, now: _report_age(each.status.agent, now),
            order=lambda each: _report_order(each.status.agent),
        ),
        ListColumn("UID", lambda each, _: each.metadata.uid, wide=True),
        ListColumn("AGENT VERSION", lambda each, _: each.status.agent.version, wide=True),
        ListColumn("KUBERNETES", lambda each, _: each.status.kubernetes_version, wide=True),
        ListColumn("SEQUENCE", lambda each, _: each.status.agent.report_sequence, wide=True),
    ),
    least=(
        *("SEQUENCE", "AGENT VERSION", "UID", "KUBERNETES", "PODS FREE", "REGION", "NODES"),
        *("MEMORY FREE", "CPU FREE", "REPORT AGE", "AGENT"),
    ),
    empty="No clusters. Let one join: fedctl join-token create --cluster NAME",
)
BINDINGS: Final[ListedKind[resource_pb2.ResourceBinding]] = ListedKind(
    word="binding",
    named=lambda each: binding_key(each.metadata.namespace, each.metadata.name),
    labels=lambda each: each.metadata.labels,
    columns=(
        ListColumn("NAMESPACE", lambda each, _: each.metadata.namespace),
        ListColumn("NAME", lambda each, _: each.metadata.name),
        ListColumn(
            "WORKLOAD", lambda each, _: f"{each.spec.resource.kind}/{each.spec.resource.name}"
        ),
        ListColumn("REPLICAS", lambda each, _: each.spec.replicas),
        ListColumn(
            "PLACED",
            lambda each, _: placed_text(each.spec),
            order=lambda each: placed_share(each.spec),
        ),
        ListColumn("CLUSTERS", lambda each, _: shares_text(each.spec.clusters)),
        ListColumn("UID", lambda each, _: each.metadata.uid or "-", wide=True),
        ListColumn("PRIORITY", lambda each, _: each.spec.schedule_priority.priority, wide=True),
    ),
    least=("UID", "PRIORITY", "WORKLOAD", "REPLICAS"),
    prose=("CLUSTERS",),
    empty="No bindings. Schedule a workload: fedctl schedule -f FILE",
)


async def _fetch_clusters(api: Client, request: Request) -> Sequence[resource_pb2.Cluster]:
    if request.options["for_simulate"]:
        return CLUSTERS.only(await api.list_clusters(include_packable=True), request.names)
    if request.names:
        return [await api.get_cluster(name) for name in request.names]
    return await api.list_clusters()


GET_CLUSTERS: Final = GetKind(
    plural="clusters",
    listed=CLUSTERS,
    words="""Member clusters, or those named, with what their agents report.

    FREE is what pods on nodes and promises leave, in all: what fits also depends on how it is
    spread over nodes. Pods that wait for a node count where they are promised; describe cluster
    shows all of them as ALLOCATING.
    REPORT AGE is "restored" until an agent is heard by a control plane that has started anew.
    """,
    fetch=_fetch_clusters,
    fetches_names=True,
    watch=lambda api, _: changes_of(
        api.watch_clusters(), lambda event: event.cluster, CLUSTERS.named
    ),
    options=[
        click.option(
            "--for-simulate",
            is_flag=True,
            help="Write node pools and promises too: simulate and estimate --from then count as "
            "the control plane does.",
        )
    ],
    for_documents="for_simulate",
    examples=[
        "fedctl get clusters -o json",
        "fedctl get clusters -l tier=gold --sort-by -cpu-free",
        "fedctl get clusters --field-selector spec.region=eu-west -o name",
        "fedctl get clusters --watch",
        "fedctl get cluster member1 member2",
        "fedctl get clusters --for-simulate > fleet.yaml",
    ],
)


async def _fetch_bindings(api: Client, request: Request) -> Sequence[resource_pb2.ResourceBinding]:
    if not request.names:
        return await api.list_bindings(request.namespace)
    keys = (name.rpartition("/") for name in request.names)
    return [(await api.get_binding(namespace, name)).binding for namespace, _, name in keys]


GET_BINDINGS: Final = GetKind(
    plural="bindings",
    listed=BINDINGS,
    words="""Bindings, or those named, and where they run.

    PLACED is how many pods have a cluster, of those that the workload asks for in these clusters.
    """,
    fetch=_fetch_bindings,
    fetches_names=True,
    watch=lambda api, request: changes_of(
        api.watch_bindings(request.only_namespace), lambda event: event.binding, BINDINGS.named
    ),
    metavar=NAMES,
    names_bindings=True,
    has_namespaces=True,
    examples=[
        "fedctl get bindings -n shop",
        "fedctl get bindings -o jsonpath='{.items[*].metadata.name}'",
        "fedctl get binding shop/checkout-deployment -o yaml",
        "fedctl get binding/checkout-deployment -n shop",
    ],
)


@click.group(cls=Kinds, epilog="Example: fedctl describe cluster member1")
def describe() -> None:
    """Show one object in full."""


@describe.command("cluster", epilog="Example: fedctl describe cluster member1")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@output_option
def describe_cluster(names: Sequence[str], output: Output) -> None:
    """Member clusters: what people say of each and what its agent reports."""

    async def fetched(api: Client) -> list[resource_pb2.Cluster]:
        return [await api.get_cluster(name) for name in names]

    clusters = connection().call(fetched)
    describe_all(output, clusters, map(CLUSTERS.name, clusters), _print_cluster)


describe.add_command(describe_binding)
TABLE: Final[Sequence[GetKind[Any]]] = (
    *(GET_CLUSTERS, GET_BINDINGS, GET_DECISIONS, GET_QUEUE, GET_GANGS, GET_RESERVATIONS),
    *(GET_PLANS, GET_QUOTAS, GET_JOINERS, GET_JOIN_TOKENS, GET_TOKENS, GET_AUDIT, GET_CONTEXTS),
)
for kind in TABLE:
    get.add_command(kind_command(kind))


@click.command(epilog="Example: fedctl apply -f cluster.yaml")
@click.option("-f", "--filename", "paths", multiple=True, required=True, help="File, or - .")
def apply(paths: Sequence[str]) -> None:
    """Set labels, taints, region and models of clusters."""
    from federation.cli.inputs import clusters_in  # noqa: PLC0415 - only this verb reads files

    clusters = clusters_in(paths)
    for cluster in clusters:
        stored = connection().call(partial(Client.update_cluster, cluster=cluster))
        say(f"cluster/{stored.metadata.name} configured")


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
    _print_summary(status)


def _cordoned(status: resource_pb2.ClusterStatus) -> str:
    by = f"by {status.cordoned_by}" if status.cordoned_by else ""
    return ", ".join(filter(None, (by, status.cordon_reason))) or "yes"


def _kept_back(replicas: int) -> str:
    return f"up to {plural(replicas, 'replica')} of a careful promise"


def _print_summary(status: resource_pb2.ClusterStatus) -> None:
    summary, free = status.resource_summary, free_amounts(status)
    parts = (summary.allocatable, summary.allocated, summary.allocating, status.promised)
    show.print_heading("Resources")
    show.print_table(
        ["RESOURCE", "ALLOCATABLE", "ALLOCATED", "ALLOCATING", "PROMISED", "FREE"],
        [
            (
                name,
                *(show.amount(name, amount_of(name, part.get(name, "0"))) for part in parts),
                free[name],
            )
            for name in sorted(summary.allocatable)
        ],
        least=["ALLOCATING"],
    )
    if summary.allocatable_modelings:
        show.print_heading("Nodes per grade of the resource model")
        show.print_table(
            ["GRADE", "NODES"],
            [(each.grade, each.count) for each in summary.allocatable_modelings],
        )


def free_amounts(status: resource_pb2.ClusterStatus) -> dict[str, str]:
    """What pods on nodes and promises leave of each allocatable resource, never below 0."""
    return {
        name: show.amount(name, _free_amount(status, name))
        for name in status.resource_summary.allocatable
    }


def _free_amount(status: resource_pb2.ClusterStatus, name: str) -> int:
    summary = status.resource_summary
    taken = (part.get(name, "0") for part in (summary.allocated, status.promised))
    return amount_of(name, summary.allocatable[name]) - sum(amount_of(name, each) for each in taken)


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
    words += [
        each for each in (LOST, FAILOVER_FROZEN, OVER_COMMITTED) if conditions.get(each) == "True"
    ]
    return ",".join(filter(None, words))


def _clock(agent: resource_pb2.AgentStatus) -> str:
    ahead = agent.clock_offset_seconds
    if abs(ahead) <= TOLERATED_CLOCK_SECONDS:
        return "right"
    return f"{show.age(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}: check which one is wrong"


def _report(agent: resource_pb2.AgentStatus) -> str:
    if not agent.HasField("last_report_time"):
        return "none yet"
    age = _report_age(agent, present_time())
    if age == RESTORED:
        return f"sequence {agent.report_sequence}, restored: its agent was not heard since"
    return f"sequence {agent.report_sequence}, {age} old"


def _skipped(agent: resource_pb2.AgentStatus) -> str:
    objects = plural(agent.skipped_objects, "object")
    return f"{objects} that cannot be read; the agent's log names them"


def _report_age(agent: resource_pb2.AgentStatus, now: float) -> str:
    received_at = seconds_from_timestamp(agent.last_report_time)
    if received_at is None or not agent.HasField("last_report_time"):
        return "-"
    if not agent.HasField("last_heartbeat_time"):
        # The picture may have been confirmed until the control plane ended: only the agent knows.
        return RESTORED
    return show.age(now - received_at)


def _report_order(agent: resource_pb2.AgentStatus) -> float | None:
    """The oldest report last."""
    received_at = seconds_from_timestamp(agent.last_report_time)
    if received_at is None or not agent.HasField("last_report_time"):
        return None
    return -received_at


def _pairs(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items())) or "-"
