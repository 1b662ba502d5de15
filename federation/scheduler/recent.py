"""What was worked out for the last few subjects, so that it is not worked out again for equal ones.

Bounded, and safe in any thread: whoever fills it fills in the same. Must not be asked about
subjects that can change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

Subject = TypeVar("Subject")
Answer = TypeVar("Answer")

MOST_SUBJECTS: Final = 64
# Comparing takes time where every subject is another one.
MOST_COMPARED: Final = 8


class Recent(Generic[Subject, Answer]):
    """Answers by subject, found by its identity, else by comparing it with the last few.

    Subjects need not be hashable. Each is kept: without a reference its identity may be given to
    another one.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[Subject, Answer]] = {}
        self._compared: tuple[tuple[Subject, Answer], ...] = ()

    def answer(self, subject: Subject, work_out: Callable[[], Answer]) -> Answer:
        """What is remembered for an equal subject, or else what is worked out now."""
        known = self._known.get(id(subject))
        if known is not None:
            return known[1]
        found = next((each for each in self._compared if each[0] == subject), None)
        if found is None:
            found = subject, work_out()
            self._compared = (found, *self._compared[: MOST_COMPARED - 1])
        if len(self._known) >= MOST_SUBJECTS:
            self._known.clear()
        self._known[id(subject)] = subject, found[1]
        return found[1]
