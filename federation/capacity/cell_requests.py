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


class CellRequest(NamedTuple):
    """A replica's request; ``suiting_p`` marks the kinds of pools that match, None: all."""

    request: Mapping[str, int]
    suiting_p: BoolArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CellRequests:
    """Distinct requests (axis q).

    ``amount_rq`` is what a replica takes of each resource (axis r, the rows of the free cells).
    ``has_rows_q`` tells whether these rows have all resources of the request. ``chooses``: some
    request does not match all kinds of pools.
    """

    requests: Sequence[CellRequest]
    amount_rq: IntArray
    has_rows_q: BoolArray
    chooses: bool

    @classmethod
    def of(cls, resources: Sequence[str], requests: Sequence[CellRequest]) -> CellRequests:
        amount_rq = np.zeros((len(resources), len(requests)), dtype=np.int64)
        has_rows_q = np.zeros(len(requests), dtype=np.bool_)
        row_by = {name: row for row, name in enumerate(resources)}
        for column, replica_request in enumerate(requests):
            amounts = per_replica(replica_request.request)
            has_rows_q[column] = amounts.keys() <= row_by.keys()
            for name, amount in amounts.items():
                if name in row_by:
                    amount_rq[row_by[name], column] = amount
        return cls(
            requests=requests,
            amount_rq=amount_rq,
            has_rows_q=has_rows_q,
            chooses=any(replica_request.suiting_p is not None for replica_request in requests),
        )

    def by_cluster(self, request_c: IntArray) -> RequestsByCluster:
        """Return a view in which the request of cluster c is ``requests[request_c[c]]``."""
        first = int(request_c[0]) if len(request_c) else 0
        if (request_c == first).all():
            return RequestsByCluster(
                self, request_c, self.requests[first], self.amount_rq[:, first : first + 1]
            )
        return RequestsByCluster(self, request_c, None, self.amount_rq.take(request_c, axis=1))


class RequestsByCluster(NamedTuple):
    """The request of each cluster (axis c); ``common`` is that of all, None where they differ.

    ``amount_rc`` is what a replica takes: a single column where it is the same everywhere.
    """

    requests: CellRequests
    request_c: IntArray
    common: CellRequest | None
    amount_rc: IntArray

    def amount(self, row: int | slice, cluster_i: IntArray) -> IntArray:
        """Return what a replica takes of one resource, or of several, in the clusters."""
        amount_c: IntArray = self.amount_rc[row]
        return amount_c if self.common is not None else amount_c.take(cluster_i, axis=-1)

    def fits_k(self, free_cells: FreeCells) -> IntArray:
        """Return how many replicas each node of the cells holds."""
        if self.common is not None:
            return fits_k(free_cells, self.common)
        requests = self.requests
        width_c = np.diff(free_cells.first_s[::VIEWS])
        fit_k = (requests.has_rows_q.take(self.request_c) * np.int64(MAX_REPLICAS)).repeat(width_c)
        for amount_k, amount_c in zip(free_cells.amount_rk, self.amount_rc, strict=True):
            is_requested_c = amount_c > 0
            if is_requested_c.any():
                divisor_k = np.maximum(amount_c, 1).view(np.uint64).repeat(width_c)
                quotient_k = (amount_k.view(np.uint64) // divisor_k).view(np.int64)
                if not is_requested_c.all():
                    quotient_k[~is_requested_c.repeat(width_c)] = MAX_REPLICAS
                np.minimum(fit_k, quotient_k, out=fit_k)
        if not requests.chooses:
            return fit_k
        # Only the requests of these clusters, because there may be many kinds of pools.
        used_u, use_c = np.unique(self.request_c, return_inverse=True)
        suiting = [requests.requests[column].suiting_p for column in used_u.tolist()]
        restricted = [suiting_p for suiting_p in suiting if suiting_p is not None]
        if restricted:
            all_p = np.ones_like(restricted[0])
            suiting_up = np.array(
                [all_p if suiting_p is None else suiting_p for suiting_p in suiting]
            )
            fit_k *= suiting_up[use_c.repeat(width_c), free_cells.table_xk[KIND]]
        return fit_k


def fits_k(free_cells: FreeCells, replica_request: CellRequest) -> IntArray:
    """Return how many replicas each node of the cells holds, with one request for all clusters."""
    fit_k = fit_in_k(
        free_cells.resources, free_cells.amount_rk, per_replica(replica_request.request)
    )
    if replica_request.suiting_p is not None:
        fit_k *= replica_request.suiting_p[free_cells.table_xk[KIND]]
    return fit_k
