"""Divisions against one seat at a time, and of few clusters as of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.arrays import IntArray, UintArray
from federation.model.estimate import MAX_REPLICAS
from federation.scheduler.division.strategies import divide
from federation.scheduler.division.values import Candidates, DivisionRule, DivisionStrategy

WEIGHTS = st.one_of(
    st.integers(0, 4), st.integers(0, 60), st.integers(0, 2**31), st.just(2**62 // 64)
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], int, list[int], list[int], list[int]]:
    """(weights, seats, tie keys, floors, ceilings) of a few parties."""
    weights = draw(st.lists(WEIGHTS, min_size=1, max_size=9))
    keys = draw(st.permutations(range(len(weights))))
    floors = [draw(st.sampled_from([0, 0, 1, 3])) for _ in weights]
    ceilings = [floor + draw(st.sampled_from([0, 1, 7, 2**40])) for floor in floors]
    seats = sum(floors) + draw(st.integers(0, 90))
    return weights, seats, list(keys), floors, ceilings


def one_at_a_time(
    weights: Sequence[int],
    seats: int,
    keys: Sequence[int],
    floors: Sequence[int],
    ceilings: Sequence[int],
) -> list[int]:
    """Each seat to the greatest quotient, then to who has fewer, then by the key."""
    given = list(floors)
    for _ in range(seats - sum(floors)):
        claims = [
            (-float(weight) / (2 * given[party] + 1), given[party], keys[party], party)
            for party, weight in enumerate(weights)
            if weight and given[party] < ceilings[party]
        ]
        if not claims:
            break
        given[min(claims)[3]] += 1
    return given


@settings(max_examples=200, deadline=None)
@given(problems())
def test_static_weights_give_one_seat_at_a_time(
    problem: tuple[list[int], int, list[int], list[int], list[int]],
) -> None:
    weights, seats, keys, floors, ceilings = problem
    if not any(weights):
        # Those share alike.
        weights = [1] * len(weights)
    key_k, none_k = np.array(keys, dtype=np.uint64), np.zeros(len(weights), np.int64)
    candidates = Candidates(
        available_k=none_k,
        prior_k=none_k,
        weight_k=np.array(weights, dtype=np.int64),
        floor_k=np.array(floors, dtype=np.int64),
        ceiling_k=np.array(ceilings, dtype=np.int64),
        listed_k=np.arange(len(weights)),
        tie_keys=lambda position_k: key_k[position_k],
    )
    found = divide(DivisionRule(strategy=DivisionStrategy.STATIC_WEIGHT), candidates, none_k, seats)
    expected = one_at_a_time(weights, seats, keys, floors, ceilings)
    assert found.share_k.tolist() == expected
    assert found.missing == seats - sum(expected)


numbers = st.one_of(st.integers(0, 4), st.integers(0, 40), st.integers(0, MAX_REPLICAS))
candidate = st.tuples(numbers, st.integers(0, 6), st.one_of(st.just(MAX_REPLICAS), numbers))
# More than are divided number by number: none of them may hold anything.
FULL = (0, 0, 0)
MANY = 40


def candidates_of(drawn: Sequence[tuple[int, int, int]], listed: Sequence[int]) -> Candidates:
    def keys(index_k: IntArray) -> UintArray:
        return (7 * index_k % 5).astype(np.uint64)

    available_k, prior_k, ceiling_k = np.array(drawn, dtype=np.int64).T
    return Candidates(
        available_k=available_k,
        prior_k=prior_k,
        ceiling_k=ceiling_k,
        floor_k=np.zeros(len(drawn), np.int64),
        weight_k=np.ones(len(drawn), np.int64),
        listed_k=np.array([*listed, *range(len(listed), len(drawn))])[: len(drawn)],
        tie_keys=keys,
    )


@settings(max_examples=300, deadline=None)
@given(
    strategy=st.sampled_from(list(DivisionStrategy)),
    fresh=st.booleans(),
    drawn=st.lists(candidate, min_size=1, max_size=6),
    listed=st.permutations(range(6)),
    replicas=st.one_of(st.integers(0, 20), st.integers(0, 100_000)),
)
def test_few_are_divided_as_beside_many_that_can_hold_nothing(
    strategy: DivisionStrategy,
    fresh: bool,
    drawn: list[tuple[int, int, int]],
    listed: list[int],
    replicas: int,
) -> None:
    rule = DivisionRule(strategy=strategy, fresh=fresh)
    if not rule.heeds_capacity:
        return
    few, many = (
        divide(rule, candidates_of(each, listed), np.zeros(len(each), np.int64), replicas)
        for each in (drawn, [*drawn, *[FULL] * MANY])
    )
    for name in ("share_k", "remainder_k", "tied_k", "limit_k", "weight_k", "quota_k"):
        one, other = getattr(few, name), getattr(many, name)
        assert one.dtype == other.dtype, name
        assert one.tobytes() == other[: len(drawn)].tobytes(), name
    assert (few.missing, few.conflict) == (many.missing, many.conflict)
    counted = [replace(facts, candidates=len(drawn)) for facts in many.facts]
    assert list(few.facts) == counted
