"""Clusters, and what is outstanding there, as hypothesis draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from hypothesis import strategies as st

from federation.capacity.cluster_room import ReportId
from federation.capacity.fleet_rooms import FleetRooms, UnpackedRoom
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import Outstanding, PackingOrder, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from tests.pools import alike, cells_of

# Of a cell its pool, its nodes, and what each of them has free.
DrawnCells: TypeAlias = Sequence[tuple[int, int, tuple[int, ...]]]
DrawnRooms: TypeAlias = Sequence[tuple[DrawnCells, list[Outstanding]]]

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
REPORT = ReportId(1, 1)
POOLS = (NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"}))
PACKED = (PromiseCertificate.CAREFUL, PromiseCertificate.PLANNED, PromiseCertificate.STRICT)

node_amounts = st.tuples(
    st.integers(0, 30), st.integers(0, 30), st.integers(0, 12), st.sampled_from([0, 0, 0, 2])
)
cells_drawn = st.lists(
    st.tuples(st.integers(0, 1), st.integers(1, 5), node_amounts), min_size=1, max_size=6
)
requests = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), st.integers(0, 9), max_size=3
)
claims = st.sampled_from(
    [None, None, NodeClaim(node_selector={"zone": "a"}), NodeClaim(node_selector={"zone": "b"})]
)
shapes = st.builds(ReplicaRequirements, request=requests, node_claim=claims)


def table(drawn: DrawnCells, resources: Sequence[str] = RESOURCES) -> Pools:
    groups = [alike(count, (*free, *[1] * (len(resources) - 4))) for _, count, free in drawn]
    return Pools(
        label_keys=("zone",),
        pools=POOLS,
        cells=cells_of(groups, resources, [pool for pool, _, _ in drawn]),
    )


def asking(cpu: int, replicas: int, binding: str = "") -> Outstanding:
    requirements = ReplicaRequirements(request={"cpu": cpu})
    return Outstanding(binding or f"x{cpu}", requirements, replicas)


@st.composite
def outstandings(draw: st.DrawFn, *, most: int = 20) -> Outstanding:
    replicas = draw(st.integers(1, most))
    return Outstanding(
        binding=draw(st.sampled_from(["x", "y", "z"])),
        requirements=draw(shapes),
        certificate=draw(st.sampled_from(PACKED)),
        in_cells=replicas,
        credited=draw(st.integers(0, 1)) * draw(st.integers(0, replicas)),
    )


rooms_drawn = st.lists(
    st.tuples(cells_drawn, st.lists(outstandings(most=6), max_size=14)), min_size=1, max_size=6
)
# Few nodes and many promises of few sizes: some lose their room, and the order matters.
crowds = st.lists(
    st.tuples(
        st.lists(
            st.builds(
                lambda count, cpu: (0, count, (cpu, 30, 12, 0)),
                st.integers(1, 2),
                st.integers(3, 11),
            ),
            min_size=1,
            max_size=3,
        ),
        st.lists(
            st.builds(asking, st.integers(2, 7), st.integers(1, 2)),
            min_size=2,
            max_size=6,
        ),
    ),
    min_size=1,
    max_size=4,
)
sizes = st.builds(
    lambda cpu, memory: ReplicaRequirements(request={"cpu": cpu, "memory": memory}),
    st.integers(1, 8),
    st.integers(1, 8),
)
# Some free nodes, and a few promises that leave room on them.
roomy = st.lists(
    st.tuples(
        st.lists(
            st.builds(
                lambda count, cpu, memory: (0, count, (cpu, memory, 12, 0)),
                st.integers(1, 3),
                st.integers(5, 25),
                st.integers(5, 25),
            ),
            min_size=1,
            max_size=4,
        ),
        st.lists(
            st.builds(
                lambda requirements, replicas: Outstanding("", requirements, replicas),
                sizes,
                st.integers(1, 4),
            ),
            max_size=5,
        ),
    ),
    min_size=1,
    max_size=4,
)


def unpacked_rooms(drawn: DrawnRooms) -> list[UnpackedRoom]:
    """Every other one follows claims; some have a resource of their own."""
    return [
        UnpackedRoom(
            ReportId(1, number),
            table(cells, (*RESOURCES, "example.com/rare") if number % 3 == 1 else RESOURCES),
            number % 2 == 0,
            PackingOrder.of_report(outstanding),
        )
        for number, (cells, outstanding) in enumerate(drawn)
    ]


def fleet_of(drawn: DrawnRooms) -> FleetRooms:
    return FleetRooms.of(unpacked_rooms(drawn))


def minimums(cells: Cells) -> Counter[tuple[int, ...]]:
    """All nodes, each with as much as its cell has at least."""
    nodes: Counter[tuple[int, ...]] = Counter()
    for k in range(len(cells)):
        nodes[tuple(cells.min_rk[:, k].tolist())] += int(cells.count_k[k])
    return nodes
