"""How many pods have to leave so that a larger one has room, by every spread over the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from federation.services.scheduling.nominating import least_fit

# What the large one asks for.
WANTED = 12


def spreads(count: int, nodes: int) -> Iterator[tuple[int, ...]]:
    """Every way to have so many pods on so many nodes."""
    if nodes == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in spreads(count - first, nodes - 1):
            yield first, *rest


def worst(leaving: Sequence[tuple[int, int]], nodes: int) -> int:
    """Of pods, so many of each size, the fewest large ones that the nodes have room for then."""
    ways = [list(spreads(count, nodes)) for count, _ in leaving]
    sizes = [size for _, size in leaving]
    return min(
        sum(
            sum(on[node] * size for on, size in zip(way, sizes, strict=True)) // WANTED
            for node in range(nodes)
        )
        for way in product(*ways)
    )


@given(
    leaving=st.lists(st.tuples(st.integers(0, 9), st.integers(1, 11)), min_size=1, max_size=2),
    nodes=st.integers(1, 3),
)
def test_no_spread_has_less_room_than_is_counted_on(
    leaving: list[tuple[int, int]], nodes: int
) -> None:
    counted = [(count, -(-WANTED // size)) for count, size in leaving]
    assert least_fit(counted, nodes) <= worst(leaving, nodes)


@given(count=st.integers(0, 16), size=st.sampled_from((1, 2, 3, 4, 6)), nodes=st.integers(1, 4))
def test_of_pods_of_one_size_it_is_just_the_worst(count: int, size: int, nodes: int) -> None:
    assert least_fit([(count, WANTED // size)], nodes) == worst([(count, size)], nodes)
