"""Seats by Webster's method: numbers seen at Karmada, ties, bounds and what is recorded."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.model.arrays import IntArray, UintArray
from federation.scheduler.division.apportion import Apportionment, Quotas, apportion


def by_position(position_k: IntArray) -> UintArray:
    return position_k.astype(np.uint64)


def seats(weights: list[int], count: int) -> list[int]:
    given: list[int] = apportion(np.array(weights), count, by_position).seats_k.tolist()
    return given


def bounded(
    weights: list[int], count: int, floors: list[int], ceilings: list[int]
) -> Apportionment:
    return apportion(
        np.array(weights),
        count,
        by_position,
        floor_k=np.array(floors),
        ceiling_k=np.array(ceilings),
    )


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, [0, 0, 0]),
        (1, [0, 1, 0]),
        (2, [0, 1, 1]),
        (3, [1, 1, 1]),
        (4, [1, 2, 1]),
        (5, [1, 2, 2]),
        (6, [1, 3, 2]),
        (7, [1, 4, 2]),
        (8, [1, 4, 3]),
    ],
)
def test_seats_grow_one_by_one(count: int, expected: list[int]) -> None:
    """By name: eastus2 60, southcentralus 170, westus 110."""
    assert seats([60, 170, 110], count) == expected


@pytest.mark.parametrize(
    ("weights", "count", "expected"),
    [
        ([2, 1], 2, [1, 1]),
        ([1, 3], 9, [2, 7]),
        ([1, 1, 1], 4, [2, 1, 1]),
        ([0, 5], 3, [0, 3]),
        ([0, 0], 3, [0, 0]),
    ],
)
def test_small_cases(weights: list[int], count: int, expected: list[int]) -> None:
    assert seats(weights, count) == expected


def test_equal_quotients_go_to_fewer_seats_first() -> None:
    # After [2, 0] both claim 1: 5 / 5 and 1 / 1; the party without a seat gets it.
    assert seats([5, 1], 3) == [2, 1]


def test_tie_keys_decide_and_are_recorded() -> None:
    result = apportion(
        np.array([1, 1, 1]), 4, lambda position_k: np.array([2, 1, 0], np.uint64)[position_k]
    )
    assert result.seats_k.tolist() == [1, 1, 2]
    assert result.tied_k.tolist() == [False, False, True]


def test_quotas_and_remainder_seats() -> None:
    result = apportion(np.array([1, 3]), 9, by_position)
    assert result.quotas.as_float_k.tolist() == [2.25, 6.75]
    assert result.remainder_k.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("weights", "seats"),
    [
        # 11 times the float nearest to 30 / 22 is a little less than 15.
        ([11, 11], 30),
        ([130, 27, 109], 266),
        ([7, 7, 7, 7, 7, 7, 7], 49 * 8),
        ([56, 44, 14], 57),
        ([2**31 - 1, 2**31 - 1], 2**31 - 1 << 1),
    ],
)
def test_whole_quotas_leave_no_remainder(weights: list[int], seats: int) -> None:
    result = apportion(np.array(weights), seats, by_position)
    assert result.seats_k.tolist() == [weight * seats // sum(weights) for weight in weights]
    assert not result.remainder_k.any()
    assert result.quotas.as_float_k.tolist() == result.seats_k.tolist()


@given(weights=st.lists(st.integers(0, 2**32), min_size=1, max_size=6), seats=st.integers(1, 2**31))
def test_quotas_are_exact(weights: list[int], seats: int) -> None:
    quotas = Quotas.of(np.array(weights, dtype=np.int64), seats)
    total = sum(weights) or 1
    assert quotas.whole_k.tolist() == [weight * seats // total for weight in weights]
    assert quotas.has_rest_k.tolist() == [weight * seats % total > 0 for weight in weights]


def test_floors_are_seats_given_beforehand() -> None:
    assert bounded([10, 10, 10], 9, [5, 0, 0], [9, 9, 9]).seats_k.tolist() == [5, 2, 2]


def test_full_parties_leave_seats_to_others() -> None:
    assert bounded([6, 1, 1], 8, [0, 0, 0], [2, 9, 9]).seats_k.tolist() == [2, 3, 3]


def test_seats_beyond_all_ceilings_are_not_given() -> None:
    assert bounded([6, 1, 0], 8, [0, 0, 0], [2, 3, 9]).seats_k.tolist() == [2, 3, 0]


def test_sums_beyond_32_bits() -> None:
    result = apportion(np.array([1_500_000_000] * 4), 2**32, by_position)
    assert result.seats_k.tolist() == [2**30] * 4


def test_a_million_seats_over_ten_thousand_parties() -> None:
    weights = np.random.default_rng(1).integers(1, 500, 10_000)
    result = apportion(weights, 1_000_000, by_position)
    assert result.seats_k.sum() == 1_000_000
    # Webster rounds to nearest: nobody is a whole seat or more away at the common divisor.
    assert np.abs(result.seats_k - result.quotas.as_float_k).max() < 1
