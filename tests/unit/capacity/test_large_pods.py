"""Careful promises leave room for large pods that come late, and are held back nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.capacity import large_pods
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.filled_nodes import (
    LARGE_PART,
    DemandOnWay,
    Filled,
    LumpKey,
    ReportedNodes,
)
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.capacity.large_pods import (
    KIND_STEPS,
    MAX_CLAIMS,
    max_beside_large,
    mixed_c,
)
from federation.capacity.reserve import packable_c
from federation.model.cluster import Taint, TaintEffect
from federation.model.placement import Certificate
from federation.model.pools.building import build_pools
from federation.model.pools.values import NodeColumn, NodeColumns, Pools
from federation.model.reported_pools import pools_of, reported_pools
from federation.model.reservations import Outstanding, PackingOrder
from federation.model.workload import (
    NodeClaim,
    NodeSelectorTerm,
    Operator,
    ReplicaRequirements,
    Requirement,
    Toleration,
    TolerationOperator,
)
from lab.simulator import ControlPlane, divided
from lab.simulator_cluster import Snapshot
from tests.pools import alike, cells_of, one_pool

GIB = 1 << 30
CORES, NODES = 16_000, 6


def of(cpu: int) -> ReplicaRequirements:
    return ReplicaRequirements(request={"cpu": cpu, "memory": GIB})


SMALL, LARGE = of(1000), of(12_000)


def pools(*, tells: bool = True) -> Pools:
    """Nodes of 16 cores: three are empty, and three have room for three small pods."""
    groups = [alike(NODES // 2, (cpu, 64 * GIB, 50)) for cpu in (CORES, 3000)]
    totals = [(CORES, 64 * GIB)] * 2 if tells else None
    return replace(one_pool(cells_of(groups, allocatable=totals)), kubernetes_minor=36)


ARCH = "kubernetes.io/arch"
DEDICATED = Taint(key="dedicated", effect=TaintEffect.NO_SCHEDULE)


def two_architectures() -> Pools:
    """Pools as a control plane reads them from an agent: five empty nodes of 8 cores for arm64,
    and four tainted ones of 32 cores for amd64, which have 3 left each.
    """
    is_arm_n = np.arange(9) < 5
    code_n = (~is_arm_n).astype(np.int32)
    nodes = NodeColumns(
        free={
            "cpu": np.where(is_arm_n, 8000, 3000),
            "memory": np.full(9, 64 * GIB),
            "pods": np.full(9, 110),
        },
        taints=NodeColumn(values=[(), (DEDICATED,)], code_n=code_n),
        labels={ARCH: NodeColumn(values=["arm64", "amd64"], code_n=code_n)},
        allocatable={"cpu": np.where(is_arm_n, 8000, 32_000), "memory": np.full(9, 64 * GIB)},
    )
    return pools_of(reported_pools(build_pools(nodes, label_keys=[ARCH])))


def fleet_of(
    *promised: tuple[ReplicaRequirements, int], tells: bool = True, reported: Pools | None = None
) -> FleetRooms:
    outstanding = tuple(
        Outstanding(f"shop/w{number}", requirements, replicas)
        for number, (requirements, replicas) in enumerate(promised)
    )
    return FleetRooms.of(
        [
            UnpackedRoom(
                ReportId(1, 1),
                reported or pools(tells=tells),
                False,
                PackingOrder.of_report(outstanding),
            )
        ]
    )


def beside(fleet: FleetRooms, requirements: ReplicaRequirements, limit: int) -> int:
    room = fleet.rooms[0]
    assert room is not None
    return max_beside_large(room, requirements, limit).replicas


def test_twice_as_many_small_pods_leave_the_empty_nodes_to_large_ones_that_come_last() -> None:
    # Small pods go to the empty nodes first: with five on each of them, none takes a large one.
    assert beside(fleet_of((LARGE, 1)), SMALL, 7) == 7
    assert beside(fleet_of((LARGE, 1)), SMALL, 20) == 7
    # With four on each of them, all do.
    assert beside(fleet_of((LARGE, 3)), SMALL, 20) == 6


@pytest.mark.parametrize("times", [(1, 2, 1), (2, 1, 2)])
def test_the_nodes_of_the_newest_report_decide_what_is_large(times: tuple[int, ...]) -> None:
    reported = pools()
    totals_rk = reported.cells.allocatable_rk
    assert totals_rk is not None
    small = Outstanding("shop/w0", SMALL, 1)
    fleet = FleetRooms.none(1)
    for number, size in enumerate(times, start=1):
        cells = replace(reported.cells, allocatable_rk=totals_rk * size)
        newer = replace(reported, cells=cells)
        fleet = fleet.with_rooms(
            {0: UnpackedRoom(ReportId(1, number), newer, False, PackingOrder.of_report([small]))}
        )
        # Five of 16 cores are more than a fourth, and of 32 they are not.
        assert mixed_c(fleet, of(5000)).tolist() == [size == 1]


def test_a_large_pod_has_room_once_twice_as_many_others_are_there() -> None:
    assert beside(fleet_of((SMALL, 6)), LARGE, 3) == 3
    assert beside(fleet_of((SMALL, 7)), LARGE, 3) == 1
    assert beside(fleet_of((SMALL, 8)), LARGE, 3) == 0


# One large pod loses its node to 15 small ones, five on each empty node; they are counted twice.
@pytest.mark.parametrize(
    ("outstanding", "available"),
    [(0, 7), (4, 3), (6, 1), (7, 0), (8, 0), (9, 0), (10, 0), (11, 0), (12, 0), (14, 0), (20, 0)],
)
def test_room_is_left_also_where_twice_as_many_take_the_last_node(
    outstanding: int, available: int
) -> None:
    fleet = fleet_of((LARGE, 1), (SMALL, outstanding))
    for limit in (7, 12, 36):
        assert beside(fleet, SMALL, limit) == available
    assert packable_c(fleet, SMALL, Certificate.CAREFUL)[0] <= available


def test_pods_that_take_no_node_of_a_large_one_are_promised_beside_others_that_do() -> None:
    on_arm = NodeClaim(node_selector={ARCH: "arm64"}, tolerations=TOLERATES)
    on_amd = NodeClaim(node_selector={ARCH: "amd64"}, tolerations=TOLERATES)
    six, small = {"cpu": 6000, "memory": GIB}, {"cpu": 500, "memory": GIB}
    fleet = fleet_of(
        (ReplicaRequirements(request=six, node_claim=on_arm), 5),
        (ReplicaRequirements(request=small, node_claim=on_arm), 20),
        reported=two_architectures(),
    )
    assert beside(fleet, ReplicaRequirements(request=small, node_claim=on_amd), 10) == 10
    assert beside(fleet, ReplicaRequirements(request=small, node_claim=on_arm), 10) == 0
    # Those that may be on any node may be on one of a large pod.
    anywhere = NodeClaim(tolerations=TOLERATES)
    assert beside(fleet, ReplicaRequirements(request=small, node_claim=anywhere), 10) == 0


def test_pods_that_crowd_small_ones_onto_nodes_of_large_ones_are_held_back() -> None:
    """Also where large ones have no node beside twice as many small ones, whatever else comes."""
    is_arm_n = np.arange(11) < 8
    cores_n = np.where(is_arm_n, 4, 16)
    amounts = {"cpu": cores_n * 1000, "memory": cores_n * 4 * GIB}
    nodes = NodeColumns(
        free={**amounts, "pods": np.full(11, 110)},
        taints=NodeColumn(values=[()], code_n=np.zeros(11, dtype=np.int32)),
        labels={ARCH: NodeColumn(values=["arm64", "amd64"], code_n=(~is_arm_n).astype(np.int32))},
        allocatable=amounts,
    )
    reported = pools_of(reported_pools(build_pools(nodes, label_keys=[ARCH])))
    on_arm, on_amd = (NodeClaim(node_selector={ARCH: arch}) for arch in ("arm64", "amd64"))
    large = ReplicaRequirements(request={"cpu": 12_000, "memory": GIB}, node_claim=on_amd)
    anywhere = ReplicaRequirements(request={"cpu": 250, "memory": GIB}, node_claim=NodeClaim())
    wanted = ReplicaRequirements(request={"cpu": 125, "memory": GIB // 2}, node_claim=on_arm)
    fleet = fleet_of((large, 3), (anywhere, 64), reported=reported)
    # Of 80 cores 20 may be taken, a quarter of each node: then those of 16 have 12 left.
    assert 24 < beside(fleet, wanted, 90) <= 32


def dedicated_and_plain() -> Pools:
    """Four tainted nodes of 64 cores with 8 GPUs, and ten plain ones of 16 cores."""
    is_dedicated_n = np.arange(14) < 4
    amounts = {
        "cpu": np.where(is_dedicated_n, 64_000, 16_000),
        "memory": np.where(is_dedicated_n, 256 * GIB, 64 * GIB),
    }
    gpus_n = np.where(is_dedicated_n, 8, 0)
    nodes = NodeColumns(
        free={**amounts, "pods": np.full(14, 110), "nvidia.com/gpu": gpus_n},
        taints=NodeColumn(values=[(DEDICATED,), ()], code_n=(~is_dedicated_n).astype(np.int32)),
        labels={ARCH: NodeColumn(values=["amd64"], code_n=np.zeros(14, dtype=np.int32))},
        allocatable=amounts,
    )
    return pools_of(reported_pools(build_pools(nodes, label_keys=[ARCH])))


def test_small_pods_that_take_no_node_of_a_large_one_get_all_that_fits() -> None:
    """Also where more of them fit than half of what is free: of ten plain nodes all but one core
    is promised, as what is on its way may go with the plain nodes too.
    """
    training = ReplicaRequirements(
        request={"cpu": 32_000, "memory": 64 * GIB, "nvidia.com/gpu": 4},
        node_claim=NodeClaim(tolerations=TOLERATES),
    )
    web, other = (
        ReplicaRequirements(request={"cpu": cpu, "memory": GIB}, node_claim=NodeClaim())
        for cpu in (1000, 900)
    )

    def available(wanted: ReplicaRequirements, *promised: tuple[ReplicaRequirements, int]) -> int:
        fleet = fleet_of(*promised, reported=dedicated_and_plain())
        return int(packable_c(fleet, wanted, Certificate.CAREFUL)[0])

    assert available(web, (training, 1)) == 159
    # More on its way makes no more available, also where twice as much would fill all nodes.
    available_by_web = [available(other, (training, 1), (web, count)) for count in WEB_COUNTS]
    assert available_by_web == sorted(available_by_web, reverse=True)
    assert available_by_web[-1] > 0


WEB_COUNTS = (1, 20, 40, 60, 78, 79, 80, 81, 82, 100, 120)


def test_a_large_pod_without_a_node_even_alone_holds_nothing_back() -> None:
    assert beside(fleet_of((LARGE, 4)), SMALL, 20) == 6
    assert beside(fleet_of((of(CORES + 1), 1)), SMALL, 30) == 30


def placed_one_by_one(large: int, small: int) -> int:
    """How many large pods find no node after so many small ones, each on the emptiest node."""
    free = [CORES] * (NODES // 2) + [3000] * (NODES // 2)
    for cpu, pods in ((1000, small), (12_000, large)):
        for number in range(pods):
            node = max(range(NODES), key=free.__getitem__)
            if free[node] < cpu:
                return pods - number if cpu == 12_000 else large
            free[node] -= cpu
    return 0


@given(
    large=st.integers(1, 4), small=st.integers(0, 30), later=st.integers(0, 9), limit=st.just(24)
)
def test_no_large_pod_loses_its_node_and_more_on_its_way_makes_no_more_available(
    large: int, small: int, later: int, limit: int
) -> None:
    available = beside(fleet_of((LARGE, large), (SMALL, small)), SMALL, limit)
    missing = placed_one_by_one(large, small)
    assert placed_one_by_one(large, small + available) == missing
    if placed_one_by_one(large, 2 * small) == placed_one_by_one(large, 0):
        twice = placed_one_by_one(large, 2 * (small + available))
        assert twice == placed_one_by_one(large, 0)
    else:
        assert available == 0
    assert beside(fleet_of((LARGE, large), (SMALL, small + later)), SMALL, limit) <= available


@pytest.mark.parametrize("cores", [5, 6, 8, 12])
def test_small_pods_take_no_more_than_they_ask_for(cores: int) -> None:
    tiny = ReplicaRequirements(request={"cpu": 100, "memory": 64 * GIB // 160})
    large = of(1000 * cores)
    reported = one_pool(
        cells_of([alike(100, (CORES, 64 * GIB, 250))], allocatable=[(CORES, 64 * GIB)])
    )
    # They count twice, and are spread over all nodes.
    most = 100 * (CORES - 1000 * cores) // 100 // 2
    fleet = fleet_of((large, 1), (tiny, 1), reported=reported)
    assert beside(fleet, tiny, 9 * most // 10) == 9 * most // 10


def test_few_replicas_of_very_many_that_fit_are_found() -> None:
    tiny = ReplicaRequirements(request={"cpu": 10, "memory": GIB // 1000})
    # Each of the empty nodes has room for 49 pods beside a large one.
    most = 3 * 49 // 2
    for limit in (most + 1, 10 * most, 50_000):
        assert 0.9 * most < beside(fleet_of((LARGE, 3)), tiny, limit) <= most
    assert beside(fleet_of((LARGE, 3)), tiny, most) == most


def test_the_largest_ones_come_last_whatever_was_promised_first() -> None:
    larger = of(15_000)
    # Two small pods are on one of the empty nodes then, and one on each other one: a node with one
    # would take the larger pod, if others did not come before it.
    assert beside(fleet_of((larger, 1), (LARGE, 2)), SMALL, 2) == 1
    assert beside(fleet_of((LARGE, 2), (larger, 1)), SMALL, 2) == 1


def allow_looks(
    monkeypatch: pytest.MonkeyPatch, looks: int, *, kinds: int, reported: Pools
) -> None:
    """Leave steps for so many looks at a cluster where so many kinds of pods are on their way."""
    a_look = (kinds + 2) * (len(reported.cells) + KIND_STEPS)
    monkeypatch.setattr(large_pods, "MAX_STEPS", (looks + 1) * a_look)


@pytest.mark.parametrize(("looks", "available"), [(-1, 0), (0, 0), (1, 6), (2, 6), (6, 6)])
def test_nothing_is_promised_without_a_look(
    monkeypatch: pytest.MonkeyPatch, looks: int, available: int
) -> None:
    """With one look it is not spent on a few replicas, also where no large pod more has a node."""
    allow_looks(monkeypatch, looks, kinds=1, reported=pools())
    assert beside(fleet_of((LARGE, 3)), SMALL, 6) == available


# Beside pods that crowd large ones out, a look goes over the nodes twice, and one goes before all.
@pytest.mark.parametrize(("looks", "available"), [(0, 0), (1, 0), (2, 0), (3, 10), (6, 10)])
def test_nothing_is_promised_without_a_look_where_large_pods_are_crowded_out(
    monkeypatch: pytest.MonkeyPatch, looks: int, available: int
) -> None:
    on_arm = NodeClaim(node_selector={ARCH: "arm64"}, tolerations=TOLERATES)
    on_amd = NodeClaim(node_selector={ARCH: "amd64"}, tolerations=TOLERATES)
    six, small = {"cpu": 6000, "memory": GIB}, {"cpu": 500, "memory": GIB}
    fleet = fleet_of(
        (ReplicaRequirements(request=six, node_claim=on_arm), 5),
        (ReplicaRequirements(request=small, node_claim=on_arm), 20),
        reported=two_architectures(),
    )
    allow_looks(monkeypatch, looks, kinds=2, reported=two_architectures())
    wanted = ReplicaRequirements(request=small, node_claim=on_amd)
    assert beside(fleet, wanted, 10) == available


def test_pods_of_further_claims_count_as_if_they_might_be_on_any_node() -> None:
    """Few ways of choosing nodes are told apart; a further one takes room on all nodes."""
    nodes_by_arch = MAX_CLAIMS + 2
    amounts = {
        "cpu": np.full(nodes_by_arch, CORES),
        "memory": np.full(nodes_by_arch, 64 * GIB),
    }
    archs = [f"arch-{number}" for number in range(nodes_by_arch)]
    nodes = NodeColumns(
        free={**amounts, "pods": np.full(nodes_by_arch, 250)},
        taints=NodeColumn(values=[()], code_n=np.zeros(nodes_by_arch, dtype=np.int32)),
        labels={ARCH: NodeColumn(values=archs, code_n=np.arange(nodes_by_arch, dtype=np.int32))},
        allocatable=amounts,
    )
    reported = pools_of(reported_pools(build_pools(nodes, label_keys=[ARCH])))
    tiny, *larger = (
        ReplicaRequirements(
            request={"cpu": 100, "memory": GIB // 8},
            node_claim=NodeClaim(node_selector={ARCH: arch}),
        )
        for arch in archs[1:]
    )
    large = ReplicaRequirements(
        request={"cpu": 15_000, "memory": GIB}, node_claim=NodeClaim(node_selector={ARCH: archs[0]})
    )
    promised = [(large, 1), *((other, 1) for other in larger)]
    # Twice 60 take 1.2 cores of each of ten nodes, or 12 of one.
    assert beside(fleet_of(*promised[:-1], reported=reported), tiny, 60) == 60
    assert 0 < beside(fleet_of(*promised, reported=reported), tiny, 60) < 60


def test_one_replica_is_looked_at_first_where_no_large_pod_more_has_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = list[int]()
    filled = ReportedNodes.filled

    def counted(
        nodes: ReportedNodes,
        demand: DemandOnWay,
        margin: int,
        allowed: Mapping[LumpKey, int] | None = None,
    ) -> Filled:
        looks.append(margin)
        return filled(nodes, demand, margin, allowed)

    monkeypatch.setattr(ReportedNodes, "filled", counted)
    assert beside(fleet_of((LARGE, 3), (SMALL, 6)), SMALL, 1000) == 0
    # Nodes with what is on its way, and with one more.
    assert len(looks) == 2


def test_what_came_one_by_one_counts_as_all_at_once() -> None:
    promised = [(LARGE, 1), (SMALL, 2), (LARGE, 1), (SMALL, 3)]
    together, begun = fleet_of(*promised), fleet_of(*promised[:2])
    beside(begun, SMALL, 5)
    (room,), (held,) = together.rooms, begun.rooms
    assert room is not None
    assert held is not None
    grown = begun.with_rooms({0: reduce(Room.with_one, room.outstanding[2:], held)})
    for requirements in (SMALL, LARGE):
        for limit in (1, 5, 20):
            assert beside(grown, requirements, limit) == beside(together, requirements, limit)


def test_what_is_known_of_one_fleet_is_no_answer_for_another() -> None:
    """Fleets that went on from the same one remember in one place, and may be asked by turns."""
    continuations = [
        [(SMALL, 4)],
        [(SMALL, 20)],
        [(LARGE, 2)],
        [(LARGE, 3), (of(15_000), 1)],
        [(of(3000), 4), (SMALL, 1)],
        [],
    ]
    begun = fleet_of((LARGE, 1), (SMALL, 2))
    (held,) = begun.rooms
    assert held is not None
    together = [fleet_of((LARGE, 1), (SMALL, 2), *more) for more in continuations]
    rooms = [fleet.rooms[0] for fleet in together]
    grown = [
        begun.with_rooms({0: reduce(Room.with_one, r.outstanding[2:], held)}) for r in rooms if r
    ]
    for asked_first, first in enumerate(grown):
        for asked_next, fleet in enumerate(grown):
            limit = 30 + NODES * asked_first + asked_next
            beside(first, SMALL, limit)
            answer = beside(together[asked_next], SMALL, limit)
            assert beside(fleet, SMALL, limit) == answer, (asked_first, asked_next)


TOLERATES = (Toleration(key=DEDICATED.key, operator=TolerationOperator.EXISTS),)
ARM_TERM = NodeSelectorTerm(
    match_expressions=(Requirement(key=ARCH, operator=Operator.IN, values=("arm64",)),)
)


@pytest.mark.parametrize(
    "claim",
    [
        NodeClaim(node_selector={ARCH: "arm64"}, tolerations=TOLERATES),
        NodeClaim(required_terms=(ARM_TERM,), tolerations=TOLERATES),
        NodeClaim(),
    ],
    ids=["node selector", "node affinity", "no toleration"],
)
def test_large_is_measured_by_the_largest_node_that_suits(claim: NodeClaim) -> None:
    # 6 cores are less than a quarter of 32, and more than one of 8.
    request = {"cpu": 6000, "memory": GIB}
    six = ReplicaRequirements(request=request, node_claim=claim)
    anywhere = ReplicaRequirements(
        request={"cpu": 500, "memory": GIB}, node_claim=NodeClaim(tolerations=TOLERATES)
    )
    # A node of 8 cores takes one of 6 beside at most four of 500m, and small pods go there first.
    fleet = fleet_of((six, 5), reported=two_architectures())
    assert 0 < beside(fleet, anywhere, 40) <= 20
    assert 0 < packable_c(fleet, anywhere, Certificate.CAREFUL)[0] <= 20
    # Nodes of 32 cores suit pods that tolerate them and choose none: those are not large.
    bare = ReplicaRequirements(request=request, node_claim=NodeClaim(tolerations=TOLERATES))
    assert beside(fleet_of((bare, 5), reported=two_architectures()), anywhere, 40) == 40


def test_careful_promises_are_held_to_it() -> None:
    told, untold = fleet_of((LARGE, 3)), fleet_of((LARGE, 3), tells=False)
    held_to = int(packable_c(told, SMALL, Certificate.CAREFUL)[0])
    assert 0 < held_to < int(packable_c(untold, SMALL, Certificate.CAREFUL)[0])
    assert beside(told, SMALL, held_to) == held_to


def test_a_refusal_looks_at_large_pods_at_first_and_at_second_sight_alone() -> None:
    control = ControlPlane(("a",))
    report = Snapshot(report=ReportId(1, 1), interest_version=0, pools=pools(), echoes=())
    control.accept("a", report)
    assert control.submit(divided("large", LARGE.request, 3)) is not None
    room = control.room("a")
    assert room is not None
    assert control.submit(divided("small", SMALL.request, 10), looks_again=True) is None
    # Cpu is not scarce: without large pods there is enough for all of them.
    kept_for = "6 replicas are available, 10 wanted; a: room kept for 3 large pods"
    assert control.refusals["small"] == kept_for
    assert len(room.cluster.caches.beside_large[1]) == 2
    assert control.submit(divided("more", SMALL.request, 30), looks_again=True) is None
    assert "short of cpu in 1 cluster; a: room kept for 3 large pods" in control.refusals["more"]


@pytest.mark.parametrize(
    ("fleet", "requirements"),
    [
        (fleet_of(), SMALL),
        (fleet_of((LARGE, 1)), LARGE),
        (fleet_of((LARGE, 1), tells=False), SMALL),
        (fleet_of((of(CORES // LARGE_PART), 2)), SMALL),
    ],
    ids=["nothing on its way", "all of one shape", "no allocatable", "nothing large"],
)
def test_nothing_is_held_back_where_none_would_be_late(
    fleet: FleetRooms, requirements: ReplicaRequirements
) -> None:
    assert beside(fleet, requirements, 50) == 50
