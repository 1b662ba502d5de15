"""The input and the result of a division: rule, candidates, shares.

Must not divide.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray, LevelArray
from federation.model.placement import DivisionPreference, ReplicaScheduling, SchedulingType
from federation.model.reasons import NO_REASON, Reason
from federation.scheduler.division.apportion import TieKeys
from federation.scheduler.trace import TierFacts


class DivisionStrategy(StrEnum):
    """The five ways to divide replicas; FillFirst is ours, the others are Karmada's."""

    DUPLICATED = "Duplicated"
    STATIC_WEIGHT = "StaticWeight"
    DYNAMIC_WEIGHT = "DynamicWeight"
    AGGREGATED = "Aggregated"
    FILL_FIRST = "FillFirst"


class Limit(IntEnum):
    """The limit that keeps a share from its quota.

    MIN, MAX: the bounds that the placement states. ROOM: no more replicas fit. OTHERS: a limit of
    another cluster moved seats to or from this one.
    """

    NONE = 0
    MIN = 1
    MAX = 2
    ROOM = 3
    OTHERS = 4


class Mode(StrEnum):
    """The treatment of replicas that are already placed.

    ANEW: the strategy ignores them. FRESH: all replicas are divided again, and those placed count
    as capacity of their clusters. SCALE_UP: they stay, and the difference is divided. SCALE_DOWN:
    all replicas are divided by them as weights. KEEP: they are the answer.
    """

    ANEW = "Anew"
    FRESH = "Fresh"
    SCALE_UP = "SteadyUp"
    SCALE_DOWN = "SteadyDown"
    KEEP = "SteadyKeep"


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisionRule:
    """How to divide.

    ``capacity_bounded``: static weights give a cluster no more than fits. ``is_kept``: the prior
    replicas are the answer, whatever the strategy.
    """

    strategy: DivisionStrategy
    fresh: bool = False
    capacity_bounded: bool = False
    is_kept: bool = False

    @classmethod
    def of(cls, scheduling: ReplicaScheduling, *, fresh: bool) -> DivisionRule:
        """Return the rule of a placement: weights are static unless dynamic ones are named."""
        return cls(
            strategy=strategy_of(scheduling),
            fresh=fresh,
            capacity_bounded=scheduling.capacity_bounded,
        )

    @property
    def heeds_capacity(self) -> bool:
        """Return whether a share may not exceed what fits."""
        if self.strategy is DivisionStrategy.STATIC_WEIGHT:
            return self.capacity_bounded
        return self.strategy is not DivisionStrategy.DUPLICATED


def strategy_of(scheduling: ReplicaScheduling) -> DivisionStrategy:
    if scheduling.type is SchedulingType.DUPLICATED:
        return DivisionStrategy.DUPLICATED
    if scheduling.preference is DivisionPreference.AGGREGATED:
        return DivisionStrategy.AGGREGATED
    if scheduling.preference is DivisionPreference.FILL_FIRST:
        return DivisionStrategy.FILL_FIRST
    return DivisionStrategy.DYNAMIC_WEIGHT if scheduling.dynamic else DivisionStrategy.STATIC_WEIGHT


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """The selected clusters in candidate order (axis k).

    ``available_k`` replicas fit beside ``prior_k``, the replicas already placed. ``weight_k`` are
    static weights. ``floor_k`` and ``ceiling_k`` are the minimum and maximum replicas that limits
    state. ``listed_k`` is the order among equals in a scale-down (Karmada: the order in which the
    binding lists its clusters). ``tie_keys`` maps positions on axis k to sort keys. A cluster in
    ``closed_k`` must not grow; None: no cluster is closed.
    """

    available_k: IntArray
    prior_k: IntArray
    weight_k: IntArray
    floor_k: IntArray
    ceiling_k: IntArray
    listed_k: IntArray
    tie_keys: TieKeys
    closed_k: BoolArray | None = None

    @property
    def capacity_k(self) -> IntArray:
        """Return the maximum replicas of each cluster, by capacity and by limits."""
        capacity_k: IntArray = np.minimum(self.available_k + self.prior_k, self.ceiling_k)
        return capacity_k

    def only(self, mask_k: BoolArray) -> Candidates:
        """Return the candidates of a mask, in the same order."""
        (position_k,) = np.nonzero(mask_k)
        return Candidates(
            available_k=self.available_k[mask_k],
            prior_k=self.prior_k[mask_k],
            weight_k=self.weight_k[mask_k],
            floor_k=self.floor_k[mask_k],
            ceiling_k=self.ceiling_k[mask_k],
            listed_k=self.listed_k[mask_k],
            tie_keys=lambda index_k: self.tie_keys(position_k[index_k]),
            closed_k=None if self.closed_k is None else self.closed_k[mask_k],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Division:
    """The replicas of each candidate and the arithmetic behind them (axis k).

    ``limit_k`` are numbers of ``Limit``. ``missing`` replicas fit nowhere; for Duplicated they are
    those that closed clusters lack. ``conflict`` says which limits contradict each other; the
    shares mean nothing then.
    """

    share_k: IntArray
    weight_k: IntArray
    quota_k: FloatArray
    remainder_k: IntArray
    tied_k: BoolArray
    limit_k: LevelArray
    facts: tuple[TierFacts, ...]
    missing: int = 0
    conflict: Reason = NO_REASON
