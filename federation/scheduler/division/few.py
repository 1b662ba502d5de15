"""Division by availability among a few candidates, number by number: arrays cost more than that.

Must not differ from what ``strategies`` make of the same candidates in arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from federation.scheduler.division.apportion import TieKeys
from federation.scheduler.division.values import (
    Candidates,
    Division,
    DivisionRule,
    DivisionStrategy,
    Limit,
    Mode,
)
from federation.scheduler.trace import TierFacts

# More candidates, or more seats that several compete for, are quicker in arrays.
MOST_CANDIDATES: Final = 5
MOST_SEATS: Final = 16
# Above this int64 might not hold the products of arrays, whose quotients are rounded otherwise.
_SAFE: Final = 2**62
_STRATEGIES: Final = frozenset({DivisionStrategy.DYNAMIC_WEIGHT, DivisionStrategy.AGGREGATED})


@dataclass(frozen=True, slots=True)
class _Task:
    """What is left to divide once the mode is known, as that of ``strategies``; by candidate."""

    mode: Mode
    target: int
    kept: list[int]
    weights: list[int]
    ceilings: list[int]


def divide_few(rule: DivisionRule, candidates: Candidates, replicas: int) -> Division | None:
    """The division of a few candidates of one tier; None where that is one for arrays."""
    if len(candidates.available_k) > MOST_CANDIDATES or rule.strategy not in _STRATEGIES:
        return None
    if candidates.floor_k.any():
        return None
    available, prior = candidates.available_k.tolist(), candidates.prior_k.tolist()
    most = candidates.ceiling_k.tolist()
    task = _task(rule, available, prior, most, replicas)
    if rule.strategy is DivisionStrategy.AGGREGATED:
        chosen = _shortest_prefix(task, prior, candidates.listed_k.tolist())
        weights = [each if at in chosen else 0 for at, each in enumerate(task.weights)]
        task = _Task(task.mode, task.target, task.kept, weights, task.ceilings)
    total = sum(task.weights)
    if total * max(task.target, 1) >= _SAFE:
        return None
    given = _seats(task, candidates.tie_keys)
    if given is None:
        return None
    seats, tied = given
    # Nobody with a weight has no quota, and of nothing either.
    products = [each * task.target for each in task.weights]
    total = total or 1
    whole = [each // total for each in products]
    shares = [kept + more for kept, more in zip(task.kept, seats, strict=True)]
    limits = _limits(task, prior, most, shares, seats, [divmod(each, total) for each in products])
    facts = TierFacts(
        mode=task.mode,
        wanted=replicas,
        target=task.target,
        available=sum(map(min, map(int.__add__, available, prior), most)),
        candidates=len(available),
    )
    rests = [
        max(more - each, 0) if limit == Limit.NONE else 0
        for more, each, limit in zip(seats, whole, limits, strict=True)
    ]
    return Division(
        share_k=np.array(shares, dtype=np.int64),
        weight_k=np.array(task.weights, dtype=np.int64),
        quota_k=np.array([float(each) / float(total) for each in products], dtype=np.float64),
        remainder_k=np.array(rests, dtype=np.int64),
        tied_k=np.array(tied, dtype=np.bool_),
        limit_k=np.array(limits, dtype=np.int8),
        facts=(facts,),
        missing=task.target - sum(seats),
    )


def _task(
    rule: DivisionRule, available: list[int], prior: list[int], most: list[int], replicas: int
) -> _Task:
    none = [0] * len(prior)
    if rule.fresh:
        weights = list(map(int.__add__, available, prior))
        return _Task(Mode.FRESH, replicas, none, weights, list(map(min, weights, most)))
    held_each = list(map(min, prior, most))
    held = sum(held_each)
    if held > replicas:
        return _Task(Mode.SCALE_DOWN, replicas, none, held_each, held_each)
    if held == replicas:
        return _Task(Mode.KEEP, 0, held_each, held_each, none)
    ceilings = list(map(min, available, map(int.__sub__, most, held_each)))
    return _Task(Mode.SCALE_UP, replicas - held, held_each, available, ceilings)


def _shortest_prefix(task: _Task, prior: list[int], listed: list[int]) -> list[int]:
    """Of the fewest clusters that hold the target: see ``strategies``."""
    order = list(range(len(prior)))
    if task.mode is Mode.SCALE_DOWN:
        order.sort(key=lambda at: (-task.weights[at], listed[at]))
    elif task.mode is Mode.SCALE_UP:
        order.sort(key=lambda at: (prior[at] <= 0, -task.weights[at]))
    else:
        order.sort(key=lambda at: -task.weights[at])
    reached = 0
    for count, at in enumerate(order, 1):
        reached += task.ceilings[at]
        if reached >= task.target:
            return order[:count]
    return order


def _seats(task: _Task, tie_keys: TieKeys) -> tuple[list[int], list[bool]] | None:
    """The seats of each, and who won the last one by the tie order; None where they are many."""
    wanted, none = task.target, [False] * len(task.weights)
    rooms = [
        min(max(most, 0), wanted) if weight > 0 else 0
        for most, weight in zip(task.ceilings, task.weights, strict=True)
    ]
    if sum(rooms) <= wanted or sum(room > 0 for room in rooms) == 1:
        return [min(room, wanted) for room in rooms], none
    if wanted > MOST_SEATS:
        return None
    seats, keys, last = [0] * len(rooms), list[int](), 0.0
    for _ in range(wanted):
        claims = [
            weight / (2.0 * seat + 1.0) if seat < room else -1.0
            for weight, seat, room in zip(task.weights, seats, rooms, strict=True)
        ]
        last = max(claims)
        first = [at for at, claim in enumerate(claims) if claim == last]
        if len(first) > 1:
            keys = keys or tie_keys(np.arange(len(rooms))).tolist()
            first.sort(key=lambda at: (seats[at], keys[at]))
        seats[first[0]] += 1
    is_tied = any(
        weight / (2.0 * seat + 1.0) == last
        for weight, seat, room in zip(task.weights, seats, rooms, strict=True)
        if seat < room
    )
    if not is_tied:
        return seats, none
    return seats, [
        seat > 0 and weight / (2.0 * seat - 1.0) == last
        for weight, seat in zip(task.weights, seats, strict=True)
    ]


def _limits(
    task: _Task,
    prior: list[int],
    most: list[int],
    shares: list[int],
    seats: list[int],
    quotas: list[tuple[int, int]],
) -> list[int]:
    """Which limit keeps each share from its quota, or bends the prior placement."""
    limits = [int(Limit.NONE)] * len(seats)
    is_any_held = False
    for at, (whole, rest) in enumerate(quotas):
        if task.mode is not Mode.FRESH and prior[at] > most[at] == shares[at]:
            limits[at] = Limit.MAX
        if seats[at] == task.ceilings[at] and (whole, rest) > (seats[at], 0):
            is_any_held = True
            by_wish = task.kept[at] + task.ceilings[at] == most[at]
            limits[at] = Limit.MAX if by_wish else Limit.ROOM
    if is_any_held:
        for at, (whole, _) in enumerate(quotas):
            if seats[at] != whole and limits[at] == Limit.NONE:
                limits[at] = Limit.OTHERS
    return limits
