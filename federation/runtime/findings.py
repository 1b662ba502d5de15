"""What a doctor finds: what was looked at, what it is like, and what to do.

Must not look at anything.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from federation.model.printable import printable
from federation.runtime.terminal import json_text, say_lines

# Of the lines for people.
WIDTH: Final = 100
# Named in one finding.
MOST_NAMED: Final = 10


class Severity(StrEnum):
    """OK: as it should be. NOTE: good to know. BAD: a guarantee does not hold, or will not."""

    OK = "ok"
    NOTE = "note"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was looked at, what it is like, and what to do; ``remedy`` is empty where nothing is."""

    subject: str
    severity: Severity
    says: str
    remedy: str = ""


def good(subject: str, says: str) -> Finding:
    return Finding(subject=subject, severity=Severity.OK, says=says)


def note(subject: str, says: str, remedy: str) -> Finding:
    return Finding(subject=subject, severity=Severity.NOTE, says=says, remedy=remedy)


def bad(subject: str, says: str, remedy: str) -> Finding:
    return Finding(subject=subject, severity=Severity.BAD, says=says, remedy=remedy)


def lines_of(findings: Sequence[Finding]) -> Iterator[str]:
    """For people: what was looked at, what it is like, and below it what to do."""
    widest = max(len(finding.subject) for finding in findings)
    for finding in findings:
        begin = f"{finding.severity:<4}  {finding.subject:<{widest}}  "
        indent = " " * len(begin)
        yield _wrapped(finding.says, begin, indent)
        if finding.remedy:
            yield _wrapped(finding.remedy, f"{indent}-> ", f"{indent}   ")


def _wrapped(text: str, begin: str, indent: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=begin, subsequent_indent=indent, break_on_hyphens=False
    )


def some(names: Sequence[str]) -> str:
    """A few of them, and how many more there are."""
    more = len(names) - MOST_NAMED
    shown = printable(", ".join(names[:MOST_NAMED]))
    return f"{shown} and {more} more" if more > 0 else shown


def told_findings(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Prints them; the exit code of the program that looked: 1 where something is bad."""
    if as_json:
        say_lines(json_text([asdict(finding) for finding in findings], indent=2))
    else:
        say_lines("\n".join(lines_of(findings)))
    return 1 if any(finding.severity is Severity.BAD for finding in findings) else 0
