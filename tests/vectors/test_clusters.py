"""The three recorded members against what was computed from them in exact fractions.

Every shape was also created as real pending pods: kube-scheduler bound exactly that many.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from estimator.cluster.cache import ClusterCache
from estimator.estimation.capacity import NodeSet, capacity_of
from estimator.estimation.fit import replicas_n
from estimator.kube.dump import Dump, read_dump
from estimator.nodes import PodState
from estimator.snapshot import Snapshot
from federation.model.arrays import IntArray
from federation.model.cluster import TaintEffect
from federation.model.grades import DEFAULT_MODEL
from federation.model.resources import PODS
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from tests.vectors.loading import amounts

MEMBERS = ("member1", "member2", "member3")
RECORDED = Path(__file__).parent / "clusters"
DUMPS = Path(__file__).parents[2] / "examples" / "clusters"

TRUTH = {
    member: json.loads((RECORDED / f"{member}.truth.json").read_text(encoding="utf-8"))
    for member in MEMBERS
}
SHAPES = [(member, shape) for member in MEMBERS for shape in TRUTH[member]["shapes"]]


def dump_of(member: str) -> Dump:
    return read_dump((DUMPS / f"{member}.json").read_bytes())


@pytest.fixture(scope="module")
def snapshots() -> dict[str, Snapshot]:
    made = {}
    for member in MEMBERS:
        dump = dump_of(member)
        cache = ClusterCache()
        cache.replace_nodes(dump.nodes)
        cache.replace_pods(dump.pods)
        made[member] = cache.snapshot()
    return made


@pytest.mark.parametrize("member", MEMBERS)
def test_nodes(member: str, snapshots: dict[str, Snapshot]) -> None:
    snapshot = snapshots[member]
    positions = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
    assert len(positions) == len(TRUTH[member]["nodes"])
    for recorded in TRUTH[member]["nodes"]:
        row = positions[recorded["name"]]
        node = snapshot.table.nodes[row]
        assert node.ready == recorded["ready"]
        assert node.unschedulable == recorded["unschedulable"]
        assert at(snapshot.table.allocatable, row) == nonzero(recorded["allocatable"])
        assert at(snapshot.requested, row) == nonzero(recorded["requested"])
        for name, amount in recorded["free"].items():
            assert snapshot.free_n(name)[row] == amount


@pytest.mark.parametrize("member", MEMBERS)
def test_pods(member: str) -> None:
    pods = {(pod.namespace, pod.name): pod for pod in dump_of(member).pods}
    for recorded in TRUTH[member]["pods"]:
        pod = pods[recorded["namespace"], recorded["name"]]
        assert pod.node == (recorded["node"] or "")
        assert dict(pod.request) == nonzero(recorded["request"])


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize(
    ("node_set", "recorded_name"),
    [(NodeSet.SCHEDULABLE, "product_node_set"), (NodeSet.EVERY, "karmada_node_set")],
)
def test_capacity(
    member: str, node_set: NodeSet, recorded_name: str, snapshots: dict[str, Snapshot]
) -> None:
    recorded = TRUTH[member]["summary"][recorded_name]
    if node_set is NodeSet.SCHEDULABLE:
        recorded = as_usable(member, recorded)
    capacity = capacity_of(snapshots[member], DEFAULT_MODEL, node_set)
    assert capacity.summary.allocatable == recorded["allocatable"]
    assert capacity.summary.allocated == recorded["allocated"]
    assert capacity.summary.allocating == recorded["allocating"]
    assert capacity.allocated_elsewhere == recorded["allocated_on_other_nodes"]
    assert capacity.grade_counts == dict(enumerate(recorded["grade_counts"]))
    assert capacity.nodes.graded == recorded["nodes"]
    assert capacity.nodes.total == len(TRUTH[member]["nodes"])
    assert capacity.nodes.ready == sum(node["ready"] for node in TRUTH[member]["nodes"])


@pytest.mark.parametrize(
    ("member", "shape"), SHAPES, ids=[f"{member}-{shape['id']}" for member, shape in SHAPES]
)
def test_shapes(member: str, shape: dict[str, Any], snapshots: dict[str, Snapshot]) -> None:
    snapshot = snapshots[member]
    fitting_n = replicas_n(snapshot, requirements_of(shape))
    per_node = {
        node.name: int(fitting_n[row])
        for row, node in enumerate(snapshot.table.nodes)
        if fitting_n[row]
    }
    assert per_node == nonzero(shape["per_node"])
    assert int(fitting_n.sum()) == shape["replicas"] == shape["kube_scheduler_bound"]


def as_usable(member: str, recorded: dict[str, Any]) -> dict[str, Any]:
    """The recorded sums without gated pods, and without nodes whose pod slots are used up.

    What was recorded has both; neither is of any use to a replica.
    """
    allocating = Counter(recorded["allocating"])
    for pod in dump_of(member).pods:
        if pod.state is PodState.GATED:
            allocating.subtract({**pod.request, PODS: 1})
    grade_counts = list(recorded["grade_counts"])
    full = [
        each
        for each in TRUTH[member]["nodes"]
        if each["ready"] and not each["unschedulable"] and each["free"][PODS] <= 0
    ]
    for each in full:
        grade_counts[each["grade"]] -= 1
    return {
        **recorded,
        "allocating": nonzero(allocating),
        "grade_counts": grade_counts,
        "nodes": recorded["nodes"] - len(full),
    }


def at(columns: Mapping[str, IntArray], row: int) -> dict[str, int]:
    return nonzero({name: int(column[row]) for name, column in columns.items()})


def nonzero(numbers: Mapping[str, int]) -> dict[str, int]:
    return {name: number for name, number in numbers.items() if number}


def requirements_of(shape: Mapping[str, Any]) -> ReplicaRequirements:
    terms = tuple(
        NodeSelectorTerm(
            match_expressions=requirements(term.get("match_expressions", ())),
            match_fields=requirements(term.get("match_fields", ())),
        )
        for term in shape["affinity_terms"]
    )
    return ReplicaRequirements(
        request=amounts(shape["requests"]),
        node_claim=NodeClaim(
            node_selector=shape["node_selector"],
            required_terms=terms or None,
            tolerations=tuple(map(toleration, shape["tolerations"])),
        ),
    )


def requirements(recorded: list[dict[str, Any]]) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            key=each["key"],
            operator=Operator(each["operator"]),
            values=tuple(each.get("values", ())),
        )
        for each in recorded
    )


def toleration(recorded: Mapping[str, Any]) -> Toleration:
    effect = recorded.get("effect")
    return Toleration(
        key=recorded.get("key", ""),
        operator=TolerationOperator(recorded.get("operator", "Equal")),
        value=recorded.get("value", ""),
        effect=TaintEffect(effect) if effect else None,
    )
