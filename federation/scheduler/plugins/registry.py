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
from federation.scheduler.state import CycleState, SortState

__all__ = [
    "IN_TREE",
    "MAX_SCORE",
    "CycleState",
    "ExtensionPoint",
    "Plugin",
    "Refusals",
    "SortState",
]


class ExtensionPoint(StrEnum):
    """Where in a cycle a plugin runs, and thereby what it takes and answers.

    FILTER: ``run(state)`` answers pairs of the clusters it refuses (bool per cluster) and why.
    SCORE: ``run(state)`` answers an integer from 0 to 100 per cluster.
    PERMIT: ``run(state, replicas_c)`` answers why these shares may not be, "" when they may.
    RESERVE: ``run(state, replicas_c)`` keeps what these shares need and answers why it does not, ""
    when it does; ``undo(state, replicas_c)`` gives it back where nothing comes of the decision.
    POST_BIND: ``run(state, replicas_c)`` hears of a decision that is committed; answers None.
    QUEUE_SORT: ``run(state)`` of a SortState answers for each binding by which instant, in Unix
    seconds, it stands among those of its priority.
    """

    FILTER = "filter"
    SCORE = "score"
    PERMIT = "permit"
    RESERVE = "reserve"
    POST_BIND = "postBind"
    QUEUE_SORT = "queueSort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A function over the whole fleet, or many bindings, at an extension point.

    ``args`` is a frozen dataclass of its arguments, every field with a default; an instance is
    passed as the last argument. Plugins without take none. ``undo`` is for RESERVE.
    """

    point: ExtensionPoint
    run: Callable[..., Any]
    args: type[Any] | None = None
    undo: Callable[..., Any] | None = None

    def bound(self, args: object | None = None) -> Callable[..., Any]:
        """The function with its arguments filled in, the default ones unless some are given."""
        return self._with_args(self.run, args)

    def bound_undo(self, args: object | None = None) -> Callable[..., Any] | None:
        """The same of what undoes it."""
        return None if self.undo is None else self._with_args(self.undo, args)

    def _with_args(self, run: Callable[..., Any], args: object | None) -> Callable[..., Any]:
        if self.args is None:
            return run
        return partial(run, args=self.args() if args is None else args)


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
