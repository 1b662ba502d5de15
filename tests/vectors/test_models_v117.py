"""Karmada's older estimate from grade counts, rule ``boundary`` (1.12 to 1.17)."""

from __future__ import annotations

from typing import Any

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.estimate import EstimateOptions, ModelRule, Source
from federation.model.workload import ReplicaRequirements
from tests.vectors.loading import amounts, cluster_of, for_each, read_lines

MODELS = {line["id"]: line for line in read_lines("models")}
LINES = read_lines("models-v117")


def estimate(line: dict[str, Any], highest: Source = Source.MODELS) -> int:
    estimates = estimate_replicas(
        FleetCapacity.of([cluster_of(line)]),
        ReplicaRequirements(request=amounts(line["request"])),
        EstimateOptions(model_rule=ModelRule.BOUNDARY, highest=highest),
    )
    return int(estimates.replicas_c[0])


def why_different(recorded: dict[str, Any], line: dict[str, Any]) -> str:
    """The rule that excuses a difference from Karmada 1.17; empty where there is to be none."""
    grades = {each["grade"] for each in line["models"] or ()}
    request = {name: amount for name, amount in amounts(line["request"]).items() if amount}
    if "panic" in recorded:
        return "panic"
    if any(each["count"] < 0 for each in line["counts"] or ()):
        return "negative count"
    if not request:
        return "no request"
    if grades and not {each["grade"] for each in line["counts"] or ()} <= grades:
        return "unknown grade"
    if grades and request.keys() - line["models"][0]["min"].keys():
        return "resource outside the model"
    return ""


@for_each(LINES)
def test_models_v117(recorded: dict[str, Any]) -> None:
    line = MODELS[recorded["id"]]
    answer = estimate(line)
    match why_different(recorded, line):
        case "":
            assert answer == recorded["out"]
        case "resource outside the model":
            # Karmada took the summary too, unless it came first upon a resource that fits no grade.
            assert answer == estimate(line, Source.SUMMARY)
            assert recorded["out"] in (0, answer)
        case "panic" | "negative count" | "unknown grade" | "no request":
            # It crashed where a grade had no count, read counts by their place in the list, and
            # multiplied by MaxInt64 for no request; ours must simply answer.
            assert answer >= 0
        case reason:
            raise AssertionError(reason)


def test_every_kind_of_line_is_there() -> None:
    reasons = [why_different(recorded, MODELS[recorded["id"]]) for recorded in LINES]
    assert reasons.count("") > 0.4 * len(LINES)
    assert reasons.count("panic") > 0
