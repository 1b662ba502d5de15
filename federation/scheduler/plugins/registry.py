"""What a plugin is, and the table of those that come with the scheduler.

Plugins of others import this module: what it names keeps its meaning. Must not run a plugin, nor
look one up outside the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from federation.scheduler.plugins.filters import FILTERS, CapacityArgs, Refusals
from federation.scheduler.plugins.permits import PERMITS, GangArgs
from federation.scheduler.plugins.scores import MAX_SCORE, SCORES
from federation.scheduler.state import CycleState

__all__ = ["IN_TREE", "MAX_SCORE", "CycleState", "ExtensionPoint", "Plugin", "Refusals"]


class ExtensionPoint(StrEnum):
    """Where in a cycle a plugin runs, and thereby what it takes and answers.

    FILTER: ``run(state)`` answers pairs of the clusters it refuses (bool per cluster) and why.
    SCORE: ``run(state)`` answers an integer from 0 to 100 per cluster.
    PERMIT: ``run(state, replicas_c)`` answers why these shares may not be, "" when they may.
    """

    FILTER = "filter"
    SCORE = "score"
    PERMIT = "permit"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A function over the whole fleet at an extension point.

    ``args`` is a frozen dataclass of its arguments, every field with a default; an instance is
    passed as the last argument. Plugins without take none.
    """

    point: ExtensionPoint
    run: Callable[..., Any]
    args: type[Any] | None = None

    def bound(self, args: object | None = None) -> Callable[..., Any]:
        """The function with its arguments filled in, the default ones unless some are given."""
        if self.args is None:
            return self.run
        return partial(self.run, args=self.args() if args is None else args)


def _in_tree() -> dict[str, Plugin]:
    """By name, in the order in which the default profile runs them."""
    args: dict[str, type[Any]] = {"Capacity": CapacityArgs, "Gang": GangArgs}
    tables: list[tuple[ExtensionPoint, Mapping[str, Callable[..., Any]]]] = [
        (ExtensionPoint.FILTER, FILTERS),
        (ExtensionPoint.SCORE, SCORES),
        (ExtensionPoint.PERMIT, PERMITS),
    ]
    return {
        name: Plugin(point=point, run=run, args=args.get(name))
        for point, table in tables
        for name, run in table.items()
    }


IN_TREE: Final[Mapping[str, Plugin]] = _in_tree()
