"""MostAllocated: the fuller the node, the better. kube-scheduler's stock bin packing.

Must not refuse an overfull node: filtering comes first, and an overfull one scores 100.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from estimator.binpack.fit_columns import PercentageStrategy
from estimator.binpack.strategy import MAX_NODE_SCORE, StrategyReader
from federation.model.arrays import IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class MostAllocated(PercentageStrategy):
    """Percent used."""

    type: ClassVar[str] = "MostAllocated"

    @staticmethod
    def percent(total_n: IntArray, allocatable_n: IntArray) -> IntArray:
        return np.minimum(total_n, allocatable_n) * MAX_NODE_SCORE // allocatable_n


READER: Final = StrategyReader(type=MostAllocated.type, strategy=MostAllocated)
