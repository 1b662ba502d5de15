"""The immutable array snapshot of the clusters that one decision, or thousands, work on.

Must not hold capacity: what fits comes in beside it, so that reports do not rebuild it.
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
from federation.model.cluster import Cluster, Taint
from federation.model.errors import InvalidRequest
from federation.model.positions import Moves
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason, Text
from federation.model.workload import TargetCluster

Value = TypeVar("Value", bound=Hashable)

Subject = TypeVar("Subject", bound=Hashable)
Answer = TypeVar("Answer")

_MOST_TARGETS: Final = 4096
# Each is rebuilt where a cluster changes: 10,000 clusters take 0.2 ms for one.
MAX_LABEL_COLUMNS: Final = 64
MAX_SUBJECTS: Final = 64


class Recent(Generic[Subject, Answer]):
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
    """One property of every cluster, interned: ``values[code_c[i]]`` is cluster i's value.

    Rules over a property run once per distinct value, not once per cluster.
    """

    code_c: IntArray
    values: tuple[Value, ...]

    @classmethod
    def of(cls, values: Iterable[Value]) -> Column[Value]:
        codes: dict[Value, int] = {}
        coded = [codes.setdefault(value, len(codes)) for value in values]
        return cls(code_c=read_only(np.array(coded, dtype=np.int64)), values=tuple(codes))

    def after(self, moves: Moves, changes: Mapping[int, Value]) -> Column[Value]:
        """The column after clusters moved, with newer values at some positions.

        Exactly as it would be made anew: values in the order in which clusters have them first.
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
        """Which clusters have a value for which this holds."""
        return np.array([holds(value) for value in self.values], dtype=np.bool_)[self.code_c]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """Clusters in ascending order of their names; every array of a cycle follows it (axis c).

    ``provider`` and ``region`` are "" where not set; ``apis`` is None where nobody has said.
    ``unready`` says why nothing may grow in a cluster, NO_REASON where it may: ``ready_c``.
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
    # Of labels that clusters carry, or carried once.
    label_keys: frozenset[str]
    # Filled on first use, the same value whoever fills it: most label keys are never asked for.
    # At most MAX_LABEL_COLUMNS: callers choose the keys.
    _labels: dict[str, Column[str | None]] = field(default_factory=dict)
    # Keys that placements have named since the last change; the other columns end with the next.
    _named_labels: set[str] = field(init=False, default_factory=set)
    # What placements come to here (terms.Terms, which this room does not know): most bindings
    # ask for what others asked for.
    terms: Recent[Any, Any] = field(init=False, default_factory=Recent)
    _targets: dict[tuple[int, int], TargetCluster] = field(init=False, default_factory=dict)
    _lesser: dict[tuple[bytes, tuple[Reason, ...]], Fleet] = field(init=False, default_factory=dict)

    @classmethod
    def of(cls, clusters: Iterable[Cluster]) -> Fleet:
        """The snapshot of these clusters, whatever their order; a name given twice is refused."""
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

    def after(self, moves: Moves, changes: Mapping[int, Cluster]) -> Fleet:
        """The fleet after clusters left and came, with those at some positions as they are now.

        All newcomers are among them. Costs what changed, and copies of the arrays.
        """
        newcomers = [changes[position] for position in moves.taken]
        names, clusters = self.names, list(moves.items(self.clusters, newcomers))
        encoded_names, index = self.encoded_names, self.index
        for position, cluster in changes.items():
            clusters[position] = cluster
        if moves.left or moves.taken:
            names = moves.items(names, [cluster.name for cluster in newcomers])
            encoded = [cluster.name.encode() for cluster in newcomers]
            encoded_names = moves.items(encoded_names, encoded)
            index = dict(zip(names, range(len(names)), strict=True))

        def column(before: Column[Value], of: Callable[[Cluster], Value]) -> Column[Value]:
            return before.after(moves, {c: of(cluster) for c, cluster in changes.items()})

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
        """The same fleet, where clusters are not ready either that are ``lost`` for some reason."""
        lost_c = lost.where(bool)
        if not lost_c.any():
            return self
        key = lost.code_c.tobytes(), lost.values
        lesser = self._lesser.get(key)
        if lesser is None:
            # Decisions at one time ask for the same; at a later one for another, if at all.
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
        """The values of one label; None where a cluster does not carry it."""
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
        """So many replicas in the clusters at these positions; most come again and are kept."""
        known, targets = self._targets, []
        if len(known) >= _MOST_TARGETS:
            known.clear()
        for key in zip(positions, replicas, strict=True):
            target = known.get(key)
            if target is None:
                target = known[key] = TargetCluster(name=self.names[key[0]], replicas=key[1])
            targets.append(target)
        return targets

    def named(self, names: Iterable[str]) -> BoolArray:
        """Which clusters are among these names; names of unknown clusters are passed over."""
        mask_c = np.zeros(len(self), np.bool_)
        mask_c[[self.index[name] for name in names if name in self.index]] = True
        return mask_c


def unready_reason(cluster: Cluster) -> Reason:
    """Return why nothing may grow in a cluster by its own state, NO_REASON where it may."""
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
