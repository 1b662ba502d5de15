"""Webster / Sainte-Laguë apportionment, as if seats were given one at a time, and ties.

Equal candidates are ordered by a keyed hash (fair to all clusters), or by Karmada's name order.
Must not know clusters, capacity or strategies: weights in, seats out. Must not know by which values
candidates are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray, UintArray
from federation.model.placement import TieBreak

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


_FNV_OFFSET_32 = 0x811C9DC5
_FNV_PRIME_32 = 0x01000193


class Direction(StrEnum):
    """The direction in which a tie order goes through the clusters."""

    HASH = "hash"
    ASCENDING = "asc"
    DESCENDING = "desc"


def fnv1a_32(text: str) -> int:
    """The 32-bit FNV-1a hash of the text's UTF-8 bytes."""
    value = _FNV_OFFSET_32
    for byte in text.encode():
        value = (value ^ byte) * _FNV_PRIME_32 & 0xFFFFFFFF
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class TieOrder:
    """The order among equal clusters for one workload.

    ``encoded_names`` are the fleet's names as bytes in ascending order: a position is also the rank
    of the name.
    """

    encoded_names: Sequence[bytes]
    uid: str
    direction: Direction

    @classmethod
    def of(cls, encoded_names: Sequence[bytes], uid: str, tie_break: TieBreak) -> TieOrder:
        """Return the order for the workload with this uid; an empty uid means ascending names."""
        if not uid:
            direction = Direction.ASCENDING
        elif tie_break is TieBreak.HASH:
            direction = Direction.HASH
        else:
            direction = Direction.DESCENDING if fnv1a_32(uid) % 2 else Direction.ASCENDING
        return cls(encoded_names=encoded_names, uid=uid, direction=direction)

    def keys(self, index_c: IntArray) -> UintArray:
        """Return the sort keys of the clusters at these positions; the smallest comes first.

        A hash is the BLAKE2b-64 digest of uid, a zero byte and the name, read as a big-endian
        number.
        """
        if self.direction is Direction.ASCENDING:
            return index_c.astype(np.uint64)
        if self.direction is Direction.DESCENDING:
            return (len(self.encoded_names) - 1 - index_c).astype(np.uint64)
        begin = blake2b(self.uid.encode() + b"\0", digest_size=8).copy
        names, digests = self.encoded_names, []
        for index in index_c.tolist():
            digest = begin()
            digest.update(names[index])
            digests.append(digest.digest())
        return np.frombuffer(b"".join(digests), dtype=">u8").astype(np.uint64)

    def settled(self, index_k: IntArray, differs_k: BoolArray, taken: int) -> IntArray:
        """Return sorted clusters with equal ones in this order, at least the first ``taken``.

        ``differs_k[i]`` says whether cluster ``i + 1`` differs from cluster ``i`` in what they were
        sorted by.
        """
        (end_e,) = differs_k[max(taken - 1, 0) :].nonzero()
        # A run of equals that crosses position ``taken`` is sorted as a whole.
        end = max(taken, 1) + int(end_e[0]) if len(end_e) else len(index_k)
        is_first_k = np.empty(end + 1, np.bool_)
        is_first_k[0] = is_first_k[end] = True
        is_first_k[1:end] = differs_k[: max(end - 1, 0)]
        (tied_e,) = (~(is_first_k[:-1] & is_first_k[1:])).nonzero()
        if not len(tied_e):
            return index_k
        run_e = is_first_k.cumsum()[tied_e]
        settled_k = index_k.copy()
        settled_k[tied_e] = index_k[tied_e[np.lexsort((self.keys(index_k[tied_e]), run_e))]]
        return settled_k
