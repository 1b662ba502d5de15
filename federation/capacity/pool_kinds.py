"""The distinct node pools of a fleet: a node claim is matched once a kind, not once a cluster.

Pure and immutable except for its cache. Must not look at amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from federation.model.arrays import BoolArray, IntArray, LevelArray
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import NodePool, Pools
from federation.model.workload import NodeClaim

PoolIdentity: TypeAlias = tuple[object, ...]
_Member: TypeAlias = tuple[NodePool, tuple[str, ...]]

_MAX_CACHED_CLAIMS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolKinds:
    """Distinct pools (axis p) with the label keys that the pools of their cluster carry.

    ``counts`` is the number of pools of each kind. A kind without pools is None in ``members``,
    and the next new kind takes its number. Labels such as hostnames change all the time, and
    every claim is matched against all kinds. ``cached`` holds the newest verdicts by claim.
    """

    members: tuple[_Member | None, ...] = ()
    numbers: Mapping[PoolIdentity, int] = field(default_factory=dict)
    counts: tuple[int, ...] = ()
    cached: list[tuple[NodeClaim | None, LevelArray | None]] = field(default_factory=list)

    def with_pools(self, added: Iterable[Pools], removed: Iterable[IntArray]) -> PoolKinds:
        """Add the pools of some clusters, and remove pools by their kinds."""
        counts, shrunk = list(self.counts), set[int]()
        for kind_p in removed:
            for kind in kind_p.tolist():
                counts[kind] -= 1
                shrunk.add(kind)
        new: dict[PoolIdentity, list[_Member]] = {}
        for pools in added:
            for pool in pools.pools:
                identity = pool_identity(pool, pools.label_keys)
                number = self.numbers.get(identity)
                if number is None:
                    new.setdefault(identity, []).append((pool, pools.label_keys))
                else:
                    counts[number] += 1
        empty = [kind for kind in shrunk if not counts[kind]]
        if not new and not empty:
            return replace(self, counts=tuple(counts))
        return self._changed(counts, empty, new)

    def _changed(
        self, counts: list[int], empty: Iterable[int], new: Mapping[PoolIdentity, list[_Member]]
    ) -> PoolKinds:
        """Return a copy with new kinds, and without the empty ones."""
        members, numbers = list(self.members), dict(self.numbers)
        for kind in empty:
            member = members[kind]
            if member is not None:
                del numbers[pool_identity(*member)]
                members[kind] = None
        free = [kind for kind, member in enumerate(members) if member is None] if new else []
        for identity, equal_pools in new.items():
            if not free:
                free.append(len(members))
                members.append(None)
                counts.append(0)
            number = numbers[identity] = free.pop()
            members[number], counts[number] = equal_pools[0], len(equal_pools)
        return PoolKinds(
            members=tuple(members),
            numbers=numbers,
            counts=tuple(counts),
            # A copy, because verdicts cached from now on do not cover the empty kinds.
            cached=[] if new else list(self.cached),
        )

    def numbers_like(self, other: PoolKinds) -> bool:
        """Tell whether both number their kinds alike; only their counts may differ then."""
        return self.numbers is other.numbers

    def of(self, pools: Pools) -> IntArray:
        """Return the kind of each pool of a cluster; one entry at least, for empty cells."""
        kinds = [self.numbers[pool_identity(pool, pools.label_keys)] for pool in pools.pools]
        return np.array(kinds or [0], dtype=np.int64)

    def suiting(self, claim: NodeClaim | None, least: Match = Match.YES) -> BoolArray | None:
        """Tell which kinds match the claim at ``least`` so well; None where all surely do."""
        verdict_p = self.verdicts(claim)
        return None if verdict_p is None else verdict_p >= least

    def verdicts(self, claim: NodeClaim | None) -> LevelArray | None:
        """Return whether each kind matches the claim; None where all do, the usual case."""
        for cached_claim, verdicts in self.cached:
            if cached_claim == claim:
                return verdicts
        matches = [
            Match.YES if member is None else pool_match(*member, claim) for member in self.members
        ]
        is_yes = all(match is Match.YES for match in matches)
        verdict_p = None if is_yes else np.array(matches, dtype=np.int8)
        if len(self.cached) >= _MAX_CACHED_CLAIMS:
            self.cached.pop(0)
        self.cached.append((claim, verdict_p))
        return verdict_p


def pool_identity(pool: NodePool, label_keys: tuple[str, ...]) -> PoolIdentity:
    """Return what makes two pools equal: taints, labels, and the label keys of their cluster."""
    return (pool.taints, label_keys, *sorted(pool.labels.items()))
