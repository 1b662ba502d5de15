"""What is remembered: for the same and for equal subjects, and not for ever."""

from __future__ import annotations

from collections.abc import Callable

from federation.scheduler.fleet import MOST_COMPARED, MOST_SUBJECTS, Recent


def counted(made: list[str], answer: str) -> Callable[[], str]:
    def work_out() -> str:
        made.append(answer)
        return answer

    return work_out


def test_equal_subjects_are_answered_once() -> None:
    recent: Recent[list[int], str] = Recent()
    made: list[str] = []
    one, equal, other = [1], [1], [2]
    answers = [recent.answer(each, counted(made, str(each))) for each in (one, one, equal, other)]
    assert answers == ["[1]", "[1]", "[1]", "[2]"]
    assert made == ["[1]", "[2]"]


def test_a_subject_that_is_gone_does_not_answer_for_a_new_one() -> None:
    recent: Recent[list[int], str] = Recent()
    for number in range(10 * MOST_SUBJECTS):
        # Each list goes at once, and its address to the next one.
        assert recent.answer([number], lambda number=number: str(number)) == str(number)


def test_no_more_are_remembered_than_the_bounds_say() -> None:
    recent: Recent[list[int], str] = Recent()
    made: list[str] = []
    subjects = [[number] for number in range(3 * MOST_SUBJECTS)]
    for subject in subjects:
        recent.answer(subject, counted(made, str(subject)))
    before = len(made)
    for subject in subjects:
        recent.answer([*subject], counted(made, str(subject)))
    assert before == len(subjects)
    assert len(made) >= before + len(subjects) - MOST_SUBJECTS - MOST_COMPARED
