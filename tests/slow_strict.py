"""What any placer leaves of strict promises, in the obvious loops: one cluster, kind after kind,
one node and replica after the other, in exact fractions.

Shares no code with the bounds that it checks but their rates and the meaning of labels and taints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from federation.capacity.strict_bounds import rates_of
from federation.model.pools.matching import Match, pool_match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding, PromiseCertificate
from federation.model.workload import ReplicaRequirements


def demanded_by(requirements: ReplicaRequirements) -> dict[str, int]:
    asked = {name: amount for name, amount in requirements.request.items() if amount > 0}
    return {**asked, "pods": 1}


def strict_promises_hold(pools: Pools, every: Sequence[Outstanding]) -> bool:
    """Whether each kind of which any is strict finds room when all others come first."""
    kinds: list[list[Outstanding]] = []
    for each in every:
        alike = next((kind for kind in kinds if are_alike(kind[0], each)), None)
        if alike is None:
            kinds.append([each])
        else:
            alike.append(each)
    return all(
        fits_after_others(pools, kind, [other for other in kinds if other is not kind])
        for kind in kinds
        if any(each.certificate is PromiseCertificate.STRICT for each in kind)
    )


def are_alike(one: Outstanding, other: Outstanding) -> bool:
    return (
        demanded_by(one.requirements) == demanded_by(other.requirements)
        and one.requirements.node_claim == other.requirements.node_claim
    )


def replicas(kind: Sequence[Outstanding]) -> int:
    return sum(each.in_cells for each in kind)


def fits_after_others(
    pools: Pools, own: Sequence[Outstanding], others: Sequence[Sequence[Outstanding]]
) -> bool:
    rivals = [each for each in others if may_meet(pools, own[0], each[0])]
    spare = room_for(pools, own[0]) - replicas(own)
    return spare >= 0 and lost(pools, own[0], [each for kind in rivals for each in kind]) <= spare


def room_for(pools: Pools, own: Outstanding) -> int:
    """How many replicas the minimums of cells hold."""
    return sum(count * fits for count, fits, _ in nodes_that_suit(pools, own))


def lost(pools: Pools, own: Outstanding, rivals: Sequence[Outstanding]) -> int:
    """How many of those the rivals can take at most, by the rates at which that is least."""
    demanded, nodes = demanded_by(own.requirements), nodes_that_suit(pools, own)
    by_rates = []
    for rate_r in rates_of(tuple(demanded)).tolist():
        rates = dict(zip(demanded, map(Fraction, rate_r), strict=True))
        excess = sum(
            (count * excess_of(fits, free, demanded, rates) for count, fits, free in nodes),
            Fraction(),
        )
        charged = sum(
            (rival.in_cells * charge_of(rival, demanded, rates) for rival in rivals), Fraction()
        )
        by_rates.append(math.floor(excess + charged))
    return min(by_rates)


def excess_of(
    fits: int, free: Mapping[str, int], demanded: Mapping[str, int], rates: Mapping[str, Fraction]
) -> Fraction:
    """Of one node, whichever resource is taken and however many are lost by it."""
    return max(
        [Fraction()]
        + [
            number - rates[name] * Fraction(free[name] - (fits - number + 1) * amount + 1, amount)
            for name, amount in demanded.items()
            for number in range(1, fits + 1)
        ]
    )


def charge_of(
    rival: Outstanding, demanded: Mapping[str, int], rates: Mapping[str, Fraction]
) -> Fraction:
    taken = demanded_by(rival.requirements)
    worth = max(-(-taken.get(name, 0) // amount) for name, amount in demanded.items())
    return min(
        Fraction(worth),
        max(
            rates[name] * Fraction(taken.get(name, 0), amount) for name, amount in demanded.items()
        ),
    )


def losses(pools: Pools, own: Outstanding, rivals: Sequence[Outstanding]) -> tuple[int, int]:
    """How many of those the rivals can take at most: replica by replica, and by their amounts."""
    demanded, nodes = demanded_by(own.requirements), nodes_that_suit(pools, own)
    by_replica = 0
    for rival in rivals:
        taken = demanded_by(rival.requirements)
        worth = max(-(-taken.get(name, 0) // amount) for name, amount in demanded.items())
        by_replica += worth * rival.in_cells
    by_amount = 0
    for name, amount in demanded.items():
        budget = sum(
            rival.in_cells * demanded_by(rival.requirements).get(name, 0) for rival in rivals
        )
        by_amount += bought(
            [(count, fits, free[name]) for count, fits, free in nodes], amount, budget
        )
    return by_replica, by_amount


def may_meet(pools: Pools, own: Outstanding, rival: Outstanding) -> bool:
    return any(
        pool_match(pool, pools.label_keys, own.requirements.node_claim) is Match.YES
        and pool_match(pool, pools.label_keys, rival.requirements.node_claim) is not Match.NO
        for place, pool in enumerate(pools.pools)
        if place in pools.cells.pool_k
    )


def nodes_that_suit(pools: Pools, own: Outstanding) -> list[tuple[int, int, dict[str, int]]]:
    """Of each cell that holds any: its nodes, how many each holds, and what is free on them."""
    demanded, found = demanded_by(own.requirements), []
    for k in range(len(pools.cells)):
        pool = pools.pools[int(pools.cells.pool_k[k])]
        if pool_match(pool, pools.label_keys, own.requirements.node_claim) is Match.YES:
            amounts = pools.cells.min_rk[:, k].tolist()
            free = dict(zip(pools.cells.resources, amounts, strict=True))
            fits = min(free.get(name, 0) // amount for name, amount in demanded.items())
            if fits:
                found.append((int(pools.cells.count_k[k]), fits, free))
    return found


def bought(cells: Sequence[tuple[int, int, int]], amount: int, budget: int) -> int:
    """How many replicas of nodes so much buys: the cheapest first, one after the other."""
    prices: list[int] = []
    for count, fits, free in cells:
        first = free - fits * amount + 1
        mean = (free - amount + 1) // fits
        of_one = [mean] * fits if first > amount else [first] + [amount] * (fits - 1)
        prices += of_one * count
    number = 0
    for price in sorted(prices):
        budget -= price
        if budget < 0:
            break
        number += 1
    return number
