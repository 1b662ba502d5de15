"""Objects of files: apply sends them, diff compares them, and edit lets people write one.

Must not decide anything: the control plane does.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli.arguments import Kinds
from federation.cli.connection import connection
from federation.cli.decisions import outcome_word, shares_text
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options, print_list
from federation.codec.written import document_from_message
from federation.model.errors import InvalidRequest, NotFound
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import access_pb2, resource_pb2, scheduling_pb2

if TYPE_CHECKING:
    from federation.client import Client
    from federation.codec.documents import Document

CHANGES: Final = 3
NOTHING: Final = "-"
PLACED: Final = (scheduling_pb2.OUTCOME_SCHEDULED, scheduling_pb2.OUTCOME_PARTIAL)
APPLY_EPILOG: Final = """Examples:

\b
fedctl apply -f cluster.yaml
fedctl apply -f quotas.yaml -f deployment.yaml -f policy.yaml
fedctl apply -f everything.yaml --dry-run=server
"""
DIFF_EPILOG: Final = """Examples:

\b
fedctl diff -f deployment.yaml -f policy.yaml
fedctl diff -f cluster.yaml
fedctl diff -f binding.yaml || fedctl schedule -f binding.yaml
"""
_files = click.option(
    "-f", "--filename", "paths", multiple=True, required=True, help="File, or - ."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileObjects:
    """Objects of files, all of them checked: nothing is sent when one is wrong."""

    clusters: Sequence[resource_pb2.Cluster] = ()
    quotas: Sequence[access_pb2.Quota] = ()
    bindings: Sequence[resource_pb2.ResourceBinding] = ()
    warnings: Mapping[str, Sequence[str]] = field(default_factory=dict)


def objects_in(paths: Iterable[str]) -> FileObjects:
    # Help does not wait for what reads files.
    from federation.cli.inputs import checked_bindings, checked_clusters, quotas_of  # noqa: PLC0415 - see above
    from federation.codec.document_files import documents_of  # noqa: PLC0415 - see above

    by_kind: dict[str, list[Document]] = {"Cluster": [], "Quota": [], "": []}
    for document in documents_of(paths):
        kind = str(document.get("kind"))
        by_kind[kind if kind in by_kind else ""].append(document)
    if not any(by_kind.values()):
        raise InvalidRequest.of("files", "hold nothing")
    bindings = checked_bindings(by_kind[""]) if by_kind[""] else None
    return FileObjects(
        clusters=checked_clusters(by_kind["Cluster"]) if by_kind["Cluster"] else (),
        quotas=quotas_of(by_kind["Quota"]),
        bindings=bindings.bindings if bindings else (),
        warnings=bindings.warnings if bindings else {},
    )


@click.command(epilog=APPLY_EPILOG)
@_files
@click.option(
    "--dry-run",
    type=click.Choice(["none", "server"]),
    default="none",
    is_flag=False,
    flag_value="server",
    help="With server: say what would be configured, and change nothing.",
)
def apply(paths: Sequence[str], dry_run: str) -> None:
    """Send the clusters, quotas and workloads of files.

    Of clusters it sets labels, taints, region and models. A quota is a document of kind Quota with
    namespace, replicas and resources. Workloads with their policies, and ResourceBindings, are
    decided as by schedule.
    """
    objects = objects_in(paths)
    if dry_run == "server":
        differences = connection().call(lambda api: _differences(api, objects))
        changed = {difference.name for difference in differences}
        for name in _names_of(objects):
            say(f"{name} {'configured' if name in changed else 'unchanged'} (server dry run)")
        return
    connection().call(lambda api: _apply(api, objects))


async def _apply(api: Client, objects: FileObjects) -> None:
    """One after the other; the first that is refused ends it."""
    for cluster in objects.clusters:
        await api.update_cluster(cluster)
        say(f"cluster/{cluster.metadata.name} configured")
    for quota in objects.quotas:
        await api.set_quota(quota)
        say(f"quota/{quota.namespace} configured")
    for binding in objects.bindings:
        answer = await api.schedule(binding)
        decision = answer.decision
        outcome = f"{outcome_word(decision)} {shares_text(decision.clusters)}"
        queued = ", queued" if answer.queued else ""
        say(f"{_name_of(binding)} configured: {outcome}{queued}")
        for warning in (*decision.warnings, *objects.warnings.get(_key(binding), ())):
            say(f"warning: {_key(binding)}: {warning}", err=True)


def _names_of(objects: FileObjects) -> Iterator[str]:
    yield from (f"cluster/{cluster.metadata.name}" for cluster in objects.clusters)
    yield from (f"quota/{quota.namespace}" for quota in objects.quotas)
    yield from map(_name_of, objects.bindings)


def _key(binding: resource_pb2.ResourceBinding) -> str:
    return binding_key(binding.metadata.namespace, binding.metadata.name)


def _name_of(binding: resource_pb2.ResourceBinding) -> str:
    return f"binding/{_key(binding)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDifference:
    """A field of an object as it is and as it would be; "-" where it is not there."""

    name: str
    field: str
    now: str = NOTHING
    then: str = NOTHING

    def document(self) -> dict[str, Any]:
        document = asdict(self)
        return {"object": document.pop("name"), **document}


DIFFERENCES: Final[ListedKind[SpecDifference]] = ListedKind(
    word="difference",
    named=lambda row: row.name,
    document=SpecDifference.document,
    columns=(
        ListColumn("OBJECT", lambda row, _: row.name),
        ListColumn("FIELD", lambda row, _: row.field),
        ListColumn("NOW", lambda row, _: row.now),
        ListColumn("THEN", lambda row, _: row.then),
    ),
    prose=("NOW", "THEN"),
    empty="Nothing would change.",
    can_change=False,
)


@click.command(epilog=DIFF_EPILOG)
@_files
@listing_options(DIFFERENCES)
def diff(paths: Sequence[str], listing: Listing) -> None:
    """Show what schedule or apply would change.

    Of bindings a row for each cluster whose replicas would change, of clusters and quotas a row for
    each field. Exits with 3 where something would change.
    """
    objects = objects_in(paths)
    differences = connection().call(lambda api: _differences(api, objects))
    print_list(DIFFERENCES, listing, differences)
    if differences:
        click.get_current_context().exit(CHANGES)


async def _differences(api: Client, objects: FileObjects) -> list[SpecDifference]:
    return [difference async for difference in _compared(api, objects)]


async def _compared(api: Client, objects: FileObjects) -> AsyncGenerator[SpecDifference]:
    for cluster in objects.clusters:
        stored = await api.get_cluster(cluster.metadata.name)
        name = f"cluster/{cluster.metadata.name}"
        for difference in _of_fields(name, _fields(stored), _fields(cluster)):
            yield difference
    quotas = {quota.namespace: quota for quota in await api.list_quotas()} if objects.quotas else {}
    for quota in objects.quotas:
        now = _limits(quotas.get(quota.namespace, access_pb2.Quota()))
        for difference in _of_fields(f"quota/{quota.namespace}", now, _limits(quota)):
            yield difference
    for binding in objects.bindings:
        try:
            key = binding.metadata.namespace, binding.metadata.name
            present = (await api.get_binding(*key)).binding
        except NotFound:
            present = resource_pb2.ResourceBinding()
        answer = await api.preview(binding)
        for difference in _of_shares(_name_of(binding), present, answer.decision):
            yield difference


def _of_shares(
    name: str, stored: resource_pb2.ResourceBinding, decision: scheduling_pb2.Decision
) -> Iterator[SpecDifference]:
    if decision.outcome not in PLACED:
        # Such a decision leaves the binding where it is.
        say(f"{name} would find no place: {decision.reason}", err=True)
        return
    if not stored.metadata.name:
        yield SpecDifference(name=name, field="binding", then="new")
    now, then = (
        {f"replicas in {share.name}": str(share.replicas) for share in shares}
        for shares in (stored.spec.clusters, decision.clusters)
    )
    yield from _of_fields(name, now, then)


def _of_fields(
    name: str, now: Mapping[str, str], then: Mapping[str, str]
) -> Iterator[SpecDifference]:
    for path in sorted(now.keys() | then.keys()):
        if now.get(path) != then.get(path):
            values = now.get(path, NOTHING), then.get(path, NOTHING)
            yield SpecDifference(name=name, field=path, now=values[0], then=values[1])


def _fields(cluster: resource_pb2.Cluster) -> Mapping[str, str]:
    """The labels and the spec, which apply sets, by their paths."""
    labels = {f"metadata.labels.{key}": value for key, value in cluster.metadata.labels.items()}
    return labels | dict(_flat(document_from_message(cluster.spec), "spec"))


def _limits(quota: access_pb2.Quota) -> Mapping[str, str]:
    replicas = {"replicas": str(quota.replicas)} if quota.HasField("replicas") else {}
    return replicas | {f"resources.{name}": limit for name, limit in quota.resources.items()}


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, within in value.items():
            yield from _flat(within, f"{path}.{key}")
    elif isinstance(value, list):
        for position, within in enumerate(value):
            yield from _flat(within, f"{path}[{position}]")
    else:
        yield path, str(value)


EDIT_EPILOG: Final = "Example: EDITOR=nano fedctl edit cluster member1"
REFUSED: Final = "# not taken: "


@click.group(cls=Kinds, epilog=EDIT_EPILOG)
def edit() -> None:
    """Change a cluster in your editor."""


@edit.command("cluster", epilog=EDIT_EPILOG)
@click.argument("name")
def edit_cluster(name: str) -> None:
    """Change labels, taints, region and models of a cluster in the editor of $VISUAL or $EDITOR.

    What is wrong is shown there again. A cluster that somebody else changed meanwhile is not
    written.
    """
    to = connection()
    stored = to.call(lambda api: api.get_cluster(name))
    stored.ClearField("status")
    cluster = _edited(stored)
    if cluster is None:
        say(f"cluster/{name} not changed")
        return
    # Nobody edits within the time of a call.
    replace(to, began=time.monotonic()).call(lambda api: api.update_cluster(cluster))
    say(f"cluster/{name} edited")


def _edited(stored: resource_pb2.Cluster) -> resource_pb2.Cluster | None:
    """The cluster as it was left; None where nothing was changed. Raises InvalidRequest."""
    # Help does not wait for what reads files.
    from federation.cli.inputs import checked_clusters  # noqa: PLC0415 - see above
    from federation.codec.documents import read_documents  # noqa: PLC0415 - see above
    from federation.runtime.yaml_texts import yaml_text  # noqa: PLC0415 - see above

    text, refusal = yaml_text(document_from_message(stored)), None
    while True:
        edited = click.edit(text, extension=".yaml")
        if edited is None or edited == text:
            if refusal is not None:
                raise refusal
            return None
        lines = [line for line in edited.splitlines() if not line.startswith(REFUSED)]
        try:
            documents = read_documents("\n".join(lines), source="the editor")
            (cluster,) = checked_clusters(documents[:1])
            if (cluster.metadata.name, len(documents)) != (stored.metadata.name, 1):
                raise InvalidRequest.of("metadata.name", "must stay as it is, of one cluster")
        except InvalidRequest as error:
            refusal = error
            rules = [f"{REFUSED}{violation}" for violation in error.violations]
            text = "\n".join((*rules, *lines)) + "\n"
        else:
            return None if cluster == stored else cluster
