"""What replicas ask for in each of several clusters, and how many of them each node holds.

Pure, whole-array. Must not pack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from federation.capacity.cells import KIND, VIEWS, Residues
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_in_k, per_replica


class Want(NamedTuple):
    """What replicas ask for: ``suiting_p`` says which kinds of pools suit, None: all."""

    request: Mapping[str, int]
    suiting_p: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wants:
    """What is asked for in each cluster: ``every[want_c[c]]`` in cluster c.

    ``amount_rc`` is what a replica takes by the rows of the residues: in a single column where all
    clusters are asked for the same.
    """

    every: Sequence[Want]
    want_c: IntArray
    amount_rc: IntArray

    @classmethod
    def of(cls, residues: Residues, every: Sequence[Want], want_c: IntArray) -> Wants:
        amount_rw = np.zeros((len(residues.resources), len(every)), dtype=np.int64)
        for place, want in enumerate(every):
            amounts = per_replica(want.request)
            amount_rw[:, place] = [amounts.get(name, 0) for name in residues.resources]
        amount_rc = amount_rw if len(every) == 1 else amount_rw.take(want_c, axis=1)
        return cls(every=every, want_c=want_c, amount_rc=amount_rc)

    def amount(self, row: int | slice, cluster_i: IntArray) -> IntArray:
        """What a replica takes of a resource, or of several, in those clusters."""
        amount_c: IntArray = self.amount_rc[row]
        return amount_c if len(self.every) == 1 else amount_c.take(cluster_i, axis=-1)

    def fits_k(self, residues: Residues) -> IntArray:
        """How many replicas each node of the cells holds."""
        if len(self.every) == 1:
            return fits_k(residues, self.every[0])
        width_c = np.diff(residues.first_s[::VIEWS])
        names = set(residues.resources)
        is_there_w = np.array([per_replica(each.request).keys() <= names for each in self.every])
        found_k = (is_there_w.take(self.want_c) * np.int64(MAX_REPLICAS)).repeat(width_c)
        for amount_k, amount_c in zip(residues.amount_rk, self.amount_rc, strict=True):
            is_asked_c = amount_c > 0
            if is_asked_c.any():
                divisor_k = np.maximum(amount_c, 1).view(np.uint64).repeat(width_c)
                quotient_k = (amount_k.view(np.uint64) // divisor_k).view(np.int64)
                if not is_asked_c.all():
                    quotient_k[~is_asked_c.repeat(width_c)] = MAX_REPLICAS
                np.minimum(found_k, quotient_k, out=found_k)
        told = [each.suiting_p for each in self.every if each.suiting_p is not None]
        if told:
            all_p = np.ones_like(told[0])
            suiting = [all_p if each.suiting_p is None else each.suiting_p for each in self.every]
            found_k *= np.array(suiting)[self.want_c.repeat(width_c), residues.table_xk[KIND]]
        return found_k


def fits_k(residues: Residues, want: Want) -> IntArray:
    """How many replicas each node of the cells holds, where all clusters are asked for the same."""
    found_k = fit_in_k(residues.resources, residues.amount_rk, per_replica(want.request))
    if want.suiting_p is not None:
        found_k *= want.suiting_p[residues.table_xk[KIND]]
    return found_k
