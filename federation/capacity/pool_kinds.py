"""The pools of a fleet, each kind once: which suit a claim is found out once for all clusters.

Pure and immutable but for what it remembers. Must not look at amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.model.arrays import IntArray
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import NodePool, Pools
from federation.model.workload import NodeClaim

_Identity: TypeAlias = tuple[object, ...]
_Member: TypeAlias = tuple[NodePool, tuple[str, ...]]
_Verdicts: TypeAlias = npt.NDArray[np.int8]

_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolKinds:
    """Pools with the label keys that their cluster's pools carry, by what they are (axis p).

    A kind that no pool is of any more is None, and the next new one takes its number: labels such
    as hostnames change for ever, and every claim is matched against all kinds. ``counts`` are the
    pools of each kind.
    """

    members: tuple[_Member | None, ...] = ()
    places: Mapping[_Identity, int] = field(default_factory=dict)
    counts: tuple[int, ...] = ()
    known: list[tuple[NodeClaim | None, _Verdicts | None]] = field(default_factory=list)

    def with_pools(self, every: Iterable[Pools], gone: Iterable[IntArray]) -> PoolKinds:
        """With the pools of some clusters in the place of pools of these kinds."""
        counts, left = list(self.counts), set[int]()
        for kind_p in gone:
            for kind in kind_p.tolist():
                counts[kind] -= 1
                left.add(kind)
        new: dict[_Identity, list[_Member]] = {}
        for pools in every:
            for pool in pools.pools:
                identity = _identity(pool, pools.label_keys)
                place = self.places.get(identity)
                if place is None:
                    new.setdefault(identity, []).append((pool, pools.label_keys))
                else:
                    counts[place] += 1
        empty = [kind for kind in left if not counts[kind]]
        if not new and not empty:
            return replace(self, counts=tuple(counts))
        return self._changed(counts, empty, new)

    def _changed(
        self, counts: list[int], empty: Iterable[int], new: Mapping[_Identity, list[_Member]]
    ) -> PoolKinds:
        """With new kinds, and without those that are empty."""
        members, places = list(self.members), dict(self.places)
        for kind in empty:
            member = members[kind]
            if member is not None:
                del places[_identity(*member)]
                members[kind] = None
        free = [kind for kind, member in enumerate(members) if member is None] if new else []
        for identity, alike in new.items():
            if not free:
                free.append(len(members))
                members.append(None)
                counts.append(0)
            place = places[identity] = free.pop()
            members[place], counts[place] = alike[0], len(alike)
        return PoolKinds(
            members=tuple(members),
            places=places,
            counts=tuple(counts),
            # A copy: what is found out from now on says nothing of kinds that are empty.
            known=[] if new else list(self.known),
        )

    def numbers_like(self, other: PoolKinds) -> bool:
        """Whether the kinds of both have the same numbers; only their counts may differ then."""
        return self.places is other.places

    def of(self, pools: Pools) -> IntArray:
        """The kind of each of a cluster's pools; one at least, for cells of no nodes."""
        kinds = [self.places[_identity(pool, pools.label_keys)] for pool in pools.pools]
        return np.array(kinds or [0], dtype=np.int64)

    def verdicts(self, claim: NodeClaim | None) -> _Verdicts | None:
        """Whether each kind suits the claim; None where all do, which is what is mostly found."""
        for known, verdicts in self.known:
            if known == claim:
                return verdicts
        every = [
            Match.YES if member is None else pool_match(*member, claim) for member in self.members
        ]
        is_yes = all(verdict is Match.YES for verdict in every)
        found = None if is_yes else np.array(every, dtype=np.int8)
        if len(self.known) >= _REMEMBERED:
            self.known.pop(0)
        self.known.append((claim, found))
        return found


def _identity(pool: NodePool, label_keys: tuple[str, ...]) -> _Identity:
    return (pool.taints, label_keys, *sorted(pool.labels.items()))
