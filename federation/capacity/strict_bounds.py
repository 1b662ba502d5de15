"""What strict promises rest on: how many replicas others can at most stand in the way of.

Pure. Holds for every placer and every order, so it must not assume where anything goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from federation.capacity.assignments import outstanding_alike
from federation.capacity.promised_bounds import prices
from federation.model.arrays import BoolArray, IntArray
from federation.model.pools.bounds import fit_k, per_replica
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Pools
from federation.model.quantity import divide_up
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements

# Sums of prices stay below this, else everything counts as lost: int64 holds twice as much.
_SAFE: Final = 2.0**62


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contender:
    """Replicas of one shape and claim that will come to a cluster, whoever they belong to.

    ``demanded`` is what one takes. ``may_p`` are the pools where they might land, ``surely_p``
    those where they surely may; ``fits_k`` is how many a node of each cell of those holds.
    """

    requirements: ReplicaRequirements
    replicas: int
    is_strict: bool
    demanded: Mapping[str, int]
    may_p: BoolArray
    surely_p: BoolArray
    fits_k: IntArray
    room: int

    def is_like(self, other: Contender) -> bool:
        """Whether their replicas stand in for each other."""
        return (
            self.demanded == other.demanded
            and self.requirements.node_claim == other.requirements.node_claim
        )


def contender(pools: Pools, outstanding: Outstanding) -> Contender:
    """What is outstanding as a contender, what is credited included.

    Its pods may come before those whose place they take have gone.
    """
    requirements = outstanding.requirements
    demanded = per_replica(requirements.request)
    verdict_p = np.array(
        [pool_match(pool, pools.label_keys, requirements.node_claim) for pool in pools.pools],
        dtype=np.int8,
    )
    surely_p = verdict_p == Match.YES
    fits_k = np.where(surely_p[pools.cells.pool_k], fit_k(pools.cells, demanded), 0)
    return Contender(
        requirements=requirements,
        replicas=outstanding.in_cells,
        is_strict=outstanding.certificate is PromiseCertificate.STRICT,
        demanded=demanded,
        may_p=verdict_p != Match.NO,
        surely_p=surely_p,
        fits_k=fits_k,
        room=int((fits_k * pools.cells.count_k).sum()),
    )


def contenders(pools: Pools, outstanding: Iterable[Outstanding]) -> list[Contender]:
    """All that is outstanding, with equal shapes and claims as one."""
    every: list[Contender] = []
    for alike in outstanding_alike(outstanding):
        more = replace(
            contender(pools, alike[0]),
            replicas=sum(each.in_cells for each in alike),
            is_strict=any(each.certificate is PromiseCertificate.STRICT for each in alike),
        )
        every = with_contender(every, more)
    return every


def with_contender(every: Sequence[Contender], more: Contender) -> list[Contender]:
    """The contenders with more replicas, of a shape that is among them or not."""
    for place, each in enumerate(every):
        if each.is_like(more):
            joined = replace(
                each,
                replicas=each.replicas + more.replicas,
                is_strict=each.is_strict or more.is_strict,
            )
            return [*every[:place], joined, *every[place + 1 :]]
    return [*every, more]


def strict_promises_hold(pools: Pools, every: Sequence[Contender]) -> bool:
    """Whether each shape that is promised strictly finds room when all others come first."""
    return all(_fits_after_others(pools, each, every) for each in every if each.is_strict)


def _fits_after_others(pools: Pools, own: Contender, every: Sequence[Contender]) -> bool:
    spare = own.room - own.replicas
    if spare < 0:
        return False
    rivals = [each for each in every if each is not own and bool((each.may_p & own.surely_p).any())]
    return _by_replica(own, rivals) <= spare or _by_amount(pools, own, rivals) <= spare


def _by_replica(own: Contender, rivals: Iterable[Contender]) -> int:
    """Replica by replica: each takes from its node at most what its largest amount is worth."""
    lost = 0
    for rival in rivals:
        taken = rival.demanded
        worth = max(divide_up(taken.get(name, 0), amount) for name, amount in own.demanded.items())
        lost += rival.replicas * worth
    return lost


def _by_amount(pools: Pools, own: Contender, rivals: Sequence[Contender]) -> int:
    """Resource by resource: as many replicas as the amount that is taken can buy."""
    cells = pools.cells
    (holds_j,) = np.nonzero(own.fits_k)
    fit_j, count_j = own.fits_k[holds_j], cells.count_k[holds_j]
    lost = 0
    for name, amount in own.demanded.items():
        taken = sum(each.replicas * each.demanded.get(name, 0) for each in rivals)
        if taken == 0:
            continue
        free_j = cells.min_rk[cells.resources.index(name), holds_j]
        price_s = np.concatenate(prices(free_j, fit_j, amount))
        count_s = np.concatenate([count_j, count_j * (fit_j - 1)])
        lost += _bought(price_s, count_s, taken)
    return lost


def _bought(price_s: IntArray, count_s: IntArray, budget: int) -> int:
    """How many things a budget buys, the cheapest first."""
    order = np.argsort(price_s, kind="stable")
    price_s, count_s = price_s[order], count_s[order]
    if float((price_s.astype(np.float64) * count_s).sum()) >= _SAFE:
        affordable_s = price_s <= budget
        return int(count_s[affordable_s].sum())
    spent_s = np.cumsum(price_s * count_s)
    whole = int(np.searchsorted(spent_s, budget, side="right"))
    bought = int(count_s[:whole].sum())
    if whole == len(price_s):
        return bought
    left = budget - (int(spent_s[whole - 1]) if whole else 0)
    return bought + left // int(price_s[whole])
