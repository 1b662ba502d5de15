"""What every watch says of itself, put together: since when, and whether to promise on it."""

from __future__ import annotations

import pytest

from estimator.sight import PROOF_SECONDS, TOLERATED_SECONDS, Loss, Sight


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_one_resource_that_is_found_leaves_the_other_lost(clock: Clock) -> None:
    sight = Sight(clock)
    sight.lose("nodes", Loss(since=clock.now, why="cut"))
    clock.now += 2.0
    sight.lose("pods", Loss(since=clock.now, why="cut"))
    sight.find("nodes")
    clock.now += TOLERATED_SECONDS - 1.0
    assert not sight.view().is_blind
    clock.now += 1.0
    assert sight.view().is_blind


def test_who_is_blind_sees_again_once_everything_is_seen(clock: Clock) -> None:
    sight = Sight(clock)
    sight.lose("nodes", Loss(since=clock.now, why="cut"))
    clock.now += 3.0
    sight.lose("pods", Loss(since=clock.now, why="cut"))
    clock.now += TOLERATED_SECONDS - 3.0
    assert sight.view().is_blind
    sight.find("nodes")
    clock.now += PROOF_SECONDS
    assert sight.view().is_blind, "the pods are as old as they were"
    sight.find("pods")
    clock.now += PROOF_SECONDS
    assert sight.view().is_current


def test_who_is_blind_does_not_believe_a_watch_that_ends_at_once(clock: Clock) -> None:
    sight = Sight(clock)
    sight.lose("nodes", Loss(since=clock.now, why="cut"))
    clock.now += TOLERATED_SECONDS
    sight.find("nodes")
    assert sight.view().is_blind
    clock.now += PROOF_SECONDS / 2
    sight.lose("nodes", Loss(since=clock.now, why="too old"))
    clock.now += PROOF_SECONDS
    view = sight.view()
    assert view.is_blind
    assert view.age_seconds == TOLERATED_SECONDS + PROOF_SECONDS * 1.5
    sight.find("nodes")
    clock.now += PROOF_SECONDS
    assert sight.view().is_current
