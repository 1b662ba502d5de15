"""Sets in closed form are the sets of the obvious loop, one replica at a time."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from estimator.estimation.exact import ExactEstimates
from estimator.nodes import Node
from estimator.snapshot import NodeTable, Snapshot, columns_of
from federation.model.workload import Component, NodeClaim, ReplicaRequirements

RESOURCES = ("cpu", "memory", "example.com/device")

amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 9), max_size=3)
components = st.builds(
    lambda replicas, request, disk: Component(
        name="",
        replicas=replicas,
        requirements=ReplicaRequirements(
            request=request,
            node_claim=NodeClaim(node_selector={"disk": disk}) if disk else None,
        ),
    ),
    st.integers(0, 4),
    amounts,
    st.sampled_from(["", "", "ssd"]),
)
workloads = st.lists(components, min_size=1, max_size=3)
nodes = st.lists(
    st.tuples(
        st.fixed_dictionaries({name: st.integers(0, 30) for name in (*RESOURCES, "pods")}),
        st.fixed_dictionaries({name: st.integers(0, 9) for name in (*RESOURCES, "pods")}),
        st.sampled_from(["ssd", "hdd"]),
    ),
    max_size=6,
)


def snapshot_of(rows: Sequence[tuple[dict[str, int], dict[str, int], str]]) -> Snapshot:
    table = NodeTable.of(
        Node(name=f"n{position}", labels={"disk": disk}, allocatable=allocatable)
        for position, (allocatable, _, disk) in enumerate(rows)
    )
    return Snapshot(table=table, requested=columns_of([requested for _, requested, _ in rows]))


class ObviousNodes:
    """Nodes that replicas are put on one by one, each on the first that has room."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._labels = [node.labels for node in snapshot.table.nodes]
        self._free = [
            {name: int(snapshot.free_n(name)[row]) for name in (*RESOURCES, "pods")}
            for row in range(len(snapshot))
        ]

    def take_set(self, workload: Sequence[Component]) -> bool:
        return all(
            self._take(component) for component in workload for _ in range(component.replicas)
        )

    def count(self, workload: Sequence[Component]) -> int:
        if not any(component.replicas for component in workload):
            return sum(max(0, free["pods"]) for free in self._free)
        count = 0
        while self.take_set(workload):
            count += 1
        return count

    def _take(self, component: Component) -> bool:
        claim = component.requirements.node_claim or NodeClaim()
        amounts = {**component.requirements.request, "pods": 1}
        for labels, free in zip(self._labels, self._free, strict=True):
            suits = all(labels[key] == value for key, value in claim.node_selector.items())
            if suits and all(free[name] >= each for name, each in amounts.items() if each):
                for name, each in amounts.items():
                    free[name] -= each
                return True
        return False


@given(rows=nodes, workload=workloads, assumed=st.lists(workloads, max_size=2))
def test_sets_are_those_of_the_obvious_loop(
    rows: list[tuple[dict[str, int], dict[str, int], str]],
    workload: list[Component],
    assumed: list[list[Component]],
) -> None:
    snapshot = snapshot_of(rows)
    obvious = ObviousNodes(snapshot)
    for each in assumed:
        obvious.take_set(each)
    estimates = ExactEstimates(snapshot=snapshot)
    assert estimates.sets(workload, assumed) == obvious.count(workload)


@given(rows=nodes, component=components, assumed=st.lists(workloads, max_size=2))
def test_replicas_are_sets_of_one(
    rows: list[tuple[dict[str, int], dict[str, int], str]],
    component: Component,
    assumed: list[list[Component]],
) -> None:
    one = Component(name="", replicas=1, requirements=component.requirements)
    estimates = ExactEstimates(snapshot=snapshot_of(rows))
    assert estimates.replicas(component.requirements, assumed) == estimates.sets([one], assumed)


def test_sets_over_equal_nodes_are_counted_in_closed_form() -> None:
    """A billion sets: one at a time they would take hours."""
    huge = {"cpu": 10**12, "pods": 10**12}
    snapshot = snapshot_of([(huge, {}, "ssd")] * 3)
    workload = [
        Component(
            name=name, replicas=replicas, requirements=ReplicaRequirements(request={"cpu": 7})
        )
        for name, replicas in (("manager", 1), ("worker", 3))
    ]
    a_node = 10**12 // 7
    assert ExactEstimates(snapshot=snapshot).sets(workload) == min(3 * a_node // 4, 2**31 - 1)
