"""``fedctl diff``: what schedule or apply would change, and nothing is changed.

Must not decide anything: the control plane previews each binding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from federation.cli.connection import connection
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options, print_list
from federation.client import Client
from federation.codec.written import document_from_message
from federation.model.errors import NotFound
from federation.model.placement import binding_key
from federation.runtime.terminal import say
from federation.v1 import resource_pb2, scheduling_pb2

CHANGES: Final = 3
NOTHING: Final = "-"
DIFF_EPILOG: Final = """Examples:

\b
fedctl diff -f deployment.yaml -f policy.yaml
fedctl diff -f cluster.yaml
fedctl diff -f binding.yaml || fedctl schedule -f binding.yaml
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecDifference:
    """A field of an object as it is and as it would be; "-" where it is not there."""

    name: str
    field: str
    now: str
    then: str

    def document(self) -> dict[str, Any]:
        return {"object": self.name, "field": self.field, "now": self.now, "then": self.then}


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
@click.option("-f", "--filename", "paths", multiple=True, required=True, help="File, or - .")
@listing_options(DIFFERENCES)
def diff(paths: Sequence[str], listing: Listing) -> None:
    """Show what schedule or apply would change.

    Of bindings a row for each cluster whose replicas would change, of clusters a row for each
    field. Exits with 3 where something would change.
    """
    # Help does not wait for what reads files.
    from federation.cli.inputs import checked_bindings, checked_clusters  # noqa: PLC0415 - see above
    from federation.codec.document_files import documents_of  # noqa: PLC0415 - see above

    documents = documents_of(paths)
    if {document.get("kind") for document in documents} == {"Cluster"}:
        clusters = checked_clusters(documents)
        differences = connection().call(lambda api: _of_clusters(api, clusters))
    else:
        bindings = checked_bindings(documents).bindings
        differences = connection().call(lambda api: _of_bindings(api, bindings))
    print_list(DIFFERENCES, listing, differences)
    if differences:
        click.get_current_context().exit(CHANGES)


async def _of_bindings(
    api: Client, bindings: Sequence[resource_pb2.ResourceBinding]
) -> list[SpecDifference]:
    differences: list[SpecDifference] = []
    for binding in bindings:
        key = binding.metadata.namespace, binding.metadata.name
        try:
            stored = (await api.get_binding(*key)).binding
        except NotFound:
            stored = resource_pb2.ResourceBinding()
        answer = await api.preview(binding)
        name = f"binding/{binding_key(*key)}"
        differences += _of_shares(name, stored, answer.decision)
    return differences


def _of_shares(
    name: str, stored: resource_pb2.ResourceBinding, decision: scheduling_pb2.Decision
) -> Iterator[SpecDifference]:
    if decision.outcome not in (
        scheduling_pb2.OUTCOME_SCHEDULED,
        scheduling_pb2.OUTCOME_PARTIAL,
    ):
        # Such a decision leaves the binding where it is.
        say(f"{name} would find no place: {decision.reason}", err=True)
        return
    if not stored.metadata.name:
        yield SpecDifference(name=name, field="binding", now=NOTHING, then="new")
    now = {share.name: share.replicas for share in stored.spec.clusters}
    then = {share.name: share.replicas for share in decision.clusters}
    for cluster in sorted(now.keys() | then.keys()):
        if now.get(cluster) != then.get(cluster):
            yield SpecDifference(
                name=name,
                field=f"replicas in {cluster}",
                now=str(now.get(cluster, NOTHING)),
                then=str(then.get(cluster, NOTHING)),
            )


async def _of_clusters(
    api: Client, clusters: Sequence[resource_pb2.Cluster]
) -> list[SpecDifference]:
    differences: list[SpecDifference] = []
    for cluster in clusters:
        stored = await api.get_cluster(cluster.metadata.name)
        now, then = _fields(stored), _fields(cluster)
        differences += [
            SpecDifference(
                name=f"cluster/{cluster.metadata.name}",
                field=field,
                now=now.get(field, NOTHING),
                then=then.get(field, NOTHING),
            )
            for field in sorted(now.keys() | then.keys())
            if now.get(field) != then.get(field)
        ]
    return differences


def _fields(cluster: resource_pb2.Cluster) -> Mapping[str, str]:
    """The labels and the spec, which apply sets, by their paths."""
    labels = {f"metadata.labels.{key}": value for key, value in cluster.metadata.labels.items()}
    return labels | dict(_flat(document_from_message(cluster.spec), "spec"))


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, within in value.items():
            yield from _flat(within, f"{path}.{key}")
    elif isinstance(value, list):
        for position, within in enumerate(value):
            yield from _flat(within, f"{path}[{position}]")
    else:
        yield path, str(value)
