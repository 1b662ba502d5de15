"""Pages of documentation, cut into what is to be tried of them.

Must not run anything. Invisible comments in a page say how what follows is tried::

    <!-- walk: WORD ARGUMENTS -->      about the next block of code
    <!-- walk: WORD ARGUMENTS
    lines                              a block of its own, that readers do not see
    -->

CONTRIBUTING.md lists the words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# Blocks of these are run; those of others are text, unless a mark makes files of them.
COMMANDS: Final = frozenset({"", "sh", "bash"})
PYTHON: Final = "python"
# By word: how many arguments it takes at least, and at most.
WORDS: Final = {
    "fleet": (0, 9),
    "do": (0, 0),
    "skip": (1, 99),
    "file": (1, 1),
    "background": (1, 1),
    "prints": (1, 9),
    "ends": (1, 1),
    "let": (2, 2),
}
ALONE: Final = frozenset({"fleet", "let"})
PIECES: Final = re.compile(
    r"^ *<!-- walk: (?P<mark>[^\n]*?)(?: *\n(?P<body>.*?))?-->"
    r"|^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^ *```",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a comment says: ``let`` and ``fleet`` stand for themselves, others say how to run."""

    word: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do: a block with its marks, or a mark that stands for itself."""

    line: int
    language: str
    text: str
    marks: Sequence[Mark] = ()

    def mark(self, word: str) -> tuple[str, ...] | None:
        """The arguments of the mark, None without it."""
        return next((each.arguments for each in self.marks if each.word == word), None)

    @property
    def is_run(self) -> bool:
        return self.language in COMMANDS or self.language == PYTHON


def steps_of(text: str) -> Iterator[Step]:
    """In the order of the page. Raises ValueError for a mark that says nothing known."""
    marks: list[Mark] = []
    for piece in PIECES.finditer(text):
        line = text.count("\n", 0, piece.start()) + 1
        if piece["mark"] is None:
            yield Step(
                line=line,
                language=piece["language"],
                text=_without_indent(piece["text"], len(piece["indent"])),
                marks=tuple(marks),
            )
            marks = []
            continue
        mark = _mark(piece["mark"], line)
        if mark.word in ALONE:
            yield Step(line=line, language="", text="", marks=(mark,))
        elif piece["body"] is None:
            marks.append(mark)
        else:
            yield Step(line=line, language="sh", text=piece["body"], marks=(*marks, mark))
            marks = []
    if marks:
        raise ValueError(f"nothing comes after {marks[0].word}")


def _mark(written: str, line: int) -> Mark:
    word, *arguments = shlex.split(written)
    least, most = WORDS.get(word, (1, 0))
    if not least <= len(arguments) <= most:
        raise ValueError(f"line {line}: {written!r} is no mark of a walk")
    return Mark(word=word, arguments=tuple(arguments))


def _without_indent(text: str, width: int) -> str:
    return "".join(
        line[width:] if line[:width].isspace() else line for line in text.splitlines(keepends=True)
    )


def commands_of(text: str) -> Iterator[str]:
    """Each command with the lines that it goes on in, without prompts and comments alone."""
    if "<<" in text:
        yield text
        return
    for line in text.replace("\\\n", " ").splitlines():
        command = line.strip().removeprefix("$ ")
        if command and not command.startswith("#"):
            yield command


def is_walked(text: str) -> bool:
    """Whether there is something to run on the page."""
    return any(step.is_run and step.text for step in steps_of(text))
