"""Layouts of tables: which columns a terminal has room for, how wide each is, and their lines.

Must not print, nor know what is shown.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

# Piped output is for other programs: it is never cut to a width.
UNLIMITED_COLUMNS: Final = 100_000
# Between two columns.
GAP: Final = 2
# How narrow a column of sentences may get, and how narrow where that is not enough.
PROSE_COLUMNS: Final = 24
TIGHT_COLUMNS: Final = 12
# A cluster's name, and how many replicas it gets.
LONGEST_WORD: Final = 60


def width_of(text: str) -> int:
    """How many columns of a terminal a printable text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def padded(text: str, width: int, *, right: bool = False) -> str:
    blanks = " " * (width - width_of(text))
    return f"{blanks}{text}" if right else f"{text}{blanks}"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most this width, broken at blanks, and within words only where one is wider."""
    if width_of(text) <= width:
        return [text]
    lines, line = [], ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if width_of(joined) <= width:
            line = joined
            continue
        if line:
            lines.append(line)
        *whole, line = _folded(word, width)
        lines += whole
    return [*lines, line]


def _folded(word: str, width: int) -> Iterator[str]:
    piece = ""
    for character in word:
        if piece and width_of(piece) + _character_width(character) > width:
            yield piece
            piece = ""
        piece += character
    yield piece


def narrowest(texts: Iterable[str], least: int = PROSE_COLUMNS) -> int:
    """How narrow a column of prose may get: names in it stay whole."""
    words = (width_of(word) for text in texts for word in text.split(" "))
    return max(least, min(max(words, default=0), LONGEST_WORD))


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns are shown, how wide each is, and which hold numbers or are wrapped.

    A text that is wider than a column that is not ``wrapped`` runs over: names stay whole.
    """

    headings: Sequence[str]
    shown: Sequence[int]
    widths: Sequence[int]
    numeric: Sequence[bool]
    hidden: Sequence[str]
    wrapped: Sequence[bool]

    @classmethod
    def of(
        cls,
        headings: Sequence[str],
        cells: Sequence[Sequence[str]],
        numeric: Sequence[bool],
        room: int,
        *,
        least: Sequence[str] = (),
        last: Sequence[str] = (),
        prose: Sequence[str] = (),
    ) -> Self:
        """A layout for these rows.

        Where the terminal is too narrow, columns of ``least`` are left out, the first one first,
        and those of ``prose`` wrapped. Then columns of ``last`` are left out. The rest runs over:
        names stay whole, to be copied.
        """
        columns = [[row[position] for row in cells] for position in range(len(headings))]
        widths = {
            heading: max(map(width_of, (heading, *texts)))
            for heading, texts in zip(headings, columns, strict=True)
        }
        texts_of = dict(zip(headings, columns, strict=True))
        stages = [
            _floors(prose, widths, texts_of, PROSE_COLUMNS),
            _floors(prose, widths, texts_of, TIGHT_COLUMNS),
        ]
        hidden = _fit(widths, room, least, last, stages)
        shown = [at for at, heading in enumerate(headings) if heading not in hidden]
        return cls(
            headings=headings,
            shown=shown,
            widths=[widths[heading] for heading in headings],
            numeric=[
                holds and heading not in prose
                for holds, heading in zip(numeric, headings, strict=True)
            ],
            hidden=hidden,
            wrapped=[room < UNLIMITED_COLUMNS and heading in prose for heading in headings],
        )

    def heading(self) -> str:
        return next(self.lines(self.headings))

    def lines(self, row: Sequence[str]) -> Iterator[str]:
        """The lines of one row, without blanks at their ends."""
        texts = {
            at: wrapped(row[at], self.widths[at]) if self.wrapped[at] else [row[at]]
            for at in self.shown
        }
        for number in range(max(map(len, texts.values()), default=0)):
            parts = [
                padded(
                    lines[number] if number < len(lines) else "",
                    self.widths[at],
                    right=self.numeric[at],
                )
                for at, lines in texts.items()
            ]
            yield (" " * GAP).join(parts).rstrip()


def _floors(
    prose: Iterable[str], widths: Mapping[str, int], texts_of: Mapping[str, list[str]], least: int
) -> dict[str, int]:
    """How narrow columns of prose may get, by heading, with whole names."""
    return {
        heading: min(widths[heading], max(width_of(heading), narrowest(texts_of[heading], least)))
        for heading in prose
        if heading in widths
    }


def _fit(
    widths: dict[str, int],
    room: int,
    least: Sequence[str],
    last: Sequence[str],
    stages: Sequence[Mapping[str, int]],
) -> list[str]:
    """The columns to leave out; where that is not enough ``widths`` is made smaller, not below the
    floors of the first stage with which all of it fits.
    """
    hidden: list[str] = []

    def over(widths: Mapping[str, int]) -> int:
        """By how much all that is shown is wider than there is room."""
        taken = sum(width + GAP for name, width in widths.items() if name not in hidden)
        return taken - GAP - room

    for name in least:
        if over({**widths, **stages[0]}) <= 0:
            break
        if name in widths:
            hidden.append(name)
    for name in last:
        if over({**widths, **stages[-1]}) <= 0:
            break
        hidden.append(name)
    floors = next((stage for stage in stages if over({**widths, **stage}) <= 0), stages[0])
    wide = [name for name, floor in floors.items() if name not in hidden and widths[name] > floor]
    # The widest one first, until others are as wide.
    while wide and over(widths) > 0:
        widest = max(wide, key=lambda name: widths[name])
        widths[widest] -= 1
        wide = [name for name in wide if widths[name] > floors[name]]
    return hidden
