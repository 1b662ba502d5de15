"""Verbs about clusters that join: join-token, accept, reject, and get joiners.

Must not keep a secret: it is printed once, to standard output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from federation.cli import output as show
from federation.cli.asking import ask_on_terminal, yes_option
from federation.cli.connection import connection
from federation.cli.durations import whole_seconds_of
from federation.cli.kinds import GetKind, Request, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, unnamed_output_option
from federation.client import Client
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.runtime.terminal import say
from federation.v1 import clusters_pb2, resource_pb2


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
    named=lambda each: each.id,
    columns=(
        ListColumn("ID", lambda each, _: each.id),
        ListColumn("CLUSTER", lambda each, _: each.cluster),
        ListColumn(
            "ENDS",
            lambda each, now: f"in {show.age(max(0.0, (_end(each) or now) - now))}",
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
    named=lambda each: each.metadata.name,
    labels=lambda each: each.metadata.labels,
    columns=(
        ListColumn("NAME", lambda each, _: each.metadata.name),
        ListColumn("UID", lambda each, _: each.metadata.uid),
        ListColumn("AGENT", lambda each, _: "connected" if each.status.agent.connected else "away"),
        ListColumn("VERSION", lambda each, _: each.status.agent.version),
        ListColumn("KUBERNETES", lambda each, _: each.status.kubernetes_version),
        ListColumn("REGION", lambda each, _: each.spec.region or "-"),
        ListColumn("NODES", lambda each, _: each.status.node_summary.total_num),
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
