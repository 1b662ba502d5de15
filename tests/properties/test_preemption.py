"""Preemption equals brute force on few candidates, and never takes what could be spared."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from federation.scheduler.preemption import (
    MAX_EXACT_UNITS,
    Candidate,
    Fits,
    Losses,
    cost,
    least_loss,
    losses_by_namespace,
)

CLUSTERS = ("a", "b", "c")


@st.composite
def candidates(draw: st.DrawFn, most: int) -> list[Candidate]:
    return [
        Candidate(
            binding=f"b{number}",
            cluster=draw(st.sampled_from(CLUSTERS)),
            priority=draw(st.integers(-2, 2)),
            replicas=draw(st.integers(1, 4)),
            divisible=draw(st.booleans()),
            placed_at=float(draw(st.integers(0, 3))),
        )
        for number in range(draw(st.integers(0, most)))
    ]


@st.composite
def wishes(draw: st.DrawFn, given_candidates: list[Candidate]) -> Fits:
    """Room by cluster, what a replica of each candidate leaves, and whether the wish is divided."""
    free = {name: draw(st.integers(0, 3)) for name in CLUSTERS}
    sizes = [draw(st.integers(1, 3)) for _ in given_candidates]
    wanted, size = draw(st.integers(1, 12)), draw(st.integers(1, 3))
    is_divided = draw(st.booleans())

    def fits(losses: Losses) -> bool:
        room = dict(free)
        for candidate, loss, each in zip(given_candidates, losses, sizes, strict=True):
            room[candidate.cluster] += loss * each
        fitting = [amount // size for amount in room.values()]
        return (sum(fitting) if is_divided else max(fitting)) >= wanted

    return fits


def every(given_candidates: list[Candidate]) -> list[Losses]:
    return list(product(*(each.choices for each in given_candidates)))


@given(st.data())
def test_it_is_the_least_loss_of_all(data: st.DataObject) -> None:
    some = data.draw(candidates(12))
    while sum(len(each.choices) - 1 for each in some) > MAX_EXACT_UNITS:
        some.pop()
    fits = data.draw(wishes(some))
    enough = [losses for losses in every(some) if fits(losses)]
    expected = min(enough, key=lambda losses: cost(some, losses)) if enough else None
    assert least_loss(some, fits) == (expected if some else None)


@given(st.data())
def test_nothing_of_it_can_be_left_out(data: st.DataObject) -> None:
    some = data.draw(candidates(40))
    fits = data.draw(wishes(some))
    losses = least_loss(some, fits)
    if losses is None:
        assert not some or not fits(tuple(each.replicas for each in some))
        return
    assert fits(losses)
    highest = max(
        (each.priority for each, loss in zip(some, losses, strict=True) if loss), default=-9
    )
    # Nobody less urgent would have been enough.
    lower = tuple(each.replicas if each.priority < highest else 0 for each in some)
    assert not any(losses) or not fits(lower)
    for position, loss in enumerate(losses):
        assert loss in some[position].choices
        for less in (each for each in some[position].choices if each < loss):
            assert not fits((*losses[:position], less, *losses[position + 1 :]))


def test_losses_are_counted_by_namespace() -> None:
    some = [
        Candidate(binding=key, cluster="a", priority=0, replicas=9, divisible=True, placed_at=0.0)
        for key in ("shop/web", "shop/db", "lab/job", "lab/other")
    ]
    assert losses_by_namespace(some, (2, 3, 1, 0)) == {"shop": 5, "lab": 1}
    assert losses_by_namespace(some, (0, 0, 1, 0)) == {"lab": 1}
