"""A few candidates divided number by number get what arrays give them, to the bit."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.arrays import IntArray, UintArray
from federation.model.estimate import MAX_REPLICAS
from federation.scheduler.division.few import MOST_CANDIDATES, divide_few
from federation.scheduler.division.strategies import divide_tier
from federation.scheduler.division.values import (
    Candidates,
    Division,
    DivisionRule,
    DivisionStrategy,
)

numbers = st.one_of(st.integers(0, 4), st.integers(0, 40), st.integers(0, MAX_REPLICAS))
candidate = st.tuples(numbers, st.integers(0, 6), st.one_of(st.just(MAX_REPLICAS), numbers))
rules = st.builds(
    DivisionRule,
    strategy=st.sampled_from([DivisionStrategy.DYNAMIC_WEIGHT, DivisionStrategy.AGGREGATED]),
    fresh=st.booleans(),
)


def candidates_of(drawn: list[tuple[int, int, int]], listed: list[int]) -> Candidates:
    def keys(index_k: IntArray) -> UintArray:
        return (7 * index_k % 5).astype(np.uint64)

    columns = np.array(drawn, dtype=np.int64).T
    return Candidates(
        available_k=columns[0],
        prior_k=columns[1],
        ceiling_k=columns[2],
        floor_k=np.zeros(len(drawn), np.int64),
        weight_k=np.ones(len(drawn), np.int64),
        listed_k=np.array(listed[: len(drawn)]),
        tie_keys=keys,
    )


def told(division: Division) -> dict[str, object]:
    """Bytes and types of the arrays: zeros have signs, and traces are compared."""
    values = {each.name: getattr(division, each.name) for each in fields(division)}
    return {
        name: (value.dtype, value.tobytes()) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


@settings(max_examples=500)
@given(
    rules,
    st.lists(candidate, min_size=1, max_size=MOST_CANDIDATES),
    st.permutations(range(MOST_CANDIDATES)),
    st.one_of(st.integers(0, 20), st.integers(0, 100_000)),
)
def test_few_are_divided_as_many(
    rule: DivisionRule, drawn: list[tuple[int, int, int]], listed: list[int], replicas: int
) -> None:
    candidates = candidates_of(drawn, listed)
    few = divide_few(rule, candidates, replicas)
    if few is not None:
        assert told(few) == told(divide_tier(rule, candidates, replicas))


def test_what_the_arrays_do_better_is_left_to_them() -> None:
    rule = DivisionRule(strategy=DivisionStrategy.DYNAMIC_WEIGHT)
    room = [(100, 0, MAX_REPLICAS)] * 2
    assert divide_few(rule, candidates_of(room, [0, 1]), 16) is not None
    assert divide_few(rule, candidates_of(room, [0, 1]), 17) is None
    static = DivisionRule(strategy=DivisionStrategy.STATIC_WEIGHT)
    assert divide_few(static, candidates_of(room, [0, 1]), 2) is None
