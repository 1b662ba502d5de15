"""Nodes as columns: what is absent, and what placing a replica adds."""

from __future__ import annotations

import numpy as np

from estimator.binpack.arrays import ReplicaRequest
from estimator.binpack.fit import insufficient, room_n, unresolvable
from estimator.binpack.node_load import NodeLoad, tabulate

GPU = "nvidia.com/gpu"

REQUEST = ReplicaRequest(
    amounts={"cpu": 10, GPU: 2, "pods": 1},
    nonzero={"cpu": 100, "memory": 200},
    nonzero_placed={"cpu": 10, "memory": 250},
)


def test_a_resource_without_an_array_is_0_everywhere() -> None:
    nodes = tabulate([NodeLoad(allocatable={"cpu": 1}, requested={}), NodeLoad.of_pods({}, [])])
    assert nodes.allocatable_n("cpu").tolist() == [1, 0]
    assert nodes.allocatable_n(GPU).tolist() == [0, 0]
    assert nodes.requested_n("cpu").tolist() == [0, 0]


def test_without_a_nonzero_sum_the_plain_one_is_scored() -> None:
    nodes = tabulate([NodeLoad(allocatable={}, requested={"cpu": 3, "memory": 4})])
    assert nodes.scored_n("cpu").tolist() == [3]


def test_a_replica_placed_grows_each_sum_by_its_own_amount() -> None:
    nodes = tabulate([NodeLoad.of_pods({"cpu": 1000}, []), NodeLoad.of_pods({}, [REQUEST])])
    after = nodes.after(np.array([1, 0, 1]), np.array([0, 1, 2]), REQUEST, ["cpu", "memory", GPU])
    assert after.size == 3
    assert after.allocatable_n("cpu").tolist() == [0, 1000, 0]
    assert after.requested_n("cpu").tolist() == [10, 10, 30]
    assert after.requested_n("memory").tolist() == [0, 0, 0]
    assert after.requested_n(GPU).tolist() == [2, 2, 6]
    assert after.scored_n("cpu").tolist() == [10, 10, 30]
    assert after.scored_n("memory").tolist() == [250, 250, 750]
    assert after.scored_n(GPU).tolist() == [2, 2, 6]


def test_a_request_of_plain_amounts_is_one_container_and_one_slot() -> None:
    request = ReplicaRequest.of({"cpu": 5})
    assert request.amounts == {"cpu": 5, "pods": 1}
    assert (request.scored("cpu"), request.scored("memory")) == (5, 200 * 2**20)
    assert ReplicaRequest.of({"cpu": 0}).scored("cpu") == 0


def test_room_and_what_is_short_agree() -> None:
    nodes = tabulate(
        [
            NodeLoad(allocatable={"cpu": 100, GPU: 9, "pods": 9}, requested={"cpu": 35}),
            NodeLoad(allocatable={"cpu": 100, GPU: 1, "pods": 9}, requested={}),
            NodeLoad(allocatable={"cpu": 100, GPU: 9, "pods": 2}, requested={"pods": 2}),
            NodeLoad(allocatable={"cpu": 30, GPU: 9, "pods": 9}, requested={"cpu": 50}),
        ]
    )
    assert room_n(nodes, REQUEST, 3).tolist() == [3, 0, 0, 0]
    assert room_n(nodes, REQUEST, 100).tolist() == [4, 0, 0, 0]
    short = {name: short_n.tolist() for name, short_n in insufficient(nodes, REQUEST).items()}
    assert short == {
        "cpu": [False, False, False, True],
        GPU: [False, True, False, False],
        "pods": [False, False, True, False],
    }
    never = {name: never_n.tolist() for name, never_n in unresolvable(nodes, REQUEST).items()}
    assert never == {"cpu": [False] * 4, GPU: [False, True, False, False]}
