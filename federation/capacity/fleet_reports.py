"""The newest reports of a fleet as arrays, from which whole-fleet estimates are computed.

Pure. Must not estimate anything; ``federation.capacity.summary_estimates`` does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.cluster import CapacityReport, ClusterState, ResourceSummary
from federation.model.estimate import MAX_REPLICAS
from federation.model.grades import ResourceModel, minimums, model_hash
from federation.model.positions import GONE, UNMOVED, Moves
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import NO_REASON, Reason
from federation.model.resources import MAX_AMOUNT, PODS

# Marks a cluster without usable grade counts.
UNMODELLED: Final = -1
# Resources and models that one cluster may add before the arrays of all are built anew.
MAX_ADDED: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class InternedModel:
    """A resource model, once for all clusters that have it.

    ``minimums`` are the lower ends of its grades by resource name; ``columns`` is the place of each
    grade number among them.
    """

    hash: str
    minimums: Mapping[str, Sequence[int]]
    columns: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FleetCapacity:
    """The amounts that the newest reports leave free, by cluster (axis c). Arrays are read-only.

    ``free_rc`` is allocatable - allocated - allocating in base units: below 0 where overdrawn, 0
    where a cluster lacks the resource. ``rows`` is the row (axis r) of a resource; pods always
    have one. ``model_c`` is a position in ``models`` or UNMODELLED; ``ungraded`` says why.
    ``count_cg`` is nodes by grade (axis g), as floats because only those multiply fast. Counts
    stop at MAX_REPLICAS, and sums that are not exact are far beyond it. ``nodes_c`` counts all
    nodes, in use or not. ``as_of_c`` is the time of each snapshot in Unix seconds, infinite
    without one; ``sequence_c`` is of the report, 0 without one.
    """

    states: tuple[ClusterState, ...]
    modeling_enabled: bool
    reported_c: BoolArray
    rows: Mapping[str, int]
    free_rc: IntArray
    models: tuple[InternedModel, ...]
    model_positions: Mapping[ResourceModel, int]
    model_c: IntArray
    count_cg: FloatArray
    ungraded: Mapping[int, Reason]
    nodes_c: IntArray
    as_of_c: FloatArray
    sequence_c: IntArray
    # Resources and models added since the arrays were built.
    added: int = 0

    @classmethod
    def of(cls, states: Iterable[ClusterState], *, modeling_enabled: bool = True) -> FleetCapacity:
        """Build the arrays; ``modeling_enabled`` False switches models off for all clusters."""
        states = tuple(states)
        rows = {PODS: 0}
        # By identity first, because nearly all clusters share a model and its hash is slow.
        by_identity: dict[int, int] = {}
        model_positions: dict[ResourceModel, int] = {}
        for state in states:
            for name in state.report.summary.allocatable if state.report else ():
                rows.setdefault(name, len(rows))
            model = state.cluster.model
            if id(model) not in by_identity:
                by_identity[id(model)] = model_positions.setdefault(model, len(model_positions))
        models = tuple(_interned(model) for model in model_positions)
        width = max((len(model.columns) for model in models), default=0)
        capacity = cls(
            states=states,
            modeling_enabled=modeling_enabled,
            reported_c=np.zeros(len(states), dtype=np.bool_),
            rows=rows,
            free_rc=np.zeros((len(rows), len(states)), dtype=np.int64),
            models=models,
            model_positions=model_positions,
            model_c=np.full(len(states), UNMODELLED, dtype=np.int64),
            count_cg=np.zeros((len(states), width), dtype=np.float64),
            ungraded={},
            nodes_c=np.zeros(len(states), dtype=np.int64),
            as_of_c=np.full(len(states), np.inf),
            sequence_c=np.zeros(len(states), dtype=np.int64),
        )
        return _filled(capacity, range(len(states)), by_identity)

    def with_clusters(
        self, changes: Mapping[int, ClusterState], moves: Moves = UNMOVED
    ) -> FleetCapacity:
        """Return the fleet with newer states at some positions, and at those of new clusters.

        New resources and models are added behind the others, up to ``MAX_ADDED`` of them. Then all
        is built anew, without those that no cluster has any more.
        """
        states = list(moves.items(self.states, [changes[c] for c in moves.added]))
        for position, state in changes.items():
            states[position] = state
        wider = self._with_room_for(changes.values())
        if wider is None:
            return FleetCapacity.of(states, modeling_enabled=self.modeling_enabled)
        copy = replace(
            wider,
            states=tuple(states),
            reported_c=moves.array(wider.reported_c, newcomers=False),
            free_rc=moves.array(wider.free_rc, 0, axis=1),
            model_c=moves.array(wider.model_c, UNMODELLED),
            count_cg=moves.array(wider.count_cg, 0.0),
            ungraded=self._ungraded_after(moves),
            nodes_c=moves.array(wider.nodes_c, 0),
            as_of_c=moves.array(wider.as_of_c, np.inf),
            sequence_c=moves.array(wider.sequence_c, 0),
        )
        by_identity = {
            id(state.cluster.model): wider.model_positions[state.cluster.model]
            for state in changes.values()
        }
        return _filled(copy, changes, by_identity)

    def __len__(self) -> int:
        return len(self.states)

    def free(self, name: str) -> IntArray | None:
        """Return the free amount of a resource in each cluster; None when no cluster has it."""
        row = self.rows.get(name)
        return None if row is None else self.free_rc[row]

    def age_seconds_c(self, now: float) -> FloatArray:
        """Return the age of each snapshot, 0 without one, and where clocks disagree."""
        ages_c: FloatArray = np.maximum(now - self.as_of_c, 0.0)
        return ages_c

    @property
    def free_pods_c(self) -> IntArray:
        """Free pod slots, 0..MAX_REPLICAS: a limit of replicas, whatever they request."""
        free_c: IntArray = np.minimum(self.free_rc[self.rows[PODS]], MAX_REPLICAS)
        return np.maximum(free_c, 0, out=free_c)

    def _ungraded_after(self, moves: Moves) -> Mapping[int, Reason]:
        if moves is UNMOVED or not self.ungraded:
            return self.ungraded
        moved_c = moves.positions(len(self)).tolist()
        ungraded = dict(
            zip(map(moved_c.__getitem__, self.ungraded), self.ungraded.values(), strict=True)
        )
        ungraded.pop(GONE, None)
        return ungraded

    def _with_room_for(self, states: Collection[ClusterState]) -> FleetCapacity | None:
        """Add rows and models for these states; None where too many were added."""
        reports = [state.report for state in states if state.report is not None]
        named = chain.from_iterable(report.summary.allocatable for report in reports)
        resources = dict.fromkeys(name for name in named if name not in self.rows)
        models = {state.cluster.model: None for state in states} if states else {}
        new_models = [model for model in models if model not in self.model_positions]
        if not resources and not new_models:
            return self
        added = self.added + len(resources) + len(new_models)
        if added > MAX_ADDED:
            return None
        interned = (*self.models, *map(_interned, new_models))
        width = max((len(model.columns) for model in interned), default=0)
        new_rows = np.zeros((len(resources), len(self.states)), dtype=np.int64)
        new_grades = np.zeros((len(self.states), width - self.count_cg.shape[1]))
        return replace(
            self,
            added=added,
            rows={**self.rows, **{n: len(self.rows) + i for i, n in enumerate(resources)}},
            free_rc=np.concatenate((self.free_rc, new_rows)),
            models=interned,
            model_positions={
                **self.model_positions,
                **{model: len(self.models) + i for i, model in enumerate(new_models)},
            },
            count_cg=np.concatenate((self.count_cg, new_grades), axis=1),
        )


def _filled(
    capacity: FleetCapacity, positions: Iterable[int], models_by_identity: Mapping[int, int]
) -> FleetCapacity:
    """Write the states at the positions into arrays of the caller, and make these read-only."""
    ungraded = dict(capacity.ungraded)
    for position in positions:
        state = capacity.states[position]
        capacity.reported_c[position] = state.report is not None
        capacity.free_rc[:, position] = 0
        capacity.count_cg[position] = 0
        capacity.model_c[position] = UNMODELLED
        capacity.nodes_c[position] = state.report.nodes.total if state.report else 0
        capacity.as_of_c[position] = np.inf if state.as_of is None else state.as_of
        capacity.sequence_c[position] = state.report.sequence if state.report else 0
        ungraded.pop(position, None)
        if state.report is None:
            continue
        for name in state.report.summary.allocatable:
            capacity.free_rc[capacity.rows[name], position] = _free(state.report.summary, name)
        model_position = models_by_identity[id(state.cluster.model)]
        model = capacity.models[model_position]
        why = _why_ungraded(state, state.report, model, modeling_enabled=capacity.modeling_enabled)
        if why:
            ungraded[position] = why
            continue
        capacity.model_c[position] = model_position
        for grade, count in state.report.grade_counts.items():
            if grade in model.columns:
                capacity.count_cg[position, model.columns[grade]] = min(count, MAX_REPLICAS)
    for array in (
        capacity.reported_c,
        capacity.free_rc,
        capacity.model_c,
        capacity.count_cg,
        capacity.nodes_c,
        capacity.as_of_c,
        capacity.sequence_c,
    ):
        array.flags.writeable = False
    return replace(capacity, ungraded=ungraded)


def _why_ungraded(
    state: ClusterState,
    report: CapacityReport,
    model: InternedModel,
    *,
    modeling_enabled: bool,
) -> Reason:
    """Return why the grade counts of a report cannot be used; empty when they can."""
    if not modeling_enabled:
        return Reason(ReasonCode.MODELLING_OFF)
    if not state.cluster.modeling_enabled:
        return Reason(ReasonCode.MODELLING_OFF_FOR_CLUSTER)
    if not model.columns:
        return Reason(ReasonCode.NO_RESOURCE_MODEL)
    if not report.grade_counts:
        return Reason(ReasonCode.NO_GRADE_COUNTS)
    if report.model_hash != model.hash:
        return Reason(ReasonCode.OTHER_RESOURCE_MODEL)
    return NO_REASON


def _interned(model: ResourceModel) -> InternedModel:
    return InternedModel(
        hash=model_hash(model),
        minimums=minimums(model),
        columns={grade.grade: column for column, grade in enumerate(model.grades)},
    )


def _free(summary: ResourceSummary, name: str) -> int:
    used = summary.allocated.get(name, 0) + summary.allocating.get(name, 0)
    return max(-MAX_AMOUNT, min(summary.allocatable[name] - used, MAX_AMOUNT))
