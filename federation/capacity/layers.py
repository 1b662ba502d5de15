"""What is left in the clusters of a fleet, in tables where newer ones lie over older ones.

Pure and immutable: a change costs what it changes, and what it copies of the newest tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.capacity.cells import COUNT, KIND, VIEWS, Residues, gathered, only
from federation.capacity.packing import room_by_segment
from federation.model.arrays import BoolArray, IntArray, LevelArray, read_only
from federation.model.pools.matching import Match
from federation.model.positions import GONE, Moves
from federation.model.shapes import Shape, request_shape

_Positions: TypeAlias = npt.NDArray[np.intp]

# Layers are asked one by one and copied when they grow: with four times as many clusters in each
# as in the next, both cost about the same.
_GROWTH: Final = 4
# A layer of so few is packed along with what is next: that costs less than copying it apart.
_SMALL: Final = 32
_NOWHERE: Final = -1
_REMEMBERED: Final = 32

# A request that suits all pools, and the room for it by cluster and view.
KnownRoom: TypeAlias = tuple[Mapping[str, int], IntArray]
# A shape, and the identity of the verdicts, which are kept with the answer.
_Asked: TypeAlias = tuple[Shape, int]
_Room: TypeAlias = tuple[LevelArray | None, IntArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layer:
    """What is left in some clusters; newer layers may have some of them again, and those that left
    the fleet stand nowhere (GONE).

    ``room_cv`` has how many replicas that holds, by what was asked: most decisions change a few
    clusters, and ask for what others asked for.
    """

    position_c: _Positions
    residues: Residues
    room_cv: dict[_Asked, _Room] = field(default_factory=dict)

    @classmethod
    def of(cls, position_c: _Positions, residues: Residues, known: KnownRoom | None) -> Layer:
        """A layer of which the room for one request may be known already."""
        layer = cls(position_c=position_c, residues=residues)
        if known is not None:
            request, room_cv = known
            layer.room_cv[request_shape(request), id(None)] = None, read_only(room_cv)
        return layer

    def room(self, request: Mapping[str, int], verdict_p: LevelArray | None) -> IntArray:
        """How many replicas of a request all nodes hold, by cluster (axis c) and view (axis v).

        ``verdict_p`` says which kinds of pools suit, None: all; 0 where that is not known of any.
        """
        asked = request_shape(request), id(verdict_p)
        known = self.room_cv.get(asked)
        if known is not None and known[0] is verdict_p:
            return known[1]
        suiting_p = None if verdict_p is None else verdict_p == Match.YES
        room_cv = room_by_segment(self.residues, request, suiting_p).reshape(-1, VIEWS)
        if verdict_p is not None:
            room_cv[_cannot_tell_c(self.residues, verdict_p == Match.UNKNOWN)] = 0
        if len(self.room_cv) >= _REMEMBERED:
            self.room_cv.clear()
        self.room_cv[asked] = verdict_p, read_only(room_cv)
        return room_cv


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layers:
    """What is left in cluster c is in layer ``layer_c[c]`` at ``place_c[c]``, if anywhere."""

    layers: tuple[Layer, ...]
    layer_c: IntArray
    place_c: IntArray

    @classmethod
    def none(cls, clusters: int) -> Layers:
        """Nothing is known of so many clusters."""
        return cls(
            layers=(),
            layer_c=np.full(clusters, _NOWHERE, dtype=np.int64),
            place_c=np.zeros(clusters, dtype=np.int64),
        )

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.layers)

    @property
    def unknown_c(self) -> BoolArray:
        """Clusters of which nothing is known."""
        unknown_c: BoolArray = self.layer_c == _NOWHERE
        return unknown_c

    def only(self, position: int) -> Residues:
        """What is left in one cluster, by itself."""
        layer = self.layers[int(self.layer_c[position])]
        return only(layer.residues, int(self.place_c[position]))

    def gathered(self, positions: Sequence[int]) -> tuple[list[int], Residues]:
        """What is left in some clusters side by side in a new table, and which ones those are.

        The newest few are among them anyway, so that they need not be copied once more.
        """
        is_wanted_c = np.zeros(len(self.layer_c), dtype=np.bool_)
        is_wanted_c[np.asarray(positions, dtype=np.intp)] = True
        newest = len(self.layers) - 1
        if newest > 0 and len(self.layers[newest].position_c) <= _SMALL:
            is_wanted_c |= self.layer_c == newest
        (position_j,) = is_wanted_c.nonzero()
        layer_j = self.layer_c[position_j]
        order: list[int] = []
        sources = []
        for layer in range(newest + 1):
            here_j = position_j[layer_j == layer]
            if len(here_j):
                order += here_j.tolist()
                sources.append((self.layers[layer].residues, self.place_c[here_j]))
        return order, gathered(sources)

    def with_newest(
        self, positions: Sequence[int], residues: Residues, known: KnownRoom | None = None
    ) -> Layers:
        """With a layer on top; where it is large the layers below become one with it."""
        newest = Layer.of(np.array(positions, dtype=np.intp), residues, known)
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
        """Without what was known of some clusters."""
        layer_c = self.layer_c.copy()
        layer_c[np.asarray(positions, dtype=np.intp)] = _NOWHERE
        return Layers(layers=self.layers, layer_c=layer_c, place_c=self.place_c)

    def after(self, moves: Moves) -> Layers:
        """Of the fleet after clusters left and came; nothing is known of newcomers."""
        # What is nowhere stays there: that is the place after the last.
        moved_c = np.append(moves.positions(len(self.layer_c)), GONE)
        return Layers(
            layers=tuple(
                replace(layer, position_c=moved_c[layer.position_c]) for layer in self.layers
            ),
            layer_c=moves.array(self.layer_c, _NOWHERE),
            place_c=moves.array(self.place_c, 0),
        )


def _merged(lower: Layer, live_j: _Positions, upper: Layer) -> Layer:
    """What is left of the lower layer, and all of the upper."""
    every = np.arange(len(upper.residues))
    return Layer(
        position_c=np.concatenate([lower.position_c[live_j], upper.position_c]),
        residues=gathered([(lower.residues, live_j), (upper.residues, every)]),
    )


def _cannot_tell_c(residues: Residues, is_unknown_p: BoolArray) -> BoolArray:
    """Whether the pool of any node of each cluster is unknown."""
    table_xk = residues.table_xk
    is_unknown_k = is_unknown_p[table_xk[KIND]] & (table_xk[COUNT] > 0)
    unknown_c: BoolArray = np.logical_or.reduceat(is_unknown_k, residues.first_s[:-1:VIEWS])
    return unknown_c
