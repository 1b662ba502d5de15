"""The broken line of RequestedToCapacityRatio, point by point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from estimator.binpack.strategy import value_at
from tests.vectors.loading import for_each, read_lines
from tests.vectors.scoring import shape_of

LINES = read_lines("scoring-shape")


@for_each(LINES)
def test_shape(line: dict[str, Any]) -> None:
    points = [replace(point, score=10 * point.score) for point in shape_of(line["shape"])]
    assert [value_at(points, percent) for percent in range(101)] == line["values"]
    assert value_at(points, -7) == line["below"]
    assert value_at(points, 140) == line["above"]
