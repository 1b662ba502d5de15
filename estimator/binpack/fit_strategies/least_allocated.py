"""LeastAllocated: the emptier the node, the better. kube-scheduler's default.

Must not be read as 100 minus MostAllocated: both round down, so they add up to 99 or 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from estimator.binpack.fit_columns import PercentageStrategy
from estimator.binpack.strategy import MAX_NODE_SCORE, StrategyReader
from federation.model.arrays import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastAllocated(PercentageStrategy):
    """Percent free."""

    type: ClassVar[str] = "LeastAllocated"

    @staticmethod
    def percent(total_n: IntArray, allocatable_n: IntArray) -> IntArray:
        free_n: IntArray = np.maximum(allocatable_n - total_n, 0)
        return free_n * MAX_NODE_SCORE // allocatable_n


READER: Final = StrategyReader(type=LeastAllocated.type, strategy=LeastAllocated)
