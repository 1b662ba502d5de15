"""Node pools of reports, from messages and back.

Must not estimate, nor compare with the rest of the report: the service that accepts it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.codec import selectors
from federation.codec.rules import check_rules
from federation.codec.violations import Violations
from federation.model.cluster import ReportedPool, ReportedPools
from federation.model.pools.values import MAX_BUDGET, SCORED
from federation.model.resources import MAX_AMOUNT, PODS
from federation.v1 import agents_pb2

# Taints may make more pools than there are cells to be divided among them.
MAX_CELLS: Final = 4 * MAX_BUDGET
# Of this many nodes, each with as many replicas as an answer holds, the sum stays within 64 bits.
MAX_NODES: Final = 2**31 - 1


def read_pools(message: agents_pb2.NodePools, path: str, found: Violations) -> ReportedPools:
    """The pools; what is returned means nothing when anything was found."""
    check_rules(message, path, found)
    _check_keys(message, path, found)
    _check_cells(message, path, found)
    return ReportedPools(
        label_keys=tuple(message.label_keys),
        pools=tuple(
            _pool(pool, set(message.label_keys), f"{path}.pools[{position}]", found)
            for position, pool in enumerate(message.pools[:MAX_CELLS])
        ),
        resources=tuple(message.resources),
        cell_pools=tuple(message.cell_pools),
        counts=tuple(message.counts),
        minimums=tuple(message.minimums),
        spreads=tuple(message.spreads),
        surpluses=tuple(message.surpluses),
        open_cells=tuple(message.open_cells),
        allocatables=tuple(message.allocatables),
        kubernetes_minor=message.kubernetes_minor,
    )


def pools_to_message(pools: ReportedPools) -> agents_pb2.NodePools:
    return agents_pb2.NodePools(
        label_keys=pools.label_keys,
        pools=[
            agents_pb2.NodePool(taints=selectors.taint_messages(pool.taints), labels=pool.labels)
            for pool in pools.pools
        ],
        resources=pools.resources,
        cell_pools=pools.cell_pools,
        counts=pools.counts,
        minimums=pools.minimums,
        spreads=pools.spreads,
        surpluses=pools.surpluses,
        open_cells=pools.open_cells,
        allocatables=pools.allocatables,
        kubernetes_minor=pools.kubernetes_minor,
    )


def _pool(
    message: agents_pb2.NodePool, label_keys: set[str], path: str, found: Violations
) -> ReportedPool:
    foreign = sorted(message.labels.keys() - label_keys)
    if foreign:
        found.add(f"{path}.labels", f"hold keys that labelKeys lack: {', '.join(foreign)}")
    return ReportedPool(
        taints=selectors.taints(message.taints, f"{path}.taints", found),
        labels=dict(message.labels),
    )


def _check_keys(message: agents_pb2.NodePools, path: str, found: Violations) -> None:
    for field, number, most in (
        ("pools", len(message.pools), MAX_CELLS),
        ("counts", len(message.counts), MAX_CELLS),
    ):
        if number > most:
            found.add(f"{path}.{field}", f"must be at most {most}, not {number}")
    if PODS not in message.resources:
        found.add(f"{path}.resources", f"must name {PODS}")


def _check_cells(message: agents_pb2.NodePools, path: str, found: Violations) -> None:
    cells, amounts = len(message.counts), len(message.counts) * len(message.resources)
    before = len(found)
    for field, values, number in (
        ("cellPools", message.cell_pools, cells),
        ("minimums", message.minimums, amounts),
        ("spreads", message.spreads, amounts),
        ("surpluses", message.surpluses, amounts),
        ("allocatables", message.allocatables, len(SCORED) * cells if message.allocatables else 0),
    ):
        if len(values) != number:
            found.add(f"{path}.{field}", f"must hold {number} numbers, not {len(values)}")
    if len(found) > before:
        return
    shape = len(message.resources), cells
    count_k = _numbers(message.counts)
    min_rk = _numbers(message.minimums).reshape(shape)
    spread_rk = _numbers(message.spreads).reshape(shape)
    surplus_rk = _numbers(message.surpluses).reshape(shape)
    # By division: the products may be more than 64 bits hold.
    a_node_rk = -(-surplus_rk // np.maximum(count_k, 1))
    pool_k = _numbers(message.cell_pools)
    open_k = _numbers(message.open_cells)
    for field, holds, rule in (
        ("counts", count_k >= 1, "must be at least 1"),
        (
            "counts",
            np.array(sum(message.counts) <= MAX_NODES),
            f"must be at most {MAX_NODES} together",
        ),
        (
            "cellPools",
            (pool_k >= 0) & (pool_k < len(message.pools)),
            f"must be positions among the {len(message.pools)} pools",
        ),
        ("openCells", (open_k >= 0) & (open_k < cells), f"must be positions among {cells} cells"),
        ("minimums", min_rk >= 0, "must not be negative"),
        ("spreads", spread_rk >= 0, "must not be negative"),
        ("spreads", spread_rk <= MAX_AMOUNT - np.maximum(min_rk, 0), "are more than 64 bits hold"),
        ("surpluses", surplus_rk >= 0, "must not be negative"),
        ("surpluses", a_node_rk <= spread_rk, "must be at most counts times spreads"),
        ("allocatables", _numbers(message.allocatables) >= 0, "must not be negative"),
    ):
        if not holds.all():
            found.add(f"{path}.{field}", rule)


def _numbers(values: Iterable[int]) -> npt.NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)
