"""Caches of results about the nodes of a report, valid as long as the nodes are the same.

Pure. Must not change an answer: without the caches the results are equal.
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

# By the reported nodes, which many reports and all states of a cluster share.
NEWEST_REHEARSED: Final[WeakKeyDictionary[Pools, RehearsedPromises]] = WeakKeyDictionary()


@dataclass(slots=True, eq=False)
class Rehearsed:
    """The newest rehearsal on the nodes of a report; ``found`` caches the room that it left.

    The rooms are by shape, beside the promises that come first in ``found``. Each field is
    replaced as one value, because several threads may read it.
    """

    known: RehearsedPromises = field(default_factory=RehearsedPromises)
    found: tuple[Held, dict[Shape, RehearsedRoom]] | None = None


@dataclass(slots=True, eq=False)
class KnownBesideLarge:
    """Cached answers about large pods on the nodes of a report.

    Each is stored with the promises that it holds for. ``large``: whether any of them is large.
    ``demand``: their demand; ``filled``: the nodes with it. ``found``: by question, how many
    replicas fit beside them. ``shares``: by request, the share of a node that a pod takes. Each
    field is replaced as one value, because several threads may read it.
    """

    nodes: ReportedNodes | None = None
    large: tuple[Held | None, bool] = (None, False)
    demand: tuple[Held | None, DemandOnWay | None] = (None, None)
    filled: tuple[Held | None, Filled | None] = (None, None)
    found: tuple[Held | None, dict[Hashable, tuple[int, Reason]]] = (None, {})
    shares: dict[Hashable, float] = field(default_factory=dict)
