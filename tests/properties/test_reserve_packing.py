"""Rooms, spreading and strict promises against placing one pod at a time.

The oracles know nothing of closed forms; placers do what they like.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.cells import View, cells_left
from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.packing import pack
from federation.capacity.strict_bounds import strict_promises_hold
from federation.model.pools.values import Cells, NodePool, Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import NodeClaim, ReplicaRequirements
from lab.packed_nodes import nodes_in_turn, residues_of
from lab.slow_packer import Node, after_one, broken_promise, fits_one_at_a_time, nodes_of

RESOURCES = ("cpu", "memory", "pods", "nvidia.com/gpu")
REPORT = ReportId(1, 1)
POOLS = (NodePool(labels={"zone": "a"}), NodePool(labels={"zone": "b"}))

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
CERTIFIED = (PromiseCertificate.CAREFUL, PromiseCertificate.PLANNED, PromiseCertificate.STRICT)


def table(drawn: Sequence[tuple[int, int, tuple[int, ...]]]) -> Pools:
    count_k = np.array([count for _, count, _ in drawn], np.int64)
    min_rk = np.array([free for _, _, free in drawn], np.int64).T.copy()
    return Pools(
        label_keys=("zone",),
        pools=POOLS,
        cells=Cells(
            resources=RESOURCES,
            pool_k=np.array([pool for pool, _, _ in drawn], np.int32),
            count_k=count_k,
            min_rk=min_rk,
            sum_rk=min_rk * count_k,
            max_rk=min_rk.copy(),
            sum_exact_k=np.ones(len(drawn), np.bool_),
        ),
    )


@st.composite
def outstandings(draw: st.DrawFn, *, most: int = 20) -> Outstanding:
    replicas = draw(st.integers(1, most))
    return Outstanding(
        binding=draw(st.sampled_from(["x", "y", "z"])),
        requirements=ReplicaRequirements(request=draw(requests), node_claim=draw(claims)),
        certificate=draw(st.sampled_from(CERTIFIED)),
        in_cells=replicas,
        credited=draw(st.integers(0, 1)) * draw(st.integers(0, replicas)),
    )


def minimums(cells: Cells) -> Counter[tuple[int, ...]]:
    nodes: Counter[tuple[int, ...]] = Counter()
    for k in range(len(cells)):
        nodes[tuple(cells.min_rk[:, k].tolist())] += int(cells.count_k[k])
    return nodes


@settings(max_examples=60, deadline=None)
@given(drawn=cells_drawn, shapes=st.lists(st.tuples(requests, st.integers(0, 60)), max_size=4))
def test_spreading_in_closed_form_is_spreading_one_at_a_time(
    drawn: list[tuple[int, int, tuple[int, ...]]], shapes: list[tuple[dict[str, int], int]]
) -> None:
    residues = residues_of(table(drawn))
    for request, replicas in shapes:
        nodes = nodes_in_turn(residues, View.SPREAD, request)
        left, has_room = replicas, True
        while left and has_room:
            has_room = False
            for place, node in enumerate(nodes):
                after = after_one(node, RESOURCES, request)
                if after is not None and left:
                    nodes[place], left, has_room = after, left - 1, True
        packing = pack(residues, request, np.array([replicas]))
        assert packing.placed_s[View.SPREAD] == replicas - left
        residues = packing.left
        spread = cells_left(residues, View.SPREAD, table(drawn).cells)
        assert minimums(spread) == Counter(free for _, free in nodes)
        assert (spread.min_rk <= spread.max_rk).all()


@settings(max_examples=60, deadline=None)
@given(drawn=cells_drawn, wanted=st.lists(outstandings(), max_size=5))
def test_a_room_shows_where_everything_goes(
    drawn: list[tuple[int, int, tuple[int, ...]]], wanted: list[Outstanding]
) -> None:
    pools = table(drawn)
    room = Room.of(REPORT, pools, wanted)
    assert Counter(map(id, room.outstanding)) == Counter(map(id, wanted))
    assert broken_promise(pools, room.holdings) == ""


@settings(max_examples=60, deadline=None)
@given(
    drawn=cells_drawn, wanted=st.lists(outstandings(), max_size=4), one_more=outstandings(most=40)
)
def test_what_a_room_says_it_can_take_it_takes_and_never_more_than_there_is(
    drawn: list[tuple[int, int, tuple[int, ...]]], wanted: list[Outstanding], one_more: Outstanding
) -> None:
    room = Room.of(REPORT, table(drawn), wanted)
    requirements, limit = one_more.requirements, one_more.in_cells
    by_certificate = {each: room.most(requirements, each, limit) for each in CERTIFIED}
    assert max(by_certificate.values()) <= fits_one_at_a_time(room.filled, requirements)
    assert by_certificate[PromiseCertificate.CAREFUL] <= by_certificate[PromiseCertificate.PLANNED]
    if not room.holds_strict:
        plain = min(limit, fits_one_at_a_time(room.filled, requirements))
        assert by_certificate[PromiseCertificate.PLANNED] == plain
    for certificate, most in by_certificate.items():
        taken = Outstanding(
            binding="w", requirements=requirements, certificate=certificate, in_cells=most
        )
        made = room.with_one(taken)
        assert made.stuck() == room.stuck()
        assert broken_promise(made.pools, made.holdings) == ""


@settings(max_examples=60, deadline=None)
@given(
    drawn=cells_drawn,
    wanted=st.lists(outstandings(most=12), min_size=1, max_size=4),
    seed=st.integers(0, 9999),
)
def test_strict_promises_hold_whoever_comes_first_and_wherever_they_go(
    drawn: list[tuple[int, int, tuple[int, ...]]], wanted: list[Outstanding], seed: int
) -> None:
    pools = table(drawn)
    every: list[Outstanding] = []
    for each in wanted:
        if strict_promises_hold(pools, [*every, each]):
            every.append(each)
    chance = random.Random(seed)
    pods = [each for each in every for _ in range(each.in_cells)]
    chance.shuffle(pods)
    if chance.random() < 0.5:
        # Strict ones last, which is the worst that can happen to them.
        pods.sort(key=lambda each: each.certificate is PromiseCertificate.STRICT)
    # Real nodes have at least what a cell says of them.
    extra = chance.choice([0, 4])
    nodes = [
        (pool, tuple(amount + chance.randint(0, extra) for amount in free))
        for pool, free in nodes_of(pools).elements()
    ]
    for pod in pods:
        claim = pod.requirements.node_claim
        feasible = [
            (place, after)
            for place, node in enumerate(nodes)
            if claim is None or POOLS[node[0]].labels == claim.node_selector
            if (after := after_one(node, RESOURCES, pod.requirements.request)) is not None
        ]
        if not feasible:
            assert pod.certificate is not PromiseCertificate.STRICT
            continue
        worst = max(feasible, key=lambda each: (sum(each[1][1]), chance.random()))
        place, after = worst if chance.random() < 0.5 else chance.choice(feasible)
        nodes[place] = after


rival_shapes = st.lists(st.tuples(requests, st.integers(1, 12)), min_size=1, max_size=3)


@settings(max_examples=100, deadline=None)
@given(
    drawn=cells_drawn,
    rivals=rival_shapes,
    request=requests,
    greed=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 9999),
)
def test_the_most_that_is_promised_strictly_survives_rivals_that_mean_harm(
    drawn: list[tuple[int, int, tuple[int, ...]]],
    rivals: list[tuple[dict[str, int], int]],
    request: dict[str, int],
    greed: float,
    seed: int,
) -> None:
    pools = table(drawn)
    strict = ReplicaRequirements(request=request)
    every = [
        Outstanding(
            binding="rival", requirements=ReplicaRequirements(request=other), in_cells=replicas
        )
        for other, replicas in rivals
    ]
    room = Room.of(REPORT, pools, every)
    most = room.most(strict, PromiseCertificate.STRICT, 999)
    if not room.overcommitted:
        too_many = Outstanding(
            binding="",
            requirements=strict,
            certificate=PromiseCertificate.STRICT,
            in_cells=most + 1,
        )
        packs = fits_one_at_a_time(room.filled, strict) > most
        assert not packs or not strict_promises_hold(pools, [*every, too_many])
    chance = random.Random(seed)
    nodes = list(nodes_of(pools).elements())
    pods = [other for other, replicas in rivals for _ in range(replicas)]
    chance.shuffle(pods)
    for pod in pods:
        feasible = [
            (place, after)
            for place, node in enumerate(nodes)
            if (after := after_one(node, RESOURCES, pod)) is not None
        ]
        if feasible:
            harm = [fit(nodes[place], request) - fit(after, request) for place, after in feasible]
            worst = max(range(len(feasible)), key=lambda i: (harm[i], chance.random()))
            chosen = worst if chance.random() < greed else chance.randrange(len(feasible))
            place, after = feasible[chosen]
            nodes[place] = after
    assert sum(fit(node, request) for node in nodes) >= most


def fit(node: Node, request: dict[str, int]) -> int:
    count, after = 0, after_one(node, RESOURCES, request)
    while after is not None:
        count, after = count + 1, after_one(after, RESOURCES, request)
    return count
