"""Webster / Sainte-Laguë apportionment, with the result of giving seats one at a time.

Must not know clusters, capacity or strategies: weights in, seats out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray, UintArray

# Relative error granted to a bisected quotient: seats within it are compared by their float64
# quotients. It is far above rounding (1e-16) and far below the distance of two seats (1e-10).
_MARGIN = 1e-12
# Bound of products in int64, which holds twice as much.
_SAFE = 2.0**62

TieKeys = Callable[[IntArray], UintArray]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Apportionment:
    """The seats of each party (axis k).

    ``tied_k`` marks the parties that won their last seat against an equal quotient, by the tie key
    alone.
    """

    seats_k: IntArray
    quotas: Quotas
    tied_k: BoolArray

    @property
    def remainder_k(self) -> IntArray:
        """Return the seats above the quota rounded down, at least 0."""
        above_k: IntArray = np.maximum(self.seats_k - self.quotas.whole_k, 0)
        return above_k


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Quotas:
    """Proportional shares: ``quota_k = weight_k * seats / sum(weight_k)``.

    ``whole_k`` and ``ceil_k`` are the exact quotas rounded down and up, ``as_float_k`` the nearest
    floats.
    """

    whole_k: IntArray
    ceil_k: IntArray
    as_float_k: FloatArray

    @classmethod
    def of(cls, weights_k: IntArray, seats: int) -> Quotas:
        total = int(weights_k.sum())
        if total <= 0 or not seats:
            none_k = np.zeros(len(weights_k), np.int64)
            return cls(whole_k=none_k, ceil_k=none_k, as_float_k=none_k.astype(np.float64))
        # Products beyond int64 are computed with Python's integers.
        is_safe = float(weights_k.max()) * seats < _SAFE
        product_k = (weights_k if is_safe else weights_k.astype(object)) * seats
        return cls(
            whole_k=(product_k // total).astype(np.int64, copy=False),
            ceil_k=(-(-product_k // total)).astype(np.int64, copy=False),
            as_float_k=(product_k / total).astype(np.float64, copy=False),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Parties:
    """The weights of the parties (axis k), and the bounds of their seats."""

    weights_k: FloatArray
    floor_k: IntArray
    ceiling_k: IntArray

    def seats_above(self, quotient: float) -> IntArray:
        """Return the seats whose quotient ``weight / (2 * seat + 1)`` exceeds this one, within the
        bounds.
        """
        seats_k = np.floor((self.weights_k / quotient + 1.0) * 0.5)
        bounded_k = np.minimum(seats_k, self.ceiling_k).astype(np.int64)
        return np.maximum(bounded_k, self.floor_k)


def apportion(
    weights_k: IntArray,
    seats: int,
    tie_keys: TieKeys,
    *,
    floor_k: IntArray | None = None,
    ceiling_k: IntArray | None = None,
) -> Apportionment:
    """Give ``seats`` seats, each to the party with the highest ``weight / (2 * its seats + 1)``.

    Among equal quotients, the party with fewer seats comes first, then the smaller tie key.
    ``tie_keys`` maps positions on axis k to keys, and is called for tied positions only.

    Floors are seats that parties have from the start: they count in ``seats`` and in the quotients,
    and ``sum(floor_k) <= seats``. A party of weight 0 gets its floor and nothing else. Once all
    ceilings are reached, the remaining seats are given to nobody.
    """
    if floor_k is None:
        floor_k = np.zeros(len(weights_k), np.int64)
    open_seats = seats - int(floor_k.sum())
    quotas = Quotas.of(weights_k, seats)
    # The seats that each party can still take.
    room_k = (weights_k > 0) * open_seats
    if ceiling_k is not None:
        room_k = np.minimum(np.maximum(ceiling_k - floor_k, 0), room_k)
    if int(room_k.sum()) <= open_seats or np.count_nonzero(room_k) == 1:
        # No competition: each party gets all it can take, or one party gets everything.
        return Apportionment(
            seats_k=floor_k + np.minimum(room_k, open_seats),
            quotas=quotas,
            tied_k=np.zeros(len(weights_k), np.bool_),
        )
    parties = _Parties(weights_k.astype(np.float64), floor_k, floor_k + room_k)
    total_weight = float(weights_k.sum(dtype=np.float64))
    low, high = _bracket(parties, seats, total_weight)
    seats_k, tied_k = _settle(parties, seats, low, high, tie_keys)
    return Apportionment(seats_k=seats_k, quotas=quotas, tied_k=tied_k)


def _bracket(parties: _Parties, seats: int, total_weight: float) -> tuple[float, float]:
    """Return quotients ``low <= last seat's quotient <= high`` with few seats between them.

    One quotient occurs at most once a party, so the loop ends within two seats a party.
    """
    max_between = 2 * len(parties.weights_k) + 64
    low = high = total_weight / (2.0 * seats)
    at_low = at_high = int(parties.seats_above(low).sum())
    while at_low < seats:
        low *= 0.5
        at_low = int(parties.seats_above(low).sum())
    while at_high > seats:
        high *= 2.0
        at_high = int(parties.seats_above(high).sum())
    while at_low - at_high > max_between:
        middle = (low * high) ** 0.5
        at_middle = int(parties.seats_above(middle).sum())
        if at_middle >= seats:
            low, at_low = middle, at_middle
        if at_middle <= seats:
            high, at_high = middle, at_middle
    return low, high


def _settle(
    parties: _Parties, seats: int, low: float, high: float, tie_keys: TieKeys
) -> tuple[IntArray, BoolArray]:
    """Give the seats between the two quotients by their real quotients.

    Returns the seats (axis k), and which parties won their last seat by the tie key.
    """
    sure_k = parties.seats_above(high * (1.0 + _MARGIN))
    open_k = parties.seats_above(low * (1.0 - _MARGIN)) - sure_k
    tied_k = np.zeros(len(sure_k), np.bool_)
    missing = seats - int(sure_k.sum())
    if missing == 0:
        return sure_k, tied_k
    party_o = np.repeat(np.arange(len(sure_k)), open_k)
    first_o = np.repeat(np.cumsum(open_k) - open_k, open_k)
    seat_o = sure_k[party_o] + np.arange(len(party_o)) - first_o
    quotient_o = parties.weights_k[party_o] / (2.0 * seat_o + 1.0)
    cut = len(party_o) - missing
    last_quotient = np.partition(quotient_o, cut)[cut]
    winners_o = quotient_o > last_quotient
    (equal_e,) = np.nonzero(quotient_o == last_quotient)
    missing -= int(winners_o.sum())
    if missing < len(equal_e):
        keys_e = tie_keys(party_o[equal_e])
        equal_e = equal_e[np.lexsort((keys_e, seat_o[equal_e]))[:missing]]
        tied_k[party_o[equal_e]] = True
    winners_o[equal_e] = True
    return sure_k + np.bincount(party_o[winners_o], minlength=len(sure_k)), tied_k
