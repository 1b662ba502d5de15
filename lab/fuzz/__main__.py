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

from lab.ending import clean_up_when_ended
from lab.fuzz.decoders import decoders
from lab.fuzz.fuzzing import FuzzTarget, fuzz, tried
from lab.fuzz.rpcs import attacked_rpcs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="parts of names; everything without any")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each target")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--again", type=Path, help="feed this file alone")
    parser.add_argument("--keep", type=Path, default=Path(), help="where inputs are kept")
    given = parser.parse_args(arguments)
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
            parser.error("no target has such a name")
        return max([shown(target, given) for target in chosen])


def shown(target: FuzzTarget, given: argparse.Namespace) -> int:
    """Feeds one target and says what came of it; 1 when something is wrong."""
    if given.again:
        wrong, refused = tried(target, given.again.read_bytes(), target.peak_mebibytes())
        print(f"{target.name:34} {wrong or ('refused' if refused else 'taken')}")
        return bool(wrong)
    result = fuzz(target, given.seed, seconds=given.seconds)
    print(f"{target.name:34} {result.inputs:9,} inputs, {result.refused:9,} refused", flush=True)
    if result.wrong:
        path = given.keep / f"{target.name.replace(' ', '-').replace('/', '.')}-{given.seed}.input"
        path.write_bytes(result.culprit)
        print(f"  WRONG: {result.wrong}\n  shown by {path}", flush=True)
    return bool(result.wrong)


if __name__ == "__main__":
    clean_up_when_ended()
    raise SystemExit(main())
