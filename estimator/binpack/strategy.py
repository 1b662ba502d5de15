"""The interface of every strategy: an order of the nodes, and the numbers that it was made of.

Must not prefer one strategy: the formulas live one per file beside this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from estimator.binpack.arrays import NodeArrays, ReplicaRequest
from federation.model.arrays import BoolArray, FloatArray, IntArray

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
    start = points[0]
    for right in points:
        if utilization <= right.utilization:
            run = right.utilization - start.utilization
            if run == 0:
                return right.score
            rise = (right.score - start.score) * (utilization - start.utilization)
            return start.score + (rise // run if rise >= 0 else -(-rise // run))
        start = right
    return start.score


ScoreArray: TypeAlias = IntArray | FloatArray

MAX_NODE_SCORE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceWeight:
    """How much one resource counts in the average over resources."""

    resource: str
    weight: int


class Skip(Enum):
    """Why a configured resource takes no part in a node's score."""

    NOT_SCORED = "the scheduler keeps no total of this resource"
    NOT_REQUESTED = "the replica does not ask for it"
    NO_CAPACITY = "the node has none"
    ZERO_SCORE = "resources that score 0 leave the average"
    NO_WEIGHT = "no weight is configured for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceColumn:
    """One resource's part in the scores of all nodes.

    ``request`` is the amount the strategy counted, which for Fit scoring includes defaults.
    ``score_n`` is None where resources are judged only together (BalancedAllocation).
    ``dropped`` says that the resource takes no part on any node, ``counted_n`` on which it does.
    """

    strategy: str
    resource: str
    weight: int
    request: int
    used_n: IntArray
    allocatable_n: IntArray
    counted_n: BoolArray
    score_n: ScoreArray | None
    dropped: Skip | None = None

    def skipped(self, node: int) -> Skip | None:
        """Why this resource takes no part in the node's score; None if it does."""
        if self.dropped is not None or self.counted_n[node]:
            return self.dropped
        return Skip.ZERO_SCORE if self.allocatable_n[node] else Skip.NO_CAPACITY


class Strategy(Protocol):
    """Scores nodes for the next replica; the higher, the better."""

    @property
    def name(self) -> str: ...

    @property
    def resources(self) -> frozenset[str]:
        """The resources whose arrays scoring reads; no other is looked at."""
        ...

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> ScoreArray:
        """One score per node, feasible or not."""
        ...

    def most(self, request: ReplicaRequest) -> float:
        """The scale: the most that a node can score for such a replica."""
        ...

    def columns(self, nodes: NodeArrays, request: ReplicaRequest) -> tuple[ResourceColumn, ...]:
        """Return the parts of ``score``, a column per configured resource, in configured order."""
        ...


class PluginStrategy(Strategy, Protocol):
    """A strategy of whole scores, which a profile can weight and add."""

    def score(self, nodes: NodeArrays, request: ReplicaRequest) -> IntArray: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyReader:
    """Makes a strategy from what a configuration says of its ``type``."""

    type: str
    strategy: Callable[..., PluginStrategy]
    takes_shape: bool = False

    def read(
        self, weights: tuple[ResourceWeight, ...], shape: tuple[ShapePoint, ...]
    ) -> PluginStrategy:
        """The ``shape`` is ignored by types that take none."""
        if self.takes_shape:
            return self.strategy(weights=weights, shape=shape)
        return self.strategy(weights=weights)


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
