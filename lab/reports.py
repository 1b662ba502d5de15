"""What is kept of reports, and what they say of promises. Must not check anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from federation.model.cluster import CapacityReport, ReportedPool, ReportedPools
from federation.model.shapes import Echo, request_shape


def kept(report: CapacityReport) -> CapacityReport:
    """As the fleet keeps it: pools and echoes are kept as arrays and in the ledger."""
    return replace(report, pools=None, echoes=())


def nodes(count: int, **free: int) -> ReportedPools:
    """Equal nodes in one cell."""
    amounts = {"cpu": 0, "memory": 0, "pods": 110} | free
    return ReportedPools(
        label_keys=(),
        pools=(ReportedPool(),),
        resources=tuple(amounts),
        cell_pools=(0,),
        counts=(count,),
        minimums=tuple(amounts.values()),
        spreads=(0,) * len(amounts),
        surpluses=(0,) * len(amounts),
    )


def echo(binding: str, request: Mapping[str, int], bound: int = 0, finished: int = 0) -> Echo:
    return Echo(binding=binding, shape=request_shape(request), bound=bound, finished=finished)
