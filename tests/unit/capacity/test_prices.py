"""How prices of lists are ordered, whether they fit 64 bits beside their list or not."""

from __future__ import annotations

import numpy as np
import pytest

from federation.capacity import promised_bounds
from federation.capacity.fleet_cells import FleetCells
from federation.capacity.promised_bounds import PriceLists
from federation.capacity.some_clusters import SomeClusters
from federation.model.pools.bounds import fit_k, per_replica
from lab.fleet import stored_pools
from lab.packed_clusters import random_shapes

CLUSTERS = 4


@pytest.mark.parametrize("shape", random_shapes(10, seed=3), ids=str)
def test_lists_are_sorted_alike_both_ways(
    shape: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = FleetCells.of(stored_pools(number) for number in range(CLUSTERS))
    demanded = per_replica(shape)
    some = SomeClusters.of(cells, np.arange(CLUSTERS), demanded, None, with_sums=False)
    sold_c = np.array([True, True, False, True])
    fits_k = fit_k(some.cells, demanded)
    one = PriceLists.of(some, demanded, fits_k, sold_c)
    monkeypatch.setattr(promised_bounds, "_BITS", 0)
    other = PriceLists.of(some, demanded, fits_k, sold_c)
    for name in ("first_q", "price_s", "spent_s", "had_s"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist(), name
    for first, stop in zip(one.first_q[:-1], one.first_q[1:], strict=True):
        assert (np.diff(one.price_s[first:stop]) >= 0).all()
    held_c = np.add.reduceat(fits_k * some.cells.count_k, some.first_c) * sold_c
    had_q = np.diff(one.had_s[one.first_q])
    assert had_q.tolist() == np.tile(held_c, len(demanded)).tolist()
