"""Outstanding promises packed as a stock kube-scheduler places them, where other packings fail.

Pure. Must not judge which packing is better: ``cluster_room`` does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from federation.capacity.assignments import Assignment, holdings_of
from federation.capacity.cells import (
    AMOUNTS,
    COUNT,
    KIND,
    ORIGIN,
    POOL,
    SIZE,
    FreeCells,
    View,
    with_view,
)
from federation.capacity.packing import Takes
from federation.capacity.pool_kinds import PoolKinds
from federation.capacity.rehearsal import Balance, Part, Placed, Rehearsal
from federation.model.arrays import IntArray
from federation.model.pools.cell_order import size_k
from federation.model.pools.matching import Match
from federation.model.pools.values import Pools
from federation.model.reservations import Outstanding

# Runs of a rehearsal, which differ in the draw among nodes of equal score.
RUNS: Final = 6


def rehearsal_of(pools: Pools) -> Rehearsal | None:
    """Start a rehearsal on the reported nodes; None where no allocatable amounts are reported.

    Where no Kubernetes release is reported, half of the runs score as the newest releases.
    """
    cells = pools.cells
    if cells.allocatable_rk is None:
        return None
    balances = (Balance.CHANGE, Balance.DEVIATION) * (RUNS // 2)
    if pools.kubernetes_minor:
        balances = (Balance.of(pools.kubernetes_minor),) * RUNS
    return Rehearsal.of(cells, cells.allocatable_rk, balances)


def part_of(outstanding: Outstanding, kind_p: IntArray, kinds: PoolKinds) -> Part:
    """Return the pods of a promise, and the pools of the cluster that they may be in.

    As in other packings, a promise without proof may be in all pools that do not exclude it.
    """
    requirements = outstanding.requirements
    least = Match.YES if outstanding.certificate.is_packed else Match.UNKNOWN
    suiting = kinds.suiting(requirements.node_claim, least)
    suiting_p = np.ones(kind_p.shape, dtype=np.bool_) if suiting is None else suiting[kind_p]
    return Part(requirements.request, suiting_p, outstanding.to_pack)


class _Step(NamedTuple):
    """The rehearsal of one promise after ``earlier`` ones: where its pods went in one run."""

    earlier: _Step | None
    promise: Outstanding
    replicas: int
    takes: Takes


class _Trail(NamedTuple):
    """The steps of one run, linked from the ``newest`` back."""

    run: int = 0
    newest: _Step | None = None


class RehearsedPromises(NamedTuple):
    """The ``stage`` of a rehearsal after these promises.

    None where they take too many steps, or where no allocatable amounts are reported.
    """

    promises: tuple[Outstanding, ...] = ()
    stage: Rehearsal | None = None
    trail: _Trail = _Trail()

    def begins(self, promises: tuple[Outstanding, ...]) -> bool:
        """Tell whether all rehearsed promises are the first of these."""
        first = len(self.promises)
        return first > 0 and promises[:first] == self.promises

    def going_on(
        self,
        pools: Pools,
        kind_p: IntArray,
        kinds: PoolKinds,
        promises: tuple[Outstanding, ...],
        run: int | None = None,
    ) -> RehearsedPromises:
        """Rehearse these promises; start again where they do not begin with the rehearsed ones.

        ``run`` is the run whose steps are recorded, None for any. The result does not depend on
        earlier rehearsals.
        """
        first, stage, trail = len(self.promises), self.stage, self.trail
        is_other_run = run is not None and run != trail.run
        if is_other_run or not self.begins(promises):
            first, stage, trail = 0, rehearsal_of(pools), _Trail(run or 0)
        for promise in promises[first:]:
            if stage is None:
                break
            part = part_of(promise, kind_p, kinds)
            placed = stage.placing(part)
            if placed is None:
                stage, trail = None, _Trail()
                break
            takes = _takes(stage, placed, trail.run, kind_p)
            replicas = int((takes.full_j * takes.unit_j).sum())
            trail = trail._replace(newest=_Step(trail.newest, promise, replicas, takes))
            stage = stage.after(part, placed)
        return RehearsedPromises(promises, stage, trail)

    def packed(self, free: FreeCells, kind_p: IntArray) -> tuple[FreeCells, list[Assignment]]:
        """Return the free cells with best fit's view as in the recorded run, and the assignments.

        The other view stays as it is in ``free``.
        """
        if self.stage is None:
            raise ValueError("nothing was rehearsed")
        (run_k,) = np.nonzero(self.stage.run_k == self.trail.run)
        columns_xk = _columns(self.stage, run_k, kind_p)
        columns_xk[SIZE] = size_k(columns_xk[AMOUNTS:], free.weight_rc)
        assignments, step = list[Assignment](), self.trail.newest
        while step is not None:
            resources = step.takes.resources
            assignments += holdings_of([step.promise], step.replicas, step.takes, resources)
            step = step.earlier
        return with_view(free, View.FILLED, columns_xk), assignments[::-1]


def _takes(stage: Rehearsal, placed: Placed, run: int, kind_p: IntArray) -> Takes:
    """Return the placement in one run."""
    (run_d,) = np.nonzero(stage.run_k[placed.cell_d] == run)
    size = len(run_d)
    return Takes(
        resources=stage.resources,
        first_s=np.array([0, size, size]),
        column_xj=_columns(stage, placed.cell_d[run_d], kind_p),
        unit_j=placed.pods_d[run_d],
        full_j=placed.nodes_d[run_d],
        left_j=np.zeros(size, dtype=np.int64),
    )


def _columns(stage: Rehearsal, cell_j: IntArray, kind_p: IntArray) -> IntArray:
    """Return some cells of the stage as columns of a table, sizes not set."""
    columns_xj = np.zeros((AMOUNTS + len(stage.resources), len(cell_j)), dtype=np.int64)
    columns_xj[COUNT] = stage.count_k[cell_j]
    columns_xj[POOL] = stage.pool_k[cell_j]
    columns_xj[ORIGIN] = stage.origin_k[cell_j]
    columns_xj[KIND] = kind_p[columns_xj[POOL]]
    columns_xj[AMOUNTS:] = stage.free_rk[:, cell_j]
    return columns_xj
