"""Errors in the log of a program: lines of level ERROR or above, and tracebacks.

Must not judge whether an error is expected: the caller names the patterns that are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

# Lines of a log in text, and signs of a fault that no program logs by itself.
_TEXT_ERROR: Final = re.compile(r"^\S+Z (?:ERROR|CRITICAL)\s")
_FAULT: Final = re.compile(
    r"Traceback \(most recent call last\)|unexpected error|never retrieved|Task was destroyed"
    r"|never awaited|no event had told of the room|Exception ignored in"
)
_LEVELS: Final = frozenset({"error", "critical"})
# Lines after an error that are shown with it: the end of a stack is the most useful one.
STACK_LINES: Final = 200


def is_error(line: str) -> bool:
    """Return whether a line of a log reports an error, in text or as JSON."""
    if _TEXT_ERROR.search(line) or _FAULT.search(line):
        return True
    if not line.startswith('{"'):
        return False
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and record.get("level") in _LEVELS


def errors_in(text: str, expected: Iterable[str] = ()) -> list[str]:
    """Return the errors of a log, each with its stack, without those that match `expected`."""
    patterns = [re.compile(pattern) for pattern in expected]
    lines = text.splitlines()
    errors = []
    end = 0
    for number, line in enumerate(lines):
        if number < end or not is_error(line):
            continue
        end = _end_of_stack(lines, number)
        error = "\n".join(lines[number:end])
        if not any(pattern.search(error) for pattern in patterns):
            errors.append(error)
    return errors


def _end_of_stack(lines: list[str], number: int) -> int:
    """Return the line after an error and its stack: the next line that begins a record."""
    end = number + 1
    while end < len(lines) and end - number < STACK_LINES and not _begins_record(lines[end]):
        end += 1
    return end


def _begins_record(line: str) -> bool:
    return bool(re.match(r'\d{4}-\d\d-\d\dT\S+Z |\{"', line))
