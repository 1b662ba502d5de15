"""What is outstanding, packed as a stock kube-scheduler places it: where no other packing has room.

Pure. Must not judge which packing is better: ``cluster_room`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

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
    suiting_p = np.ones(len(kind_p), dtype=np.bool_)
    if verdict_p is not None:
        suiting_p = verdict_p[kind_p] >= least
    return Part(requirements.request, suiting_p, outstanding.to_pack)


def packed_as_scheduled(
    pools: Pools,
    kind_p: IntArray,
    kinds: PoolKinds,
    left: Residues,
    outstanding: Sequence[Outstanding],
) -> tuple[Residues, list[Assignment]] | None:
    """All of it in its order, as it is in the run that leaves the fewest without a node: what is
    left then in place of what best fit leaves, and how each is packed. None without a rehearsal.
    """
    stage = rehearsal_of(pools)
    steps: list[tuple[Rehearsal, Placed]] = []
    for each in outstanding:
        part = part_of(each, kind_p, kinds)
        placed = stage.placing(part) if stage is not None else None
        if stage is None or placed is None:
            return None
        steps.append((stage, placed))
        stage = stage.after(part, placed)
    if stage is None:
        return None
    run = int(stage.late_l.argmin())
    assignments = []
    for each, step in zip(outstanding, steps, strict=True):
        takes = _takes(*step, run, kind_p)
        replicas = int((takes.full_j * takes.unit_j).sum())
        assignments += holdings_of([each], replicas, takes, pools.cells.resources)
    (there_k,) = np.nonzero(stage.run_k == run)
    columns_xk = _columns(stage, there_k, kind_p)
    columns_xk[SIZE] = size_k(columns_xk[AMOUNTS:], left.weight_rc)
    return with_view(left, View.FILLED, columns_xk), assignments


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
