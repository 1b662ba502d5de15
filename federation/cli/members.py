"""Verbs that change clusters: cordon, label, taint, delete, replace, revoke.

Must not decide what is allowed: the control plane does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import output as show
from federation.cli.arguments import (
    NAMES,
    Kinds,
    ask_on_terminal,
    confirm,
    named_binding,
    namespace_option,
    yes_option,
)
from federation.cli.clusters import taint_text
from federation.cli.connection import connection
from federation.cli.output import Output, output_option
from federation.codec import ranges, texts
from federation.codec.violations import Violations
from federation.codec.written import document_from_message
from federation.model.cluster import UNREACHABLE_KEY, TaintEffect
from federation.model.errors import Conflict, NotFound, PreconditionFailed
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2

if TYPE_CHECKING:
    from federation.client import Client

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
    violations = Violations()
    ranges.cluster_name(name, "NAME", violations)
    texts.uid(uid, "--uid", violations)
    violations.check()
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


MAX_TRIES: Final = 5
LABEL_EPILOG: Final = """Examples:

\b
fedctl label cluster member1 tier=gold zone-
fedctl label cluster member1 member2 tier=silver --overwrite
fedctl label cluster member1 tier=gold --dry-run
"""
TAINT_EPILOG: Final = """Examples:

\b
fedctl taint cluster member1 maintenance=soon:NoSchedule
fedctl taint cluster member1 maintenance:NoSchedule- spot-
"""
EFFECTS: Final = tuple(effect.value for effect in TaintEffect)

# A change of a cluster in place, and the words that say what became of it.
Change = Callable[[resource_pb2.Cluster], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditOptions:
    """The options of verbs that change a part of a cluster."""

    output: Output
    dry_run: bool


def _edit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    command = output_option(function)
    command = click.option(
        "--dry-run", is_flag=True, help="Check and show the change, and change nothing."
    )(command)
    command = click.option(
        "--overwrite", is_flag=True, help="Give a new value to what has another one."
    )(command)
    return click.argument("words", metavar="NAME... CHANGE...", nargs=-1, required=True)(command)


@click.group(cls=Kinds, epilog=LABEL_EPILOG)
def label() -> None:
    """Set or remove labels of clusters."""


@label.command("cluster", epilog=LABEL_EPILOG)
@_edit_options
def label_cluster(words: Sequence[str], output: Output, *, overwrite: bool, dry_run: bool) -> None:
    """Set labels with KEY=VALUE, and remove them with KEY-.

    A label that has another value stays unless --overwrite is said.
    """
    names, changes = _names_and_changes(words)
    set_labels = dict(change.split("=", 1) for change in changes if "=" in change)
    removed = [change.removesuffix("-") for change in changes if "=" not in change]
    _check_labels(set_labels, removed)

    def change(cluster: resource_pb2.Cluster) -> str:
        labels = cluster.metadata.labels
        for key, value in set_labels.items():
            if not overwrite and labels.get(key, value) != value:
                _refuse_overwriting(cluster, f"the label {key}={labels[key]}")
        for key in removed:
            if key not in labels:
                say(f"cluster/{cluster.metadata.name} has no label {key}", err=True)
            labels.pop(key, None)
        labels.update(set_labels)
        return "labeled" if set_labels else "unlabeled"

    _edit(names, change, EditOptions(output=output, dry_run=dry_run))


@click.group(cls=Kinds, epilog=TAINT_EPILOG)
def taint() -> None:
    """Set or remove taints of clusters."""


@taint.command("cluster", epilog=TAINT_EPILOG)
@_edit_options
def taint_cluster(words: Sequence[str], output: Output, *, overwrite: bool, dry_run: bool) -> None:
    """Set taints with KEY[=VALUE]:EFFECT, and remove them with KEY[:EFFECT]-.

    EFFECT is NoSchedule, PreferNoSchedule or NoExecute. A taint that has another value stays unless
    --overwrite is said.
    """
    names, changes = _names_and_changes(words)
    new = [taint_of(change) for change in changes if not change.endswith("-")]
    removed = [change.removesuffix("-").partition(":") for change in changes if change[-1] == "-"]
    _check_taints(new, [(key, effect) for key, _, effect in removed])

    def change(cluster: resource_pb2.Cluster) -> str:
        taints = {(stored.key, stored.effect): stored for stored in cluster.spec.taints}
        for key, _, effect in removed:
            ended = [pair for pair in taints if pair[0] == key and effect in ("", pair[1])]
            if not ended:
                text = f"{key}:{effect}" if effect else key
                raise NotFound(f"cluster/{cluster.metadata.name} has no taint {text}")
            for pair in ended:
                del taints[pair]
        for addition in new:
            stored = taints.get((addition.key, addition.effect))
            if stored is not None and stored.value != addition.value and not overwrite:
                _refuse_overwriting(cluster, f"the taint {taint_text(stored)}")
            if stored is None or stored.value != addition.value:
                taints[addition.key, addition.effect] = addition
        del cluster.spec.taints[:]
        cluster.spec.taints.extend(taints.values())
        return "tainted" if new else "untainted"

    _edit(names, change, EditOptions(output=output, dry_run=dry_run))


def taint_of(text: str) -> resource_pb2.Taint:
    """``KEY=VALUE:EFFECT`` or ``KEY:EFFECT`` as a taint. Raises UsageError."""
    pair, colon, effect = text.rpartition(":")
    if not colon:
        raise click.UsageError(f"{text!r} is not KEY=VALUE:EFFECT, KEY:EFFECT or KEY-")
    key, _, value = pair.partition("=")
    return resource_pb2.Taint(key=key, value=value, effect=effect)


def _names_and_changes(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of clusters, which come first, and changes, which no name looks like."""
    changes = [word for word in words if "=" in word or ":" in word or word.endswith("-")]
    names = [word.removeprefix("cluster/") for word in words if word not in changes]
    if not names or not changes:
        raise click.UsageError("give clusters and what changes, as in member1 tier=gold zone-")
    return names, changes


def _check_labels(labels: Mapping[str, str], removed: Sequence[str]) -> None:
    violations = Violations()
    texts.label_map(labels, "labels", violations)
    texts.label_map(dict.fromkeys(removed, ""), "labels", violations)
    violations.check()
    _check_apart(labels, removed)


def _check_taints(new: Sequence[resource_pb2.Taint], removed: Sequence[tuple[str, str]]) -> None:
    violations = Violations()
    for addition in new:
        texts.label_map({addition.key: addition.value}, "taints", violations)
    for effect in (*(addition.effect for addition in new), *filter(None, dict(removed).values())):
        if effect not in EFFECTS:
            violations.add("taints", f"the effect must be one of {', '.join(EFFECTS)}: {effect!r}")
    keys = (*(addition.key for addition in new), *(key for key, _ in removed))
    if UNREACHABLE_KEY in keys:
        violations.add("taints", f"{UNREACHABLE_KEY} is set by the control plane alone")
    violations.check()
    pairs = [(addition.key, addition.effect) for addition in new]
    _check_apart(pairs, removed)


def _check_apart(new: Any, removed: Sequence[Any]) -> None:
    if both := [change for change in removed if change in new]:
        raise click.UsageError(f"{both[0]} is both set and removed")


def _refuse_overwriting(cluster: resource_pb2.Cluster, words: str) -> None:
    raise PreconditionFailed(
        f"cluster/{cluster.metadata.name} has {words} already: --overwrite gives it a new value"
    )


def _edit(names: Sequence[str], change: Change, options: EditOptions) -> None:
    """Change one cluster after the other; the first that cannot be changed ends it."""
    documents: list[Any] = []
    changed: list[str] = []

    async def edit_each(api: Client) -> None:
        for name in names:
            cluster, words = await _edited(api, name, change, dry_run=options.dry_run)
            changed.append(f"cluster/{name}")
            if options.output.is_document:
                documents.append(document_from_message(cluster))
            else:
                say(f"cluster/{name} {words}{' (dry run)' if options.dry_run else ''}")

    try:
        connection().call(edit_each)
    finally:
        if documents:
            document = documents[0] if len(names) == 1 else documents
            show.print_document(document, options.output, changed)


async def _edited(
    api: Client, name: str, change: Change, *, dry_run: bool
) -> tuple[resource_pb2.Cluster, str]:
    """The cluster as it is stored then. Raises Conflict where others change it all the time."""
    tries = 0
    while True:
        stored = await api.get_cluster(name)
        cluster = resource_pb2.Cluster()
        cluster.CopyFrom(stored)
        words = change(cluster)
        if cluster == stored:
            return stored, "not changed"
        if dry_run:
            return cluster, words
        cluster.ClearField("status")
        tries += 1
        try:
            return await api.update_cluster(cluster), words
        except Conflict as error:
            if tries == MAX_TRIES:
                text = f"cluster/{name} was changed by others {MAX_TRIES} times: try again"
                raise Conflict(text) from error
