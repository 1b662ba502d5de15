"""What a plan comes to, in words for people: on a terminal and on the page alike.

Must not know where they are shown.
"""

from __future__ import annotations

from typing import NamedTuple

from federation.model.readable import amount, counted
from federation.plans.plan import CLUSTERS, PlanKind


class GainWords(NamedTuple):
    """What it is called, how much of it there is, and how much could be at best."""

    name: str
    does: str
    at_best: str


def gain_words(kind: PlanKind, unit: str, wanted: int, moved: int, bound: int) -> GainWords:
    if kind is PlanKind.BALANCE:
        above = f"{amount(unit, wanted)} {unit}"
        return GainWords(
            name="Evens out",
            does=f"{amount(unit, moved)} of {above} above the level",
            at_best=f"{amount(unit, bound)} {unit} could leave",
        )
    if kind is PlanKind.UNSCHEDULABLE:
        return GainWords(
            name="Makes room",
            does=f"for {moved} of {counted(wanted, 'replica')} that have none",
            at_best=f"{counted(bound, 'replica')} could have room",
        )
    if unit == CLUSTERS:
        return GainWords(
            name="Empties",
            does=f"{moved} of {counted(wanted, 'cluster')}",
            at_best=f"{counted(bound, 'cluster')} could be emptied",
        )
    return GainWords(
        name="Moves",
        does=f"{moved} of {counted(wanted, 'replica')}",
        at_best=f"{counted(bound, 'replica')} could move",
    )
