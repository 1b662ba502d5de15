"""Verbs that change a member cluster's standing: cordon, uncordon, delete, replace, revoke.

Verbs that end something ask first on a terminal; elsewhere replace wants --yes. Must not decide
what is allowed: the control plane does.
"""

from __future__ import annotations

import click

from federation.cli import workloads
from federation.cli.asking import ask_on_terminal, confirm, yes_option
from federation.cli.connection import connection
from federation.cli.names import Kinds
from federation.codec import ranges, texts
from federation.codec.violations import Violations
from federation.runtime.terminal import say


@click.command(epilog="Example: fedctl cordon member1 --reason 'kernel upgrade'")
@click.argument("name")
@click.option("--reason", default="", help="Why: kept, and shown to whoever finds no room there.")
def cordon(name: str, reason: str) -> None:
    """Keep new replicas away from a cluster; what runs there stays."""
    connection().call(lambda api: api.cordon_cluster(name, cordoned=True, reason=reason))
    say(f"cluster/{name} cordoned")


@click.command(epilog="Example: fedctl uncordon member1")
@click.argument("name")
def uncordon(name: str) -> None:
    """Let new replicas into a cluster again."""
    connection().call(lambda api: api.cordon_cluster(name, cordoned=False))
    say(f"cluster/{name} uncordoned")


@click.group(cls=Kinds, epilog="Example: fedctl delete cluster member1")
def delete() -> None:
    """Forget a member cluster or a binding."""


@delete.command("cluster", epilog="Example: fedctl delete cluster member1 --force")
@click.argument("name")
@click.option("--force", is_flag=True, help="Even while bindings hold replicas there.")
@yes_option
def delete_cluster(name: str, *, force: bool, yes: bool) -> None:
    """Forget a member cluster; its agent is sent away for good.

    Refused while bindings hold replicas there. When forced their replicas there count as gone, and
    are placed again when their bindings are scheduled next. Nothing in the cluster is touched.
    """
    ask_on_terminal(
        f"This ends what is known as {name}: its agent's credentials and stream, and its report.",
        yes=yes,
    )
    connection().call(lambda api: api.delete_cluster(name, force=force))
    say(f"cluster/{name} deleted")


delete.add_command(workloads.delete_binding)


@click.command(epilog="Example: fedctl replace member1 --uid 8f6f4a2e-0c0b-4d52-9f0e-2f3f5c1d7a90")
@click.argument("name")
@click.option("--uid", required=True, help="uid of the new cluster's namespace kube-system.")
@yes_option
def replace(name: str, uid: str, *, yes: bool) -> None:
    """Give a name to another Kubernetes cluster, such as one that was built anew.

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
    """End a cluster's credentials and unused join tokens at once, and its agent's stream.

    The cluster stays known, and gets no new replicas once it is stale.
    """
    ask_on_terminal(
        f"This ends the credentials and unused join tokens of {name}, and its agent's stream.",
        yes=yes,
    )
    credentials = connection().call(lambda api: api.revoke_cluster(name))
    say(f"cluster/{name} revoked, credentials ended: {credentials}")
    say(f"To let it join again: fedctl join-token create --cluster {name}", err=True)
