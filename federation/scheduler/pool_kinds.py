"""The pools of a fleet, each kind once: which suit a claim is found out once for all clusters.

Pure and immutable but for what it remembers. Must not look at amounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from federation.model.pools.matching import Verdict, pool_verdict
from federation.model.pools.values import NodePool, Pools
from federation.model.workload import NodeClaim
from federation.scheduler.arrays import IntArray

_Identity: TypeAlias = tuple[object, ...]
_Verdicts: TypeAlias = npt.NDArray[np.int8]

_REMEMBERED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolKinds:
    """Pools with the label keys that their cluster's pools carry, by what they are (axis p)."""

    members: tuple[tuple[NodePool, tuple[str, ...]], ...] = ()
    places: Mapping[_Identity, int] = field(default_factory=dict)
    known: list[tuple[NodeClaim | None, _Verdicts | None]] = field(default_factory=list)

    def with_pools(self, every: Iterable[Pools]) -> PoolKinds:
        """With those of more clusters."""
        members, places = list(self.members), dict(self.places)
        for pools in every:
            for pool in pools.pools:
                identity = _identity(pool, pools.label_keys)
                if places.setdefault(identity, len(members)) == len(members):
                    members.append((pool, pools.label_keys))
        if len(members) == len(self.members):
            return self
        return PoolKinds(members=tuple(members), places=places)

    def of(self, pools: Pools) -> IntArray:
        """The kind of each of a cluster's pools; one at least, for cells of no nodes."""
        kinds = [self.places[_identity(pool, pools.label_keys)] for pool in pools.pools]
        return np.array(kinds or [0], dtype=np.int64)

    def verdicts(self, claim: NodeClaim | None) -> _Verdicts | None:
        """Whether each kind suits the claim; None where all do, which is what is mostly found."""
        for known, verdicts in self.known:
            if known == claim:
                return verdicts
        every = [pool_verdict(pool, keys, claim) for pool, keys in self.members]
        is_yes = all(verdict is Verdict.YES for verdict in every)
        found = None if is_yes else np.array(every, dtype=np.int8)
        if len(self.known) >= _REMEMBERED:
            self.known.pop(0)
        self.known.append((claim, found))
        return found


def _identity(pool: NodePool, label_keys: tuple[str, ...]) -> _Identity:
    return (pool.taints, label_keys, *sorted(pool.labels.items()))
