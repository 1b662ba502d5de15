"""The rules for a shape and for weighted resources, the same in every format of kube-scheduler.

Must not know where in a document they stand: the caller gives the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from estimator.binpack.strategy import MAX_SHAPE_SCORE, MAX_UTILIZATION, ResourceWeight, ShapePoint
from estimator.scoring_config.documents import Fault, FaultType
from federation.model.resources import CPU, MEMORY

_MAX_WEIGHT = 100

CPU_AND_MEMORY = (
    ResourceWeight(resource=CPU, weight=1),
    ResourceWeight(resource=MEMORY, weight=1),
)


def weights_of(resources: Sequence[Mapping[str, Any]]) -> tuple[ResourceWeight, ...]:
    """The weights as kube-scheduler completes them: none is cpu and memory, 0 is 1."""
    return (
        tuple(
            ResourceWeight(resource=item.get("name", ""), weight=item.get("weight", 0) or 1)
            for item in resources
        )
        or CPU_AND_MEMORY
    )


def shape_of(points: Sequence[Mapping[str, Any]]) -> tuple[ShapePoint, ...]:
    """The corners; a number left out is 0."""
    return tuple(
        ShapePoint(utilization=point.get("utilization", 0), score=point.get("score", 0))
        for point in points
    )


def weight_faults(weights: Sequence[ResourceWeight], path: str) -> Iterator[Fault]:
    for position, item in enumerate(weights):
        if not 0 < item.weight <= _MAX_WEIGHT:
            rule = f"must be from 1 to {_MAX_WEIGHT}, but is {item.weight}"
            yield _invalid(f"{path}[{position}].weight", rule)


def shape_faults(points: Sequence[ShapePoint], path: str) -> Iterator[Fault]:
    """Only the first point out of order is named: the rest follow from it."""
    if not points:
        yield Fault(field=path, rule="needs at least one point", type=FaultType.REQUIRED)
        return
    for position in range(1, len(points)):
        if points[position].utilization <= points[position - 1].utilization:
            rule = "must be greater than the utilization of the point before"
            yield _invalid(f"{path}[{position}].utilization", rule)
            break
    for position, point in enumerate(points):
        if not 0 <= point.utilization <= MAX_UTILIZATION:
            rule = f"must be from 0 to {MAX_UTILIZATION}, but is {point.utilization}"
            yield _invalid(f"{path}[{position}].utilization", rule)
        if not 0 <= point.score <= MAX_SHAPE_SCORE:
            rule = f"must be from 0 to {MAX_SHAPE_SCORE}, but is {point.score}"
            yield _invalid(f"{path}[{position}].score", rule)


def _invalid(field: str, rule: str) -> Fault:
    return Fault(field=field, rule=rule, type=FaultType.INVALID)
