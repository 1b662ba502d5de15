"""Layers of free cells of a fleet's clusters: tables, of which newer ones lie over older ones.

Pure and immutable. A change costs what it changes, and a copy of the newest small tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.capacity.cells import COUNT, KIND, VIEWS, FreeCells, gathered, only
from federation.capacity.packing import room_by_segment
from federation.model.arrays import BoolArray, IntArray, LevelArray, read_only
from federation.model.pools.matching import Match
from federation.model.positions import GONE, Moves
from federation.model.shapes import Shape, request_shape

_Positions: TypeAlias = npt.NDArray[np.intp]

# Each layer is read by itself, and copied when it grows. With four times as many clusters in a
# layer as in the next, both cost about the same.
_GROWTH: Final = 4
# A newest layer of so few clusters is copied along with the next change: cheaper than a merge.
_SMALL: Final = 32
_NOWHERE: Final = -1
_MAX_CACHED_SHAPES: Final = 32

# A request that matches all pools, and the room for it by cluster and view.
KnownRoom: TypeAlias = tuple[Mapping[str, int], IntArray]
# A shape, and the identity of the verdicts, which are kept alive with the room.
_RoomKey: TypeAlias = tuple[Shape, int]
_Room: TypeAlias = tuple[LevelArray | None, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """Free cells of some clusters (axis c), at ``position_c`` in the fleet, GONE once they left.

    Newer layers may have some of these clusters again. ``room_cv`` caches the number of replicas
    that fit, by request: most decisions change few clusters, and repeat the request of others.
    """

    position_c: _Positions
    free_cells: FreeCells
    room_cv: dict[_RoomKey, _Room] = field(default_factory=dict)

    @classmethod
    def of(cls, position_c: _Positions, free_cells: FreeCells, room: KnownRoom | None) -> Layer:
        """Make a layer, with the room for one request where the packing has computed it."""
        layer = cls(position_c=position_c, free_cells=free_cells)
        if room is not None:
            request, room_cv = room
            layer.room_cv[request_shape(request), id(None)] = None, read_only(room_cv)
        return layer

    def room(self, request: Mapping[str, int], verdict_p: LevelArray | None) -> IntArray:
        """Return how many replicas fit on all nodes, by cluster (axis c) and view (axis v).

        ``verdict_p`` says which kinds of pools match, None: all. Clusters with an UNKNOWN verdict
        have room for 0.
        """
        key = request_shape(request), id(verdict_p)
        cached = self.room_cv.get(key)
        if cached is not None and cached[0] is verdict_p:
            return cached[1]
        suiting_p = None if verdict_p is None else verdict_p == Match.YES
        room_cv = room_by_segment(self.free_cells, request, suiting_p).reshape(-1, VIEWS)
        if verdict_p is not None:
            room_cv[_has_unknown_c(self.free_cells, verdict_p == Match.UNKNOWN)] = 0
        if len(self.room_cv) >= _MAX_CACHED_SHAPES:
            self.room_cv.clear()
        self.room_cv[key] = verdict_p, read_only(room_cv)
        return room_cv


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layers:
    """Free cells of a fleet: cluster c is in layer ``layer_c[c]``, if any, at ``place_c[c]``."""

    layers: tuple[Layer, ...]
    layer_c: IntArray
    place_c: IntArray

    @classmethod
    def none(cls, clusters: int) -> Layers:
        """Return layers in which none of the clusters has cells."""
        return cls(
            layers=(),
            layer_c=np.full(clusters, _NOWHERE, dtype=np.int64),
            place_c=np.zeros(clusters, dtype=np.int64),
        )

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @property
    def unknown_c(self) -> BoolArray:
        """Clusters without cells."""
        unknown_c: BoolArray = self.layer_c == _NOWHERE
        return unknown_c

    def only(self, position: int) -> FreeCells:
        """Return the free cells of one cluster, in a table of its own."""
        layer = self.layers[int(self.layer_c[position])]
        return only(layer.free_cells, int(self.place_c[position]))

    def gathered(self, positions: Sequence[int]) -> tuple[list[int], FreeCells]:
        """Copy the free cells of some clusters into a new table; return their positions, too.

        All clusters of a small newest layer are copied with them, so that the next change need
        not merge that layer.
        """
        is_copied_c = np.zeros(len(self.layer_c), dtype=np.bool_)
        is_copied_c[np.asarray(positions, dtype=np.intp)] = True
        newest = len(self.layers) - 1
        if newest > 0 and len(self.layers[newest].position_c) <= _SMALL:
            is_copied_c |= self.layer_c == newest
        (position_j,) = is_copied_c.nonzero()
        layer_j = self.layer_c[position_j]
        order: list[int] = []
        sources = []
        for layer in range(newest + 1):
            copied_j = position_j[layer_j == layer]
            if len(copied_j):
                order += copied_j.tolist()
                sources.append((self.layers[layer].free_cells, self.place_c[copied_j]))
        return order, gathered(sources)

    def with_newest(
        self, positions: Sequence[int], free_cells: FreeCells, room: KnownRoom | None = None
    ) -> Layers:
        """Put a layer on top, and merge it with those below that are not much larger."""
        newest = Layer.of(np.array(positions, dtype=np.intp), free_cells, room)
        layer_c, place_c = self.layer_c.copy(), self.place_c.copy()
        below = list(self.layers)
        layer_c[newest.position_c] = len(below)
        while below and len(newest.position_c) * _GROWTH >= len(below[-1].position_c):
            lower = below.pop()
            is_live_j = (layer_c[lower.position_c] == len(below)) & (lower.position_c != GONE)
            (live_j,) = is_live_j.nonzero()
            if len(live_j):
                newest = _merged(lower, live_j, newest)
            layer_c[newest.position_c] = len(below)
        place_c[newest.position_c] = np.arange(len(newest.position_c))
        return Layers(layers=(*below, newest), layer_c=layer_c, place_c=place_c)

    def without(self, positions: Sequence[int]) -> Layers:
        """Drop the cells of some clusters."""
        layer_c = self.layer_c.copy()
        layer_c[np.asarray(positions, dtype=np.intp)] = _NOWHERE
        return Layers(layers=self.layers, layer_c=layer_c, place_c=self.place_c)

    def after(self, moves: Moves) -> Layers:
        """Follow clusters that left and joined; new clusters have no cells."""
        # Index GONE means the last entry here, which maps to GONE again.
        moved_c = np.append(moves.positions(len(self.layer_c)), GONE)
        return Layers(
            layers=tuple(
                replace(layer, position_c=moved_c[layer.position_c]) for layer in self.layers
            ),
            layer_c=moves.array(self.layer_c, _NOWHERE),
            place_c=moves.array(self.place_c, 0),
        )


def _merged(lower: Layer, live_j: _Positions, upper: Layer) -> Layer:
    """Merge the live clusters of the lower layer with all of the upper one."""
    all_places = np.arange(len(upper.free_cells))
    return Layer(
        position_c=np.concatenate([lower.position_c[live_j], upper.position_c]),
        free_cells=gathered([(lower.free_cells, live_j), (upper.free_cells, all_places)]),
    )


def _has_unknown_c(free_cells: FreeCells, is_unknown_p: BoolArray) -> BoolArray:
    """Tell which clusters have a node in a pool whose match is unknown."""
    table_xk = free_cells.table_xk
    is_unknown_k = is_unknown_p[table_xk[KIND]] & (table_xk[COUNT] > 0)
    unknown_c: BoolArray = np.logical_or.reduceat(is_unknown_k, free_cells.first_s[:-1:VIEWS])
    return unknown_c
