"""What is outstanding, packed as a stock kube-scheduler places it: where no other packing has room.

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
    Residues,
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

# Runs of a rehearsal, which differ in luck among equal nodes.
RUNS: Final = 6


def rehearsal_of(pools: Pools) -> Rehearsal | None:
    """The nodes before any promise; None where no allocatable amounts are reported. Where no
    release is reported, half of the runs are of the newest.
    """
    cells = pools.cells
    if cells.allocatable_rk is None:
        return None
    balances = (Balance.CHANGE, Balance.DEVIATION) * (RUNS // 2)
    if pools.kubernetes_minor:
        balances = (Balance.of(pools.kubernetes_minor),) * RUNS
    return Rehearsal.of(cells, cells.allocatable_rk, balances)


def part_of(outstanding: Outstanding, kind_p: IntArray, kinds: PoolKinds) -> Part:
    """Its pods, and which of the cluster's pools they may be in: as in other packings, what no
    nodes were seen for lands wherever nothing says that it cannot.
    """
    requirements = outstanding.requirements
    verdict_p = kinds.verdicts(requirements.node_claim)
    least = Match.YES if outstanding.certificate.is_packed else Match.UNKNOWN
    suiting_p = np.ones(kind_p.shape, dtype=np.bool_)
    if verdict_p is not None:
        suiting_p = verdict_p[kind_p] >= least
    return Part(requirements.request, suiting_p, outstanding.to_pack)


class _Step(NamedTuple):
    """A promise that was rehearsed after the one ``before``: what its pods took in one run."""

    before: _Step | None
    promise: Outstanding
    replicas: int
    takes: Takes


class _Trail(NamedTuple):
    """All steps of one ``run``; ``newest`` is the last of them."""

    run: int = 0
    newest: _Step | None = None


class RehearsedPromises(NamedTuple):
    """The ``stage`` of a rehearsal after these promises; None where they take too many steps, or
    where no allocatable amounts are reported.
    """

    promises: tuple[Outstanding, ...] = ()
    stage: Rehearsal | None = None
    trail: _Trail = _Trail()

    def begins(self, promises: tuple[Outstanding, ...]) -> bool:
        """Whether all that was rehearsed comes first of these."""
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
        """Rehearse these promises, from the beginning where others were; ``run`` is the run whose
        steps are wanted, None where any will do.

        It comes out the same, whatever was rehearsed before.
        """
        first, stage, trail = len(self.promises), self.stage, self.trail
        is_other = run is not None and run != trail.run
        if is_other or not self.begins(promises):
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

    def packed(self, left: Residues, kind_p: IntArray) -> tuple[Residues, list[Assignment]]:
        """All of it as it is in the run of the trail: what is left then in place of what best fit
        leaves, and how each promise is packed.
        """
        if self.stage is None:
            raise ValueError("nothing was rehearsed")
        (there_k,) = np.nonzero(self.stage.run_k == self.trail.run)
        columns_xk = _columns(self.stage, there_k, kind_p)
        columns_xk[SIZE] = size_k(columns_xk[AMOUNTS:], left.weight_rc)
        assignments, step = list[Assignment](), self.trail.newest
        while step is not None:
            resources = step.takes.resources
            assignments += holdings_of([step.promise], step.replicas, step.takes, resources)
            step = step.before
        return with_view(left, View.FILLED, columns_xk), assignments[::-1]


def _takes(stage: Rehearsal, placed: Placed, run: int, kind_p: IntArray) -> Takes:
    """What is taken of the nodes of a run."""
    (here_d,) = np.nonzero(stage.run_k[placed.cell_d] == run)
    size = len(here_d)
    return Takes(
        resources=stage.resources,
        first_s=np.array([0, size, size]),
        column_xj=_columns(stage, placed.cell_d[here_d], kind_p),
        unit_j=placed.pods_d[here_d],
        full_j=placed.nodes_d[here_d],
        left_j=np.zeros(size, dtype=np.int64),
    )


def _columns(stage: Rehearsal, cell_j: IntArray, kind_p: IntArray) -> IntArray:
    """Some cells of the stage as columns of a table, but for their sizes."""
    columns_xj = np.zeros((AMOUNTS + len(stage.resources), len(cell_j)), dtype=np.int64)
    columns_xj[COUNT] = stage.count_k[cell_j]
    columns_xj[POOL] = stage.pool_k[cell_j]
    columns_xj[ORIGIN] = stage.origin_k[cell_j]
    columns_xj[KIND] = kind_p[columns_xj[POOL]]
    columns_xj[AMOUNTS:] = stage.free_rk[:, cell_j]
    return columns_xj
