"""A node's score taken apart, for people and for the wire.

Must not compute scores: it reads one row of the columns a strategy made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from estimator.binpack.strategy import ResourceColumn, Skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceScore:
    """One resource's part in a node's score. Amounts in base units."""

    strategy: str
    resource: str
    weight: int
    used: int
    request: int
    allocatable: int
    score: float | None
    skipped: Skip | None

    @property
    def utilization_percent(self) -> int | None:
        """Percent used with the replica placed, rounded down; None where there is nothing."""
        if self.allocatable == 0:
            return None
        return (self.used + self.request) * 100 // self.allocatable


def breakdown(columns: Iterable[ResourceColumn], row: int) -> tuple[ResourceScore, ...]:
    """One node's part of the columns, in their order."""
    return tuple(_resource_score(column, row) for column in columns)


def _resource_score(column: ResourceColumn, row: int) -> ResourceScore:
    skipped = column.skipped(row)
    score = None
    if column.score_n is not None and skipped is None:
        score = column.score_n[row].item()
    return ResourceScore(
        strategy=column.strategy,
        resource=column.resource,
        weight=column.weight,
        used=int(column.used_n[row]),
        request=column.request,
        allocatable=int(column.allocatable_n[row]),
        score=score,
        skipped=skipped,
    )
