"""Pools are as before only where nothing at all is told in another way."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from federation.model.pools.values import Cells, NodePool, Pools
from lab.fleet import FleetPlan, stored_pools

OF_CELLS = tuple(field.name for field in fields(Cells))
OF_POOLS: dict[str, Any] = {
    "label_keys": ("zone",),
    "pools": (NodePool(labels={"zone": "a"}),),
    "kubernetes_minor": 99,
}


def pools() -> Pools:
    return stored_pools(0, FleetPlan(nodes=60))


@pytest.mark.parametrize("name", OF_CELLS)
def test_cells_that_differ_in_anything_are_not_equal(name: str) -> None:
    before = pools()
    value = getattr(before.cells, name)
    if isinstance(value, tuple):
        other: Any = (*value[:-1], "another")
    else:
        other = value.copy()
        other[..., 0] = ~other[..., 0] if other.dtype == np.bool_ else other[..., 0] + 1
    changed = replace(before, cells=replace(before.cells, **{name: other}))
    assert not before.equals(changed)
    assert not changed.equals(before)


@pytest.mark.parametrize("name", OF_POOLS)
def test_pools_that_differ_in_anything_are_not_equal(name: str) -> None:
    assert not pools().equals(replace(pools(), **{name: OF_POOLS[name]}))
    assert {field.name for field in fields(Pools)} == {*OF_POOLS, "cells"}


def test_cells_without_what_scores_need_are_not_equal_to_those_with_it() -> None:
    before = pools()
    bare = replace(before, cells=replace(before.cells, allocatable_rk=None))
    assert pools().equals(before)
    assert not before.equals(bare)
    assert not bare.equals(before)
    assert bare.equals(replace(bare))
