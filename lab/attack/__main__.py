"""Attacks a control plane of its own on this machine, and says what that did to others.

Loopback only, bounded in count and time. Exits with 1 when a goal was missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from lab.attack.attack import PAIRS, Attack, Result, carry_out
from lab.attack.registry import ATTACKS
from lab.attack.target import Target, attacked_plane
from lab.ending import clean_up_when_ended

WIDTH = 44


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.attack", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of attacks; all without any")
    parser.add_argument("--mode", choices=["tls", "plain", "both"], default="both")
    parser.add_argument("--force", type=float, default=1.0, help="share of an attack's full force")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="peace and attack, so often")
    parser.add_argument(
        "--elsewhere", action="store_true", help="attack another one, to see what attackers take"
    )
    parser.add_argument("--list", action="store_true", help="say which attacks there are")
    given = parser.parse_args(arguments)
    chosen = [each for each in ATTACKS if _is_meant(each, given.names)]
    if given.list or not chosen:
        print(*(each.name for each in ATTACKS), sep="\n")
        return 0 if given.list else 2
    missed = 0
    for mode in ("tls", "plain") if given.mode == "both" else (given.mode,):
        for attack in chosen:
            with ExitStack() as planes:
                plane = partial(plane_of_its_own, tls=mode == "tls")
                target = planes.enter_context(plane())
                attacked = planes.enter_context(plane()) if given.elsewhere else target
                result = carry_out(attack, target, given.force, given.pairs, attacked)
            show(result, f"{mode}, elsewhere" if given.elsewhere else mode)
            missed += len(result.missed())
    print(f"\n{missed} goals missed" if missed else "\nall goals met")
    return 1 if missed else 0


@contextmanager
def plane_of_its_own(*, tls: bool) -> Iterator[Target]:
    """With an embedded PostgreSQL; all of it is gone at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-attack-", dir="/var/tmp") as folder,
        attacked_plane(Path(folder), tls=tls) as target,
    ):
        yield target


def _is_meant(attack: Attack, names: Sequence[str]) -> bool:
    return not names or any(name in attack.name for name in names)


def show(result: Result, mode: str) -> None:
    print(f"\n{result.attack.name} ({mode})")
    for name, figure in result.figures.items():
        most = result.attack.goals.get(name)
        verdict = "MISSED" if name in result.missed() else "met"
        goal = "" if most is None else f"   goal at most {most:>6g}   {verdict}"
        print(f"  {name:{WIDTH}}{figure:10.2f}{goal}")
    for complaint, count in result.complaints.most_common():
        print(f"    {count} x {complaint}")
    sys.stdout.flush()


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
