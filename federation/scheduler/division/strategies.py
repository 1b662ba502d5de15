"""The five division strategies, by one apportionment.

Must not filter or select: every candidate may receive replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from federation.model.arrays import BoolArray, IntArray, LevelArray
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Amount, Reason
from federation.scheduler.division.apportion import Apportionment, apportion
from federation.scheduler.division.values import (
    Candidates,
    Division,
    DivisionRule,
    DivisionStrategy,
    Limit,
    Mode,
)
from federation.scheduler.trace import TierFacts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Task:
    """A division with its mode chosen: ``target`` replicas to place beside ``kept_k`` (axis k)."""

    mode: Mode
    target: int
    kept_k: IntArray
    weight_k: IntArray
    floor_k: IntArray
    ceiling_k: IntArray


def divide(rule: DivisionRule, candidates: Candidates, tier_k: IntArray, replicas: int) -> Division:
    """Divide the replicas, tier after tier: a tier takes what it can hold, the rest spills over.

    A single tier gets all replicas, because some strategies ignore capacity.
    """
    if rule.is_kept:
        return _apportioned(_kept_task(candidates.prior_k), candidates, replicas)
    if len(tier_k) and (tier_k == tier_k[0]).all():
        return _divide_tier(rule, candidates, replicas)
    tiers = np.unique(tier_k).tolist()
    if rule.strategy is DivisionStrategy.DUPLICATED:
        # Every candidate of the first tier gets all replicas: none spill over.
        tiers = tiers[:1]
    whole = _nothing(candidates, missing=replicas)
    for tier in tiers:
        mask_k = tier_k == tier
        inside = candidates.only(mask_k)
        target = whole.missing
        if rule.strategy is not DivisionStrategy.DUPLICATED:
            target = min(target, int(inside.capacity_k.sum()))
        if target:
            whole = _with_tier(whole, mask_k, _divide_tier(rule, inside, target), target)
    return whole


def _nothing(candidates: Candidates, *, missing: int) -> Division:
    none_k = np.zeros(len(candidates.available_k), np.int64)
    return Division(
        share_k=none_k,
        weight_k=none_k,
        quota_k=none_k.astype(np.float64),
        remainder_k=none_k,
        tied_k=none_k.astype(np.bool_),
        limit_k=none_k.astype(np.int8),
        facts=(),
        missing=missing,
    )


def _with_tier(whole: Division, mask_k: BoolArray, part: Division, target: int) -> Division:
    """Add the division of one tier (``mask_k``), which was asked for ``target`` replicas."""

    def scattered(all_k: np.ndarray, part_k: np.ndarray) -> np.ndarray:
        all_k = all_k.copy()
        all_k[mask_k] = part_k
        return all_k

    return Division(
        share_k=scattered(whole.share_k, part.share_k),
        weight_k=scattered(whole.weight_k, part.weight_k),
        quota_k=scattered(whole.quota_k, part.quota_k),
        remainder_k=scattered(whole.remainder_k, part.remainder_k),
        tied_k=scattered(whole.tied_k, part.tied_k),
        limit_k=scattered(whole.limit_k, part.limit_k),
        facts=whole.facts + part.facts,
        missing=whole.missing - target + part.missing,
        conflict=whole.conflict or part.conflict,
    )


def _divide_tier(rule: DivisionRule, candidates: Candidates, replicas: int) -> Division:
    """Divide the replicas among candidates of one tier."""
    conflict = _limit_conflict(rule, candidates, replicas)
    if conflict:
        return replace(_nothing(candidates, missing=replicas), conflict=conflict)
    return _DIVISIONS[rule.strategy](rule, candidates, replicas)


def _limit_conflict(rule: DivisionRule, candidates: Candidates, replicas: int) -> Reason:
    if rule.strategy is DivisionStrategy.DUPLICATED or not np.count_nonzero(candidates.floor_k):
        return NO_REASON
    floors = int(candidates.floor_k.sum())
    if floors > replicas:
        return Reason.of(ReasonCode.MINIMUMS_EXCEED_REPLICAS, Amount(floors), Amount(replicas))
    ceiling_k = candidates.capacity_k if rule.heeds_capacity else candidates.ceiling_k
    short = int((candidates.floor_k > ceiling_k).sum())
    if short:
        return Reason.of(ReasonCode.MINIMUMS_DO_NOT_FIT, Amount(short))
    return NO_REASON


def _duplicate(_rule: DivisionRule, candidates: Candidates, replicas: int) -> Division:
    count = len(candidates.available_k)
    share_k = np.full(count, replicas, dtype=np.int64)
    if candidates.closed_k is not None:
        np.minimum(candidates.prior_k, share_k, out=share_k, where=candidates.closed_k)
    facts = TierFacts(
        mode=Mode.ANEW,
        wanted=replicas,
        target=replicas,
        available=int(candidates.capacity_k.sum()),
        candidates=count,
    )
    return replace(
        _nothing(candidates, missing=int((replicas - share_k).sum())),
        share_k=share_k,
        quota_k=share_k.astype(np.float64),
        facts=(facts,),
    )


def _divide_by_static_weight(rule: DivisionRule, candidates: Candidates, replicas: int) -> Division:
    weight_k = candidates.weight_k
    if not weight_k.any():
        weight_k = np.ones_like(weight_k)
    task = _Task(
        mode=Mode.ANEW,
        target=replicas,
        kept_k=np.zeros_like(weight_k),
        weight_k=weight_k,
        floor_k=candidates.floor_k,
        ceiling_k=candidates.capacity_k if rule.capacity_bounded else candidates.ceiling_k,
    )
    return _apportioned(task, candidates, replicas)


def _divide_by_dynamic_weight(
    rule: DivisionRule, candidates: Candidates, replicas: int
) -> Division:
    return _apportioned(_task_by_availability(rule, candidates, replicas), candidates, replicas)


def _aggregate(rule: DivisionRule, candidates: Candidates, replicas: int) -> Division:
    task = _task_by_availability(rule, candidates, replicas)
    chosen = _shortest_prefix(task, candidates)
    weight_k = np.zeros_like(task.weight_k)
    weight_k[chosen] = task.weight_k[chosen]
    return _apportioned(replace(task, weight_k=weight_k), candidates, replicas)


def _fill_first(rule: DivisionRule, candidates: Candidates, replicas: int) -> Division:
    task = _task_by_availability(rule, candidates, replicas)
    order = _shortest_prefix(task, candidates)
    remaining = task.target - int(task.floor_k.sum())
    room_o = (task.ceiling_k - task.floor_k)[order]
    filled_o = np.clip(remaining - (np.cumsum(room_o) - room_o), 0, room_o)
    seat_k = task.floor_k.copy()
    seat_k[order] += filled_o
    share_k = task.kept_k + seat_k
    limit_k = _limits_of_prior(task, candidates, share_k)
    limit_k[(seat_k == task.floor_k) & (task.floor_k > 0)] = Limit.MIN
    is_full_k = (share_k == candidates.ceiling_k) & (seat_k > task.floor_k)
    limit_k[is_full_k & (share_k < candidates.available_k + candidates.prior_k)] = Limit.MAX
    return replace(
        _nothing(candidates, missing=task.target - int(seat_k.sum())),
        share_k=share_k,
        weight_k=task.weight_k,
        quota_k=seat_k.astype(np.float64),
        limit_k=limit_k,
        facts=(_facts(task, candidates, replicas),),
    )


def _task_by_availability(rule: DivisionRule, candidates: Candidates, replicas: int) -> _Task:
    """Return the task of the mode that applies: weights, bounds and the replicas to place.

    Limits change the prior placement first: replicas above a ceiling count as not placed, and a
    floor counts as placed already.
    """
    prior_k, floor_k, ceiling_k = candidates.prior_k, candidates.floor_k, candidates.ceiling_k
    none_k = np.zeros(len(prior_k), np.int64)
    if rule.fresh:
        return _Task(
            mode=Mode.FRESH,
            target=replicas,
            kept_k=none_k,
            weight_k=candidates.available_k + prior_k,
            floor_k=floor_k,
            ceiling_k=candidates.capacity_k,
        )
    kept_k = np.minimum(prior_k, ceiling_k)
    held_k = np.maximum(kept_k, floor_k)
    held = int(held_k.sum())
    if held > replicas:
        return _Task(
            mode=Mode.SCALE_DOWN,
            target=replicas,
            kept_k=none_k,
            weight_k=held_k,
            floor_k=floor_k,
            ceiling_k=held_k,
        )
    if held == replicas:
        return _kept_task(held_k)
    return _Task(
        mode=Mode.SCALE_UP,
        target=replicas - int(kept_k.sum()),
        kept_k=kept_k,
        weight_k=candidates.available_k,
        floor_k=held_k - kept_k,
        ceiling_k=np.minimum(candidates.available_k, ceiling_k - kept_k),
    )


def _kept_task(held_k: IntArray) -> _Task:
    """Return the task that leaves all replicas where they are."""
    none_k = np.zeros_like(held_k)
    return _Task(
        mode=Mode.KEEP,
        target=0,
        kept_k=held_k,
        weight_k=held_k,
        floor_k=none_k,
        ceiling_k=none_k,
    )


def _shortest_prefix(task: _Task, candidates: Candidates) -> IntArray:
    """Return positions (axis k) of the fewest clusters that hold the target, in the order of use.

    Clusters with a floor come first, then, in a scale-up, clusters that hold replicas, then higher
    weights. Candidate order decides among equals; in a scale-down it is ``listed_k``.
    """
    later_k = task.floor_k <= 0
    if task.mode is Mode.SCALE_DOWN:
        order = np.lexsort((candidates.listed_k, -task.weight_k, later_k))
    elif task.mode is Mode.SCALE_UP:
        order = np.lexsort((-task.weight_k, later_k & (candidates.prior_k <= 0), later_k))
    else:
        order = np.lexsort((-task.weight_k, later_k))
    reached = task.ceiling_k[order].cumsum()
    return order[: int(reached.searchsorted(task.target)) + 1]


def _apportioned(task: _Task, candidates: Candidates, replicas: int) -> Division:
    """Apportion the target of a task, and note which limits bent the shares."""
    if not (np.count_nonzero(task.weight_k) or np.count_nonzero(task.floor_k)):
        # No candidate can take a replica: usual for bindings that wait for capacity.
        return replace(
            _nothing(candidates, missing=task.target),
            share_k=task.kept_k,
            weight_k=task.weight_k,
            limit_k=_limits_of_prior(task, candidates, task.kept_k),
            facts=(_facts(task, candidates, replicas),),
        )
    result = apportion(
        task.weight_k,
        task.target,
        candidates.tie_keys,
        floor_k=task.floor_k,
        ceiling_k=task.ceiling_k,
    )
    share_k = task.kept_k + result.seats_k
    limit_k = _limits_of_prior(task, candidates, share_k)
    _note_limits(limit_k, result, task, candidates)
    remainder_k = result.remainder_k
    # Seats that a limit gave, or left to others, are no remainder.
    remainder_k[limit_k != Limit.NONE] = 0
    return Division(
        share_k=share_k,
        weight_k=task.weight_k,
        quota_k=result.quotas.as_float_k,
        remainder_k=remainder_k,
        tied_k=result.tied_k,
        limit_k=limit_k,
        facts=(_facts(task, candidates, replicas),),
        missing=task.target - int(result.seats_k.sum()),
    )


def _limits_of_prior(task: _Task, candidates: Candidates, share_k: IntArray) -> LevelArray:
    """Return the limits that moved the prior placement before a steady division; NONE elsewhere."""
    limit_k = np.zeros(len(share_k), np.int8)
    if task.mode in {Mode.SCALE_UP, Mode.SCALE_DOWN, Mode.KEEP}:
        prior_k, floor_k, ceiling_k = candidates.prior_k, candidates.floor_k, candidates.ceiling_k
        limit_k[(prior_k < floor_k) & (share_k == floor_k)] = Limit.MIN
        limit_k[(prior_k > ceiling_k) & (share_k == ceiling_k)] = Limit.MAX
    return limit_k


def _note_limits(
    limit_k: LevelArray, result: Apportionment, task: _Task, candidates: Candidates
) -> None:
    """Write into ``limit_k`` which limit keeps each share from its quota.

    Once one share is kept from its quota, shares that differ from theirs are marked OTHERS.
    """
    seats_k, quotas = result.seats_k, result.quotas
    is_held_k = (seats_k == task.ceiling_k) & (seats_k < quotas.ceil_k)
    is_raised_k = (task.floor_k > 0) & (seats_k == task.floor_k) & (seats_k > quotas.whole_k)
    is_limited_k = is_held_k | is_raised_k
    if not np.count_nonzero(is_limited_k):
        return
    # At its maximum, or at what its cluster has capacity for.
    is_maximum_k = task.kept_k + task.ceiling_k == candidates.ceiling_k
    limit_k[is_raised_k] = Limit.MIN
    limit_k[is_held_k] = np.where(is_maximum_k, Limit.MAX, Limit.ROOM)[is_held_k]
    limit_k[(seats_k != quotas.whole_k) & (limit_k == Limit.NONE)] = Limit.OTHERS


def _facts(task: _Task, candidates: Candidates, replicas: int) -> TierFacts:
    return TierFacts(
        mode=task.mode,
        wanted=replicas,
        target=task.target,
        available=int(candidates.capacity_k.sum()),
        candidates=len(task.weight_k),
    )


_DIVISIONS: Mapping[DivisionStrategy, Callable[[DivisionRule, Candidates, int], Division]] = {
    DivisionStrategy.DUPLICATED: _duplicate,
    DivisionStrategy.STATIC_WEIGHT: _divide_by_static_weight,
    DivisionStrategy.DYNAMIC_WEIGHT: _divide_by_dynamic_weight,
    DivisionStrategy.AGGREGATED: _aggregate,
    DivisionStrategy.FILL_FIRST: _fill_first,
}
