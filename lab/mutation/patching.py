"""Python's own machinery: the lines that a test runs, and code that is replaced while it lives.

Must not see other files than those it is made for, nor import anything anew: objects keep their
identity.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterable, Iterator
from inspect import CO_NEWLOCALS
from types import CodeType, FrameType, FunctionType
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


Place = tuple[str, int]


class NotPatched(Exception):
    """No function of this process has the code that is to be replaced."""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of all functions that a code object contains, itself included."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def functions_of(source: bytes, path: str) -> dict[Place, CodeType]:
    """Return the code of each function in a source, by qualified name and first line."""
    module = compile(source, path, "exec", dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in codes_in(module)}


def outermost(function: str) -> str:
    """Return the qualified name of the function that contains all others of a dotted name."""
    return function.partition(".<locals>")[0]


def patch(source: bytes, path: str, function: str, line: int) -> None:
    """Give functions of this process the code that they have in another source of their file.

    `line` is the line of the fault: of functions with one name the nearest one above is meant.
    Raises NotPatched.
    """
    name = outermost(function)
    codes = functions_of(source, path)
    begins = [first for qualname, first in codes if qualname == name and first <= line]
    if not begins:
        raise NotPatched(f"{path}: no function {name} above line {line}")
    inside = {
        (code.co_qualname, code.co_firstlineno): code for code in codes_in(codes[name, max(begins)])
    }
    patched = 0
    # Programs freeze what they have imported, and frozen objects are not listed.
    gc.unfreeze()
    for living in gc.get_objects():
        if not isinstance(living, FunctionType) or living.__code__.co_filename != path:
            continue
        code = inside.get((living.__code__.co_qualname, living.__code__.co_firstlineno))
        if code is None:
            continue
        if len(code.co_freevars) != len(living.__code__.co_freevars):
            raise NotPatched(f"{path}: {name} takes other variables of its surroundings")
        living.__code__ = code
        patched += 1
    if not patched:
        raise NotPatched(f"{path}: no function {name} is alive")
