"""Verbs about who may do what, and how much: token, whoami, quota.

Must not keep a secret, nor count what is held: the control plane says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from federation.cli import output as show
from federation.cli.arguments import (
    RenamedOption,
    ask_on_terminal,
    pairs_of,
    whole_seconds_of,
    yes_option,
)
from federation.cli.connection import connection
from federation.cli.kinds import GetKind, Request, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.output import Output, output_option, unnamed_output_option
from federation.codec.timestamps import seconds_from_timestamp
from federation.codec.written import document_from_message
from federation.runtime.terminal import say
from federation.v1 import access_pb2

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from federation.client import Client


ROLES = {
    "viewer": access_pb2.ROLE_VIEWER,
    "scheduler": access_pb2.ROLE_SCHEDULER,
    "operator": access_pb2.ROLE_OPERATOR,
    "bridge": access_pb2.ROLE_BRIDGE,
    "admin": access_pb2.ROLE_ADMIN,
}
CALLS = click.IntRange(0, 1_000_000)
ROLE_NAMES = {number: name for name, number in ROLES.items()}
CREATE_EPILOG = """Examples:

\b
fedctl token create dashboard --role viewer
fedctl token create shop-ci --role scheduler -n 'shop-*' --from-network 10.0.0.0/8 --ttl 30d
fedctl token create batch --role scheduler --calls-per-second 50 --calls-at-once 10
fedctl token create europe --role operator --cluster 'eu-*' --token-only > europe.token
"""


@click.group(epilog="Example: fedctl token list")
def token() -> None:
    """Make, list and revoke tokens of people and programs.

    Each token has a role and a scope of its own.
    """


@token.command("create", epilog=CREATE_EPILOG)
@click.argument("name")
@click.option("--role", type=click.Choice(list(ROLES)), required=True, help="What it may do.")
@click.option("-n", "--namespace", "namespaces", multiple=True, help="Only these; * is any.")
@click.option("--cluster", "clusters", multiple=True, help="Only these; * is any.")
@click.option("--cluster-selector", metavar="K=V,...", help="Only clusters with these labels.")
@click.option(
    "--from-network",
    "networks",
    cls=RenamedOption,
    old=["--from"],
    multiple=True,
    help="Only from this network: 10.0.0.0/8.",
)
@click.option("--calls-per-second", type=CALLS, default=0, help="Of a control plane; 0: any.")
@click.option("--calls-at-once", type=CALLS, default=0, help="Watches included; 0: any.")
@click.option("--ttl", default="90d", show_default=True, help="How long it is valid: 12h, 30d.")
@click.option("--token-only", is_flag=True, help="Print the token and nothing else.")
@unnamed_output_option
def create_token(
    name: str,
    role: str,
    namespaces: Sequence[str],
    clusters: Sequence[str],
    cluster_selector: str | None,
    networks: Sequence[str],
    calls_per_second: int,
    calls_at_once: int,
    ttl: str,
    output: Output,
    *,
    token_only: bool,
) -> None:
    """Make a token and print it, once: only its hash is kept."""
    request = access_pb2.CreateTokenRequest(
        name=name,
        role=ROLES[role],
        namespaces=namespaces,
        clusters=clusters,
        cluster_labels=pairs_of([cluster_selector], "--cluster-selector")
        if cluster_selector
        else {},
        networks=networks,
        calls_per_second=calls_per_second,
        calls_at_once=calls_at_once,
        ttl_seconds=whole_seconds_of(ttl, "--ttl"),
    )
    answer = connection().call(lambda api: api.create_token(request))
    if token_only:
        say(answer.secret)
    elif output.is_document:
        show.print_document(document_from_message(answer), output)
    else:
        say(f"Token {answer.token.id} of {name}, {role}, valid for {ttl}.", err=True)
        say("Keep it now, it is not shown again; give its file to fedctl --token-file:", err=True)
        say("", err=True)
        say(answer.secret)


def _end(token: access_pb2.Token, now: float) -> str:
    if token.HasField("revoke_time"):
        return f"revoked {_ago(token.revoke_time, now)}"
    seconds_left = (seconds_from_timestamp(token.expire_time) or now) - now
    return (
        f"in {show.age(seconds_left)}"
        if seconds_left > 0
        else f"expired {_ago(token.expire_time, now)}"
    )


def _last_use(token: access_pb2.Token, now: float) -> str:
    if not token.HasField("last_use_time"):
        return "never"
    address = f" from {token.last_use_address}" if token.last_use_address else ""
    return f"{_ago(token.last_use_time, now)}{address}"


def _last_use_order(token: access_pb2.Token) -> float | None:
    """The longest ago last."""
    used = seconds_from_timestamp(token.last_use_time)
    return None if used is None or not token.HasField("last_use_time") else -used


def _ago(moment: Timestamp, now: float) -> str:
    return f"{show.age(max(0.0, now - (seconds_from_timestamp(moment) or now)))} ago"


TOKENS: Final[ListedKind[access_pb2.Token]] = ListedKind(
    word="token",
    named=lambda token: token.id,
    columns=(
        ListColumn("ID", lambda token, _: token.id),
        ListColumn("NAME", lambda token, _: token.name),
        ListColumn("ROLE", lambda token, _: ROLE_NAMES.get(token.role, "?")),
        ListColumn("SCOPE", lambda token, _: _scope(token)),
        ListColumn("LIMITS", lambda token, _: _limits(token)),
        ListColumn("FROM", lambda token, _: ", ".join(token.networks) or "any"),
        ListColumn(
            "ENDS",
            _end,
            order=lambda token: seconds_from_timestamp(token.expire_time),
        ),
        ListColumn(
            "LAST USE",
            _last_use,
            order=_last_use_order,
        ),
    ),
    least=("LIMITS", "FROM", "LAST USE"),
    last=("SCOPE",),
    prose=("SCOPE",),
    empty="No tokens. Make one: fedctl token create NAME --role viewer",
)


async def _fetch_tokens(api: Client, _: Request) -> Sequence[access_pb2.Token]:
    return sorted(await api.list_tokens(), key=lambda listed: (listed.name, listed.id))


GET_TOKENS: Final = GetKind(
    plural="tokens",
    listed=TOKENS,
    words="Tokens, also those that ended in the last 30 days, or those with these ids; no secrets.",
    fetch=_fetch_tokens,
    metavar="ID",
)
token.add_command(kind_command(GET_TOKENS, "token list"))


@token.command("revoke", epilog="Example: fedctl token revoke tok-3f1c9a7e5b2d4680")
@click.argument("token_id", metavar="ID")
@yes_option
def revoke_token(token_id: str, *, yes: bool) -> None:
    """End a token and its watches on every control plane, within two seconds."""
    ask_on_terminal(f"This ends the token {token_id}: its secret is good for nothing.", yes=yes)
    revoked = connection().call(lambda api: api.revoke_token(token_id))
    say(f"token/{revoked.id} of {revoked.name} revoked")


@click.command(epilog="Example: fedctl whoami")
@unnamed_output_option
def whoami(output: Output) -> None:
    """Show whom the token stands for, and what it may do.

    A client certificate stands for somebody in the same way.
    """
    answer = connection().call(lambda api: api.who_am_i())
    if output.is_document:
        show.print_document(document_from_message(answer), output)
        return
    show.print_facts(
        [
            ("Caller", answer.actor),
            ("Role", ROLE_NAMES.get(answer.role, "?")),
            ("Scope", _scope(answer)),
            ("Limits", _limits(answer)),
        ]
    )


@click.command(epilog="Example: fedctl version --client")
@click.option("--client", is_flag=True, help="That of fedctl alone; no control plane is asked.")
@unnamed_output_option
def version(output: Output, *, client: bool) -> None:
    """Show the releases of fedctl and of the control plane."""
    from importlib import metadata  # noqa: PLC0415 - other verbs do not wait for it

    versions = {"client": metadata.version("fedsched")}
    try:
        if not client:
            answer = connection().call(lambda api: api.who_am_i())
            versions["server"] = answer.server_version or "unknown"
    finally:
        # That of fedctl is shown also where nobody answers.
        if output.is_document:
            show.print_document(versions, output)
        else:
            show.print_facts((name.capitalize(), number) for name, number in versions.items())


def _scope(token: access_pb2.Token | access_pb2.WhoAmIResponse) -> str:
    limits = [
        f"{kind} {', '.join(names)}"
        for kind, names in (("namespaces", token.namespaces), ("clusters", token.clusters))
        if names
    ]
    if token.cluster_labels:
        pairs = (f"{key}={value}" for key, value in sorted(token.cluster_labels.items()))
        limits.append(f"clusters with {','.join(pairs)}")
    return "; ".join(limits) or "all"


def _limits(token: access_pb2.Token | access_pb2.WhoAmIResponse) -> str:
    limits = [
        f"{number} {unit}"
        for number, unit in (
            (token.calls_per_second, "calls/s"),
            (token.calls_at_once, "at once"),
        )
        if number
    ]
    return ", ".join(limits) or "-"


SET_EPILOG = """Examples:

\b
fedctl quota set shop --replicas 200
fedctl quota set shop --replicas 200 --hard cpu=64 --hard memory=256Gi
"""


@click.group(epilog="Example: fedctl quota list")
def quota() -> None:
    """Limit what a namespace may hold in all clusters.

    A quota counts what is promised, in all clusters together.
    """


@quota.command("set", epilog=SET_EPILOG)
@click.argument("namespace")
@click.option("--replicas", type=click.IntRange(0), help="The most replicas.")
@click.option(
    "--hard",
    "limits",
    cls=RenamedOption,
    old=["--limit"],
    multiple=True,
    help="The most of a resource: cpu=64.",
)
@output_option
def set_quota(namespace: str, replicas: int | None, limits: Sequence[str], output: Output) -> None:
    """Set a quota, in place of the one before; what is promised already stays."""
    if replicas is None and not limits:
        raise click.UsageError("say --replicas or --hard; `fedctl quota delete` removes a quota")
    quota = access_pb2.Quota(
        namespace=namespace,
        replicas=replicas,
        resources=pairs_of(limits, "--hard") if limits else {},
    )
    answer = connection().call(lambda api: api.set_quota(quota))
    if output.is_document:
        show.print_document(document_from_message(answer), output, [f"quota/{answer.namespace}"])
    else:
        say(f"quota/{answer.namespace} set: {_of_all(answer)}")


@quota.command("delete", epilog="Example: fedctl quota delete shop")
@click.argument("namespace")
def delete_quota(namespace: str) -> None:
    """Let a namespace hold as much as there is."""
    connection().call(lambda api: api.set_quota(access_pb2.Quota(namespace=namespace)))
    say(f"quota/{namespace} deleted")


QUOTAS: Final[ListedKind[access_pb2.Quota]] = ListedKind(
    word="quota",
    named=lambda quota: quota.namespace,
    columns=(
        ListColumn("NAMESPACE", lambda quota, _: quota.namespace),
        ListColumn(
            "USED", lambda quota, _: _of_all(quota), order=lambda quota: quota.used_replicas
        ),
    ),
    prose=("USED",),
    empty="No quotas. Set one: fedctl quota set NAMESPACE --replicas 200",
)


async def _fetch_quotas(api: Client, _: Request) -> Sequence[access_pb2.Quota]:
    return await api.list_quotas()


GET_QUOTAS: Final = GetKind(
    plural="quotas",
    listed=QUOTAS,
    words="Quotas, or those of the namespaces named, and what is held of them.",
    fetch=_fetch_quotas,
    metavar="NAMESPACE",
    has_namespaces=True,
    namespace_of=lambda quota: quota.namespace,
)
quota.add_command(kind_command(GET_QUOTAS, "quota list"))


def _of_all(one: access_pb2.Quota) -> str:
    parts = [f"replicas {one.used_replicas} of {one.replicas}"] if one.HasField("replicas") else []
    used = one.used_resources
    parts += [f"{name} {used[name]} of {limit}" for name, limit in sorted(one.resources.items())]
    return ", ".join(parts)
