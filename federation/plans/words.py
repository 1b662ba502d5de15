"""Texts for people about the gain of a plan, on a terminal and on the page alike.

Must not know where they are shown.
"""

from __future__ import annotations

from typing import NamedTuple

from federation.model.readable import amount, counted
from federation.plans.plan import CLUSTERS, Gain, PlanKind


class GainWords(NamedTuple):
    """The name of a gain, its amount, and the best possible amount with the distance to it."""

    name: str
    does: str
    at_best: str


def gain_words(kind: PlanKind, gain: Gain) -> GainWords:
    """Describe what a plan does, and how far that is from the best possible."""
    words = _words(kind, gain)
    return words._replace(at_best=f"{words.at_best}{_distance(gain)}")


def _distance(gain: Gain) -> str:
    """Compare a plan with the bound, which may be too high; no figure if the plan does nothing."""
    if not gain.bound:
        return ": no plan does more"
    if not gain.moved:
        return " at most: no way to do it was found"
    return f": within {round(gain.gap_percent, 1):g} % of the best possible"


def _words(kind: PlanKind, gain: Gain) -> GainWords:
    unit, total, moved, bound = gain.unit, gain.wanted, gain.moved, gain.bound
    if kind is PlanKind.BALANCE:
        above = f"{amount(unit, total)} {unit}"
        return GainWords(
            name="Evens out",
            does=f"{amount(unit, moved)} of {above} above the level",
            at_best=f"{amount(unit, bound)} {unit} could leave",
        )
    if kind is PlanKind.UNSCHEDULABLE:
        return GainWords(
            name="Makes room",
            does=f"for {moved} of {counted(total, 'replica')} that have none",
            at_best=f"{counted(bound, 'replica')} could have room",
        )
    if unit == CLUSTERS:
        return GainWords(
            name="Empties",
            does=f"{moved} of {counted(total, 'cluster')}",
            at_best=f"{counted(bound, 'cluster')} could be emptied",
        )
    return GainWords(
        name="Moves",
        does=f"{moved} of {counted(total, 'replica')}",
        at_best=f"{counted(bound, 'replica')} could move",
    )
