"""The clusters of a fleet as immutable arrays: the input that thousands of decisions share.

Must not hold capacity: estimates are an argument of their own, so that a report rebuilds nothing
here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np

from federation.model.arrays import BoolArray, IntArray, read_only
from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.errors import InvalidRequest
from federation.model.positions import Moves
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Text
from federation.model.workload import TargetCluster

Value = TypeVar("Value", bound=Hashable)

Subject = TypeVar("Subject", bound=Hashable)
Answer = TypeVar("Answer")

# A target is about 50 bytes. ``bench_scheduler`` makes one for each selected cluster.
_MAX_TARGETS: Final = 4096
# Each change of a cluster rebuilds all columns: 0.2 ms a column with 10,000 clusters.
MAX_LABEL_COLUMNS: Final = 64
MAX_SUBJECTS: Final = 64


class ValueCache(Generic[Subject, Answer]):
    """A cache of answers by the value of their subject, for at most MAX_SUBJECTS subjects.

    Any thread may use it: two threads that fill in an answer fill in the same. ``bench_scheduler``
    decides on such answers.
    """

    def __init__(self) -> None:
        self._answers: dict[Subject, Answer] = {}

    def answer(
        self,
        subject: Subject,
        compute: Callable[[], Answer],
        is_small: Callable[[Answer], bool] = lambda _: True,
    ) -> Answer:
        """Return the cached answer for an equal subject, or compute it; small ones are cached."""
        answer = self._answers.get(subject)
        if answer is None:
            answer = compute()
            if is_small(answer):
                if len(self._answers) >= MAX_SUBJECTS:
                    self._answers.clear()
                self._answers[subject] = answer
        return answer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Column(Generic[Value]):
    """One property of every cluster, interned: ``values[code_c[i]]`` is the value of cluster i.

    Rules over a property run once for each distinct value, not for each cluster.
    """

    code_c: IntArray
    values: tuple[Value, ...]

    @classmethod
    def of(cls, values: Iterable[Value]) -> Column[Value]:
        codes: dict[Value, int] = {}
        coded = [codes.setdefault(value, len(codes)) for value in values]
        return cls(code_c=read_only(np.array(coded, dtype=np.int64)), values=tuple(codes))

    def after(self, moves: Moves, changes: Mapping[int, Value]) -> Column[Value]:
        """Return the column after clusters moved, with new values at some positions.

        The result equals a column made anew: values stand in the order of the first clusters that
        have them.
        """
        values = list(self.values)
        code_c = moves.array(self.code_c, 0)
        for position, value in changes.items():
            if value not in values:
                values.append(value)
            code_c[position] = values.index(value)
        if len(values) == 1 and len(code_c):
            return Column(code_c=read_only(code_c), values=tuple(values))
        first_v = np.full(len(values), len(code_c))
        first_v[code_c[::-1]] = np.arange(len(code_c))[::-1]
        order = np.argsort(first_v, kind="stable")[: int((first_v < len(code_c)).sum())]
        rank_v = np.zeros(len(values), dtype=np.int64)
        rank_v[order] = np.arange(len(order))
        return Column(
            code_c=read_only(rank_v[code_c]), values=tuple(values[v] for v in order.tolist())
        )

    def __getitem__(self, position: int) -> Value:
        value: Value = self.values[int(self.code_c[position])]
        return value

    def where(self, holds: Callable[[Value], bool]) -> BoolArray:
        """Return the clusters whose value fulfils a condition."""
        return np.array([holds(value) for value in self.values], dtype=np.bool_)[self.code_c]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """Clusters in ascending order of their names; every array of a cycle has this order (axis c).

    ``provider`` and ``region`` are "" where not set; ``apis`` is None where no APIs were reported.
    ``unready`` is the reason why a cluster must not grow, NO_REASON where it may: ``ready_c``.
    """

    clusters: tuple[Cluster, ...]
    names: tuple[str, ...]
    encoded_names: tuple[bytes, ...]
    index: Mapping[str, int]
    ready_c: BoolArray
    unready: Column[Reason]
    provider: Column[str]
    region: Column[str]
    zones: Column[tuple[str, ...]]
    taints: Column[tuple[Taint, ...]]
    apis: Column[frozenset[tuple[str, str]] | None]
    # Keys of labels that clusters carry, or carried earlier.
    label_keys: frozenset[str]
    # Columns by label key, made at first use: most keys are never used. Two threads make the same
    # column. At most MAX_LABEL_COLUMNS, because callers choose the keys.
    _labels: dict[str, Column[str | None]] = field(default_factory=dict)
    # Keys that placements used since the last change; the next change drops other columns.
    _named_labels: set[str] = field(init=False, default_factory=set)
    # The resolved placements of this fleet, by placement: most bindings share theirs with others.
    # Their type is in ``resolved_placement``, which imports this module.
    resolved_placements: ValueCache[Any, Any] = field(init=False, default_factory=ValueCache)
    _targets: dict[tuple[int, int], TargetCluster] = field(init=False, default_factory=dict)
    _lesser: dict[tuple[bytes, tuple[Reason, ...]], Fleet] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, clusters: Iterable[Cluster]) -> Fleet:
        """Return the fleet of these clusters, in any order. Raises InvalidRequest for a repeated
        name.
        """
        ordered = tuple(sorted(clusters, key=lambda cluster: cluster.name))
        names = tuple(cluster.name for cluster in ordered)
        index = {name: position for position, name in enumerate(names)}
        unready = Column.of(map(unready_reason, ordered))
        if len(index) < len(names):
            twice = next(a for a, b in pairwise(names) if a == b)
            raise InvalidRequest.of("clusters", f"cluster {twice!r} is given twice")
        return cls(
            clusters=ordered,
            names=names,
            encoded_names=tuple(name.encode() for name in names),
            index=index,
            ready_c=read_only(unready.where(lambda reason: not reason)),
            unready=unready,
            provider=Column.of(cluster.provider for cluster in ordered),
            region=Column.of(cluster.region for cluster in ordered),
            zones=Column.of(cluster.zones for cluster in ordered),
            taints=Column.of(cluster.taints for cluster in ordered),
            apis=Column.of(cluster.api_enablements for cluster in ordered),
            label_keys=frozenset(chain.from_iterable(cluster.labels for cluster in ordered)),
        )

    def evacuated(self) -> dict[str, Cluster]:
        """Return the clusters with taints that evict what does not tolerate them, by name."""
        evicting_c = self.taints.where(
            lambda taints: any(taint.effect is TaintEffect.NO_EXECUTE for taint in taints)
        )
        return {self.names[c]: self.clusters[c] for c in evicting_c.nonzero()[0].tolist()}

    def after(self, moves: Moves, changes: Mapping[int, Cluster]) -> Fleet:
        """Return the fleet after clusters left and joined, with the new state of some positions.

        ``changes`` includes all clusters that joined. The cost is that of the changes, and of
        copying the arrays.
        """
        newcomers = [changes[position] for position in moves.added]
        names, clusters = self.names, list(moves.items(self.clusters, newcomers))
        encoded_names, index = self.encoded_names, self.index
        for position, cluster in changes.items():
            clusters[position] = cluster
        if moves.removed or moves.added:
            names = moves.items(names, [cluster.name for cluster in newcomers])
            encoded = [cluster.name.encode() for cluster in newcomers]
            encoded_names = moves.items(encoded_names, encoded)
            index = dict(zip(names, range(len(names)), strict=True))

        def column(earlier: Column[Value], of: Callable[[Cluster], Value]) -> Column[Value]:
            return earlier.after(moves, {c: of(cluster) for c, cluster in changes.items()})

        unready = column(self.unready, unready_reason)
        return Fleet(
            clusters=tuple(clusters),
            names=names,
            encoded_names=encoded_names,
            index=index,
            ready_c=read_only(unready.where(lambda reason: not reason)),
            unready=unready,
            provider=column(self.provider, attrgetter("provider")),
            region=column(self.region, attrgetter("region")),
            zones=column(self.zones, attrgetter("zones")),
            taints=column(self.taints, attrgetter("taints")),
            apis=column(self.apis, attrgetter("api_enablements")),
            label_keys=self._label_keys_with(changes.values()),
            _labels={
                key: column(values, partial(_label, key))
                for key, values in self._labels.copy().items()
                if key in self._named_labels
            },
        )

    def __len__(self) -> int:
        return len(self.names)

    def without(self, lost: Column[Reason]) -> Fleet:
        """Return the fleet in which clusters with a reason in ``lost`` are not ready either."""
        lost_c = lost.where(bool)
        if not lost_c.any():
            return self
        key = lost.code_c.tobytes(), lost.values
        lesser = self._lesser.get(key)
        if lesser is None:
            # All decisions of one moment lose the same clusters; later ones lose others.
            self._lesser.clear()
            lesser = self._lesser[key] = self._without(lost_c, lost)
        return lesser

    def _without(self, lost_c: BoolArray, lost: Column[Reason]) -> Fleet:
        newly_c = lost_c & self.ready_c
        code_c = np.where(newly_c, len(self.unready.values) + lost.code_c, self.unready.code_c)
        unready = Column(code_c=read_only(code_c), values=(*self.unready.values, *lost.values))
        return replace(
            self,
            ready_c=read_only(self.ready_c & ~lost_c),
            unready=unready,
        )

    def label(self, key: str) -> Column[str | None]:
        """Return the values of one label; None where a cluster does not carry it."""
        if key not in self.label_keys:
            code_c = read_only(np.zeros(len(self), dtype=np.int64))
            return Column(code_c=code_c, values=(None,) if self.clusters else ())
        column = self._labels.get(key)
        if column is None:
            column = Column.of(map(partial(_label, key), self.clusters))
            if len(self._labels) >= MAX_LABEL_COLUMNS:
                return column
            self._labels[key] = column
        self._named_labels.add(key)
        return column

    def _label_keys_with(self, changed: Iterable[Cluster]) -> frozenset[str]:
        keys = set(chain.from_iterable(cluster.labels for cluster in changed))
        return self.label_keys if keys <= self.label_keys else self.label_keys | keys

    def targets(self, positions: Iterable[int], replicas: Iterable[int]) -> list[TargetCluster]:
        """Return one target for each position and its replicas; equal targets are cached."""
        cached, targets = self._targets, []
        if len(cached) >= _MAX_TARGETS:
            cached.clear()
        for key in zip(positions, replicas, strict=True):
            target = cached.get(key)
            if target is None:
                target = cached[key] = TargetCluster(name=self.names[key[0]], replicas=key[1])
            targets.append(target)
        return targets

    def named(self, names: Iterable[str]) -> BoolArray:
        """Return the clusters with these names; names of unknown clusters are ignored."""
        mask_c = np.zeros(len(self), np.bool_)
        mask_c[[self.index[name] for name in names if name in self.index]] = True
        return mask_c


def unready_reason(cluster: Cluster) -> Reason:
    """Return why a cluster must not grow because of its own state, NO_REASON where it may."""
    if not cluster.ready:
        return Reason(ReasonCode.NOT_READY)
    if cluster.held:
        return Reason(ReasonCode.HELD)
    if not cluster.cordoned:
        return NO_REASON
    if not cluster.cordon_reason:
        return Reason(ReasonCode.CORDONED)
    return Reason.of(ReasonCode.CORDONED_BECAUSE, Text(cluster.cordon_reason))


def _label(key: str, cluster: Cluster) -> str | None:
    return cluster.labels.get(key)
