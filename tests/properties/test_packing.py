"""Packing in closed form against one replica at a time, and what it leaves against real nodes.

The oracles know nothing of closed forms; placers do what they like.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.capacity.cells import FreeCells, View, cells_left
from federation.capacity.cluster_room import Room
from federation.capacity.packing import pack
from federation.model.pools.bounds import per_replica, tighter_lower_k, upper_k
from federation.model.pools.cell_order import smallest_first
from federation.model.pools.sets import sets_that_fit
from federation.model.pools.values import Cells
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import Component, ReplicaRequirements
from lab.packed_nodes import nodes_in_turn, residues_of
from lab.simple_bounds import lower_k
from lab.slow_packer import Node, after_one, broken_promise, fits_one_at_a_time
from tests.pools import alike, cells_of, one_pool
from tests.properties.drawn_rooms import (
    PACKED,
    REPORT,
    RESOURCES,
    DrawnCells,
    cells_drawn,
    minimums,
    node_amounts,
    outstandings,
    requests,
    table,
)

node_groups = st.lists(st.lists(node_amounts, min_size=1, max_size=5), min_size=1, max_size=5)


def fit(node: Node, request: Mapping[str, int]) -> int:
    count, after = 0, after_one(node, RESOURCES, request)
    while after is not None:
        count, after = count + 1, after_one(after, RESOURCES, request)
    return count


def filled_one_at_a_time(
    free_cells: FreeCells, request: Mapping[str, int], replicas: int
) -> Iterator[Node]:
    """All nodes, each filled up before the next."""
    for node in nodes_in_turn(free_cells, View.FILLED, request):
        here = min(replicas, fit(node, request))
        replicas -= here
        left: Node | None = node
        for _ in range(here):
            left = left and after_one(left, RESOURCES, request)
        assert left is not None
        yield left


def spread_one_at_a_time(
    free_cells: FreeCells, request: Mapping[str, int], replicas: int
) -> Iterator[Node]:
    """All nodes, each given one replica before any is given another."""
    nodes, has_room = nodes_in_turn(free_cells, View.SPREAD, request), True
    while replicas and has_room:
        has_room = False
        for place, node in enumerate(nodes):
            after = after_one(node, RESOURCES, request)
            if after is not None and replicas:
                nodes[place], replicas, has_room = after, replicas - 1, True
    yield from nodes


@settings(max_examples=100, deadline=None)
@given(
    groups=node_groups,
    shapes=st.lists(st.tuples(requests, st.integers(0, 60)), max_size=4),
    probe=requests,
    seed=st.integers(0, 999),
)
def test_packing_in_closed_form_is_packing_one_at_a_time(
    groups: list[list[tuple[int, ...]]],
    shapes: list[tuple[dict[str, int], int]],
    probe: dict[str, int],
    seed: int,
) -> None:
    report = cells_of(groups, RESOURCES)
    free_cells = residues_of(one_pool(report))
    for request, replicas in shapes:
        expected = {
            View.FILLED: list(filled_one_at_a_time(free_cells, request, replicas)),
            View.SPREAD: list(spread_one_at_a_time(free_cells, request, replicas)),
        }
        room = sum(fit(node, request) for node in nodes_in_turn(free_cells, View.FILLED, request))
        packing = pack(free_cells, request, np.array([replicas]))
        free_cells = packing.free_cells
        for view, nodes in expected.items():
            left = cells_left(free_cells, view, report)
            assert minimums(left) == Counter(free for _, free in nodes)
            assert (left.min_rk <= left.max_rk).all()
        assert packing.placed_s[View.FILLED] == min(replicas, room)
        takes = packing.takes.of(0, RESOURCES)
        assert packing.placed_s[View.FILLED] == sum(each.nodes * each.replicas for each in takes)
    first = shapes[0] if shapes else ({}, 0)
    assert_replays_on_any_nodes(groups, *first, probe, random.Random(seed))


def assert_replays_on_any_nodes(
    groups: list[list[tuple[int, ...]]],
    request: Mapping[str, int],
    replicas: int,
    probe: Mapping[str, int],
    chance: random.Random,
) -> None:
    """Whichever nodes of the cells the steps take, what is left holds what the bounds say."""
    report = cells_of(groups, RESOURCES)
    packing = pack(residues_of(one_pool(report)), request, np.array([replicas]))
    untouched: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for group, least in zip(groups, report.min_rk.T.tolist(), strict=True):
        # Of cells with equal minimums any will do.
        untouched.setdefault(tuple(least), []).extend(chance.sample(group, len(group)))
    after: list[Node] = []
    for take in packing.takes.of(0, RESOURCES):
        for _ in range(take.nodes):
            node: Node | None = (0, untouched[take.free].pop())
            for _ in range(take.replicas):
                node = node and after_one(node, RESOURCES, request)
            assert node is not None
            after.append(node)
    after += [(0, node) for group in untouched.values() for node in group]
    left, demanded = cells_left(packing.free_cells, View.FILLED, report), per_replica(probe)
    truth = sum(fit(node, probe) for node in after)
    assert lower_k(left, demanded).sum() <= tighter_lower_k(left, demanded).sum() <= truth
    assert truth <= upper_k(left, demanded).sum()


def sets_one_at_a_time(cells: Cells, components: Sequence[Component], most: int) -> int:
    demanded = {
        name: amount
        for component in components
        if component.replicas
        for name, amount in per_replica(component.requirements.request).items()
    }
    nodes: list[Node] = [
        (0, tuple(cells.min_rk[:, k].tolist()))
        for k in smallest_first(cells, demanded).tolist()
        for _ in range(int(cells.count_k[k]))
    ]
    for sets in range(most if demanded else 0):
        for component in components:
            for _ in range(component.replicas):
                request = component.requirements.request
                place = next((n for n, each in enumerate(nodes) if fit(each, request)), None)
                if place is None:
                    return sets
                nodes[place] = after_one(nodes[place], RESOURCES, request) or nodes[place]
    return most if demanded else 0


# A few cells of many equal nodes: what repeats is taken at once only there.
uniform_groups = st.lists(
    st.builds(alike, st.integers(1, 40), node_amounts), min_size=1, max_size=3
)
components = st.lists(
    st.builds(
        Component,
        name=st.just("part"),
        replicas=st.integers(0, 4),
        requirements=st.builds(ReplicaRequirements, request=requests),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=80, deadline=None)
@given(groups=uniform_groups | node_groups, parts=components)
def test_sets_in_closed_form_are_sets_one_at_a_time(
    groups: list[list[tuple[int, ...]]], parts: list[Component]
) -> None:
    cells = cells_of(groups, RESOURCES)
    assert sets_that_fit(one_pool(cells), parts, 100).sets == sets_one_at_a_time(cells, parts, 100)


@settings(max_examples=60, deadline=None)
@given(
    drawn=cells_drawn, wanted=st.lists(outstandings(), max_size=5), one_more=outstandings(most=40)
)
def test_a_room_shows_where_everything_goes_and_takes_what_it_says_it_can(
    drawn: DrawnCells, wanted: list[Outstanding], one_more: Outstanding
) -> None:
    room = Room.of(REPORT, table(drawn), wanted)
    assert Counter(map(id, room.outstanding)) == Counter(map(id, wanted))
    assert broken_promise(room.pools, room.holdings) == ""
    requirements, limit = one_more.requirements, one_more.in_cells
    by_certificate = {each: room.max_replicas(requirements, each, limit) for each in PACKED}
    assert max(by_certificate.values()) <= fits_one_at_a_time(room.filled, requirements)
    assert by_certificate[PromiseCertificate.CAREFUL] <= by_certificate[PromiseCertificate.PLANNED]
    if not room.holds_strict:
        fits = [fits_one_at_a_time(pools, requirements) for pools in (room.filled, room.spread)]
        plain = min(limit, *fits)
        assert by_certificate[PromiseCertificate.PLANNED] == plain
    for certificate, most in by_certificate.items():
        made = room.with_one(Outstanding("w", requirements, most, certificate=certificate))
        assert made.stuck() == room.stuck()
        assert broken_promise(made.pools, made.holdings) == ""
