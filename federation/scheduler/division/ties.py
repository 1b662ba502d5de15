"""The order among equal candidates: a keyed hash (fair to all clusters), or Karmada's name order.

Must not decide anything but ties, and must not know by which values candidates are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

import numpy as np

from federation.model.arrays import BoolArray, IntArray, UintArray
from federation.model.placement import TieBreak

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
