"""Requests of replicas in several clusters, and how many replicas a node of each cell holds.

Pure, whole-array. Must not pack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from federation.capacity.cells import KIND, VIEWS, FreeCells
from federation.model.arrays import BoolArray, IntArray
from federation.model.estimate import MAX_REPLICAS
from federation.model.pools.bounds import fit_in_k, per_replica


class Want(NamedTuple):
    """A replica's request; ``suiting_p`` marks the kinds of pools that match, None: all."""

    request: Mapping[str, int]
    suiting_p: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Wants:
    """Distinct wants (axis w).

    ``amount_rw`` is what a replica takes of each resource (axis r, the rows of the free cells).
    ``has_rows_w`` tells whether these rows have all resources of the request. ``chooses``: some
    want does not match all kinds of pools.
    """

    wants: Sequence[Want]
    amount_rw: IntArray
    has_rows_w: BoolArray
    chooses: bool

    @classmethod
    def of(cls, resources: Sequence[str], wants: Sequence[Want]) -> Wants:
        amount_rw = np.zeros((len(resources), len(wants)), dtype=np.int64)
        has_rows_w = np.zeros(len(wants), dtype=np.bool_)
        row_by = {name: row for row, name in enumerate(resources)}
        for column, want in enumerate(wants):
            amounts = per_replica(want.request)
            has_rows_w[column] = amounts.keys() <= row_by.keys()
            for name, amount in amounts.items():
                if name in row_by:
                    amount_rw[row_by[name], column] = amount
        return cls(
            wants=wants,
            amount_rw=amount_rw,
            has_rows_w=has_rows_w,
            chooses=any(want.suiting_p is not None for want in wants),
        )

    def by_cluster(self, want_c: IntArray) -> WantedByCluster:
        """Return a view in which cluster c wants ``wants[want_c[c]]``."""
        first = int(want_c[0]) if len(want_c) else 0
        if (want_c == first).all():
            return WantedByCluster(
                self, want_c, self.wants[first], self.amount_rw[:, first : first + 1]
            )
        return WantedByCluster(self, want_c, None, self.amount_rw.take(want_c, axis=1))


class WantedByCluster(NamedTuple):
    """The want of each cluster (axis c); ``common`` is that of all, None where they differ.

    ``amount_rc`` is what a replica takes: a single column where it is the same everywhere.
    """

    wants: Wants
    want_c: IntArray
    common: Want | None
    amount_rc: IntArray

    def amount(self, row: int | slice, cluster_i: IntArray) -> IntArray:
        """Return what a replica takes of one resource, or of several, in the clusters."""
        amount_c: IntArray = self.amount_rc[row]
        return amount_c if self.common is not None else amount_c.take(cluster_i, axis=-1)

    def fits_k(self, free_cells: FreeCells) -> IntArray:
        """Return how many replicas each node of the cells holds."""
        if self.common is not None:
            return fits_k(free_cells, self.common)
        wants = self.wants
        width_c = np.diff(free_cells.first_s[::VIEWS])
        fit_k = (wants.has_rows_w.take(self.want_c) * np.int64(MAX_REPLICAS)).repeat(width_c)
        for amount_k, amount_c in zip(free_cells.amount_rk, self.amount_rc, strict=True):
            is_requested_c = amount_c > 0
            if is_requested_c.any():
                divisor_k = np.maximum(amount_c, 1).view(np.uint64).repeat(width_c)
                quotient_k = (amount_k.view(np.uint64) // divisor_k).view(np.int64)
                if not is_requested_c.all():
                    quotient_k[~is_requested_c.repeat(width_c)] = MAX_REPLICAS
                np.minimum(fit_k, quotient_k, out=fit_k)
        if not wants.chooses:
            return fit_k
        # Only the wants of these clusters, because there may be many kinds of pools.
        used_u, use_c = np.unique(self.want_c, return_inverse=True)
        suiting = [wants.wants[column].suiting_p for column in used_u.tolist()]
        restricted = [suiting_p for suiting_p in suiting if suiting_p is not None]
        if restricted:
            all_p = np.ones_like(restricted[0])
            suiting_up = np.array(
                [all_p if suiting_p is None else suiting_p for suiting_p in suiting]
            )
            fit_k *= suiting_up[use_c.repeat(width_c), free_cells.table_xk[KIND]]
        return fit_k


def fits_k(free_cells: FreeCells, want: Want) -> IntArray:
    """Return how many replicas each node of the cells holds, with one want for all clusters."""
    fit_k = fit_in_k(free_cells.resources, free_cells.amount_rk, per_replica(want.request))
    if want.suiting_p is not None:
        fit_k *= want.suiting_p[free_cells.table_xk[KIND]]
    return fit_k
