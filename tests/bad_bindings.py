"""Bindings that are wrong in one way each, and what is said about it wherever they are read."""

from __future__ import annotations

from typing import Any, Final

PLACEMENT = "spec.placement"
SCHEDULING = f"{PLACEMENT}.replicaScheduling"


def placed(**placement: Any) -> dict[str, Any]:
    return {"placement": placement}


def divided(**strategy: Any) -> dict[str, Any]:
    return placed(replicaScheduling={"replicaSchedulingType": "Divided", **strategy})


def weighted(weight: int) -> dict[str, Any]:
    weights = [{"targetCluster": {"clusterNames": ["m1"]}, "weight": weight}]
    return divided(weightPreference={"staticWeightList": weights})


def selecting(**requirement: Any) -> dict[str, Any]:
    return placed(clusterAffinity={"fieldSelector": {"matchExpressions": [requirement]}})


# By what is wrong: the parts of the spec that are, the field, and the rule.
BAD: Final[dict[str, tuple[dict[str, Any], str, str]]] = {
    "more groups at least than at most": (
        placed(spreadConstraints=[{"spreadByField": "region", "minGroups": 5, "maxGroups": 2}]),
        f"{PLACEMENT}.spreadConstraints[0].maxGroups",
        "must be at least minGroups",
    ),
    "a negative number of groups": (
        placed(spreadConstraints=[{"spreadByField": "cluster", "minGroups": -1}]),
        f"{PLACEMENT}.spreadConstraints[0].minGroups",
        "must be from 0 to 2147483647, not -1",
    ),
    "spread by one field twice": (
        placed(spreadConstraints=[{"spreadByField": "zone"}, {"spreadByField": "zone"}]),
        f"{PLACEMENT}.spreadConstraints[1].spreadByField",
        "'zone' is there already",
    ),
    "spread by nothing there is": (
        placed(spreadConstraints=[{"spreadByField": "planet"}]),
        f"{PLACEMENT}.spreadConstraints[0].spreadByField",
        "must be cluster, region, zone or provider, not 'planet'",
    ),
    "a negative weight": (
        weighted(-1),
        f"{SCHEDULING}.weightPreference.staticWeightList[0].weight",
        "must be from 0 to 2147483647, not -1",
    ),
    "a weight that is too large": (
        weighted(2**31),
        f"{SCHEDULING}.weightPreference.staticWeightList[0].weight",
        "must be from 0 to 2147483647, not 2147483648",
    ),
    "a field that clusters do not have": (
        selecting(key="planet", operator="In", values=["earth"]),
        f"{PLACEMENT}.clusterAffinity.fieldSelector.matchExpressions[0].key",
        "must be one of provider, region, zone, not 'planet'",
    ),
    "an affinity group twice": (
        placed(clusterAffinities=[{"affinityName": "near"}, {"affinityName": "near"}]),
        f"{PLACEMENT}.clusterAffinities[1].affinityName",
        "'near' is there already",
    ),
    "an affinity group without a name": (
        placed(clusterAffinities=[{"clusterNames": ["m1"]}]),
        f"{PLACEMENT}.clusterAffinities[0].affinityName",
        "is required",
    ),
    "an affinity beside affinity groups": (
        placed(clusterAffinity={}, clusterAffinities=[{"affinityName": "near"}]),
        f"{PLACEMENT}.clusterAffinities",
        "cannot be combined with clusterAffinity",
    ),
    "more replicas than Kubernetes counts": (
        {"replicas": 2**31},
        "spec.replicas",
        "must be from 0 to 2147483647, not 2147483648",
    ),
    "a negative number of replicas": (
        {"replicas": -1},
        "spec.replicas",
        "must be from 0 to 2147483647, not -1",
    ),
    "a limit below its least": (
        divided(clusterLimits=[{"min": 3, "max": 2}]),
        f"{SCHEDULING}.clusterLimits[0].max",
        "must be at least min",
    ),
    "limits for what is not divided": (
        placed(
            replicaScheduling={
                "replicaSchedulingType": "Duplicated",
                "clusterLimits": [{"max": 1}],
            }
        ),
        f"{SCHEDULING}.clusterLimits",
        "needs replicaSchedulingType Divided",
    ),
    "a word there is not": (
        divided(replicaDivisionPreference="Random"),
        f"{SCHEDULING}.replicaDivisionPreference",
        "must be Weighted, Aggregated or FillFirst, not 'Random'",
    ),
    "no placement": ({"placement": None}, PLACEMENT, "is required: write {} for every cluster"),
    "a scheduler that there is not": (
        {"schedulerName": "nobody"},
        "spec.schedulerName",
        "must be one of default-scheduler, not 'nobody'",
    ),
}


def bad_binding(spec: dict[str, Any]) -> dict[str, Any]:
    """A sound binding but for these parts of its spec."""
    return {
        "apiVersion": "work.karmada.io/v1alpha2",
        "kind": "ResourceBinding",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 1, "placement": {}, **spec},
    }
