"""Collects broken rules, so that a caller hears of all of them at once.

Must not know what is being read.
"""

from __future__ import annotations

from collections.abc import Iterable

from federation.model.errors import InvalidRequest, Violation


class Violations:
    """The broken rules found so far, each under its full field path."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: list[Violation] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, field: str, rule: str) -> None:
        self._found.append(Violation(field=field, rule=rule))

    def extend(self, violations: Iterable[Violation]) -> None:
        self._found.extend(violations)

    def check(self) -> None:
        """Raises InvalidRequest when anything was found."""
        if self._found:
            raise InvalidRequest(self._found)


def joined(path: str, name: str) -> str:
    """The path of a field within what is at ``path``."""
    return f"{path}.{name}" if path else name
