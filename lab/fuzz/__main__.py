"""Feeds what is nearly right to everything that reads what others made.

Loopback only. Exits with 1 when something was wrong, and keeps the input that shows it.

    python -m lab.fuzz --seconds 300 quantity yaml
    python -m lab.fuzz --again yaml-1.input yaml
"""

from __future__ import annotations

import argparse
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

from lab.fuzz.decoders import decoders
from lab.fuzz.fuzzing import FuzzTarget, fuzz, tried
from lab.fuzz.rpcs import attacked_rpcs
from lab.programs import clean_up_when_ended, parser
from lab.verdicts import Verdicts, at_most


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("fuzz", __doc__)
    options.add_argument("names", nargs="*", help="parts of names; everything without any")
    options.add_argument("--seconds", type=float, default=300.0, help="for each target")
    options.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    options.add_argument("--again", type=Path, help="feed this file alone")
    options.add_argument("--keep", type=Path, default=Path(), help="where inputs are kept")
    given = options.parse_args(arguments)
    print(f"seed {given.seed}")
    # Whoever skips one bad object of many says so: here of all of them.
    logging.disable(logging.WARNING)
    with attacked_rpcs() as rpcs:
        chosen = [
            target
            for target in (*decoders(), *rpcs)
            if not given.names or any(name in target.name for name in given.names)
        ]
        if not chosen:
            options.error("no target has such a name")
        figures = Verdicts("fuzz")
        figures.section("what reads others' bytes, and what showed a fault of it")
        for target in chosen:
            show(figures, target, given)
    return int(figures.missed > 0)


def show(figures: Verdicts, target: FuzzTarget, given: argparse.Namespace) -> None:
    """Feed one target, or one input to it again."""
    if given.again:
        wrong, refused = tried(target, given.again.read_bytes(), target.peak_mebibytes())
        detail = wrong or ("refused" if refused else "taken")
        figures.row(target.name, bool(wrong), goal=at_most(0), detail=detail)
        return
    result = fuzz(target, given.seed, seconds=given.seconds)
    detail = f"{result.inputs:,} inputs, {result.refused:,} refused"
    figures.row(target.name, bool(result.wrong), goal=at_most(0), detail=detail)
    if result.wrong:
        path = given.keep / f"{target.name.replace(' ', '-').replace('/', '.')}-{given.seed}.input"
        path.write_bytes(result.culprit)
        figures.note(f"WRONG: {result.wrong}; shown by {path}")


if __name__ == "__main__":
    clean_up_when_ended()
    raise SystemExit(main())
