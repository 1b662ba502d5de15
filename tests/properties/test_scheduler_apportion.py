"""Apportionment: the bisection gives what one seat at a time gives, and more seats harm no one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.model.arrays import IntArray, UintArray
from federation.scheduler.division.apportion import Apportionment, apportion

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


def apportioned(
    weights: Sequence[int],
    seats: int,
    keys: Sequence[int],
    floors: Sequence[int] | None = None,
    ceilings: Sequence[int] | None = None,
) -> Apportionment:
    key_k = np.array(keys, dtype=np.uint64)

    def tie_keys(position_k: IntArray) -> UintArray:
        return key_k[position_k]

    return apportion(
        np.array(weights, dtype=np.int64),
        seats,
        tie_keys,
        floor_k=None if floors is None else np.array(floors, dtype=np.int64),
        ceiling_k=None if ceilings is None else np.array(ceilings, dtype=np.int64),
    )


@settings(max_examples=200, deadline=None)
@given(problems())
def test_equals_one_seat_at_a_time(
    problem: tuple[list[int], int, list[int], list[int], list[int]],
) -> None:
    assert apportioned(*problem).seats_k.tolist() == one_at_a_time(*problem)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(0, 3_000))
def test_one_more_seat_takes_none_away(weights: list[int], seats: int) -> None:
    keys = range(len(weights))
    fewer = apportioned(weights, seats, keys).seats_k
    more = apportioned(weights, seats + 1, keys).seats_k
    assert (more >= fewer).all()
    assert more.sum() == fewer.sum() + 1


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=12), st.data())
def test_no_party_passes_its_weight_while_seats_do_not_pass_all_weights(
    weights: list[int], data: st.DataObject
) -> None:
    seats = data.draw(st.integers(0, sum(weights)))
    result = apportioned(weights, seats, range(len(weights)))
    assert result.seats_k.sum() == seats
    assert (result.seats_k <= np.array(weights)).all()


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=9), st.integers(0, 200), st.randoms())
def test_order_of_parties_does_not_matter(weights: list[int], seats: int, random: object) -> None:
    keys = list(range(len(weights)))
    order = list(keys)
    random.shuffle(order)
    straight = apportioned(weights, seats, keys).seats_k
    mixed = apportioned([weights[i] for i in order], seats, [keys[i] for i in order]).seats_k
    assert straight[order].tolist() == mixed.tolist()
