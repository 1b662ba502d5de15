"""The type of a plugin, and the table of those that come with the scheduler.

Plugins of other packages import this module: its names keep their meaning. Must not run a plugin,
nor look one up outside the table.
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
    """The place in a cycle where a plugin runs, its arguments and its result.

    FILTER: ``run(state)`` returns pairs of refused clusters (bool per cluster) and the reason.

    SCORE: ``run(state)`` returns an integer from 0 to 100 per cluster.

    PERMIT: ``run(state, replicas_c)`` returns an objection to these shares, "" without one.

    RESERVE: ``run(state, replicas_c)`` reserves what these shares need; it returns why it could
    not, "" when it did. ``undo(state, replicas_c)`` gives it back if the decision is dropped.

    POST_BIND: ``run(state, replicas_c)`` is called after a decision was committed, and returns
    None.

    QUEUE_SORT: ``run(state)`` of a SortState returns an instant for each binding, in Unix seconds.
    Bindings of one priority wait in the order of these instants.
    """

    FILTER = "filter"
    SCORE = "score"
    PERMIT = "permit"
    RESERVE = "reserve"
    POST_BIND = "postBind"
    QUEUE_SORT = "queueSort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """A function over the whole fleet, or over many bindings, at an extension point.

    ``args`` is a frozen dataclass of arguments, each with a default; an instance is passed as the
    keyword ``args``. Plugins without ``args`` take none. ``undo`` is for RESERVE.
    """

    point: ExtensionPoint
    run: Callable[..., Any]
    args: type[Any] | None = None
    undo: Callable[..., Any] | None = None

    def bound(self, args: object | None = None) -> Callable[..., Any]:
        """Return the function with its arguments filled in: these, or the defaults."""
        return self._with_args(self.run, args)

    def bound_undo(self, args: object | None = None) -> Callable[..., Any] | None:
        """Return the undo function with its arguments filled in; None without one."""
        return None if self.undo is None else self._with_args(self.undo, args)

    def _with_args(self, run: Callable[..., Any], args: object | None) -> Callable[..., Any]:
        if self.args is None:
            return run
        return partial(run, args=self.args() if args is None else args)


def _in_tree() -> dict[str, Plugin]:
    """Return the plugins by name, in the order in which the default profile runs them."""
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
