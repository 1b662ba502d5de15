"""Attacks a control plane of its own on this machine, and says what that did to others.

Loopback only, bounded in count and time. Exits with 1 when a goal was missed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lab.attack import attackers, big_questions
from lab.attack.attack import Attack, Result, carry_out
from lab.attack.target import Target, attacked_plane
from lab.programs import clean_up_when_ended, own_folder, parser
from lab.verdicts import Verdicts, at_most

ATTACKS: Sequence[Attack] = (*attackers.ATTACKS, *big_questions.ATTACKS)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("attack", __doc__)
    options.add_argument("names", nargs="*", help="parts of the names of attacks; all without any")
    options.add_argument("--force", type=float, default=1.0, help="share of an attack's full force")
    options.add_argument("--list", action="store_true", help="say which attacks there are")
    given = options.parse_args(arguments)
    chosen = [each for each in ATTACKS if _is_meant(each, given.names)]
    if given.list or not chosen:
        print(*(each.name for each in ATTACKS), sep="\n")
        return 0 if given.list else 2
    figures = Verdicts("attack")
    for mode in ("tls", "plain"):
        for attack in chosen:
            with plane_of_its_own(tls=mode == "tls") as target:
                result = carry_out(attack, target, given.force)
            show(figures, result, mode)
    figures.note(f"{figures.missed} goals missed" if figures.missed else "all goals met")
    return int(figures.missed > 0)


@contextmanager
def plane_of_its_own(*, tls: bool) -> Iterator[Target]:
    """With an embedded PostgreSQL; all of it is gone at the end."""
    with own_folder("attack") as folder, attacked_plane(folder, tls=tls) as target:
        yield target


def _is_meant(attack: Attack, names: Sequence[str]) -> bool:
    return not names or any(name in attack.name for name in names)


def show(figures: Verdicts, result: Result, mode: str) -> None:
    figures.section(f"{result.attack.name} ({mode})")
    for name, figure in result.figures.items():
        limit = result.attack.goals.get(name)
        figures.row(name, figure, goal=None if limit is None else at_most(limit))
    for complaint, count in result.complaints.most_common():
        figures.note(f"{count} x {complaint}")


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
