"""Estimates from totals and grade counts equal Karmada's answers, except where a rule says so."""

from __future__ import annotations

from typing import Any

from federation.capacity.deductions import UnitRequest
from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.workload import ReplicaRequirements
from federation.simulation.totals import SimulatedTotals
from tests.vectors.loading import (
    SETS_GIVEN_UP,
    amounts,
    cluster_of,
    for_each,
    is_plain_estimate,
    read_lines,
)

MODELS = {line["id"]: line for line in read_lines("models")}
PLAIN = [line for line in MODELS.values() if is_plain_estimate(line)]
SUMMARIES = [line for line in read_lines("summary") if is_plain_estimate(line)]
OLDER = read_lines("models-v117")
BESIDE_ASSUMED = [
    line
    for line in (*MODELS.values(), *read_lines("summary"))
    if line["kind"] == "replicas" and line.get("assumed") and line["overcommit_protection"]
]


def estimate(
    line: dict[str, Any], highest: Source, rule: ModelRule = ModelRule.SIMULATED
) -> Estimates:
    return estimate_replicas(
        FleetCapacity.of([cluster_of(line)]),
        ReplicaRequirements(request=amounts(line["request"])),
        EstimateOptions(model_rule=rule, highest=highest),
    )


def has_negative_count(line: dict[str, Any]) -> bool:
    """Karmada falls back to the summary; such a report is refused at our border."""
    return any(each["count"] < 0 for each in line["counts"] or ())


def lacks_resource(line: dict[str, Any]) -> bool:
    """Karmada since 1.18 answers 0; before, and here, the summary answers as a whole."""
    request = {name for name, amount in amounts(line["request"]).items() if amount}
    return bool(line["models"] and line["counts"] and request - line["models"][0]["min"].keys())


def why_different(line: dict[str, Any]) -> str:
    """The rule that excuses a difference from Karmada; empty where there is to be none."""
    if has_negative_count(line):
        return "negative count"
    if not any(amounts(line["request"]).values()):
        return "no request"
    return "resource outside the model" if lacks_resource(line) else ""


@for_each(PLAIN)
def test_models(line: dict[str, Any]) -> None:
    estimates = estimate(line, Source.MODELS)
    summary = estimate(line, Source.SUMMARY)
    match why_different(line):
        case "":
            assert estimates.replicas_c.tolist() == [line["out"]]
        case "negative count":
            assert summary.replicas_c.tolist() == [line["out"]]
        case "no request":
            # Karmada still counts 110 pods a node; with nothing asked for, only pod slots limit.
            assert estimates.replicas_c.tolist() == summary.replicas_c.tolist()
            assert estimates.replicas_c[0] >= line["out"]
        case _:
            assert line["out"] == 0
            assert estimates.replicas_c.tolist() == summary.replicas_c.tolist()
            assert estimates.source_c.tolist() == [Source.SUMMARY]
            assert "the resource model lacks" in str(estimates.reasons[0])


def why_different_from_older(recorded: dict[str, Any], line: dict[str, Any]) -> str:
    """The rule that excuses a difference from Karmada 1.17; empty where there is to be none."""
    if "panic" in recorded:
        return "panic"
    grades = {each["grade"] for each in line["models"] or ()}
    why = why_different(line)
    if why in ("", "resource outside the model") and grades:
        return why if {each["grade"] for each in line["counts"] or ()} <= grades else "unknown"
    return why


@for_each(OLDER)
def test_models_of_older_releases(recorded: dict[str, Any]) -> None:
    line = MODELS[recorded["id"]]
    (answer,) = estimate(line, Source.MODELS, ModelRule.BOUNDARY).replicas_c.tolist()
    match why_different_from_older(recorded, line):
        case "":
            assert answer == recorded["out"]
        case "resource outside the model":
            # Karmada took the summary too, unless it came first upon a resource that fits no grade.
            by_summary = estimate(line, Source.SUMMARY, ModelRule.BOUNDARY)
            assert [answer] == by_summary.replicas_c.tolist()
            assert recorded["out"] in (0, answer)
        case _:
            # It crashed where a grade had no count, read counts by their place in the list, and
            # multiplied by MaxInt64 for no request; ours must simply answer.
            assert answer >= 0


@for_each(SUMMARIES)
def test_summaries(line: dict[str, Any]) -> None:
    estimates = estimate(line, Source.SUMMARY)
    assert estimates.replicas_c.tolist() == [line["out"]]
    assert estimates.source_c.tolist() == [Source.SUMMARY]


def shape(request: dict[str, str] | None) -> UnitRequest:
    return UnitRequest(requirements=ReplicaRequirements(request=amounts(request)))


@for_each(BESIDE_ASSUMED)
def test_what_is_left_beside_assumed_workloads(line: dict[str, Any]) -> None:
    options = EstimateOptions(model_rule=ModelRule.SIMULATED)
    remaining = SimulatedTotals(FleetCapacity.of([cluster_of(line)]), options)
    for workload in line["assumed"]:
        for component in workload:
            remaining.take({0: component["replicas"]}, shape(component.get("request")))
    (left,) = remaining.available(shape(line["request"])).replicas_c.tolist()
    if line["id"] in SETS_GIVEN_UP:
        assert left < line["out"]
    elif lacks_resource(line):
        assert line["out"] == 0
    elif not has_negative_count(line):
        assert left == line["out"]


def test_most_lines_are_to_be_equal() -> None:
    assert sum(not why_different(line) for line in PLAIN) > 0.7 * len(PLAIN)
    older = [why_different_from_older(each, MODELS[each["id"]]) for each in OLDER]
    assert older.count("") > 0.4 * len(OLDER)
    assert older.count("panic") > 0
    excused = [line for line in BESIDE_ASSUMED if lacks_resource(line) or has_negative_count(line)]
    assert len(excused) < 0.2 * len(BESIDE_ASSUMED)
