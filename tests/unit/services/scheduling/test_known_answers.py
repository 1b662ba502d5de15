from __future__ import annotations

from federation.services.scheduling.known_answers import MAX_NUMBERS, MIN_ANSWERS, Memo


def test_a_memo_forgets_the_oldest_answer() -> None:
    memo: Memo[int, str] = Memo(MAX_NUMBERS)
    for number in range(MIN_ANSWERS + 5):
        memo[number] = str(number)
        memo[5] = "again"
    assert len(memo) == MIN_ANSWERS
    assert (4 in memo, memo[MIN_ANSWERS + 4]) == (False, str(MIN_ANSWERS + 4))


def test_the_larger_the_fleet_the_fewer_answers_are_kept() -> None:
    assert Memo[int, int](1_000).max_answers == MAX_NUMBERS // 1_000
    assert Memo[int, int](10_000).max_answers == MAX_NUMBERS // 10_000
    assert Memo[int, int](0).max_answers == MAX_NUMBERS
