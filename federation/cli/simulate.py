"""The verb ``simulate``: decide bindings on clusters from files, without any server.

Must not decide: ``federation.scheduler`` does.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from federation.cli import inputs
from federation.cli import output as show
from federation.cli.cases import Case, answer_cases, cases_option, objects_at, options_at
from federation.cli.decisions import print_trace
from federation.cli.output import Output, unnamed_output_option
from federation.cli.virtual_time import (
    FAILOVER_LIMITS,
    fleet_events,
    rules_of,
    show_virtual_time,
    virtual_time_options,
    written_time,
)
from federation.codec.decisions import trace_to_message
from federation.codec.document_files import documents_of
from federation.codec.strict import message_from_document
from federation.codec.unread import dropped_from_documents, unread_in_message
from federation.codec.violations import Violations
from federation.codec.virtual_time import events_from_message
from federation.codec.workloads import bindings_from_documents
from federation.failover.virtual_steps import EventKind
from federation.failover.virtual_time import VirtualFleet
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, TieBreak
from federation.plugins import read_profiles
from federation.runtime.terminal import say
from federation.scheduler.decision import Decision
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.simulation import Simulation, SimulationOptions, check_bindings
from federation.v1.simulation_pb2 import VirtualTime

EPILOG = """Examples:

\b
fedctl simulate -f clusters.yaml -f deployment.yaml -f policy.yaml
fedctl simulate -f everything.yaml -o json
fedctl simulate -f everything.yaml --scheduler-config profiles.yaml
fedctl simulate -f everything.yaml --lose member1@60s --back member1@20m
fedctl simulate -f everything.yaml --arrive shop/web@5m --delete shop/api@1h
fedctl simulate --cases cases.jsonl > answers.jsonl
"""


@click.command(epilog=EPILOG)
@click.option("-f", "--filename", "paths", multiple=True, help="File with objects, or - .")
@cases_option
@click.option(
    "--tie-break", type=click.Choice([each.value for each in TieBreak]), help="Order among equals."
)
@inputs.model_rule_option
@inputs.merge_option
@click.option("--reserve", is_flag=True, help="Hold Duplicated and static weights to capacity too.")
@click.option(
    "--scheduler-config",
    type=click.Path(path_type=Path),
    help="File with scheduler profiles; bindings pick one by schedulerName.",
)
@virtual_time_options
@unnamed_output_option
def simulate(
    paths: Sequence[str],
    cases: str | None,
    output: Output,
    *,
    reserve: bool,
    scheduler_config: Path | None,
    lose: Sequence[str],
    back: Sequence[str],
    arrive: Sequence[str],
    delete: Sequence[str],
    **words: Any,
) -> None:
    """Decide where workloads would run.

    The files hold Clusters, and ResourceBindings or workloads with their policies. With --lose,
    --arrive or --delete it goes on in virtual time: what moves off a cluster that falls silent,
    when, who waits, and who gets the room that is given back.
    """
    later = {
        EventKind.LOSE: lose,
        EventKind.BACK: back,
        EventKind.ARRIVE: arrive,
        EventKind.DELETE: delete,
    }
    limits = {name: words.pop(name) for name in FAILOVER_LIMITS}
    if cases is not None:
        if paths or reserve or any(later.values()) or any(words.values()):
            raise click.UsageError("--cases takes what it needs from the lines of its file")
        answer_cases(cases, partial(answer_case, profiles=read_profiles(scheduler_config)))
        return
    if not paths:
        raise click.UsageError("give the files with -f, or --cases")
    documents = documents_of(paths)
    clusters, others = inputs.split_clusters(documents)
    states = inputs.clusters_in_files(clusters)
    messages = bindings_from_documents(others)
    if not messages:
        raise InvalidRequest.of("files", "hold nothing to schedule")
    named = [(f"ResourceBinding/{each.metadata.name}", each) for each in messages]
    options = {
        "tieBreak": words["tie_break"],
        "modelRule": words["model_rule"],
        "merge": words["merge"],
    }
    bindings = inputs.bindings_of(named, inputs.tie_break(options))
    profiles = read_profiles(scheduler_config)
    check_bindings(zip((path for path, _ in named), bindings, strict=True), profiles)
    unread = [field for each in messages for field in unread_in_message(each)]
    inputs.warn_of_unread(dict.fromkeys([*dropped_from_documents(documents), *unread]))
    how = SimulationOptions(estimate=inputs.estimate_options(options), reserve=reserve)
    if any(later.values()):
        events = fleet_events(later, [state.cluster.name for state in states], bindings)
        fleet = VirtualFleet(states, how, rules_of(limits), began=time.time(), profiles=profiles)
        fleet.run(bindings, events)
        show_virtual_time(fleet, output)
        return
    simulation = Simulation(states, how, now=time.time(), profiles=profiles)
    _show([*zip(bindings, simulation.decide_all(bindings), strict=True)], output)


def answer_case(case: Case, profiles: Profiles = DEFAULT_PROFILES) -> dict[str, Any]:
    """One line of a file of cases."""
    options = options_at(case)
    states = inputs.clusters_of(
        inputs.by_position(objects_at(case, "clusters"), "clusters"), now=0.0
    )
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
        found = Violations()
        asked = events_from_message(message, "virtualTime", names, bindings, found)
        found.check()
        fleet = VirtualFleet(states, read, asked.rules, began=0.0, profiles=profiles)
        fleet.run(bindings, asked.events)
        decisions = [*map(fleet.decision_of, bindings)]
        return {"decisions": [*map(_written, bindings, decisions)], **written_time(fleet)}
    simulation = Simulation(states, read, now=0.0, profiles=profiles)
    decisions = simulation.decide_all(bindings)
    return {"decisions": [*map(_written, bindings, decisions)]}


def _written(binding: Binding, decision: Decision) -> dict[str, Any]:
    return {
        "binding": binding.key,
        "outcome": decision.outcome.value,
        "clusters": [{"name": each.name, "replicas": each.replicas} for each in decision.clusters],
        "reason": decision.reason,
    }


def _show(decided: Sequence[tuple[Binding, Decision]], output: Output) -> None:
    if output.is_document:
        written = [
            {
                **_written(binding, decision),
                "remainder": decision.remainder,
                "warnings": list(decision.trace.warnings),
            }
            for binding, decision in decided
        ]
        show.print_document(written, output)
        return
    rows = []
    for binding, decision in decided:
        shares = " ".join(f"{each.name}={each.replicas}" for each in decision.clusters)
        rows.append((binding.key, decision.outcome.value, shares or "-", decision.reason or "-"))
    columns = ["BINDING", "OUTCOME", "CLUSTERS", "REASON"]
    show.print_table(columns, rows, prose=["CLUSTERS", "REASON"])
    for binding, decision in decided:
        for each in decision.trace.warnings:
            say(f"warning: {binding.key}: {each}", err=True)
    if output.is_wide:
        for binding, decision in decided:
            show.print_heading(binding.key)
            print_trace(trace_to_message(decision.trace), wide=True)
