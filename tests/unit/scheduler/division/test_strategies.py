"""Strategies, modes, limits and tiers, on numbers seen at Karmada and on ours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation.scheduler.division.strategies import divide
from federation.scheduler.division.values import (
    Candidates,
    Division,
    DivisionRule,
    DivisionStrategy,
    Limit,
    Mode,
)

DYNAMIC = DivisionRule(strategy=DivisionStrategy.DYNAMIC_WEIGHT)
AGGREGATED = DivisionRule(strategy=DivisionStrategy.AGGREGATED)
FILL_FIRST = DivisionRule(strategy=DivisionStrategy.FILL_FIRST)
STATIC = DivisionRule(strategy=DivisionStrategy.STATIC_WEIGHT)
BOUNDED = DivisionRule(strategy=DivisionStrategy.STATIC_WEIGHT, capacity_bounded=True)


def candidates(
    available: list[int],
    prior: list[int] | None = None,
    *,
    weights: list[int] | None = None,
    floors: list[int] | None = None,
    ceilings: list[int] | None = None,
) -> Candidates:
    count = len(available)
    return Candidates(
        available_k=np.array(available, dtype=np.int64),
        prior_k=np.array(prior or [0] * count, dtype=np.int64),
        weight_k=np.array(weights or [1] * count, dtype=np.int64),
        floor_k=np.array(floors or [0] * count, dtype=np.int64),
        ceiling_k=np.array(ceilings or [2**62] * count, dtype=np.int64),
        listed_k=np.arange(count),
        tie_keys=lambda position_k: position_k.astype(np.uint64),
    )


def divided(rule: DivisionRule, given: Candidates, replicas: int) -> Division:
    return divide(rule, given, np.zeros(len(given.available_k), np.int64), replicas)


def shares(rule: DivisionRule, given: Candidates, replicas: int) -> list[int]:
    division = divided(rule, given, replicas)
    assert not division.missing
    assert not division.conflict
    share: list[int] = division.share_k.tolist()
    return share


@pytest.mark.parametrize(
    ("rule", "prior", "replicas", "expected", "mode"),
    [
        (DYNAMIC, [0, 0, 0], 12, [3, 7, 2], Mode.SCALE_UP),
        (AGGREGATED, [0, 0, 0], 12, [0, 12, 0], Mode.SCALE_UP),
        (AGGREGATED, [0, 0, 0], 22, [7, 15, 0], Mode.SCALE_UP),
        (DYNAMIC, [3, 3, 0], 12, [5, 6, 1], Mode.SCALE_UP),
        (AGGREGATED, [0, 0, 2], 6, [0, 0, 6], Mode.SCALE_UP),
        (AGGREGATED, [0, 0, 2], 10, [0, 6, 4], Mode.SCALE_UP),
        (DYNAMIC, [5, 10, 3], 6, [2, 3, 1], Mode.SCALE_DOWN),
        (AGGREGATED, [5, 10, 3], 6, [0, 6, 0], Mode.SCALE_DOWN),
        (AGGREGATED, [5, 10, 3], 12, [4, 8, 0], Mode.SCALE_DOWN),
        (DYNAMIC, [5, 10, 3], 18, [5, 10, 3], Mode.KEEP),
    ],
)
def test_steady(
    rule: DivisionRule, prior: list[int], replicas: int, expected: list[int], mode: Mode
) -> None:
    division = divided(rule, candidates([10, 20, 5], prior), replicas)
    assert division.share_k.tolist() == expected
    assert [facts.mode for facts in division.facts] == [mode]


def test_fresh_counts_own_replicas_as_room() -> None:
    fresh = replace(AGGREGATED, fresh=True)
    assert shares(fresh, candidates([10, 20, 5], [5, 10, 3]), 18) == [0, 18, 0]


def test_scale_up_keeps_what_is_placed_where_nothing_fits_any_more() -> None:
    assert shares(DYNAMIC, candidates([0, 4], [6, 0]), 8) == [6, 2]


def test_what_fits_nowhere_is_reported() -> None:
    division = divided(DYNAMIC, candidates([10, 20, 5]), 36)
    assert division.missing == 1
    assert division.share_k.tolist() == [10, 20, 5]
    assert division.facts[0].available == 35


def test_sums_beyond_32_bits() -> None:
    division = divided(DYNAMIC, candidates([1_500_000_000] * 3), 2_000_000_000)
    assert division.share_k.sum() == 2_000_000_000
    assert not division.missing


@pytest.mark.parametrize(
    ("weights", "replicas", "expected"),
    [([1, 2, 0], 9, [3, 6, 0]), ([0, 0, 0], 4, [2, 1, 1]), ([1, 1, 0], 10, [5, 5, 0])],
)
def test_static_weights_ignore_capacity(
    weights: list[int], replicas: int, expected: list[int]
) -> None:
    assert shares(STATIC, candidates([0, 1, 0], weights=weights), replicas) == expected


def test_capacity_bounded_weights_give_the_rest_to_others() -> None:
    assert shares(BOUNDED, candidates([2, 20, 20], weights=[6, 1, 1]), 8) == [2, 3, 3]


def test_capacity_bounded_weights_count_own_replicas_as_room() -> None:
    assert shares(BOUNDED, candidates([0, 20], [3, 0], weights=[1, 1]), 8) == [3, 5]


def test_duplicated_ignores_capacity() -> None:
    rule = DivisionRule(strategy=DivisionStrategy.DUPLICATED)
    assert shares(rule, candidates([0, 9]), 4) == [4, 4]


@pytest.mark.parametrize(
    ("prior", "replicas", "expected"),
    [
        ([0, 0, 0], 12, [0, 12, 0]),
        ([0, 0, 0], 22, [2, 20, 0]),
        ([0, 0, 2], 10, [0, 3, 7]),
        ([5, 10, 3], 12, [2, 10, 0]),
    ],
)
def test_fill_first_fills_the_fewest_clusters(
    prior: list[int], replicas: int, expected: list[int]
) -> None:
    assert shares(FILL_FIRST, candidates([10, 20, 5], prior), replicas) == expected


def test_limits_bend_a_division() -> None:
    given = candidates([10, 20, 5], floors=[0, 0, 4], ceilings=[2, 99, 99])
    assert shares(DYNAMIC, given, 12) == [2, 6, 4]
    # A cluster that must be used anyway is filled before another is opened.
    assert shares(FILL_FIRST, given, 12) == [0, 7, 5]


@pytest.mark.parametrize(
    ("rule", "given", "replicas", "limits"),
    [
        # 4 of 10 go to the third; the others share what its floor leaves.
        (STATIC, {"floors": [0, 0, 8]}, 10, [Limit.OTHERS, Limit.OTHERS, Limit.MIN]),
        (STATIC, {"ceilings": [1, 99, 99]}, 9, [Limit.MAX, Limit.OTHERS, Limit.OTHERS]),
        (BOUNDED, {"available": [1, 99, 99]}, 9, [Limit.ROOM, Limit.OTHERS, Limit.OTHERS]),
        (STATIC, {"floors": [3, 3, 3], "ceilings": [3, 3, 3]}, 9, [Limit.NONE] * 3),
        (STATIC, {}, 10, [Limit.NONE] * 3),
        (DYNAMIC, {"available": [1, 1, 1]}, 9, [Limit.ROOM] * 3),
        (DYNAMIC, {"prior": [9, 0, 0], "ceilings": [5, 9, 9]}, 9, [2, Limit.OTHERS, Limit.OTHERS]),
        (DYNAMIC, {"prior": [9, 0, 0], "floors": [0, 2, 0]}, 9, [0, Limit.MIN, 0]),
        (FILL_FIRST, {"floors": [2, 0, 2]}, 7, [0, 0, Limit.MIN]),
        (FILL_FIRST, {"floors": [0, 0, 2], "ceilings": [9, 9, 3]}, 7, [0, 0, Limit.MAX]),
    ],
)
def test_limits_that_change_a_share_are_told(
    rule: DivisionRule, given: dict[str, list[int]], replicas: int, limits: list[int]
) -> None:
    division = divided(rule, candidates(**{"available": [99, 99, 99], **given}), replicas)
    assert division.limit_k.tolist() == limits
    # What a limit gave, or left, is no seat won by remainder.
    assert not division.remainder_k[division.limit_k != Limit.NONE].any()


def test_replicas_above_a_ceiling_are_placed_again() -> None:
    given = candidates([10, 10], [8, 0], ceilings=[5, 9])
    assert shares(DYNAMIC, given, 8) == [5, 3]


def test_replicas_are_taken_to_reach_a_floor() -> None:
    given = candidates([10, 10], [8, 0], floors=[0, 3])
    assert shares(DYNAMIC, given, 8) == [5, 3]


@pytest.mark.parametrize(
    ("floors", "available", "conflict"),
    [
        ([3, 4], [9, 9], "the least replicas per cluster add up to 7, 6 are wanted"),
        ([3, 0], [2, 9], "1 cluster cannot hold the least replicas asked of them"),
    ],
)
def test_limits_that_cannot_be_kept(floors: list[int], available: list[int], conflict: str) -> None:
    assert divided(DYNAMIC, candidates(available, floors=floors), 6).conflict == conflict


def tiered(replicas: int) -> Division:
    return divide(DYNAMIC, candidates([4, 4, 9, 9]), np.array([0, 0, 1, 1]), replicas)


def test_a_tier_spills_into_the_next() -> None:
    assert tiered(6).share_k.tolist() == [3, 3, 0, 0]
    assert tiered(12).share_k.tolist() == [4, 4, 2, 2]
    assert [facts.wanted for facts in tiered(12).facts] == [8, 4]


def test_tiers_together_may_be_too_small() -> None:
    assert tiered(30).missing == 4


def test_duplicated_stays_in_the_first_tier() -> None:
    rule = DivisionRule(strategy=DivisionStrategy.DUPLICATED)
    division = divide(rule, candidates([4, 4, 9]), np.array([0, 1, 0]), 6)
    assert division.share_k.tolist() == [6, 0, 6]
    assert not division.missing
