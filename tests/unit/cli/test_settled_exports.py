"""Exports of a live Karmada: what runs there stays where nothing asks for another placement."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.cli.offline.simulating import answer_case

CLUSTERS = [
    {
        "metadata": {"name": name},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "resourceSummary": {"allocatable": {"cpu": "100", "memory": "400Gi", "pods": 1000}},
        },
    }
    for name in ("backup", "primary")
]
GROUPS = [
    {"affinityName": "main", "clusterNames": ["primary"]},
    {"affinityName": "spare", "clusterNames": ["backup"]},
]
WEIGHTED: dict[str, Any] = {
    "replicaSchedulingType": "Divided",
    "replicaDivisionPreference": "Weighted",
}
DYNAMIC = {**WEIGHTED, "weightPreference": {"dynamicWeight": "AvailableReplicas"}}
EARLIER, LATER = "2026-03-01T10:00:00Z", "2026-03-02T10:00:00Z"


def export(
    scheduling: dict[str, Any],
    shares: dict[str, int],
    *,
    placement: dict[str, Any] | None = None,
    annotations: dict[str, str] | None = None,
    group: str = "",
    triggered: str | None = None,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "replicas": sum(shares.values()),
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "clusters": [{"name": name, "replicas": count} for name, count in shares.items()],
        "placement": {"replicaScheduling": scheduling, **(placement or {})},
    }
    if triggered:
        spec["rescheduleTriggeredAt"] = triggered
    return {
        "metadata": {"name": "w", "namespace": "shop", "annotations": annotations or {}},
        "spec": spec,
        "status": {"lastScheduledTime": EARLIER, "schedulerObservingAffinityName": group},
    }


def simulated(binding: dict[str, Any]) -> dict[str, int]:
    (decision,) = answer_case({"clusters": CLUSTERS, "bindings": [binding]})["decisions"]
    assert decision["outcome"] == "SCHEDULED"
    return {each["name"]: each["replicas"] for each in decision["clusters"]}


@pytest.mark.parametrize("scheduling", [WEIGHTED, DYNAMIC])
@pytest.mark.parametrize("group", ["spare", ""])
def test_a_binding_stays_in_a_later_affinity_group(scheduling: dict[str, Any], group: str) -> None:
    placement = {"clusterAffinities": GROUPS}
    binding = export(scheduling, {"backup": 4}, placement=placement, group=group)
    assert simulated(binding) == {"backup": 4}


def test_a_triggered_reschedule_begins_with_the_first_affinity_group() -> None:
    placement = {"clusterAffinities": GROUPS}
    asked = export(DYNAMIC, {"backup": 4}, placement=placement, group="spare", triggered=LATER)
    assert simulated(asked) == {"primary": 4}
    done = export(
        DYNAMIC, {"backup": 4}, placement=placement, group="spare", triggered="2026-02-01T10:00:00Z"
    )
    assert simulated(done) == {"backup": 4}


def test_static_weights_are_not_divided_anew() -> None:
    assert simulated(export(WEIGHTED, {"backup": 1, "primary": 7})) == {"backup": 1, "primary": 7}
    asked = export(WEIGHTED, {"backup": 1, "primary": 7}, triggered=LATER)
    assert simulated(asked) == {"backup": 4, "primary": 4}


def test_a_placement_that_was_changed_since_is_applied() -> None:
    applied = json.dumps({"replicaScheduling": WEIGHTED})
    annotations = {"policy.karmada.io/applied-placement": applied}
    shares = {"backup": 1, "primary": 7}
    assert simulated(export(WEIGHTED, shares, annotations=annotations)) == shares
    tolerant = {"clusterTolerations": [{"operator": "Exists"}]}
    changed = export(WEIGHTED, shares, placement=tolerant, annotations=annotations)
    assert simulated(changed) == {"backup": 4, "primary": 4}
