"""Verbs that change a member cluster's standing: cordon, uncordon, delete, replace, revoke.

Verbs that end something ask first on a terminal; elsewhere replace wants --yes. Must not decide
what is allowed: the control plane does.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from federation.cli.asking import ask_on_terminal, confirm, yes_option
from federation.cli.connection import connection
from federation.cli.names import NAMES, Kinds, named_binding, namespace_option
from federation.client import Client
from federation.codec import ranges, texts
from federation.codec.violations import Violations
from federation.model.placement import binding_key
from federation.runtime.terminal import say

_names_argument = click.argument("names", metavar="NAME...", nargs=-1, required=True)


@click.command(epilog="Example: fedctl cordon member1 --reason 'kernel upgrade'")
@_names_argument
@click.option("--reason", default="", help="Why: kept, and shown to whoever finds no room there.")
def cordon(names: Sequence[str], reason: str) -> None:
    """Keep new replicas away from clusters.

    What runs there stays.
    """
    _set_cordoned(names, cordoned=True, reason=reason)


@click.command(epilog="Example: fedctl uncordon member1")
@_names_argument
def uncordon(names: Sequence[str]) -> None:
    """Let new replicas into clusters again."""
    _set_cordoned(names, cordoned=False)


def _set_cordoned(names: Sequence[str], *, cordoned: bool, reason: str = "") -> None:
    async def set_each(api: Client) -> None:
        for name in names:
            await api.cordon_cluster(name, cordoned=cordoned, reason=reason)
            say(f"cluster/{name} {'cordoned' if cordoned else 'uncordoned'}")

    connection().call(set_each)


DELETE_EPILOG = """Examples:

\b
fedctl delete cluster member1
fedctl delete binding checkout-deployment cart-deployment -n shop
fedctl delete -f deployment.yaml -f policy.yaml
"""


@click.group(cls=Kinds, invoke_without_command=True, epilog=DELETE_EPILOG)
@click.option("-f", "--filename", "paths", multiple=True, help="Bindings of a file, or - .")
@yes_option
@click.pass_context
def delete(context: click.Context, paths: Sequence[str], *, yes: bool) -> None:
    """Delete member clusters or bindings."""
    if context.invoked_subcommand is not None:
        if paths or yes:
            raise click.UsageError("-f and --yes of files do not go with a kind")
        return
    if not paths:
        raise click.UsageError("give a kind and names, or files with -f")
    from federation.cli.inputs import bindings_in  # noqa: PLC0415 - only for files

    metas = [binding.metadata for binding in bindings_in(paths).bindings]
    delete_bindings([(meta.namespace, meta.name) for meta in metas], yes=yes)


@delete.command("cluster", epilog="Example: fedctl delete cluster member1 --force")
@_names_argument
@click.option("--force", is_flag=True, help="Even while bindings hold replicas there.")
@yes_option
def delete_cluster(names: Sequence[str], *, force: bool, yes: bool) -> None:
    """Delete member clusters; their agents are sent away for good.

    Refused while bindings hold replicas there. When forced their replicas there count as gone, and
    are placed again when their bindings are scheduled next. Nothing in the clusters is touched.
    """
    ask_on_terminal(
        f"This deletes {', '.join(names)}: the agent's credentials and stream, and the report.",
        yes=yes,
    )

    async def delete_each(api: Client) -> None:
        for name in names:
            await api.delete_cluster(name, force=force)
            say(f"cluster/{name} deleted")

    connection().call(delete_each)


@delete.command("binding", epilog="Example: fedctl delete binding shop/checkout-deployment")
@click.argument("names", metavar=f"{NAMES}...", nargs=-1, required=True)
@namespace_option
@yes_option
def delete_binding(names: Sequence[str], namespace: str, *, yes: bool) -> None:
    """Delete bindings and free what was promised to them."""
    delete_bindings([named_binding(name, namespace) for name in names], yes=yes)


def delete_bindings(bindings: Sequence[tuple[str, str]], *, yes: bool) -> None:
    """Ask, and delete one after the other; the first that cannot be deleted ends it."""
    names = ", ".join(binding_key(*binding) for binding in bindings)
    ask_on_terminal(f"This deletes {names}, and frees what is promised to it.", yes=yes)

    async def delete_each(api: Client) -> None:
        for binding in bindings:
            await api.delete_binding(*binding)
            say(f"binding/{binding_key(*binding)} deleted")

    connection().call(delete_each)


@click.command(epilog="Example: fedctl replace member1 --uid 8f6f4a2e-0c0b-4d52-9f0e-2f3f5c1d7a90")
@click.argument("name")
@click.option("--uid", required=True, help="uid of the new cluster's namespace kube-system.")
@yes_option
def replace(name: str, uid: str, *, yes: bool) -> None:
    """Give a cluster's name to another Kubernetes cluster.

    Such as one that was built anew.

    The old cluster's credentials and report are gone; the new one joins with a token of its own.
    `kubectl get namespace kube-system -o jsonpath={.metadata.uid}` prints the uid.
    """
    found = Violations()
    ranges.cluster_name(name, "NAME", found)
    texts.uid(uid, "--uid", found)
    found.check()
    confirm(
        f"This ends what is known as {name}: its agent's credentials and stream, its report, and "
        f"everything that is promised there. The name then belongs to the cluster with uid {uid}.",
        yes=yes,
    )
    connection().call(lambda api: api.replace_cluster(name, uid))
    say(f"cluster/{name} now belongs to {uid}")
    say(f"Let it join: fedctl join-token create --cluster {name}", err=True)


@click.command(epilog="Example: fedctl revoke member1")
@click.argument("name")
@yes_option
def revoke(name: str, *, yes: bool) -> None:
    """End a cluster's credentials and its agent's stream.

    They end at once, and its unused join tokens with them.

    The cluster stays known, and gets no new replicas once it is stale.
    """
    ask_on_terminal(
        f"This ends the credentials and unused join tokens of {name}, and its agent's stream.",
        yes=yes,
    )
    credentials = connection().call(lambda api: api.revoke_cluster(name))
    say(f"cluster/{name} revoked, credentials ended: {credentials}")
    say(f"To let it join again: fedctl join-token create --cluster {name}", err=True)
