"""What cells prove where products of their amounts outgrow 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from federation.model.pools.bounds import fit_k, tighter_lower_k, upper_k
from federation.model.pools.values import Cells

SMALL, PODS = 2**40, 2**22
DEMANDED = {"memory": SMALL, "pods": 1}


def cells_of(*memory: list[int]) -> Cells:
    """A cell for each list of nodes."""
    counts = [len(nodes) for nodes in memory]
    return Cells(
        resources=("memory", "pods"),
        pool_k=np.zeros(len(memory), dtype=np.int32),
        count_k=np.array(counts, dtype=np.int64),
        min_rk=np.array([[min(nodes) for nodes in memory], [PODS] * len(memory)]),
        sum_rk=np.array([[sum(nodes) for nodes in memory], [PODS * count for count in counts]]),
        max_rk=np.array([[max(nodes) for nodes in memory], [PODS] * len(memory)]),
        sum_exact_k=np.ones(len(memory), dtype=np.bool_),
    )


@pytest.mark.parametrize("small", range(1, 40))
@pytest.mark.parametrize("large", [2**59 + 1, 2**61, 2**62 - 1])
def test_a_cell_that_is_too_large_keeps_its_simple_bound_and_harms_no_other(
    small: int, large: int
) -> None:
    huge, usual = [SMALL] * small + [large], [SMALL, 3 * SMALL, 5 * SMALL]
    (lower,) = tighter_lower_k(cells_of(usual), DEMANDED).tolist()
    both = cells_of(huge, usual)
    lower_k = tighter_lower_k(both, DEMANDED).tolist()
    truth = small + min(large // SMALL, PODS)
    assert fit_k(both, DEMANDED)[0] * (small + 1) <= lower_k[0] <= truth
    assert truth <= upper_k(both, DEMANDED)[0]
    assert lower_k[1] == lower
    assert 3 < lower <= 9
