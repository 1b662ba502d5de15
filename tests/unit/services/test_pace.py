from __future__ import annotations

from federation.services.pace import Pace


def test_so_much_at_once_and_then_so_much_a_second() -> None:
    pace = Pace(at_once=3.0, per_second=2.0, now=10.0)
    assert [pace.spend(1.0, 10.0) for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert pace.spend(1.0, 11.5) == 0.0


def test_what_is_not_spent_is_not_saved_without_end() -> None:
    pace = Pace(at_once=3.0, per_second=2.0, now=0.0)
    assert pace.left_at(1_000.0) == 3.0


def test_more_than_is_left_can_be_spent_and_is_waited_for() -> None:
    pace = Pace(at_once=1.0, per_second=2.0, now=0.0)
    assert pace.spend(11.0, 0.0) == 5.0
    assert pace.left_at(5.0) == 0.0
