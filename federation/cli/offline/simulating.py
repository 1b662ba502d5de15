"""Answers of ``simulate``, and of cases that assume workloads: decisions on clusters from files.

Must not decide: ``federation.scheduler`` and ``federation.simulation`` do. Whole sets are placed on
nodes as an agent places them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from estimator.estimation.exact import ExactEstimates, Workload
from federation.capacity.deductions import UnitRequest
from federation.capacity.fleet_reports import UNMODELLED, FleetCapacity
from federation.capacity.summary_estimates import PODS_PER_SIMULATED_NODE, positive_amounts
from federation.cli import inputs
from federation.cli import output as show
from federation.cli.arguments import seconds_of
from federation.cli.decisions import print_trace, share_text
from federation.cli.inputs import Case, answer_cases, objects_at, options_at
from federation.cli.output import Output
from federation.codec.binding_warnings import request_warnings, warnings_of_binding
from federation.codec.decisions import trace_to_message
from federation.codec.document_files import documents_of
from federation.codec.strict import message_from_document
from federation.codec.unread import dropped_from_documents, unread_in_message
from federation.codec.violations import Violations
from federation.codec.virtual_time import events_from_message
from federation.codec.workloads import FileBindings, file_bindings
from federation.model.cluster import ClusterState
from federation.model.component_sets import shape_of_set
from federation.model.errors import InvalidRequest
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.grades import minimums
from federation.model.placement import Binding
from federation.model.resources import PODS
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.plugins import read_profiles
from federation.runtime.terminal import say
from federation.scheduler.decision import Decision
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.simulation.capacity import SimulationOptions
from federation.simulation.decisions import Simulation, check_bindings
from federation.simulation.steps import (
    EventKind,
    FailoverRules,
    FleetEvent,
    VirtualStep,
    WaitingStep,
    event_violations,
)
from federation.simulation.totals import SimulatedTotals
from federation.simulation.world import VirtualFleet
from federation.v1.simulation_pb2 import VirtualTime


def rules_of(limits: Mapping[str, Any]) -> FailoverRules:
    """Rules with the options of ``FAILOVER_LIMITS``."""
    return FailoverRules(**limits)


def fleet_events(
    texts_by_kind: Mapping[EventKind, Sequence[str]],
    clusters: Collection[str],
    bindings: Sequence[Binding],
) -> list[FleetEvent]:
    """Events that the options state. Raises InvalidRequest."""
    events = [
        (f"--{kind.value}", _event(text, kind))
        for kind, texts in texts_by_kind.items()
        for text in texts
    ]
    violations = [*event_violations(events, clusters, bindings)]
    if violations:
        raise InvalidRequest(violations)
    return [event for _, event in events]


def written_time(fleet: VirtualFleet) -> dict[str, Any]:
    """All that happened, and how it stands at the end."""
    return {
        "steps": [_step(item) for item in fleet.steps],
        "bindings": [
            {"binding": item.key, "clusters": _shares(item.clusters)} for item in fleet.bindings
        ],
        "queue": [_waiting(item) for item in fleet.waiting()],
    }


def show_virtual_time(
    fleet: VirtualFleet, output: Output, warnings: Mapping[str, Sequence[str]]
) -> None:
    """Show all that happened, and the ``warnings`` by binding."""
    if output.is_document:
        some = {name: step for name, step in warnings.items() if step}
        show.print_document({**written_time(fleet), "warnings": some}, output)
        return
    rows = [
        (f"{step.at:g}s", step.kind.value, step.subject, _text(step.clusters), step.reason or "-")
        for step in fleet.steps
    ]
    columns = ["AT", "WHAT", "WHO", "CLUSTERS", "REASON"]
    show.print_table(columns, rows, prose=["CLUSTERS", "REASON"])
    _print_waiting(fleet)
    inputs.warn_of_bindings(warnings)


def _print_waiting(fleet: VirtualFleet) -> None:
    waiting = [
        (
            step.position or "-",
            step.binding.key,
            step.binding.priority,
            f"{step.since:g}s",
            step.remainder,
            step.gate or step.short_of,
        )
        for step in fleet.waiting()
    ]
    if not waiting:
        say("")
        say("No binding waits at the end.")
        return
    show.print_heading("Who waits at the end")
    columns = ["POSITION", "BINDING", "PRIORITY", "SINCE", "REMAINDER", "SHORT OF"]
    show.print_table(columns, waiting, prose=["SHORT OF"])


def _event(text: str, kind: EventKind) -> FleetEvent:
    option = f"--{kind.value}"
    name, at, span = text.rpartition("@")
    if not at and kind is EventKind.LOSE:
        return FleetEvent(0.0, kind, text)
    if not at:
        raise InvalidRequest.of(option, f"must say when, as in {text}@20m")
    return FleetEvent(seconds_of(span, option), kind, name)


def _step(step: VirtualStep) -> dict[str, Any]:
    return {
        "at": step.at,
        "what": step.kind.value,
        "who": step.subject,
        "clusters": _shares(step.clusters),
        "reason": step.reason,
    }


def _waiting(waiting: WaitingStep) -> dict[str, Any]:
    return {
        "binding": waiting.binding.key,
        "position": waiting.position,
        "since": waiting.since,
        "remainder": waiting.remainder,
        "shortOf": waiting.short_of,
        "gate": waiting.gate,
    }


def _shares(clusters: Sequence[TargetCluster]) -> list[dict[str, Any]]:
    return [{"name": cluster.name, "replicas": cluster.replicas} for cluster in clusters]


def _text(clusters: Sequence[TargetCluster]) -> str:
    return " ".join(map(share_text, clusters)) or "-"


def simulate_cases(cases: str, scheduler_config: Path | None) -> None:
    """An answer for each line of a file."""
    answer_cases(cases, partial(answer_case, profiles=read_profiles(scheduler_config)))


def simulate_files(
    paths: Sequence[str],
    output: Output,
    *,
    reserve: bool,
    scheduler_config: Path | None,
    later: Mapping[str, Sequence[str]],
    limits: Mapping[str, Any],
    options: Mapping[str, Any],
) -> None:
    """Shows decisions; in virtual time where anything happens ``later``. Raises InvalidRequest."""
    documents = documents_of(paths)
    clusters, rest = inputs.split_clusters(documents)
    states = inputs.clusters_in_files(clusters)
    held = file_bindings(rest)
    messages = held.bindings
    inputs.warn(held.notes)
    if not messages:
        raise InvalidRequest.of("files", "hold nothing to schedule")
    named = [(f"ResourceBinding/{message.metadata.name}", message) for message in messages]
    bindings = inputs.bindings_of(named, inputs.tie_break(options))
    profiles = read_profiles(scheduler_config)
    check_bindings(zip((path for path, _ in named), bindings, strict=True), profiles)
    unread = [field for message in messages for field in unread_in_message(message)]
    dropped = dropped_from_documents([*clusters, *held.documents])
    inputs.warn_of_unread(dict.fromkeys([*dropped, *unread]))
    warnings = _warnings_of(bindings, held, output)
    how = SimulationOptions(estimate=inputs.estimate_options(options), reserve=reserve)
    happens = {EventKind(kind): texts for kind, texts in later.items() if texts}
    if happens:
        events = fleet_events(happens, [state.cluster.name for state in states], bindings)
        fleet = VirtualFleet(states, how, rules_of(limits), began=time.time(), profiles=profiles)
        fleet.run(bindings, events)
        for binding in bindings:
            warnings[binding.key] += fleet.decision_of(binding).trace.warnings
        show_virtual_time(fleet, output, warnings)
        return
    simulation = Simulation(states, how, now=time.time(), profiles=profiles)
    decided = [*zip(bindings, simulation.decide_all(bindings), strict=True)]
    for binding, decision in decided:
        warnings[binding.key] += decision.trace.warnings
    _show(decided, output, warnings)


def _warnings_of(
    bindings: Sequence[Binding], held: FileBindings, output: Output
) -> dict[str, list[str]]:
    """The warnings by binding; people see the fields that nothing reads once for all of them."""
    return {
        binding.key: [
            *held.warnings.get(binding.key, ()),
            *(warnings_of_binding(message) if output.is_document else request_warnings(message)),
        ]
        for binding, message in zip(bindings, held.bindings, strict=True)
    }


def answer_case(case: Case, profiles: Profiles = DEFAULT_PROFILES) -> dict[str, Any]:
    """One line of a file of cases."""
    options = options_at(case)
    clusters = inputs.by_position(objects_at(case, "clusters"), "clusters")
    states = inputs.clusters_of(inputs.without_deleted(clusters), now=0.0)
    names = [state.cluster.name for state in states]
    read = SimulationOptions(
        estimate=inputs.estimate_options(options),
        reserve=inputs.flag(options, "reserve"),
        available_replicas=inputs.available_replicas(options, names),
    )
    documents = inputs.by_position(objects_at(case, "bindings"), "bindings")
    bindings = inputs.bindings_of(inputs.binding_messages_of(documents), inputs.tie_break(options))
    check_bindings(zip((path for path, _ in documents), bindings, strict=True), profiles)
    if case.get("virtualTime") is not None:
        message = message_from_document(case["virtualTime"], VirtualTime, "virtualTime")
        violations = Violations()
        events = events_from_message(message, "virtualTime", names, bindings, violations)
        violations.check()
        fleet = VirtualFleet(states, read, events.rules, began=0.0, profiles=profiles)
        fleet.run(bindings, events.events)
        decisions = [*map(fleet.decision_of, bindings)]
        return {"decisions": [*map(_written, bindings, decisions)], **written_time(fleet)}
    simulation = Simulation(states, read, now=0.0, profiles=profiles)
    decisions = simulation.decide_all(bindings)
    return {"decisions": [*map(_written, bindings, decisions)]}


def _written(binding: Binding, decision: Decision) -> dict[str, Any]:
    return {
        "binding": binding.key,
        "outcome": decision.outcome.value,
        "clusters": [
            {"name": cluster.name, "replicas": cluster.replicas} for cluster in decision.clusters
        ],
        "reason": str(decision.reason),
    }


def _show(
    decided: Sequence[tuple[Binding, Decision]],
    output: Output,
    warnings: Mapping[str, Sequence[str]],
) -> None:
    if output.is_document:
        written = [
            {
                **_written(binding, decision),
                "remainder": decision.remainder,
                "warnings": list(warnings[binding.key]),
            }
            for binding, decision in decided
        ]
        show.print_document(written, output)
        return
    rows = []
    for binding, decision in decided:
        shares = " ".join(map(share_text, decision.clusters))
        rows.append(
            (binding.key, decision.outcome.value, shares or "-", str(decision.reason) or "-")
        )
    columns = ["BINDING", "OUTCOME", "CLUSTERS", "REASON"]
    show.print_table(columns, rows, prose=["CLUSTERS", "REASON"])
    inputs.warn_of_bindings(warnings)
    if output.is_wide:
        for binding, decision in decided:
            show.print_heading(binding.key)
            print_trace(trace_to_message(decision.trace), wide=True)


# Nodes that are made up one by one; a cluster of more is answered from its summary.
MAX_SIMULATED_NODES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """Replicas, or whole sets; None where no level can answer."""

    units: int | None
    source: Source


def replicas_beside(
    state: ClusterState,
    requirements: ReplicaRequirements,
    assumed: Sequence[Workload],
    options: EstimateOptions,
) -> Units:
    """How many replicas fit beside the assumed workloads."""
    outstanding = _beside(FleetCapacity.of([state]), assumed, options)
    return _units(outstanding.available(UnitRequest(requirements=requirements)))


def sets_beside(
    state: ClusterState,
    workload: Workload,
    assumed: Sequence[Workload],
    options: EstimateOptions,
) -> Units:
    """How many whole sets of the workload fit beside the assumed ones.

    By the summary; models count sets under the rule ``simulated`` alone, and then the least of
    both is the answer, as it is Karmada's.
    """
    capacity = FleetCapacity.of([state])
    summary = replace(options, highest=Source.SUMMARY)
    outstanding = _beside(capacity, assumed, summary)
    replicas = _units(outstanding.available(UnitRequest(requirements=shape_of_set(workload))))
    nodes = _simulated_nodes(capacity, workload, options)
    if replicas.units is None or nodes is None:
        return replicas
    simulated = nodes.sets(workload, assumed)
    return Units(units=min(simulated, replicas.units), source=Source.MODELS)


def _beside(
    capacity: FleetCapacity, assumed: Sequence[Workload], options: EstimateOptions
) -> SimulatedTotals:
    outstanding = SimulatedTotals(capacity, options)
    for component in (component for workload in assumed for component in workload):
        outstanding.take({0: component.replicas}, UnitRequest(requirements=component.requirements))
    return outstanding


def _units(estimates: Estimates) -> Units:
    source = Source(int(estimates.source_c[0]))
    units = None if source is Source.NONE else int(estimates.replicas_c[0])
    return Units(units=units, source=source)


def _simulated_nodes(
    capacity: FleetCapacity, workload: Workload, options: EstimateOptions
) -> ExactEstimates | None:
    """Nodes of exactly the grades' minimums; None where models do not count such sets."""
    (state,) = capacity.states
    if (
        options.model_rule is not ModelRule.SIMULATED
        or options.highest < Source.MODELS
        or state.report is None
        or capacity.model_c[0] == UNMODELLED
    ):
        return None
    by_name = minimums(state.cluster.model)
    replicated = [component for component in workload if component.replicas]
    requested = {
        name for component in replicated for name in positive_amounts(component.requirements)
    }
    counts = state.report.grade_counts
    if (
        not replicated
        or not requested <= by_name.keys()
        or sum(counts.values()) > MAX_SIMULATED_NODES
    ):
        return None
    return ExactEstimates.of_empty_nodes(
        {
            PODS: PODS_PER_SIMULATED_NODE,
            **{name: least[column] for name, least in by_name.items()},
        }
        for column, grade in enumerate(state.cluster.model.grades)
        for _ in range(counts.get(grade.grade, 0))
    )
