"""The verb ``estimate``: how many replicas fit, from files or from the control plane.

Must not compute estimates: ``federation.cli.offline`` or the server does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from federation.cli import inputs
from federation.cli import output as show
from federation.cli.arguments import RenamedOption, pairs_of
from federation.cli.connection import connection
from federation.cli.inputs import answer_cases
from federation.cli.lists import ListColumn, ListedKind, Listing, listing_options, print_list
from federation.cli.offline.estimates import Row, answer_case, offline_rows
from federation.cli.offline.verbs import (
    cases_option,
    merge_option,
    model_rule_option,
)
from federation.codec.amount_warnings import amount_warnings
from federation.codec.document_files import documents_of
from federation.codec.requirements import component_messages, requirements_to_message
from federation.codec.written import enum_word
from federation.model.estimate import BLIND_UP_TO, Source
from federation.model.resources import is_countable
from federation.model.workload import ReplicaRequirements
from federation.v1 import estimates_pb2

if TYPE_CHECKING:
    from federation.client import EstimateTable


EPILOG = """Examples:

\b
fedctl estimate --request cpu=3,memory=20Gi
fedctl estimate --request cpu=500m --from-file clusters.yaml -o json
fedctl estimate --component master=1:cpu=1,memory=2Gi --component worker=3:cpu=4
fedctl estimate --cases cases.jsonl > answers.jsonl
"""


def _or(value: int | None, missing: str) -> int | str:
    return missing if value is None else value


def _source(row: Row) -> str:
    return f"{row['source']}{', ignores the node claim' if row['ignoresNodeClaim'] else ''}"


ESTIMATES: Final[ListedKind[Row]] = ListedKind(
    word="cluster",
    named=lambda row: str(row["cluster"]),
    document=lambda row: row,
    can_change=False,
    columns=(
        ListColumn("CLUSTER", lambda row, _: row["cluster"]),
        ListColumn("REPLICAS", lambda row, _: _or(row["replicas"], "unknown")),
        ListColumn("SOURCE", lambda row, _: _source(row)),
        ListColumn("BOUND", lambda row, _: row["bound"] or "-"),
        ListColumn("AT MOST", lambda row, _: _or(row["atMost"], "-"), rare=True),
        ListColumn(
            "AGE",
            lambda row, _: show.age(row["ageSeconds"]) if row.get("sequence") else "-",
            order=lambda row: row.get("ageSeconds"),
            rare=True,
        ),
        ListColumn("SEQUENCE", lambda row, _: row.get("sequence", "-"), wide=True),
        ListColumn("NOTE", lambda row, _: row["note"], rare=True),
    ),
    least=("SEQUENCE",),
    last=("BOUND", "AT MOST"),
    prose=("NOTE",),
    empty="No clusters to ask.",
)


@click.command(epilog=EPILOG)
@click.option(
    "--request", "requests", multiple=True, help="What one replica asks for: cpu=3,memory=20Gi."
)
@click.option(
    "--component",
    "components",
    multiple=True,
    metavar="NAME=REPLICAS:REQUEST",
    help="A part of a workload of several: master=1:cpu=2. REPLICAS are whole sets then.",
)
@click.option(
    "--node-selector",
    "selectors",
    cls=RenamedOption,
    old=["--selector"],
    multiple=True,
    help="Node labels it needs: disk=ssd.",
)
@click.option(
    "--from-file",
    "paths",
    cls=RenamedOption,
    old=["--from"],
    multiple=True,
    help="File with Clusters, or - ; no server is asked.",
)
@cases_option
@click.option("--clusters", default="", help="Only these, of the control plane: member1,member2.")
@click.option("--source", type=click.Choice(list(inputs.SOURCES)), help="Highest level to ask.")
@model_rule_option
@merge_option
@listing_options(ESTIMATES)
def estimate(
    requests: Sequence[str],
    components: Sequence[str],
    selectors: Sequence[str],
    paths: Sequence[str],
    cases: str | None,
    clusters: str,
    listing: Listing,
    **options: str | None,
) -> None:
    """Count the replicas of a shape that still fit."""
    if cases is not None:
        if requests or components or selectors or paths or clusters or any(options.values()):
            raise click.UsageError("--cases takes what it needs from the lines of its file")
        answer_cases(cases, answer_case)
        return
    if components:
        # Of cases they are counted on files: the control plane asks agents.
        if requests or paths or selectors or options["model_rule"] or options["merge"]:
            raise click.UsageError("--component goes with --clusters and --source alone")
        print_list(ESTIMATES, listing, _rows_of_sets(components, clusters, options["source"]))
        return
    if not requests:
        raise click.UsageError("say what a replica asks for with --request, or give --cases")
    node_claim = {"nodeSelector": pairs_of(selectors, "--node-selector")} if selectors else None
    amounts = pairs_of(requests, "--request")
    requirements = inputs.requirements_of(amounts, node_claim)
    inputs.warn(amount_warnings(amounts, "--request"))
    read = inputs.estimate_options(
        {
            "modelRule": options["model_rule"],
            "merge": options["merge"],
            "source": options["source"],
        }
    )
    named = inputs.SOURCES.get(options["source"] or "", Source.EXACT)
    read = replace(read, ignore_claims=named <= BLIND_UP_TO)
    summaries: list[Mapping[str, Any]] = []
    if paths:
        if clusters:
            raise click.UsageError("--clusters chooses among the control plane's, not a file's")
        documents, _ = inputs.split_clusters(documents_of(paths))
        states = inputs.clusters_in_files(documents)
        rows = offline_rows(states, requirements, read)
        summaries = [member.report.summary.allocatable for member in states if member.report]
    else:
        rows = _online_rows(requirements, clusters, options)
        if _finds_nothing(rows):
            summaries = _online_summaries()
    inputs.warn(_unreported(requirements, summaries))
    print_list(ESTIMATES, listing, rows)


def _finds_nothing(rows: Sequence[Row]) -> bool:
    return bool(rows) and not any(row["replicas"] for row in rows)


def _unreported(
    requirements: ReplicaRequirements, summaries: Sequence[Mapping[str, object]]
) -> Iterator[str]:
    """Yield a warning for each name, of those that a node may report, that no cluster reports."""
    reported = {name for summary in summaries for name in summary}
    for name in requirements.request:
        if reported and is_countable(name) and name not in reported:
            yield f"--request[{name}]: no cluster reports a resource of this name"


def _online_summaries() -> list[Mapping[str, Any]]:
    clusters = connection().call(lambda api: api.list_clusters())
    return [member.status.resource_summary.allocatable for member in clusters]


def _online_rows(
    requirements: ReplicaRequirements, clusters: str, options: dict[str, str | None]
) -> list[Row]:
    # Whoever reads files would wait for grpc.
    from federation.client import Client  # noqa: PLC0415 - see above

    numbers = {
        "highest_source": ("EstimateSource", "ESTIMATE_SOURCE", options["source"]),
        "model_rule": ("ModelRule", "MODEL_RULE", options["model_rule"]),
        "merge": ("EstimateMerge", "ESTIMATE_MERGE", options["merge"]),
    }
    choices = {
        name: _number(enum, prefix, word) for name, (enum, prefix, word) in numbers.items() if word
    }
    shapes = [requirements_to_message(requirements)]
    named = _names_of(clusters)
    table = connection().call(partial(Client.estimate, shapes=shapes, clusters=named, **choices))
    return _rows_of(table)


def _rows_of_sets(components: Sequence[str], clusters: str, source: str | None) -> list[Row]:
    from federation.client import Client  # noqa: PLC0415 - see above

    parts = inputs.components_of(list(map(_component, components)), "--component")
    highest = _number("EstimateSource", "ESTIMATE_SOURCE", source or "unspecified")
    table = connection().call(
        partial(
            Client.estimate_component_sets,
            components=component_messages(parts),
            clusters=_names_of(clusters),
            highest_source=highest,
        )
    )
    return _rows_of(table)


def _component(text: str) -> dict[str, Any]:
    """``worker=3:cpu=4,memory=8Gi`` as a document. Raises click.UsageError."""
    head, colon, request = text.partition(":")
    name, equals, replicas = head.partition("=")
    if not (name and equals and colon and replicas.isascii() and replicas.isdecimal()):
        raise click.UsageError(f"--component: {text!r} is not NAME=REPLICAS:REQUEST")
    amounts = pairs_of([request], "--component")
    inputs.warn(amount_warnings(amounts, f"--component {name}"))
    return {"name": name, "replicas": int(replicas), "request": amounts}


def _names_of(clusters: str) -> list[str]:
    return [name.strip() for name in clusters.split(",") if name.strip()]


def _number(enum: str, prefix: str, word: str) -> Any:
    return getattr(estimates_pb2, enum).Value(f"{prefix}_{word.upper()}")


def _rows_of(table: EstimateTable) -> list[Row]:
    sources, bounds = estimates_pb2.EstimateSource, estimates_pb2.EstimateBound
    return [
        {
            "cluster": cluster,
            "replicas": table.replicas[0][position],
            "source": enum_word(sources.DESCRIPTOR, table.sources[0][position]) or "unknown",
            "bound": enum_word(bounds.DESCRIPTOR, table.bounds[0][position]),
            "atMost": table.upper_replicas[0][position],
            "ignoresNodeClaim": table.ignores_node_claim[0][position],
            "note": table.notes[0][position],
            "ageSeconds": table.age_seconds[position],
            "sequence": table.sequences[position],
        }
        for position, cluster in enumerate(table.clusters)
    ]
