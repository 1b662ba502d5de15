"""The broken line of RequestedToCapacityRatio: from percent used to a score.

Must not check the points: a configuration's reader does, so that it can name the field.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_UTILIZATION = 100
MAX_SHAPE_SCORE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapePoint:
    """A corner of the line. Utilization is percent; along the line it strictly increases."""

    utilization: int
    score: int


def value_at(points: Sequence[ShapePoint], utilization: int) -> int:
    """The line's height; level before the first point and after the last.

    On a slope the rise is cut off towards zero, as Go divides: a falling line is rounded up.
    """
    left = points[0]
    for right in points:
        if utilization <= right.utilization:
            run = right.utilization - left.utilization
            if run == 0:
                return right.score
            rise = (right.score - left.score) * (utilization - left.utilization)
            return left.score + (rise // run if rise >= 0 else -(-rise // run))
        left = right
    return left.score
