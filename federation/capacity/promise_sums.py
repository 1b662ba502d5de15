"""Sums of the outstanding promises of a fleet: by cluster in columns, and by kind of replica.

Pure, immutable but for lazy values. A decision reads the columns of all clusters, never one cluster
after another. Must not know the free cells, nor judge whether replicas find room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

from federation.capacity.assignments import Assignment, Held
from federation.capacity.promised_bounds import Kind
from federation.model.arrays import BoolArray, IntArray
from federation.model.positions import GONE, Moves
from federation.model.reservations import MAX_RESERVE, MIN_RESERVE, Outstanding, PromiseCertificate
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OutstandingByKind:
    """Replicas by kind (axis g) and cluster (axis c), and where any of a kind are strict.

    Credited replicas count, too: their pods may start before the pods they replace are gone. Each
    kind has an array of its own by cluster, so that a promise copies only one.
    """

    size: int
    kinds: tuple[Kind, ...] = ()
    replicas: tuple[IntArray, ...] = ()
    is_strict: tuple[BoolArray, ...] = ()
    places: Mapping[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int, outstanding: Mapping[int, Iterable[Outstanding]]) -> OutstandingByKind:
        """Sum what is outstanding in ``size`` clusters, by position."""
        return cls(size=size).with_more(outstanding)

    def without(self, positions: Iterable[int]) -> OutstandingByKind:
        """Remove all that is outstanding in some clusters, and the kinds that have none left."""
        stays_c = np.ones(self.size, dtype=np.bool_)
        stays_c[list(positions)] = False
        replicas = [replicas_c * stays_c for replicas_c in self.replicas]
        used = [g for g, replicas_c in enumerate(replicas) if replicas_c.any()]
        kinds = tuple(self.kinds[g] for g in used)
        return OutstandingByKind(
            size=self.size,
            kinds=kinds,
            replicas=tuple(replicas[g] for g in used),
            is_strict=tuple(self.is_strict[g] & stays_c for g in used),
            places={kind.key: g for g, kind in enumerate(kinds)},
        )

    def including(self, kind: Kind) -> OutstandingByKind:
        """Add a kind, with no replicas if it is new."""
        if kind.key in self.places:
            return self
        return OutstandingByKind(
            size=self.size,
            kinds=(*self.kinds, kind),
            replicas=(*self.replicas, np.zeros(self.size, dtype=np.int64)),
            is_strict=(*self.is_strict, np.zeros(self.size, dtype=np.bool_)),
            places={**self.places, kind.key: len(self.kinds)},
        )

    def with_more(self, outstanding: Mapping[int, Iterable[Outstanding]]) -> OutstandingByKind:
        """Add outstanding promises by position."""
        total = self
        by_kind: defaultdict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        # By identity, because promises of a decision share their requirements.
        numbers: dict[int, int] = {}
        for position, promises in outstanding.items():
            for promise in promises:
                g = numbers.get(id(promise.requirements))
                if g is None:
                    kind = Kind.of(promise.requirements)
                    total = total.including(kind)
                    g = numbers[id(promise.requirements)] = total.places[kind.key]
                is_strict = promise.certificate is PromiseCertificate.STRICT
                by_kind[g].append((position, promise.in_cells, is_strict))
        replicas, strict = list(total.replicas), list(total.is_strict)
        for g, rows in by_kind.items():
            replicas[g], strict[g] = _added(replicas[g], strict[g], rows)
        return replace(total, replicas=tuple(replicas), is_strict=tuple(strict))


def _added(
    replicas_c: IntArray, strict_c: BoolArray, rows: Sequence[tuple[int, int, bool]]
) -> tuple[IntArray, BoolArray]:
    position_i, replicas_i, strict_i = np.array(rows, dtype=np.int64).T
    replicas_c, strict_c = replicas_c.copy(), strict_c.copy()
    np.add.at(replicas_c, position_i, replicas_i)
    strict_c[position_i[strict_i > 0]] = True
    return replicas_c, strict_c


@dataclass(slots=True, eq=False)
class LazyOutstanding:
    """All outstanding replicas of a fleet by kind, summed on the first read.

    ``earlier`` has the sums of an earlier fleet, and the clusters that changed since. It is
    replaced as one value, because several threads may read a fleet.
    """

    earlier: tuple[OutstandingByKind, frozenset[int]] | None = None

    def after(self, changed: Iterable[int]) -> LazyOutstanding:
        """Follow changes in some clusters."""
        if self.earlier is None:
            return LazyOutstanding()
        by_kind, stale = self.earlier
        return LazyOutstanding((by_kind, stale.union(changed)))

    def with_more(self, assigned: Mapping[int, Sequence[Assignment]]) -> LazyOutstanding:
        """Add assignments by position."""
        if self.earlier is None:
            return LazyOutstanding()
        by_kind, stale = self.earlier
        added = {position: _contending(promises) for position, promises in assigned.items()}
        return LazyOutstanding((by_kind.with_more(added), stale))

    def by_kind(self, held: Sequence[Held | None]) -> OutstandingByKind:
        """Return the sums over all clusters, which hold ``held``."""
        if self.earlier is None:
            by_kind, stale = OutstandingByKind(size=len(held)), frozenset(range(len(held)))
        else:
            by_kind, stale = self.earlier
            by_kind = by_kind.without(stale) if stale else by_kind
        by_kind = by_kind.with_more(
            {
                c: _contending(promises.every)
                for c in sorted(stale)
                if (promises := held[c]) is not None
            }
        )
        self.earlier = by_kind, frozenset()
        return by_kind


def _contending(assignments: Iterable[Assignment]) -> list[Outstanding]:
    return [assignment.contending for assignment in assignments]
