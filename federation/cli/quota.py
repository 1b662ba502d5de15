"""Verbs about namespace quotas: set, list, delete.

Must not reckon what is held: the control plane says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from federation.cli import output as show
from federation.cli.connection import connection
from federation.cli.kinds import GetKind, Request, kind_command
from federation.cli.lists import ListColumn, ListedKind
from federation.cli.names import pairs_of
from federation.cli.output import Output, output_option
from federation.client import Client
from federation.codec.written import document_from_message
from federation.runtime.terminal import say
from federation.v1 import access_pb2

SET_EPILOG = """Examples:

\b
fedctl quota set shop --replicas 200
fedctl quota set shop --replicas 200 --limit cpu=64 --limit memory=256Gi
"""


@click.group(epilog="Example: fedctl quota list")
def quota() -> None:
    """Limit what a namespace may hold in all clusters.

    A quota counts what is promised, in all clusters together.
    """


@quota.command("set", epilog=SET_EPILOG)
@click.argument("namespace")
@click.option("--replicas", type=click.IntRange(0), help="The most replicas.")
@click.option("--limit", "limits", multiple=True, help="The most of a resource: cpu=64.")
@output_option
def set_quota(namespace: str, replicas: int | None, limits: Sequence[str], output: Output) -> None:
    """Set a quota, in place of the one before; what is promised already stays."""
    if replicas is None and not limits:
        raise click.UsageError("say --replicas or --limit; `fedctl quota delete` removes a quota")
    wanted = access_pb2.Quota(
        namespace=namespace,
        replicas=replicas,
        resources=pairs_of(limits, "--limit") if limits else {},
    )
    answer = connection().call(lambda api: api.set_quota(wanted))
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
    named=lambda each: each.namespace,
    columns=(
        ListColumn("NAMESPACE", lambda each, _: each.namespace),
        ListColumn("USED", lambda each, _: _of_all(each), order=lambda each: each.used_replicas),
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
