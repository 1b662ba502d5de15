"""Member clusters and those that join: get clusters, describe, join-token, accept, reject.

Must not interpret what it shows. A secret is printed once, to standard output, and not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from federation.cli import output as show
from federation.cli.arguments import (
    ask_on_terminal,
    whole_seconds_of,
    yes_option,
)
from federation.cli.connection import connection
from federation.cli.kinds import GetKind, Request, changes_of, describe_all, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, output_option, present_time, unnamed_output_option
from federation.codec.condition_types import FAILOVER_FROZEN, LOST, OVER_COMMITTED
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.model.readable import plural
from federation.model.resources import amount_of
from federation.runtime.terminal import say
from federation.v1 import clusters_pb2, resource_pb2

if TYPE_CHECKING:
    from federation.client import Client

TOLERATED_CLOCK_SECONDS = 5.0
RESTORED = "restored"


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
        lambda cluster, _: free_amounts(cluster.status).get(resource, "-"),
        order=_free(resource),
    )


CLUSTERS: Final[ListedKind[resource_pb2.Cluster]] = ListedKind(
    word="cluster",
    named=lambda cluster: cluster.metadata.name,
    labels=lambda cluster: cluster.metadata.labels,
    columns=(
        ListColumn("NAME", lambda cluster, _: cluster.metadata.name),
        ListColumn("READY", lambda cluster, _: _readiness(cluster)),
        ListColumn(
            "AGENT", lambda cluster, _: "connected" if cluster.status.agent.connected else "away"
        ),
        ListColumn("REGION", lambda cluster, _: cluster.spec.region or "-"),
        ListColumn(
            "NODES",
            lambda cluster, _: _nodes_text(cluster.status.node_summary),
            order=lambda cluster: cluster.status.node_summary.total_num,
        ),
        *map(_free_column, ("cpu", "memory", "pods")),
        ListColumn(
            "REPORT AGE",
            lambda cluster, now: _report_age(cluster.status.agent, now),
            order=lambda cluster: _report_order(cluster.status.agent),
        ),
        ListColumn("UID", lambda cluster, _: cluster.metadata.uid, wide=True),
        ListColumn("AGENT VERSION", lambda cluster, _: cluster.status.agent.version, wide=True),
        ListColumn("KUBERNETES", lambda cluster, _: cluster.status.kubernetes_version, wide=True),
        ListColumn("SEQUENCE", lambda cluster, _: cluster.status.agent.report_sequence, wide=True),
    ),
    least=(
        *("SEQUENCE", "AGENT VERSION", "UID", "KUBERNETES", "PODS FREE", "REGION", "NODES"),
        *("MEMORY FREE", "CPU FREE", "REPORT AGE", "AGENT"),
    ),
    empty="No clusters. Let one join: fedctl join-token create --cluster NAME",
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
            help="Write node pools and promises too: simulate and estimate --from-file then count "
            "as the control plane does.",
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


@click.command("cluster", epilog="Example: fedctl describe cluster member1")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@output_option
def describe_cluster(names: Sequence[str], output: Output) -> None:
    """Member clusters: what people say of each and what its agent reports."""

    async def fetched(api: Client) -> list[resource_pb2.Cluster]:
        return [await api.get_cluster(name) for name in names]

    clusters = connection().call(fetched)
    describe_all(output, clusters, map(CLUSTERS.name, clusters), _print_cluster)


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
            *(("Note", condition.message) for condition in status.conditions if condition.message),
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
            [(graded.grade, graded.count) for graded in summary.allocatable_modelings],
        )


def free_amounts(status: resource_pb2.ClusterStatus) -> dict[str, str]:
    """Amounts of allocatable resources that pods on nodes and promises leave, never below 0."""
    return {
        name: show.amount(name, _free_amount(status, name))
        for name in status.resource_summary.allocatable
    }


def _free_amount(status: resource_pb2.ClusterStatus, name: str) -> int:
    summary = status.resource_summary
    taken = (part.get(name, "0") for part in (summary.allocated, status.promised))
    return amount_of(name, summary.allocatable[name]) - sum(
        amount_of(name, amount) for amount in taken
    )


def taint_text(taint: resource_pb2.Taint) -> str:
    """``key=value:effect``, which kubectl writes too."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _readiness(cluster: resource_pb2.Cluster) -> str:
    """The Ready status, as kubectl shows it of nodes, with its reason and further states."""
    ready = next(
        (condition for condition in cluster.status.conditions if condition.type == "Ready"), None
    )
    words = [ready.status if ready else "Unknown", ready.reason if ready else ""]
    words.append("Held" if cluster.status.held else "")
    words.append("Cordoned" if cluster.status.cordoned else "")
    conditions = {condition.type: condition.status for condition in cluster.status.conditions}
    words += [
        condition
        for condition in (LOST, FAILOVER_FROZEN, OVER_COMMITTED)
        if conditions.get(condition) == "True"
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


@click.group("join-token", epilog="Example: fedctl join-token create --cluster member1 --ttl 1h")
def join_token() -> None:
    """Let clusters join."""


@join_token.command("create", epilog="Example: fedctl join-token create --cluster member1")
@click.option("--cluster", required=True, help="The name the cluster will have.")
@click.option("--ttl", default="1h", show_default=True, help="How long it is good: 30s, 1h30m.")
@click.option("--token-only", is_flag=True, help="Print the token and nothing else.")
@unnamed_output_option
def create_join_token(cluster: str, ttl: str, output: Output, *, token_only: bool) -> None:
    """Make a single-use token and print the one command to run in the member cluster."""
    seconds = whole_seconds_of(ttl, "--ttl")
    answer = connection().call(lambda api: api.create_join_token(cluster, ttl_seconds=seconds))
    if token_only:
        say(answer.token)
    elif output.is_document:
        show.print_document(document_from_message(answer), output)
    else:
        say(f"Run this where {cluster} can be reached, within {ttl}, once:", err=True)
        say("", err=True)
        say(answer.command)


def _end(token: clusters_pb2.JoinToken) -> float | None:
    return seconds_from_timestamp(token.expire_time)


JOIN_TOKENS: Final[ListedKind[clusters_pb2.JoinToken]] = ListedKind(
    word="join-token",
    named=lambda token: token.id,
    columns=(
        ListColumn("ID", lambda token, _: token.id),
        ListColumn("CLUSTER", lambda token, _: token.cluster),
        ListColumn(
            "ENDS",
            lambda token, now: f"in {show.age(max(0.0, (_end(token) or now) - now))}",
            order=_end,
        ),
    ),
    empty="No join tokens. Make one: fedctl join-token create --cluster NAME",
)


async def _fetch_join_tokens(api: Client, _: Request) -> Sequence[clusters_pb2.JoinToken]:
    return await api.joining.tokens()


GET_JOIN_TOKENS: Final = GetKind(
    plural="join-tokens",
    listed=JOIN_TOKENS,
    words="Join tokens that may still be used, or those with these ids; never their secrets.",
    fetch=_fetch_join_tokens,
    metavar="ID",
    examples=["fedctl get join-tokens"],
)
join_token.add_command(kind_command(GET_JOIN_TOKENS, "join-token list"))


@join_token.command("revoke", epilog="Example: fedctl join-token revoke 3f1c9a7e5b2d4680")
@click.argument("token_id", metavar="ID")
def revoke_join_token(token_id: str) -> None:
    """Let nobody join with it any more."""
    revoked = connection().call(lambda api: api.joining.revoke_token(token_id))
    say(f"join-token/{revoked.id} for {revoked.cluster} revoked")


JOINERS: Final[ListedKind[resource_pb2.Cluster]] = ListedKind(
    word="cluster",
    named=lambda cluster: cluster.metadata.name,
    labels=lambda cluster: cluster.metadata.labels,
    columns=(
        ListColumn("NAME", lambda cluster, _: cluster.metadata.name),
        ListColumn("UID", lambda cluster, _: cluster.metadata.uid),
        ListColumn(
            "AGENT", lambda cluster, _: "connected" if cluster.status.agent.connected else "away"
        ),
        ListColumn("VERSION", lambda cluster, _: cluster.status.agent.version),
        ListColumn("KUBERNETES", lambda cluster, _: cluster.status.kubernetes_version),
        ListColumn("REGION", lambda cluster, _: cluster.spec.region or "-"),
        ListColumn("NODES", lambda cluster, _: cluster.status.node_summary.total_num),
    ),
    least=("NODES", "REGION", "VERSION", "KUBERNETES", "AGENT"),
    empty="Nobody waits to be accepted.",
)


async def _fetch_joiners(api: Client, _: Request) -> Sequence[resource_pb2.Cluster]:
    return [cluster for cluster in await api.list_clusters() if cluster.status.held]


GET_JOINERS: Final = GetKind(
    plural="joiners",
    listed=JOINERS,
    words="""Clusters that joined and are held until somebody accepts them, or those named.

    Their agents report, and they get no replicas. Compare the UID with what
    `kubectl get namespace kube-system -o jsonpath={.metadata.uid}` prints there.
    """,
    fetch=_fetch_joiners,
)


@click.command(epilog="Example: fedctl accept member1")
@click.argument("name")
def accept(name: str) -> None:
    """Accept a cluster that joined and is held.

    It may get new replicas from then on.
    """
    connection().call(lambda api: api.joining.accept(name))
    say(f"cluster/{name} accepted")


@click.command(epilog="Example: fedctl reject member1")
@click.argument("name")
@yes_option
def reject(name: str, *, yes: bool) -> None:
    """Delete a cluster that joined and is held.

    Its agent is sent away for good.
    """
    ask_on_terminal(
        f"This ends what is known as {name}: its agent's credentials and stream.", yes=yes
    )
    connection().call(lambda api: api.joining.reject(name))
    say(f"cluster/{name} rejected")
