"""The verb ``score``: which node a scheduler's configuration prefers for a pod, from files alone.

Must not compute scores: ``estimator.binpack`` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import click

from estimator.binpack.node_scores import NodeScore, NodeWithPods, amount_text, score_nodes
from estimator.binpack.strategy import ResourceScore, Strategy
from estimator.scoring_config.reader import (
    on_documented_scale,
    read_scoring_configuration,
    strategy_for,
)
from federation.cli import output as show
from federation.cli.inputs import answer_cases
from federation.cli.offline.scoring_cases import answer_case, checked_configuration
from federation.cli.offline.verbs import cases_option
from federation.cli.output import Output, unnamed_output_option
from federation.codec.document_files import documents_of, read_text
from federation.codec.documents import Document
from federation.codec.pods import object_at, quantities_at, resources_of_pod
from federation.codec.violations import Violations
from federation.model.errors import InvalidRequest, Violation
from federation.model.pod_request import PodResources
from federation.runtime.terminal import say

EPILOG = """Examples:

\b
fedctl score --config scheduler.yaml -f nodes-and-pod.yaml
kubectl get nodes,pods -A -o json | fedctl score --config scheduler.yaml -f - -f pod.yaml
fedctl score --check-config scheduler.yaml
fedctl score --cases cases.jsonl > answers.jsonl
"""

DOCUMENTED_SCALE: Final = "10"

Row = dict[str, Any]


@click.command(epilog=EPILOG)
@click.option(
    "--config",
    metavar="FILE",
    help="KubeSchedulerConfiguration, a legacy Policy or Volcano's scheduler.conf.",
)
@click.option("-f", "--filename", "paths", multiple=True, help="File with Nodes and Pods, or - .")
@click.option(
    "--pod", metavar="NAME", help="The pod to score, where several have no spec.nodeName."
)
@click.option("--profile", metavar="NAME", help="Scheduler name, instead of the pod's own.")
@click.option(
    "--scale",
    type=click.Choice(["100", DOCUMENTED_SCALE]),
    default="100",
    show_default=True,
    help="10: as Kubernetes' page on bin packing scores RequestedToCapacityRatio.",
)
@cases_option
@click.option("--check-config", metavar="FILE", help="Only say what is wrong with a configuration.")
@unnamed_output_option
def score(paths: Sequence[str], output: Output, **options: str | None) -> None:
    """Score nodes for a pod as kube-scheduler or Volcano do.

    It shows how each score comes about.
    """
    cases, checked, config = options["cases"], options["check_config"], options["config"]
    if sum(choice is not None for choice in (cases, checked, config)) != 1:
        raise click.UsageError("give one of --config FILE with -f FILE, --cases, --check-config")
    if config is None and paths:
        raise click.UsageError("-f goes with --config")
    if cases is not None:
        answer_cases(cases, answer_case)
    elif checked is not None:
        _check(checked, output)
    elif config is not None:
        if not paths:
            raise click.UsageError("give the nodes and the pod with -f FILE")
        _score(config, paths, output, options)


def _check(path: str, output: Output) -> None:
    answer = checked_configuration(read_text(path))
    if output.is_document:
        show.print_document(answer, output)
    elif answer["valid"]:
        show.print_facts(
            [
                ("Configuration", "valid"),
                ("Profiles", ", ".join(answer["strategies"]) or "none"),
                *(("Warning", warning) for warning in answer["warnings"]),
            ]
        )
    else:
        columns = ["FIELD", "ERROR", "WHY"]
        rows = [(error["field"], error["type"], error["message"]) for error in answer["errors"]]
        show.print_table(columns, rows, prose=["WHY"])
    if not answer["valid"]:
        click.get_current_context().exit(1)


def _score(
    config: str, paths: Sequence[str], output: Output, options: dict[str, str | None]
) -> None:
    try:
        configuration = read_scoring_configuration(read_text(config))
    except InvalidRequest as error:
        # Only the configuration is named in it, and not which file that is.
        named = (
            Violation(field=_in(config, violation), rule=violation.rule)
            for violation in error.violations
        )
        raise InvalidRequest(named) from error
    for warning in configuration.warnings:
        say(f"warning: {config}: {warning}", err=True)
    nodes, pod = nodes_and_pod(documents_of(paths), options["pod"])
    strategy = strategy_for(configuration, options["profile"] or pod.scheduler_name)
    if options["scale"] == DOCUMENTED_SCALE:
        strategy = on_documented_scale(strategy)
    scores = score_nodes(strategy, pod.resources, nodes)
    if output.is_document:
        rows = [_document(scored, strategy) for scored in scores]
        answer = {"pod": pod.name, "strategy": strategy.name, "nodes": rows}
        show.print_document(answer, output)
        return
    show.print_facts([("Pod", pod.name), ("Scored by", strategy.name)])
    show.print_heading("Nodes")
    columns = ["NODE", "SCORE", "BALANCED", "TOTAL", "INSUFFICIENT"]
    show.print_table(
        columns, [_row(scored) for scored in scores], least=["BALANCED"], prose=["INSUFFICIENT"]
    )
    show.print_heading("How each score was made")
    columns = ["NODE", "PLUGIN", "RESOURCE", "USED", "REQUEST", "ALLOCATABLE", "UTILISATION"]
    columns += ["SCORE", "WEIGHT", "LEFT OUT"]
    parts = [
        _part_row(scored.name, part, strategy) for scored in scores for part in scored.resources
    ]
    least = ["WEIGHT", "UTILISATION", "ALLOCATABLE", "REQUEST", "USED"]
    show.print_table(columns, parts, least=least, prose=["LEFT OUT"])


def _in(config: str, violation: Violation) -> str:
    return f"{config}: {violation.field}" if violation.field else config


def _row(scored: NodeScore) -> tuple[object, ...]:
    return (
        scored.name,
        "-" if scored.score is None else scored.score,
        "-" if scored.balanced is None else scored.balanced,
        scored.total,
        ", ".join(scored.insufficient) or "-",
    )


def _part_row(node: str, part: ResourceScore, strategy: Strategy) -> tuple[object, ...]:
    utilization = part.utilization_percent
    return (
        node,
        part.strategy,
        part.resource,
        *(amount_text(strategy, part.resource, amount) for amount in _amounts(part)),
        "-" if utilization is None else f"{utilization}%",
        "-" if part.score is None else part.score,
        part.weight,
        "-" if part.skipped is None else part.skipped.value,
    )


def _document(scored: NodeScore, strategy: Strategy) -> Row:
    return {
        "name": scored.name,
        "score": scored.score,
        "balanced": scored.balanced,
        "total": scored.total,
        "insufficient": list(scored.insufficient),
        "unresolvable": list(scored.unresolvable),
        "resources": [_part_document(part, strategy) for part in scored.resources],
    }


def _part_document(part: ResourceScore, strategy: Strategy) -> Row:
    used, request, allocatable = (
        amount_text(strategy, part.resource, amount) for amount in _amounts(part)
    )
    return {
        "plugin": part.strategy,
        "resource": part.resource,
        "used": used,
        "request": request,
        "allocatable": allocatable,
        "utilizationPercent": part.utilization_percent,
        "score": part.score,
        "weight": part.weight,
        "skipped": None if part.skipped is None else part.skipped.value,
    }


def _amounts(part: ResourceScore) -> tuple[int, int, int]:
    return part.used, part.request, part.allocatable


_OVER: Final = frozenset({"Succeeded", "Failed"})
_DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod:
    """The pod that has no node yet. ``name`` is namespace/name."""

    name: str
    scheduler_name: str
    resources: PodResources


@dataclass(slots=True, kw_only=True)
class _Objects:
    allocatable: dict[str, dict[str, str]] = field(default_factory=dict)
    placed: defaultdict[str, list[PodResources]] = field(default_factory=lambda: defaultdict(list))
    pending: list[PendingPod] = field(default_factory=list)


def nodes_and_pod(
    documents: Iterable[Document], pod_name: str | None
) -> tuple[tuple[NodeWithPods, ...], PendingPod]:
    """The nodes in the order given, with the pods bound to them, and the pod to score.

    ``pod_name`` (name or namespace/name) says which, where several have no node. Pods that have
    ended, and pods of nodes that are not given, count nowhere. Raises InvalidRequest with all
    violations.
    """
    violations = Violations()
    objects = _Objects()
    for position, document in enumerate(documents, start=1):
        _sort(document, position, objects, violations)
    if not objects.allocatable:
        violations.add("files", "hold no Node")
    incoming = _chosen(objects.pending, pod_name, violations)
    violations.check()
    nodes = tuple(
        NodeWithPods(name=name, allocatable=allocatable, pods=tuple(objects.placed[name]))
        for name, allocatable in objects.allocatable.items()
    )
    return nodes, incoming


def _sort(document: Document, position: int, objects: _Objects, violations: Violations) -> None:
    kind, version = document.get("kind"), document.get("apiVersion", "v1")
    metadata = object_at(document.get("metadata"), f"document {position}.metadata", violations)
    name = str(metadata.get("name") or "")
    path = f"{kind}/{name}" if name else f"document {position}"
    if kind not in ("Node", "Pod", "Namespace") or version != "v1":
        violations.add(path, f"must be a v1 Node or Pod, not {version} {kind}")
    elif not name:
        violations.add(f"{path}.metadata.name", "is required")
    elif kind == "Node":
        if name in objects.allocatable:
            violations.add(path, "is there twice")
        status = object_at(document.get("status"), f"{path}.status", violations)
        place = f"{path}.status.allocatable"
        objects.allocatable[name] = quantities_at(status.get("allocatable"), place, violations)
    elif kind == "Pod":
        shown = f"{metadata.get('namespace') or 'default'}/{name}"
        _sort_pod(document, shown, objects, violations)


def _sort_pod(document: Document, name: str, objects: _Objects, violations: Violations) -> None:
    path = f"Pod/{name}"
    spec = object_at(document.get("spec"), f"{path}.spec", violations)
    status = object_at(document.get("status"), f"{path}.status", violations)
    if status.get("phase") in _OVER:
        return
    resources = resources_of_pod(spec, f"{path}.spec", violations)
    node = spec.get("nodeName")
    if node:
        objects.placed[str(node)].append(resources)
        return
    scheduler_name = str(spec.get("schedulerName") or _DEFAULT_SCHEDULER)
    pod = PendingPod(name=name, scheduler_name=scheduler_name, resources=resources)
    objects.pending.append(pod)


def _chosen(pending: list[PendingPod], name: str | None, violations: Violations) -> PendingPod:
    nobody = PendingPod(name="", scheduler_name="", resources=PodResources())
    named = [pod for pod in pending if name is None or name in (pod.name, _short(pod.name))]
    if len(named) == 1:
        return named[0]
    which = "" if name is None else f" called {name}"
    if named:
        names = ", ".join(sorted(pod.name for pod in named))
        violations.add("--pod", f"is needed: several pods{which} have no spec.nodeName ({names})")
    else:
        violations.add(
            "files", f"hold no Pod{which} without spec.nodeName, which is the one to score"
        )
    return nobody


def _short(name: str) -> str:
    return name.partition("/")[2]
