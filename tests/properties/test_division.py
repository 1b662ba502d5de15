"""Divisions by static weights against seats that are given one at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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
