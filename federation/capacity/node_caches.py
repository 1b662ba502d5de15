"""Caches of results about the nodes of a report, valid as long as the nodes are the same.

Pure. Must not change an answer: without the caches the results are equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from federation.capacity.assignments import Held
from federation.capacity.filled_nodes import DemandOnWay, Filled, ReportedNodes
from federation.capacity.rehearsal import RehearsedPromises, RehearsedRoom
from federation.model.pools.values import Pools
from federation.model.reasons import Reason
from federation.model.shapes import Shape

# By the reported nodes, which many reports and all states of a cluster share.
NEWEST_REHEARSED: Final[WeakKeyDictionary[Pools, RehearsedPromises]] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class NodeCaches:
    """Cached results about the nodes of a report; each is stored with the promises it holds for.

    ``rehearsed``: the newest rehearsal; ``rehearsed_room``: the room it left, by shape.
    ``holds_large``: whether any promise is large. ``demand``: the demand of all promises, and
    ``filled``: the nodes with it. ``beside_large``: how many replicas fit beside large pods, by
    question. ``shares``: the share of a node that a pod takes, by request. Each field is replaced
    as one value, because several threads may read it.
    """

    rehearsed: RehearsedPromises = field(default_factory=RehearsedPromises)
    rehearsed_room: tuple[Held, dict[Shape, RehearsedRoom]] | None = None
    nodes: ReportedNodes | None = None
    holds_large: tuple[Held | None, bool] = (None, False)
    demand: tuple[Held | None, DemandOnWay | None] = (None, None)
    filled: tuple[Held | None, Filled | None] = (None, None)
    beside_large: tuple[Held | None, dict[Hashable, tuple[int, Reason]]] = (None, {})
    shares: dict[Hashable, float] = field(default_factory=dict)
