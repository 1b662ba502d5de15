"""Pools survive being reported, sent and stored; what breaks a rule on the way is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federation.codec.reports import report_from_message, report_to_message
from federation.model.cluster import ReportedPools, Taint, TaintEffect
from federation.model.pools.building import build_pools
from federation.model.pools.values import SCORED, NodeColumn, NodeColumns, Pools
from federation.model.reported_pools import pools_of, reported_pools
from federation.model.resources import MAX_AMOUNT
from federation.v1.agents_pb2 import NodePools, Report
from tests.unit.codec.documents import violations
from tests.unit.codec.test_reports import REPORT

DEDICATED = Taint(key="dedicated", value="db", effect=TaintEffect.NO_SCHEDULE)

amounts = st.one_of(st.integers(0, 20), st.integers(0, MAX_AMOUNT))
nodes = st.lists(
    st.tuples(amounts, amounts, st.integers(0, 110), amounts, st.booleans(), st.booleans()),
    max_size=40,
)


def pools_from(rows: list[tuple[Any, ...]]) -> Pools:
    """The pools of nodes, few enough cells that some are merged."""
    names = ("cpu", "memory", "pods", "nvidia.com/gpu")
    columns = NodeColumns(
        free={
            name: np.array([row[place] for row in rows], dtype=np.int64)
            for place, name in enumerate(names)
        },
        taints=NodeColumn(
            values=[(), (DEDICATED,)], code_n=np.array([row[4] for row in rows], dtype=np.int32)
        ),
        labels={
            "disk": NodeColumn(
                values=[None, "ssd"], code_n=np.array([row[5] for row in rows], dtype=np.int32)
            )
        },
        allocatable={
            name: np.array([row[place] for row in rows], dtype=np.int64)
            for place, name in enumerate(SCORED)
        },
    )
    return build_pools(columns, budget=16, label_keys=("disk",))


def sent(reported: ReportedPools) -> ReportedPools | None:
    message = report_to_message(replace(REPORT, pools=reported))
    return report_from_message(Report.FromString(message.SerializeToString())).pools


NOTHING = (0, 0, 0, 0, False, False)


# As floats, this amount and MAX_AMOUNT are one number.
@example(rows=[NOTHING, NOTHING, (0, 0, 0, MAX_AMOUNT - 511, False, False)])
@example(rows=[NOTHING, *[(0, 0, 0, MAX_AMOUNT - 1, False, True)] * 20])
@given(rows=nodes)
def test_pools_come_back_as_they_were(rows: list[tuple[Any, ...]]) -> None:
    pools = pools_from(rows)
    reported = reported_pools(pools)
    assert sent(reported) == reported
    stored = msgspec.json.encode(reported)
    assert msgspec.convert(msgspec.json.decode(stored), ReportedPools) == reported
    back = pools_of(reported)
    assert (back.label_keys, back.pools) == (pools.label_keys, pools.pools)
    for name in ("pool_k", "count_k", "min_rk", "max_rk", "sum_exact_k"):
        assert np.array_equal(getattr(back.cells, name), getattr(pools.cells, name)), name
    if len(pools.cells):
        had_rk, has_rk = pools.cells.allocatable_rk, back.cells.allocatable_rk
        assert had_rk is not None
        assert has_rk is not None
        assert np.array_equal(has_rk, had_rk)
        # Here all is free.
        assert (np.minimum(pools.cells.min_rk[:2], 2**52) <= had_rk).all()
    exact = pools.cells.sum_exact_k
    assert np.array_equal(back.cells.sum_rk[:, exact], pools.cells.sum_rk[:, exact])
    assert (back.cells.sum_rk <= pools.cells.sum_rk).all()


GOOD = {
    "label_keys": ["disk"],
    "pools": [{"labels": {"disk": "ssd"}}],
    "resources": ["cpu", "pods"],
    "cell_pools": [0],
    "counts": [2],
    "minimums": [1000, 10],
    "spreads": [500, 0],
    "surpluses": [500, 0],
}


def message(**wrong: Any) -> Report:
    return Report(epoch=1, sequence=1, pools=NodePools(**{**GOOD, **wrong}))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"counts": [0]}, "pools.counts"),
        ({"counts": [-3]}, "pools.counts"),
        ({"counts": [2**31]}, "pools.counts"),
        ({"counts": [2, 1]}, "pools.cellPools"),
        ({"cell_pools": [1]}, "pools.cellPools"),
        ({"cell_pools": [-1]}, "pools.cellPools"),
        ({"minimums": [1000]}, "pools.minimums"),
        ({"minimums": [-1, 10]}, "pools.minimums"),
        ({"spreads": [-1, 0]}, "pools.spreads"),
        ({"spreads": [MAX_AMOUNT, 0]}, "pools.spreads"),
        ({"surpluses": [-1, 0]}, "pools.surpluses"),
        ({"surpluses": [1001, 0]}, "pools.surpluses"),
        ({"spreads": [2**60, 0], "surpluses": [2**61 + 1, 0]}, "pools.surpluses"),
        ({"open_cells": [1]}, "pools.openCells"),
        ({"allocatables": [1]}, "pools.allocatables"),
        ({"allocatables": [1, -1]}, "pools.allocatables"),
        ({"resources": ["cpu", "memory"]}, "pools.resources"),
        ({"resources": ["pods", "pods"]}, "pools.resources[1]"),
        ({"resources": ["not a name", "pods"]}, "pools.resources[0]"),
        ({"label_keys": []}, "pools.pools[0].labels"),
        ({"label_keys": ["disk", "disk"]}, "pools.labelKeys[1]"),
        (
            {"pools": [{"taints": [{"key": "a", "effect": "Never"}]}]},
            "pools.pools[0].taints[0].effect",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_by_its_field(wrong: dict[str, Any], field: str) -> None:
    assert report_from_message(message()).pools is not None
    assert field in violations(report_from_message, message(**wrong))
