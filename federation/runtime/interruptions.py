"""Ctrl-C and its kin: let in where a program can stop, kept for later where it must not.

Must not install itself: the program's entry decides which signals arrive here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interruptions:
    """Raises KeyboardInterrupt once at most, so that nothing interrupts the cleaning up."""

    def __init__(self) -> None:
        self._arrived = False
        self._allowed = False
        self._tell: Callable[[], object] | None = None

    def arrive(self, _number: int, _frame: FrameType | None) -> None:
        """To be called for a signal."""
        self._arrived = True
        if self._tell is not None:
            self._tell()
        self._raise_when_allowed()

    @contextmanager
    def told(self, tell: Callable[[], object]) -> Iterator[None]:
        """Within, a signal calls ``tell``, between any two steps of the main thread; also one that
        came before.
        """
        self._tell = tell
        if self._arrived:
            tell()
        try:
            yield
        finally:
            self._tell = None

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Within, a signal interrupts; also one that came before."""
        try:
            self._allowed = True
            if self._arrived:
                self._raise_when_allowed()
            yield
        finally:
            self._allowed = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, a signal waits for the end."""
        before, self._allowed = self._allowed, False
        try:
            yield
        finally:
            self._allowed = before
            if self._arrived:
                self._raise_when_allowed()

    def _raise_when_allowed(self) -> None:
        if self._allowed:
            self._allowed = False
            raise KeyboardInterrupt
