"""All replicas that will come to the clusters of a fleet, by what they are told apart by.

Pure and immutable. Must not know whose they are, nor judge whether they find room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from federation.capacity.promised_bounds import Kind
from federation.model.arrays import BoolArray, IntArray
from federation.model.reservations import Outstanding, PromiseCertificate


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contention:
    """Replicas by kind and cluster, and where any of a kind are promised strictly.

    What is credited counts: its pods may come before those whose place they take have gone. Each
    kind has an array of its own by cluster, so that a promise copies one.
    """

    size: int
    kinds: tuple[Kind, ...] = ()
    replicas: tuple[IntArray, ...] = ()
    is_strict: tuple[BoolArray, ...] = ()
    places: Mapping[Hashable, int] = field(default_factory=dict)

    @classmethod
    def of(cls, size: int, outstanding: Mapping[int, Iterable[Outstanding]]) -> Contention:
        """What is outstanding in so many clusters, by position."""
        return cls(size=size).with_more(outstanding)

    def without(self, positions: Iterable[int]) -> Contention:
        """Without anything in some clusters; kinds of which nothing is left are forgotten."""
        kept_c = np.ones(self.size, dtype=np.bool_)
        kept_c[list(positions)] = False
        replicas = [replicas_c * kept_c for replicas_c in self.replicas]
        left = [g for g, replicas_c in enumerate(replicas) if replicas_c.any()]
        kinds = tuple(self.kinds[g] for g in left)
        return Contention(
            size=self.size,
            kinds=kinds,
            replicas=tuple(replicas[g] for g in left),
            is_strict=tuple(self.is_strict[g] & kept_c for g in left),
            places={kind.key: g for g, kind in enumerate(kinds)},
        )

    def including(self, kind: Kind) -> Contention:
        """With a kind, if need be with no replicas."""
        if kind.key in self.places:
            return self
        return Contention(
            size=self.size,
            kinds=(*self.kinds, kind),
            replicas=(*self.replicas, np.zeros(self.size, dtype=np.int64)),
            is_strict=(*self.is_strict, np.zeros(self.size, dtype=np.bool_)),
            places={**self.places, kind.key: len(self.kinds)},
        )

    def with_more(self, more: Mapping[int, Iterable[Outstanding]]) -> Contention:
        """With more outstanding, by position."""
        every = self
        by_kind: defaultdict[int, list[tuple[int, int, bool]]] = defaultdict(list)
        # Those of a decision share their requirements.
        known: dict[int, int] = {}
        for position, outstanding in more.items():
            for each in outstanding:
                g = known.get(id(each.requirements))
                if g is None:
                    kind = Kind.of(each.requirements)
                    every = every.including(kind)
                    g = known[id(each.requirements)] = every.places[kind.key]
                is_strict = each.certificate is PromiseCertificate.STRICT
                by_kind[g].append((position, each.in_cells, is_strict))
        replicas, strict = list(every.replicas), list(every.is_strict)
        for g, rows in by_kind.items():
            replicas[g], strict[g] = _added(replicas[g], strict[g], rows)
        return replace(every, replicas=tuple(replicas), is_strict=tuple(strict))


def _added(
    replicas_c: IntArray, strict_c: BoolArray, rows: Sequence[tuple[int, int, bool]]
) -> tuple[IntArray, BoolArray]:
    position_i, replicas_i, strict_i = np.array(rows, dtype=np.int64).T
    replicas_c, strict_c = replicas_c.copy(), strict_c.copy()
    np.add.at(replicas_c, position_i, replicas_i)
    strict_c[position_i[strict_i > 0]] = True
    return replicas_c, strict_c
