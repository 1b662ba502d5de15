"""The cache of answers by value: equal subjects, its bound, and large answers."""

from __future__ import annotations

from collections.abc import Callable

from federation.model.placement import ClusterAffinity, Placement
from federation.scheduler.fleet import MAX_SUBJECTS, ValueCache


def recorded(calls: list[str], answer: str) -> Callable[[], str]:
    def compute() -> str:
        calls.append(answer)
        return answer

    return compute


def placement(value: str) -> Placement:
    return Placement(affinity=ClusterAffinity(match_labels={"tier": value}))


def test_equal_placements_are_answered_once() -> None:
    cache: ValueCache[Placement, str] = ValueCache()
    calls: list[str] = []
    same = placement("a")
    subjects = (same, same, placement("a"), placement("b"))
    answers = [cache.answer(subject, recorded(calls, str(subject))) for subject in subjects]
    assert answers == [str(subject) for subject in subjects]
    assert calls == [str(placement("a")), str(placement("b"))]


def test_large_answers_are_computed_again() -> None:
    cache: ValueCache[int, str] = ValueCache()
    calls: list[str] = []
    for _ in range(2):
        cache.answer(1, recorded(calls, "large"), lambda answer: answer != "large")
        cache.answer(2, recorded(calls, "small"), lambda answer: answer != "large")
    assert calls == ["large", "small", "large"]


def test_no_more_answers_are_cached_than_the_bound_says() -> None:
    cache: ValueCache[int, str] = ValueCache()
    calls: list[str] = []
    subjects = range(3 * MAX_SUBJECTS)
    for subject in subjects:
        cache.answer(subject, recorded(calls, str(subject)))
    assert len(calls) == len(subjects)
    for subject in subjects:
        cache.answer(subject, recorded(calls, str(subject)))
    assert len(calls) >= 2 * len(subjects) - MAX_SUBJECTS
