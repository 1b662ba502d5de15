"""How replicas are divided: every strategy, limits, tiers, remainders and ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from federation.model.reasons import NO_REASON
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
FRESH = replace(AGGREGATED, fresh=True)
FILL_FIRST = DivisionRule(strategy=DivisionStrategy.FILL_FIRST)
STATIC = DivisionRule(strategy=DivisionStrategy.STATIC_WEIGHT)
BOUNDED = DivisionRule(strategy=DivisionStrategy.STATIC_WEIGHT, capacity_bounded=True)
DUPLICATED = DivisionRule(strategy=DivisionStrategy.DUPLICATED)
Given = dict[str, list[int]]


def divided(rule: DivisionRule, replicas: int, **given: list[int]) -> Division:
    """``available``, ``prior``, ``weight``, ``floor``, ``ceiling`` and ``tier`` by candidate."""
    count = len(given["available"])
    usual = {"prior": 0, "weight": 1, "floor": 0, "ceiling": 2**62, "tier": 0}
    every = {name: [number] * count for name, number in usual.items()} | given
    column = {name: np.array(numbers, dtype=np.int64) for name, numbers in every.items()}
    candidates = Candidates(
        available_k=column["available"],
        prior_k=column["prior"],
        weight_k=column["weight"],
        floor_k=column["floor"],
        ceiling_k=column["ceiling"],
        listed_k=np.arange(count),
        tie_keys=lambda position_k: position_k.astype(np.uint64),
    )
    return divide(rule, candidates, column["tier"], replicas)


ROOM: Given = {"available": [10, 20, 5]}
LIMITED: Given = {**ROOM, "floor": [0, 0, 4], "ceiling": [2, 99, 99]}
PLACED: Given = {**ROOM, "prior": [5, 10, 3]}
TIERS: Given = {"available": [4, 4, 9, 9], "tier": [0, 0, 1, 1]}


@pytest.mark.parametrize(
    ("rule", "given", "replicas", "expected", "modes"),
    [
        (DYNAMIC, ROOM, 12, [3, 7, 2], [Mode.SCALE_UP]),
        (AGGREGATED, ROOM, 12, [0, 12, 0], [Mode.SCALE_UP]),
        (AGGREGATED, ROOM, 22, [7, 15, 0], [Mode.SCALE_UP]),
        (DYNAMIC, {**ROOM, "prior": [3, 3, 0]}, 12, [5, 6, 1], [Mode.SCALE_UP]),
        (AGGREGATED, {**ROOM, "prior": [0, 0, 2]}, 6, [0, 0, 6], [Mode.SCALE_UP]),
        (AGGREGATED, {**ROOM, "prior": [0, 0, 2]}, 10, [0, 6, 4], [Mode.SCALE_UP]),
        (DYNAMIC, PLACED, 6, [2, 3, 1], [Mode.SCALE_DOWN]),
        (AGGREGATED, PLACED, 6, [0, 6, 0], [Mode.SCALE_DOWN]),
        (AGGREGATED, PLACED, 12, [4, 8, 0], [Mode.SCALE_DOWN]),
        (DYNAMIC, PLACED, 18, [5, 10, 3], [Mode.KEEP]),
        # Fresh counts its own replicas as room.
        (FRESH, PLACED, 18, [0, 18, 0], [Mode.FRESH]),
        # What is placed stays where nothing fits any more.
        (DYNAMIC, {"available": [0, 4], "prior": [6, 0]}, 8, [6, 2], [Mode.SCALE_UP]),
        # The fewest clusters, each filled.
        (FILL_FIRST, ROOM, 12, [0, 12, 0], None),
        (FILL_FIRST, ROOM, 22, [2, 20, 0], None),
        (FILL_FIRST, {**ROOM, "prior": [0, 0, 2]}, 10, [0, 3, 7], None),
        (FILL_FIRST, PLACED, 12, [2, 10, 0], None),
        # Static weights ignore capacity unless they are bounded by it.
        (STATIC, {"available": [0, 1, 0], "weight": [1, 2, 0]}, 9, [3, 6, 0], None),
        (STATIC, {"available": [0, 1, 0], "weight": [0, 0, 0]}, 4, [2, 1, 1], None),
        (BOUNDED, {"available": [2, 20, 20], "weight": [6, 1, 1]}, 8, [2, 3, 3], None),
        (BOUNDED, {"available": [0, 20], "prior": [3, 0]}, 8, [3, 5], None),
        (DUPLICATED, {"available": [0, 9]}, 4, [4, 4], None),
        (DUPLICATED, {"available": [4, 4, 9], "tier": [0, 1, 0]}, 6, [6, 0, 6], None),
        # A tier spills into the next.
        (DYNAMIC, TIERS, 6, [3, 3, 0, 0], None),
        (DYNAMIC, TIERS, 12, [4, 4, 2, 2], None),
        # A cluster that must be used anyway is filled before another is opened.
        (DYNAMIC, LIMITED, 12, [2, 6, 4], None),
        (FILL_FIRST, LIMITED, 12, [0, 7, 5], None),
        # Replicas above a ceiling, or below the floor of another, are placed again.
        (DYNAMIC, {"available": [10, 10], "prior": [8, 0], "ceiling": [5, 9]}, 8, [5, 3], None),
        (DYNAMIC, {"available": [10, 10], "prior": [8, 0], "floor": [0, 3]}, 8, [5, 3], None),
        (DYNAMIC, {"available": [1_500_000_000] * 4}, 2**32, [2**30] * 4, None),
    ],
)
def test_shares(
    rule: DivisionRule,
    given: Given,
    replicas: int,
    expected: list[int],
    modes: list[Mode] | None,
) -> None:
    division = divided(rule, replicas, **given)
    assert division.share_k.tolist() == expected
    assert (division.missing, division.conflict) == (0, NO_REASON)
    assert modes is None or [facts.mode for facts in division.facts] == modes


@pytest.mark.parametrize(
    ("rule", "given", "replicas", "limits"),
    [
        # 4 of 10 go to the third; the others share what its floor leaves.
        (STATIC, {"floor": [0, 0, 8]}, 10, [Limit.OTHERS, Limit.OTHERS, Limit.MIN]),
        (STATIC, {"ceiling": [1, 99, 99]}, 9, [Limit.MAX, Limit.OTHERS, Limit.OTHERS]),
        (BOUNDED, {"available": [1, 99, 99]}, 9, [Limit.ROOM, Limit.OTHERS, Limit.OTHERS]),
        (STATIC, {"floor": [3, 3, 3], "ceiling": [3, 3, 3]}, 9, [Limit.NONE] * 3),
        (STATIC, {}, 10, [Limit.NONE] * 3),
        (DYNAMIC, {"available": [1, 1, 1]}, 9, [Limit.ROOM] * 3),
        (DYNAMIC, {"prior": [9, 0, 0], "ceiling": [5, 9, 9]}, 9, [2, Limit.OTHERS, Limit.OTHERS]),
        (DYNAMIC, {"prior": [9, 0, 0], "floor": [0, 2, 0]}, 9, [0, Limit.MIN, 0]),
        (FILL_FIRST, {"floor": [2, 0, 2]}, 7, [0, 0, Limit.MIN]),
        (FILL_FIRST, {"floor": [0, 0, 2], "ceiling": [9, 9, 3]}, 7, [0, 0, Limit.MAX]),
    ],
)
def test_limits_that_change_a_share_are_told(
    rule: DivisionRule, given: Given, replicas: int, limits: list[int]
) -> None:
    division = divided(rule, replicas, **{"available": [99, 99, 99], **given})
    assert division.limit_k.tolist() == limits
    # What a limit gave, or left, is no seat won by remainder.
    assert not division.remainder_k[division.limit_k != Limit.NONE].any()


def test_what_fits_nowhere_and_limits_that_cannot_be_kept_are_told() -> None:
    division = divided(DYNAMIC, 36, **ROOM)
    assert (division.missing, division.facts[0].available) == (1, 35)
    assert division.share_k.tolist() == [10, 20, 5]
    assert divided(DYNAMIC, 30, **TIERS).missing == 4
    assert [facts.wanted for facts in divided(DYNAMIC, 12, **TIERS).facts] == [8, 4]
    assert str(divided(DYNAMIC, 6, available=[9, 9], floor=[3, 4]).conflict) == (
        "the least replicas per cluster add up to 7, 6 are wanted"
    )
    assert str(divided(DYNAMIC, 6, available=[2, 9], floor=[3, 0]).conflict) == (
        "1 cluster cannot hold the least replicas asked of them"
    )


@pytest.mark.parametrize(
    ("weights", "seats"),
    [
        # 11 times the float nearest to 30 / 22 is a little less than 15.
        ([11, 11], 30),
        ([130, 27, 109], 266),
        ([7, 7, 7, 7, 7, 7, 7], 49 * 8),
        ([2**31 - 1, 2**31 - 1], 2**31 - 1 << 1),
    ],
)
def test_whole_quotas_leave_no_remainder(weights: list[int], seats: int) -> None:
    found = divided(STATIC, seats, available=[0] * len(weights), weight=weights)
    assert found.share_k.tolist() == [weight * seats // sum(weights) for weight in weights]
    assert not found.remainder_k.any()
    assert found.quota_k.tolist() == found.share_k.tolist()


def test_remainders_and_ties_are_recorded_and_a_million_seats_are_near_their_quotas() -> None:
    found = divided(STATIC, 4, available=[0, 0, 0])
    assert found.share_k.tolist() == [2, 1, 1]
    assert found.tied_k.tolist() == [True, False, False]
    found = divided(STATIC, 9, available=[0, 0], weight=[1, 3])
    assert found.quota_k.tolist() == [2.25, 6.75]
    assert found.remainder_k.tolist() == [0, 1]
    weights = np.random.default_rng(1).integers(1, 500, 10_000).tolist()
    found = divided(STATIC, 1_000_000, available=[0] * 10_000, weight=weights)
    assert found.share_k.sum() == 1_000_000
    # Webster rounds to nearest: nobody is a whole seat or more away at the common divisor.
    assert np.abs(found.share_k - found.quota_k).max() < 1
