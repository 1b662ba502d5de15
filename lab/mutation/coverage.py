"""The lines of functions that a test runs, by Python's own tracing.

Must not see other files than those it is made for: every further event costs time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable
from inspect import CO_NEWLOCALS
from types import CodeType, FrameType
from typing import Any

Lines = dict[str, set[int]]
# Calls of one function in one test that are looked at: later ones run the same lines.
MAX_CALLS = 300


class _Code:
    """Lines of one function: all that it has, and those that were not run yet."""

    __slots__ = ("all_lines", "calls", "path", "remaining")

    def __init__(self, code: CodeType, path: str) -> None:
        lines = {line for _, _, line in code.co_lines() if line is not None}
        self.path = path
        self.calls = 0
        self.all_lines = frozenset(lines - {code.co_firstlineno})
        self.remaining = set(self.all_lines)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.remaining.discard(frame.f_lineno)
            if not self.remaining:
                return None
        return self.trace


class LineTracer:
    """Records lines of some files, by their absolute paths, between `start` and `stop`."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._codes: dict[CodeType, _Code | None] = {}
        self._run: set[_Code] = set()

    def start(self) -> None:
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def take(self) -> Lines:
        """Return the lines that were run since the last time."""
        lines: Lines = {}
        for code in [*self._run]:
            lines.setdefault(code.path, set()).update(code.all_lines - code.remaining)
            code.remaining = set(code.all_lines)
            code.calls = 0
        self._run.clear()
        return lines

    def _called(self, frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        try:
            traced = self._codes[code]
        except KeyError:
            traced = self._codes[code] = self._begun(code)
        if traced is None or not traced.remaining or traced.calls > MAX_CALLS:
            return None
        traced.calls += 1
        self._run.add(traced)
        return traced.trace

    def _begun(self, code: CodeType) -> _Code | None:
        # Modules and the bodies of classes run when they are imported.
        if code.co_filename not in self._paths or not code.co_flags & CO_NEWLOCALS:
            return None
        return _Code(code, code.co_filename)
