"""Sums of the outstanding promises of each cluster, in columns that change with promises.

Pure and immutable. A decision reads the columns of all clusters, never one cluster after another.
Must not know the free cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

from federation.capacity.assignments import Assignment, Held
from federation.model.arrays import BoolArray, IntArray
from federation.model.positions import GONE, Moves
from federation.model.reservations import MAX_RESERVE, MIN_RESERVE
from federation.model.shapes import Shape

# Stands for no shape, or several; no shape has this number.
_NONE_OR_SEVERAL: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PromiseSums:
    """Sums of outstanding promises by cluster (axis c).

    ``replicas_c``: replicas to be packed; ``shape_c``: the number of their shape, if they have a
    single one. ``late_c``: replicas that lost their room; ``stuck``: their promises by position.
    ``strict_c``: whether any promise is strict.
    """

    replicas_c: IntArray
    shape_c: IntArray
    late_c: IntArray
    strict_c: BoolArray
    stuck: Mapping[int, tuple[Assignment, ...]]

    @classmethod
    def none(cls, size: int) -> PromiseSums:
        """Return the sums of ``size`` clusters without promises."""
        return cls(
            replicas_c=np.zeros(size, dtype=np.int64),
            shape_c=np.zeros(size, dtype=np.int64),
            late_c=np.zeros(size, dtype=np.int64),
            strict_c=np.zeros(size, dtype=np.bool_),
            stuck={},
        )

    def after(self, moves: Moves) -> PromiseSums:
        """Follow clusters that left and joined; new clusters have nothing outstanding."""
        moved_c = moves.positions(len(self.replicas_c))
        return PromiseSums(
            replicas_c=moves.array(self.replicas_c, 0),
            shape_c=moves.array(self.shape_c, _NONE_OR_SEVERAL),
            late_c=moves.array(self.late_c, 0),
            strict_c=moves.array(self.strict_c, newcomers=False),
            stuck={int(moved_c[c]): stuck for c, stuck in self.stuck.items() if moved_c[c] != GONE},
        )

    @property
    def overcommitted_c(self) -> BoolArray:
        """Clusters where promises lost their room."""
        overcommitted_c: BoolArray = self.late_c > 0
        return overcommitted_c

    @property
    def reserve_c(self) -> IntArray:
        """Return ``careful_reserve`` of each cluster."""
        reserve_c: IntArray = np.minimum(MIN_RESERVE + self.late_c, MAX_RESERVE)
        return reserve_c

    def on_their_way_c(self, shape: Shape) -> IntArray:
        """Count the replicas that may land anywhere: none where all are of this shape."""
        replicas_c: IntArray = self.replicas_c * (self.shape_c != _number(shape))
        return replicas_c

    def with_clusters(self, held: Mapping[int, Held | None]) -> PromiseSums:
        """Replace the promises of some clusters."""
        replicas_c, shape_c = self.replicas_c.copy(), self.shape_c.copy()
        late_c, strict_c = self.late_c.copy(), self.strict_c.copy()
        stuck = {c: assignments for c, assignments in self.stuck.items() if c not in held}
        for position, outstanding in held.items():
            sums = outstanding or Held()
            replicas_c[position], strict_c[position] = sums.replicas, sums.is_strict
            shape_c[position] = _NONE_OR_SEVERAL if sums.only is None else _number(sums.only)
            late_c[position] = 0
            if sums.is_overcommitted:
                broken = tuple([promise for promise in sums.every if promise.is_broken])
                stuck[position] = broken
                late_c[position] = sum([promise.unplaced for promise in broken])
        return PromiseSums(
            replicas_c=replicas_c, shape_c=shape_c, late_c=late_c, strict_c=strict_c, stuck=stuck
        )


@lru_cache(maxsize=4096)
def _number(shape: Shape) -> int:
    """Return a positive number that no other shape has, in any process."""
    digest = blake2b(repr(shape).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1 or 1
