"""Karmada's general estimate from grade counts, rule ``simulated`` (since 1.18)."""

from __future__ import annotations

from typing import Any

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.workload import ReplicaRequirements
from tests.vectors.loading import amounts, cluster_of, for_each, is_plain_estimate, read_lines

LINES = [line for line in read_lines("models") if is_plain_estimate(line)]


def estimate(line: dict[str, Any], highest: Source) -> Estimates:
    return estimate_replicas(
        FleetCapacity.of([cluster_of(line)]),
        ReplicaRequirements(request=amounts(line["request"])),
        EstimateOptions(model_rule=ModelRule.SIMULATED, highest=highest),
    )


def why_different(line: dict[str, Any]) -> str:
    """The rule that excuses a difference from Karmada; empty where there is to be none."""
    if any(each["count"] < 0 for each in line["counts"] or ()):
        return "negative count"
    request = {name: amount for name, amount in amounts(line["request"]).items() if amount}
    if not request:
        return "no request"
    if line["models"] and line["counts"] and request.keys() - line["models"][0]["min"].keys():
        return "resource outside the model"
    return ""


@for_each(LINES)
def test_models(line: dict[str, Any]) -> None:
    estimates = estimate(line, Source.MODELS)
    summary = estimate(line, Source.SUMMARY)
    match why_different(line):
        case "":
            assert estimates.replicas_c.tolist() == [line["out"]]
        case "negative count":
            # Karmada falls back to the summary; such a report is refused at our border.
            assert summary.replicas_c.tolist() == [line["out"]]
        case "no request":
            # Karmada still counts 110 pods a node; with nothing asked for, only pod slots limit.
            assert estimates.replicas_c.tolist() == summary.replicas_c.tolist()
            assert estimates.replicas_c[0] >= line["out"]
        case "resource outside the model":
            # Karmada since 1.18 answers 0; before, and here, the summary answers as a whole.
            assert line["out"] == 0
            assert estimates.replicas_c.tolist() == summary.replicas_c.tolist()
            assert estimates.source_c.tolist() == [Source.SUMMARY]
            assert "the resource model lacks" in estimates.reasons[0]


def test_most_lines_are_to_be_equal() -> None:
    assert sum(not why_different(line) for line in LINES) > 0.7 * len(LINES)
