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
    """What is asked for anywhere. ``amount_rw`` is what a replica takes of each, by the rows of the
    residues; ``is_there_w`` whether these have all that it names; ``chooses`` whether any of them
    does not suit every kind of pool.
    """

    every: Sequence[Want]
    amount_rw: IntArray
    is_there_w: BoolArray
    chooses: bool

    @classmethod
    def of(cls, resources: Sequence[str], every: Sequence[Want]) -> Wants:
        amount_rw = np.zeros((len(resources), len(every)), dtype=np.int64)
        is_there_w = np.zeros(len(every), dtype=np.bool_)
        row_by = {name: row for row, name in enumerate(resources)}
        for place, want in enumerate(every):
            amounts = per_replica(want.request)
            is_there_w[place] = amounts.keys() <= row_by.keys()
            for name, amount in amounts.items():
                if name in row_by:
                    amount_rw[row_by[name], place] = amount
        return cls(
            every=every,
            amount_rw=amount_rw,
            is_there_w=is_there_w,
            chooses=any(want.suiting_p is not None for want in every),
        )

    def asked(self, want_c: IntArray) -> WantedByCluster:
        """``every[want_c[c]]`` is asked for in cluster c."""
        first = int(want_c[0]) if len(want_c) else 0
        if (want_c == first).all():
            return WantedByCluster(
                self, want_c, self.every[first], self.amount_rw[:, first : first + 1]
            )
        return WantedByCluster(self, want_c, None, self.amount_rw.take(want_c, axis=1))


class WantedByCluster(NamedTuple):
    """What is asked for in each cluster; ``alike`` is what it is in all, None where they differ.

    ``amount_rc`` is what a replica takes: in a single column where it is the same for all.
    """

    wants: Wants
    want_c: IntArray
    alike: Want | None
    amount_rc: IntArray

    def amount(self, row: int | slice, cluster_i: IntArray) -> IntArray:
        """What a replica takes of a resource, or of several, in those clusters."""
        amount_c: IntArray = self.amount_rc[row]
        return amount_c if self.alike is not None else amount_c.take(cluster_i, axis=-1)

    def fits_k(self, residues: Residues) -> IntArray:
        """How many replicas each node of the cells holds."""
        if self.alike is not None:
            return fits_k(residues, self.alike)
        wants = self.wants
        width_c = np.diff(residues.first_s[::VIEWS])
        found_k = (wants.is_there_w.take(self.want_c) * np.int64(MAX_REPLICAS)).repeat(width_c)
        for amount_k, amount_c in zip(residues.amount_rk, self.amount_rc, strict=True):
            is_asked_c = amount_c > 0
            if is_asked_c.any():
                divisor_k = np.maximum(amount_c, 1).view(np.uint64).repeat(width_c)
                quotient_k = (amount_k.view(np.uint64) // divisor_k).view(np.int64)
                if not is_asked_c.all():
                    quotient_k[~is_asked_c.repeat(width_c)] = MAX_REPLICAS
                np.minimum(found_k, quotient_k, out=found_k)
        if not wants.chooses:
            return found_k
        # Only of those that are asked for here: there may be many kinds of pools.
        used_u, use_c = np.unique(self.want_c, return_inverse=True)
        suiting = [wants.every[place].suiting_p for place in used_u.tolist()]
        told = [suiting_p for suiting_p in suiting if suiting_p is not None]
        if told:
            all_p = np.ones_like(told[0])
            suiting_up = np.array([all_p if each is None else each for each in suiting])
            found_k *= suiting_up[use_c.repeat(width_c), residues.table_xk[KIND]]
        return found_k


def fits_k(residues: Residues, want: Want) -> IntArray:
    """How many replicas each node of the cells holds, where all clusters are asked for the same."""
    found_k = fit_in_k(residues.resources, residues.amount_rk, per_replica(want.request))
    if want.suiting_p is not None:
        found_k *= want.suiting_p[residues.table_xk[KIND]]
    return found_k
