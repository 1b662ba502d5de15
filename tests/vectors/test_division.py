"""Replica division against answers recorded from Karmada.

Must not excuse a difference that no rule names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from federation.model.arrays import IntArray
from federation.model.cluster import Cluster
from federation.model.placement import ClusterAffinity, TieBreak
from federation.scheduler.affinity import matching
from federation.scheduler.division.strategies import divide
from federation.scheduler.division.ties import TieOrder
from federation.scheduler.division.values import (
    Candidates,
    Division,
    DivisionRule,
    DivisionStrategy,
)
from federation.scheduler.fleet import Fleet
from tests.vectors.loading import for_each, read_lines

CASES = read_lines("division")

# Sums of availability beyond 32 bits are right here and negative there.
WIDER_SUMS = {"d-3733"}

# Karmada sorts equally available clusters with a sort that is unstable beyond this length: any
# order of equals is right there.
STABLE_SORT_LENGTH = 12


def candidate_order(case: dict[str, Any], fleet: Fleet) -> IntArray:
    prior = {entry["name"]: entry["replicas"] for entry in case["prior"]}
    ordered = sorted(
        case["clusters"],
        key=lambda c: (
            c.get("tier", 0),
            -c["score"],
            -(c["allocatable_replicas"] + prior.get(c["name"], 0)),
            c["name"],
        ),
    )
    return np.array([fleet.index[c["name"]] for c in ordered], dtype=np.int64)


def static_weights(case: dict[str, Any], fleet: Fleet) -> IntArray:
    rules = case["static_rules"]
    if not rules:
        return np.ones(len(fleet), np.int64)
    weight_c = np.zeros(len(fleet), np.int64)
    for rule in rules:
        target = ClusterAffinity(
            cluster_names=tuple(rule.get("clusters", ())),
            exclude=tuple(rule.get("exclude", ())),
            match_labels=rule.get("labels", {}),
        )
        weight_c = np.maximum(weight_c, np.where(matching(target, fleet), rule["weight"], 0))
    return weight_c


def divided(case: dict[str, Any]) -> tuple[Division, tuple[str, ...]]:
    fleet = Fleet.of(Cluster(name=c["name"], labels=c["labels"]) for c in case["clusters"])
    order_k = candidate_order(case, fleet)
    names = tuple(fleet.names[c] for c in order_k)
    by_name = {c["name"]: c for c in case["clusters"]}
    prior = {entry["name"]: entry["replicas"] for entry in case["prior"]}
    listed = {entry["name"]: position for position, entry in enumerate(case["prior"])}
    ties = TieOrder.of(fleet.encoded_names, case["uid"], TieBreak.KARMADA)
    candidates = Candidates(
        available_k=np.array([by_name[n]["allocatable_replicas"] for n in names], dtype=np.int64),
        prior_k=np.array([prior.get(n, 0) for n in names], dtype=np.int64),
        weight_k=static_weights(case, fleet)[order_k],
        floor_k=np.zeros(len(names), np.int64),
        ceiling_k=np.full(len(names), 2**62),
        listed_k=np.array([listed.get(n, len(listed)) for n in names], dtype=np.int64),
        tie_keys=lambda position_k: ties.keys(order_k[position_k]),
    )
    rule = DivisionRule(strategy=DivisionStrategy(case["strategy"]), fresh=case["mode"] == "Fresh")
    tier_k = np.array([by_name[n].get("tier", 0) for n in names], dtype=np.int64)
    return divide(rule, candidates, tier_k, case["replicas"]), names


@for_each(CASES)
def test_division_equals_karmada(case: dict[str, Any]) -> None:
    division, names = divided(case)
    assert list(names) == case["candidate_order"]
    if case["id"] in WIDER_SUMS:
        assert "available replicas -" in case["error"]
        assert not division.missing
        return
    if "error" in case:
        assert division.missing > 0
        return
    assert not division.missing
    shares = {n: r for n, r in zip(names, division.share_k.tolist(), strict=True) if r}
    if case["tie_sensitive"] and len(names) > STABLE_SORT_LENGTH:
        assert sum(shares.values()) == sum(case["assignment"].values())
        assert sorted(shares.values()) == sorted(case["assignment"].values())
        return
    assert shares == case["assignment"]
