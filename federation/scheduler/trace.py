"""The record of one decision in columns: inputs, refusals, scores, selection and division.

Must not decide, and must not format for people. Arrays are in the fleet's order (axis c). Frozen
values become plain builtins by their type hints, and come back; it is stored as JSON with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from federation.model.arrays import BoolArray, FloatArray, IntArray, LevelArray, plain_column
from federation.model.reasons import Reason

Value = TypeVar("Value")
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def to_plain(value: object) -> Any:
    """Return dicts, lists, strings, numbers and booleans; floats of arrays are rounded."""
    kind: Any = type(value)
    # The most frequent case in a decision over thousands of clusters.
    if kind in _PLAIN:
        return value
    if isinstance(value, np.ndarray):
        return plain_column(value)
    if kind is Reason:
        return str(value)
    if isinstance(value, Enum):
        return value.value
    names = _names(kind)
    if names is not None:
        return {name: to_plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        # Thousands of cluster names: strings are plain already.
        if value and isinstance(value[0], str):
            return list(value)
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[Value], plain: Any) -> Value:
    """Return the value of which ``to_plain`` made this; floats of arrays stay rounded.

    Keys that the class does not have are ignored. Raises ValueError or TypeError for anything else.
    """
    return _build(kind, plain)  # type: ignore[no-any-return]  # the hint decides


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """Return the field names of a dataclass; None for other types."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else None


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _parts(hint: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return a hint without aliases, its origin and its arguments, cached for long lists."""
    hint = _without_alias(hint)
    return hint, get_origin(hint), get_args(hint)


def _without_alias(hint: Any) -> Any:
    """Resolve names made by a ``type`` statement: ``NDArray`` is one in newer numpy releases."""
    while (alias := getattr(get_origin(hint) or hint, "__value__", None)) is not None:
        arguments = get_args(hint)
        hint = alias[arguments] if arguments else alias
    return hint


def _items(plain: Any) -> Iterable[tuple[Any, Any]]:
    if not isinstance(plain, Mapping):
        raise TypeError(f"{type(plain).__name__} where names and values were expected")
    return plain.items()


def _build(hint: Any, plain: Any) -> Any:
    hint, origin, arguments = _parts(hint)
    if origin is np.ndarray:
        return np.array(plain, dtype=get_args(arguments[1])[0])
    if origin is tuple:
        if arguments[0] is str:
            return tuple(plain)
        return tuple(_build(arguments[0], item) for item in plain)
    if origin in (dict, Mapping):
        key_kind, item_hint = arguments
        return {key_kind(key): _build(item_hint, item) for key, item in _items(plain)}
    if isinstance(hint, type) and is_dataclass(hint):
        hints = _hints(hint)
        return hint(
            **{name: _build(hints[name], item) for name, item in _items(plain) if name in hints}
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(plain)
    return plain


# Raised when the same inputs may give another answer: replays under another revision say so.
ALGORITHM_REVISION = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InputTrace:
    """The inputs by cluster (axis c): prior and available replicas, and what the estimates are
    worth.

    ``previous_c`` is -1 where the binding is not placed. ``available_c`` replicas fit beside the
    binding's own ones. ``source_c`` and ``bound_c`` are numbers of ``estimate.Source`` and
    ``estimate.Bound``.
    """

    previous_c: IntArray
    available_c: IntArray
    source_c: LevelArray
    bound_c: LevelArray
    estimate_reasons: dict[int, Reason]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why a filter refused clusters."""

    filter: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FilterTrace:
    """The first refusal of each cluster (axis c): a position in ``refusals``, -1 where it
    passed.
    """

    refusals: tuple[Refusal, ...]
    refusal_c: IntArray
    tier_c: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoreTrace:
    """Scores and weight by score plugin, and the weighted mean of each cluster, 0 to 100."""

    weights: dict[str, int]
    scores: dict[str, IntArray]
    total_c: IntArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SelectionTrace:
    """The selected clusters in order (positions in the fleet, axis k), and the rule that selected
    them.

    ``group_scores`` are the scores of regions where regions were chosen. ``proven`` is false when a
    search ended at its bound.
    """

    rule: str
    order_k: IntArray
    group_scores: dict[str, int]
    proven: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TierFacts:
    """The division of one overflow tier: ``wanted`` replicas over so many candidates.

    ``available`` is the sum of what its candidates can hold, prior replicas included, within their
    limits. ``target`` differs from ``wanted`` in a steady scale-up, where only the difference is
    divided.
    """

    mode: str
    wanted: int
    target: int
    available: int
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DivisionTrace:
    """The arithmetic by selected cluster (positions in the fleet, axis k): weight, quota, replicas.

    ``remainder_k`` are seats above the quota rounded down that no limit gave. ``tied_k`` marks
    clusters that won their last seat by the tie order alone. ``limit_k`` are numbers of
    ``division.Limit``; older traces have none. The properties give the same over the fleet (axis
    c), 0 where not selected.
    """

    strategy: str
    tie_order: str
    tiers: tuple[TierFacts, ...]
    cluster_count: int
    position_k: IntArray
    weight_k: IntArray
    quota_k: FloatArray
    share_k: IntArray
    remainder_k: IntArray
    tied_k: BoolArray
    limit_k: LevelArray = field(default_factory=lambda: np.zeros(0, dtype=np.int8))

    @property
    def weight_c(self) -> IntArray:
        return self._over_fleet(self.weight_k)

    @property
    def quota_c(self) -> FloatArray:
        return self._over_fleet(self.quota_k)

    @property
    def share_c(self) -> IntArray:
        return self._over_fleet(self.share_k)

    @property
    def remainder_c(self) -> IntArray:
        return self._over_fleet(self.remainder_k)

    @property
    def tied_c(self) -> BoolArray:
        return self._over_fleet(self.tied_k)

    @property
    def limit_c(self) -> LevelArray:
        limit_k = self.limit_k if len(self.limit_k) else np.zeros_like(self.position_k, np.int8)
        return self._over_fleet(limit_k)

    def _over_fleet(self, part_k: npt.NDArray[Any]) -> npt.NDArray[Any]:
        all_c = np.zeros_like(part_k, shape=self.cluster_count)
        all_c[self.position_k] = part_k
        return all_c


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTrial:
    """One affinity group that was tried and how it ended; its name is "" for the only affinity."""

    name: str
    outcome: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trace:
    """The record of one decision; filter, score, selection and division are those of the last
    trial.

    ``triggers`` say why the decision was made. ``warnings`` name parts of the binding without
    effect, and facts behind the decision that people may not expect. ``min_available`` is 0 where
    the binding does not state it. ``preempted`` names the bindings that lost replicas for this one.
    """

    clusters: tuple[str, ...]
    now: float
    profile: str
    affinity_group: str
    trials: tuple[GroupTrial, ...]
    inputs: InputTrace
    filtering: FilterTrace
    scoring: ScoreTrace
    selection: SelectionTrace
    division: DivisionTrace
    triggers: tuple[Reason, ...] = ()
    warnings: tuple[str, ...] = ()
    min_available: int = 0
    preempted: tuple[Reason, ...] = ()
    algorithm_revision: int = field(default=ALGORITHM_REVISION)

    def to_plain(self) -> dict[str, Any]:
        """Return builtins only, fit for JSON."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @property
    def selected_c(self) -> BoolArray:
        """Return the clusters that were selected."""
        mask_c = np.zeros(len(self.clusters), np.bool_)
        mask_c[self.selection.order_k] = True
        return mask_c


def undivided_trace(
    clusters: tuple[str, ...], now: float, remaining: Mapping[int, int], trigger: Reason
) -> Trace:
    """Return the trace of a decision without a cycle: ``remaining`` replicas by position stay."""
    count, none_c = len(clusters), np.zeros(len(clusters), dtype=np.int64)
    level_c = np.zeros(count, dtype=np.int8)
    position_k = np.array(sorted(remaining), dtype=np.int64)
    none_k = np.zeros(len(remaining), dtype=np.int64)
    share_k = np.array([remaining[position] for position in sorted(remaining)], dtype=np.int64)
    trace = unread_trace("")
    return replace(
        trace,
        clusters=clusters,
        now=now,
        inputs=replace(
            trace.inputs,
            previous_c=none_c - 1,
            available_c=none_c,
            source_c=level_c,
            bound_c=level_c,
        ),
        filtering=FilterTrace(refusals=(), refusal_c=none_c - 1, tier_c=none_c),
        scoring=replace(trace.scoring, total_c=none_c),
        selection=SelectionTrace(
            rule="what stays", order_k=position_k, group_scores={}, proven=True
        ),
        division=replace(
            trace.division,
            strategy="none",
            cluster_count=count,
            position_k=position_k,
            weight_k=none_k,
            quota_k=np.zeros(len(remaining)),
            share_k=share_k,
            remainder_k=none_k,
            tied_k=none_k > 0,
        ),
        triggers=(trigger,),
        warnings=(),
        algorithm_revision=ALGORITHM_REVISION,
    )


def unread_trace(why: str) -> Trace:
    """Return the placeholder of a trace that cannot be read; ``why`` is its only warning."""
    none_c = np.zeros(0, dtype=np.int64)
    level_c, no_c = np.zeros(0, dtype=np.int8), np.zeros(0, dtype=np.bool_)
    return Trace(
        clusters=(),
        now=0.0,
        profile="",
        affinity_group="",
        trials=(),
        inputs=InputTrace(
            previous_c=none_c,
            available_c=none_c,
            source_c=level_c,
            bound_c=level_c,
            estimate_reasons={},
        ),
        filtering=FilterTrace(refusals=(), refusal_c=none_c, tier_c=none_c),
        scoring=ScoreTrace(weights={}, scores={}, total_c=none_c),
        selection=SelectionTrace(rule="", order_k=none_c, group_scores={}, proven=False),
        division=DivisionTrace(
            strategy="",
            tie_order="",
            tiers=(),
            cluster_count=0,
            position_k=none_c,
            weight_k=none_c,
            quota_k=np.zeros(0),
            share_k=none_c,
            remainder_k=none_c,
            tied_k=no_c,
        ),
        warnings=(why,),
        algorithm_revision=0,
    )
