"""Prints what the shadow found: a table for people, JSON for programs.

Must not compare anything.
"""

from __future__ import annotations

from typing import Final

from federation.bridge.agreement import Agreement, document_of, rows_of, summary_lines
from federation.runtime.terminal import json_text, say, say_lines

HEADINGS: Final = ("BINDING", "OCCASION", "KARMADA", "FEDSCHED", "WHY")


def say_agreement(agreement: Agreement, output: str) -> None:
    """``output``: table or json."""
    if output == "json":
        say_lines(json_text(document_of(agreement), indent=2))
        return
    for line in summary_lines(agreement):
        say(line)
    rows = [HEADINGS, *rows_of(agreement)]
    if len(rows) == 1:
        return
    say("")
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS) - 1)]
    for row in rows:
        aligned = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        say("  ".join([*aligned, row[-1]]))
