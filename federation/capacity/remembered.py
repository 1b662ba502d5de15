"""Memory of what was worked out of the nodes of a report, for as long as it is the newest.

Pure. Must not change an answer: whoever has no memory comes to the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from federation.capacity.as_scheduled import RehearsedPromises
from federation.capacity.assignments import Held
from federation.capacity.filled_nodes import DemandOnWay, Filled, ReportedNodes
from federation.capacity.rehearsal import RehearsedRoom
from federation.model.pools.values import Pools
from federation.model.reasons import Reason
from federation.model.shapes import Shape

# By the reported nodes: many reports have the same, and all rooms of a report.
NEWEST_REHEARSED: Final[WeakKeyDictionary[Pools, RehearsedPromises]] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class Rehearsed:
    """The rehearsal on the nodes of a report, as far as it went. ``found`` is the room that it left
    beside these holdings, by shape. One value each, as several threads may read a room.
    """

    known: RehearsedPromises = field(default_factory=RehearsedPromises)
    found: tuple[Held, dict[Shape, RehearsedRoom]] | None = None


@dataclass(slots=True, eq=False)
class KnownBesideLarge:
    """Answers about large pods on the nodes of a report. One value each, as several threads may
    read a room.

    ``large``: whether any of these holdings is large. ``demand`` is the demand of these holdings,
    and ``filled`` are the nodes with it. ``found`` is how many replicas fit beside them, by
    question. ``shares`` are the shares of a node that requests take.
    """

    nodes: ReportedNodes | None = None
    large: tuple[Held | None, bool] = (None, False)
    demand: tuple[Held | None, DemandOnWay | None] = (None, None)
    filled: tuple[Held | None, Filled | None] = (None, None)
    found: tuple[Held | None, dict[Hashable, tuple[int, Reason]]] = (None, {})
    shares: dict[Hashable, float] = field(default_factory=dict)
