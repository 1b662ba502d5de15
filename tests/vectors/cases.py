"""Recorded answers as lines for ``fedctl simulate --cases`` and ``fedctl estimate --cases``.

Must not judge answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.model.resources import MAX_AMOUNT

SCHEDULING = {
    "Duplicated": {"replicaSchedulingType": "Duplicated"},
    "StaticWeight": {"replicaDivisionPreference": "Weighted"},
    "DynamicWeight": {
        "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    },
    "Aggregated": {"replicaDivisionPreference": "Aggregated"},
}


def answers(verb: str, cases: Iterable[dict[str, Any]], folder: Path) -> dict[Any, dict[str, Any]]:
    """What one process answers to all cases, by id."""
    file = folder / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    result = CliRunner().invoke(fedctl, [verb, "--cases", str(file)])
    assert result.exit_code == 0, result.output
    return {answer["id"]: answer for answer in map(json.loads, result.stdout.splitlines())}


def simulate_case(line: dict[str, Any]) -> dict[str, Any]:
    """A line of ``division`` or ``spread-locality`` with availability as it was recorded."""
    spec = {
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "uid": line["uid"]},
        "replicas": line["replicas"],
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "clusters": line["prior"],
        "placement": placement(line),
    }
    if line.get("mode") == "Fresh":
        spec["rescheduleTriggeredAt"] = "2026-03-01T12:00:00Z"
    return {
        "id": line["id"],
        "clusters": [cluster(each) for each in line["clusters"]],
        "bindings": [{"metadata": {"name": "web"}, "spec": spec}],
        "options": {
            "tieBreak": "karmada",
            "availableReplicas": {
                each["name"]: each["allocatable_replicas"] for each in line["clusters"]
            },
        },
    }


def cluster(recorded: dict[str, Any]) -> dict[str, Any]:
    spec = {name: recorded[name] for name in ("region", "zones", "provider") if recorded.get(name)}
    metadata = {"name": recorded["name"], "labels": recorded.get("labels", {})}
    return {"metadata": metadata, "spec": spec}


def placement(line: dict[str, Any]) -> dict[str, Any]:
    scheduling = dict(SCHEDULING[line["strategy"]])
    if line.get("static_rules"):
        scheduling["weightPreference"] = {
            "staticWeightList": [
                {"targetCluster": affinity(rule), "weight": rule["weight"]}
                for rule in line["static_rules"]
            ]
        }
    placed: dict[str, Any] = {"replicaScheduling": scheduling}
    if line.get("constraints"):
        placed["spreadConstraints"] = [
            {"spreadByField": each["by"], "minGroups": each["min"], "maxGroups": each["max"]}
            for each in line["constraints"]
        ]
    tiers = sorted({each.get("tier", 0) for each in line["clusters"]})
    if len(tiers) > 1:
        first, *others = [
            {
                "affinityName": f"tier-{tier}",
                "clusterNames": [
                    each["name"] for each in line["clusters"] if each.get("tier", 0) == tier
                ],
            }
            for tier in tiers
        ]
        placed["clusterAffinities"] = [{**first, "overflowAffinities": others}]
    return placed


def affinity(rule: dict[str, Any]) -> dict[str, Any]:
    stated: dict[str, Any] = {}
    if "clusters" in rule:
        stated["clusterNames"] = rule["clusters"]
    if "exclude" in rule:
        stated["exclude"] = rule["exclude"]
    if "labels" in rule:
        stated["labelSelector"] = {"matchLabels": rule["labels"]}
    return stated


def estimate_case(line: dict[str, Any], rule: str) -> dict[str, Any]:
    """A line of ``models`` or ``summary`` as a cluster that reports it."""
    summary = {name: line[name] for name in ("allocatable", "allocated", "allocating")}
    if line["counts"]:
        summary["allocatableModelings"] = line["counts"]
    return {
        "id": line["id"],
        "clusters": [
            {
                "apiVersion": "cluster.karmada.io/v1alpha1",
                "kind": "Cluster",
                "metadata": {"name": line["id"]},
                "spec": {"resourceModels": resource_models(line["models"] or [])},
                "status": {"resourceSummary": summary},
            }
        ],
        "request": line["request"],
        "components": line.get("components"),
        "assumed": line["assumed"] if line["overcommit_protection"] else None,
        "options": {"modelRule": rule},
    }


def resource_models(models: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Grades with ranges; each ends where the next begins."""
    ends: list[dict[str, str]] = [*(each["min"] for each in models[1:]), {}][: len(models)]
    return [
        {
            "grade": each["grade"],
            "ranges": [
                {"name": name, "min": least, "max": end.get(name, str(MAX_AMOUNT))}
                for name, least in each["min"].items()
            ],
        }
        for each, end in zip(models, ends, strict=True)
    ]
