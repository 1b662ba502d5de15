"""Figures beside their goals, kept or missed: printed as a table, and written as JSON beside it.

Where the variable ``RESULTS`` names a file, every row is added to it as one line of JSON. Must not
measure, and must not end a program: a caller asks how many goals were missed.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

RESULTS_VARIABLE: Final = "RESULTS"
ROOT: Final = Path(__file__).resolve().parents[1]
NAME_WIDTH: Final = 66
VALUE_WIDTH: Final = 9
MOST_SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A limit in the unit of its figure."""

    limit: float
    is_maximum: bool

    def is_kept_by(self, value: float) -> bool:
        """Whether a figure keeps it; a figure that is no number keeps none."""
        return value <= self.limit if self.is_maximum else value >= self.limit

    def __str__(self) -> str:
        return f"{'<=' if self.is_maximum else '>='} {figure(self.limit)}"


def at_most(limit: float) -> Goal:
    """A goal for a figure that has to be small."""
    return Goal(limit=limit, is_maximum=True)


def at_least(limit: float) -> Goal:
    """A goal for a figure that has to be large."""
    return Goal(limit=limit, is_maximum=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure; ``detail`` says what else is worth knowing of it."""

    name: str
    value: float
    unit: str = ""
    goal: Goal | None = None
    detail: str = ""

    @property
    def is_missed(self) -> bool:
        return self.goal is not None and not self.goal.is_kept_by(self.value)

    def line(self) -> str:
        """The row as text: name, figure, goal, kept or missed, detail."""
        text = f"  {self.name:{NAME_WIDTH}} {figure(self.value):>{VALUE_WIDTH}} {self.unit:7}"
        if self.goal is not None:
            text += f" goal {self.goal} {self.unit}: {'MISSED' if self.is_missed else 'kept'}"
        if self.detail:
            text += f"  ({self.detail})"
        return text.rstrip()

    def document(self) -> Mapping[str, object]:
        """The row as JSON; without a goal nothing is kept or missed."""
        document: dict[str, object] = {"name": self.name, "value": self.value, "unit": self.unit}
        if self.goal is not None:
            document |= {"goal": str(self.goal), "limit": self.goal.limit}
            document["kept"] = not self.is_missed
        if self.detail:
            document["detail"] = self.detail
        return document


class Verdicts:
    """The rows of one program, in sections."""

    def __init__(
        self, program: str, results: Path | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        """``results`` is the file to add JSON to, by default that of the variable."""
        named = os.environ.get(RESULTS_VARIABLE, "")
        self.rows: list[Row] = []
        self._program = program
        self._results = results or (Path(named) if named else None)
        self._say = say or _print
        self._section = ""

    def section(self, title: str) -> None:
        """Begin a group of rows: what they are figures of."""
        self._section = title
        self._say(title)

    def row(
        self, name: str, value: float, unit: str = "", *, goal: Goal | None = None, detail: str = ""
    ) -> Row:
        """Print a figure and write it down."""
        row = Row(name=name, value=value, unit=unit, goal=goal, detail=detail)
        self.rows.append(row)
        self._say(row.line())
        if self._results is not None:
            self._write(self._results, row)
        return row

    def note(self, text: str) -> None:
        """Print a line that is no figure."""
        self._say(f"    {text}")

    @property
    def missed(self) -> int:
        """How many goals were missed so far."""
        return sum(row.is_missed for row in self.rows)

    def _write(self, path: Path, row: Row) -> None:
        document = {
            "program": self._program,
            "commit": commit(),
            "section": self._section,
            **row.document(),
        }
        with path.open("a", encoding="utf-8") as file:
            print(json.dumps(document), file=file)


@dataclass(slots=True, kw_only=True)
class Result:
    """How often what happened in a run of a program, and all that must never be."""

    counts: dict[str, float] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    def show(self, verdicts: Verdicts) -> int:
        """As rows, of which the last has a goal; the program's exit code."""
        for name, value in self.counts.items():
            verdicts.row(name, value)
        verdicts.row("violations", len(self.violations), goal=at_most(0))
        for violation in self.violations[:MOST_SHOWN]:
            verdicts.note(violation)
        return int(bool(self.violations))


def figure(value: float) -> str:
    """A number with about three digits that say something."""
    size = abs(value)
    if size >= 100 or (math.isfinite(value) and value == int(value)):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.3g}"


@lru_cache(maxsize=1)
def commit() -> str:
    """The commit of this checkout, with a mark where files differ from it; empty outside of git."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _print(line: str) -> None:
    print(line, flush=True)
