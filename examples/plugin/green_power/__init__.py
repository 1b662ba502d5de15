"""GreenPower: prefers clusters by how much of their power is green, which a label says.

GreenPowerWatch: warns of decisions that are committed and run on little of it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from federation.scheduler.plugins.registry import CycleState, ExtensionPoint, Plugin

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class GreenPowerArgs:
    """The label that holds the percentage, and what counts where a cluster does not have it."""

    label: str = "example.com/green-power-percent"
    unknown_percent: int = 0
    warn_below_percent: int = 20

    def __post_init__(self) -> None:
        if not 0 <= self.unknown_percent <= 100:
            raise ValueError("unknownPercent must be from 0 to 100")


def green_power(state: CycleState, args: GreenPowerArgs) -> npt.NDArray[np.int64]:
    """The percentage is the score; a label that is no number fails the binding, by name."""
    column = state.fleet.label(args.label)
    percent = [args.unknown_percent if text is None else int(text) for text in column.values]
    scores: npt.NDArray[np.int64] = np.array(percent, dtype=np.int64)[column.code_c]
    return scores


PLUGIN = Plugin(point=ExtensionPoint.SCORE, run=green_power, args=GreenPowerArgs)


def warn_of_little(
    state: CycleState, replicas_c: npt.NDArray[np.int64], args: GreenPowerArgs
) -> None:
    """Replicas by cluster come as an array, too."""
    percent = int((green_power(state, args) * replicas_c).sum()) // max(int(replicas_c.sum()), 1)
    if percent < args.warn_below_percent:
        logger.warning("%s runs on %d percent green power", state.binding.key, percent)


WATCH = Plugin(point=ExtensionPoint.POST_BIND, run=warn_of_little, args=GreenPowerArgs)
