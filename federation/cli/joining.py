"""Verbs about clusters that join: join-token, accept, reject, and get joiners.

Must not keep a secret: it is printed once, to standard output.
"""

from __future__ import annotations

import time

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.members import confirm, yes_option
from federation.cli.output import Format, output_option
from federation.cli.times import seconds_of
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.runtime.terminal import say


@click.group("join-token", epilog="Example: fedctl join-token create --cluster member1 --ttl 1h")
def join_token() -> None:
    """Let clusters join."""


@join_token.command("create", epilog="Example: fedctl join-token create --cluster member1")
@click.option("--cluster", required=True, help="The name the cluster will have.")
@click.option("--ttl", default="1h", show_default=True, help="How long it is good: 30s, 15m, 1h.")
@click.option("--token-only", is_flag=True, help="Print the token and nothing else.")
@output_option
def create_join_token(cluster: str, ttl: str, output: Format, *, token_only: bool) -> None:
    """Make a single-use token and print the one command to run in the member cluster."""
    seconds = seconds_of(ttl, "--ttl")
    answer = connection().call(lambda api: api.create_join_token(cluster, ttl_seconds=seconds))
    if token_only:
        say(answer.token)
    elif output.is_document:
        show.print_document(document_from_message(answer), output)
    else:
        say(f"Run this where {cluster} can be reached, within {ttl}, once:", err=True)
        say("", err=True)
        say(answer.command)


@join_token.command("list", epilog="Example: fedctl join-token list")
@output_option
def list_join_tokens(output: Format) -> None:
    """Join tokens that may still be used; never their secrets."""
    tokens = connection().call(lambda api: api.joining.tokens())
    if output.is_document:
        show.print_document([document_from_message(one) for one in tokens], output)
        return
    now = time.time()
    show.print_table(
        ["ID", "CLUSTER", "ENDS"],
        [
            (
                one.id,
                one.cluster,
                f"in {show.age(max(0.0, (seconds_from_timestamp(one.expire_time) or now) - now))}",
            )
            for one in tokens
        ],
        empty="No join tokens. Make one: fedctl join-token create --cluster NAME",
    )


@join_token.command("revoke", epilog="Example: fedctl join-token revoke 3f1c9a7e5b2d4680")
@click.argument("token_id", metavar="ID")
def revoke_join_token(token_id: str) -> None:
    """Let nobody join with it any more."""
    revoked = connection().call(lambda api: api.joining.revoke_token(token_id))
    say(f"join-token/{revoked.id} for {revoked.cluster} revoked")


@click.command("joiners", epilog="Example: fedctl get joiners")
@output_option
def get_joiners(output: Format) -> None:
    """Clusters that joined and are held until somebody accepts them.

    Their agents report, and they get no replicas. Compare the UID with what
    `kubectl get namespace kube-system -o jsonpath={.metadata.uid}` prints there.
    """
    every = connection().call(lambda api: api.list_clusters())
    held = [cluster for cluster in every if cluster.status.held]
    if output.is_document:
        show.print_document([document_from_message(each) for each in held], output)
        return
    show.print_table(
        ["NAME", "UID", "AGENT", "VERSION", "KUBERNETES", "REGION", "NODES"],
        [
            (
                each.metadata.name,
                each.metadata.uid,
                "connected" if each.status.agent.connected else "away",
                each.status.agent.version,
                each.status.kubernetes_version,
                each.spec.region or "-",
                each.status.node_summary.total_num,
            )
            for each in held
        ],
        least=["NODES", "REGION", "VERSION", "KUBERNETES", "AGENT"],
        empty="Nobody waits to be accepted.",
    )


@click.command(epilog="Example: fedctl accept member1")
@click.argument("name")
def accept(name: str) -> None:
    """Let new replicas into a cluster that joined and is held."""
    connection().call(lambda api: api.joining.accept(name))
    say(f"cluster/{name} accepted")


@click.command(epilog="Example: fedctl reject member1 --yes")
@click.argument("name")
@yes_option
def reject(name: str, *, yes: bool) -> None:
    """Forget a cluster that is held; its agent is sent away for good."""
    confirm(f"This ends what is known as {name}: its agent's credentials and stream.", yes=yes)
    connection().call(lambda api: api.joining.reject(name))
    say(f"cluster/{name} rejected")
