"""What is asked about the best possible plan: who is to leave, and what has room for them.

Plain functions of a thread. Must not read or write the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.arrays import FloatArray, IntArray
from federation.model.component_sets import shape_of
from federation.model.placement import Binding, BindingName, SchedulingType
from federation.model.pools.bounds import per_replica
from federation.model.resources import PODS
from federation.model.workload import TargetCluster
from federation.plans.bound import MoveQuestion
from federation.scheduler.cycle import room_for
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.seeing import surroundings_of
from federation.services.scheduling.working_copy import WorkingCopy


def replicas_to_move(attempt: Attempt) -> int:
    """How many replicas the binding has where it is to be no more."""
    why = attempt.planned.why if attempt.planned else {}
    return sum(each.replicas for each in attempt.candidate.clusters if each.name in why)


def demands(attempts: Sequence[Attempt], free_cr: FloatArray, names: Sequence[str]) -> list[float]:
    """For each the largest part that it asks for of what is free of a resource in all clusters."""
    free = dict(zip(names, free_cr.sum(axis=0).tolist(), strict=True))
    found = []
    for attempt in attempts:
        units = _units(attempt)
        asked = asked_by(attempt.candidate).items()
        parts = (units * amount / max(free.get(name, 0), 1) for name, amount in asked)
        found.append(max(parts, default=0.0))
    return found


def free_of(working: WorkingCopy, names: Sequence[str]) -> FloatArray:
    """What is left of each cluster's cells for promises, which are packed into their minima."""
    cells_c = working.rooms.filled.pools
    free_cr = np.zeros((len(cells_c), len(names)))
    for c, pools in enumerate(cells_c):
        if pools is None:
            continue
        cells = pools.cells
        sum_r = (cells.min_rk.astype(np.float64) * cells.count_k).sum(axis=1)
        row_of = {name: row for row, name in enumerate(cells.resources)}
        free_cr[c] = [sum_r[row_of[name]] if name in row_of else 0.0 for name in names]
    return free_cr


def resource_names(attempts: Sequence[Attempt]) -> list[str]:
    """All that any of them asks for."""
    return sorted({PODS}.union(*(asked_by(attempt.candidate) for attempt in attempts)))


def question(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> MoveQuestion:
    """How many replicas of these could move at best. Raises PluginFailed."""
    names = resource_names(attempts)
    return MoveQuestion(
        units_b=np.array([_units(each) for each in attempts], dtype=np.int64),
        replicas_b=np.array([unit_replicas(each.candidate) for each in attempts], dtype=np.int64),
        needless_b=np.array([_is_needless(each.candidate) for each in attempts], dtype=np.bool_),
        request_br=np.array(
            [[asked_by(each.candidate).get(name, 0) for name in names] for each in attempts],
            dtype=np.float64,
        ),
        room_bc=np.array(
            [_room(working, each, _whole(each), now) for each in attempts], dtype=np.int64
        ),
        free_cr=free_of(working, names),
    )


def _room(working: WorkingCopy, attempt: Attempt, binding: Binding, now: float) -> IntArray:
    """How many units fit in each cluster that lets the binding in, if nothing else moves."""
    asked = binding.certificate or attempt.profile.certificate
    _, room_c = room_for(
        binding,
        working.snapshot.fleet_at(now),
        working.availability(binding, asked),
        now=now,
        profile=attempt.profile,
        surroundings=surroundings_of(attempt, attempt.peers),
    )
    return room_c


def _whole(attempt: Attempt) -> Binding:
    planned, binding = attempt.planned, attempt.candidate
    return binding if planned is None else planned.whole(binding)


def asked_by(binding: Binding) -> Mapping[str, int]:
    """By one unit: a replica, or a set of all components."""
    request = shape_of(binding).request
    return request if binding.components else per_replica(request)


def _units(attempt: Attempt) -> int:
    return replicas_to_move(attempt) // unit_replicas(attempt.candidate)


def unit_replicas(binding: Binding) -> int:
    """How many replicas a unit is: one, or all of a set of components."""
    return max(1, sum(each.replicas for each in binding.components))


def _is_needless(binding: Binding) -> bool:
    """Whether all its other clusters have all of it already."""
    is_duplicated = binding.placement.replica_scheduling.type is SchedulingType.DUPLICATED
    return is_duplicated and not binding.components


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterShare:
    """What a binding has in a cluster, which is at a position of the fleet."""

    attempt: Attempt
    name: str
    position: int
    replicas: int

    @property
    def units(self) -> int:
        return self.replicas // unit_replicas(self.attempt.candidate)


def shares_in(
    attempts: Iterable[Attempt],
    positions: Mapping[str, int],
    clusters_of: Callable[[Attempt], Iterable[TargetCluster]],
) -> list[ClusterShare]:
    """All that bindings have in clusters of the fleet, by descending size and then by name."""
    shares = [
        ClusterShare(
            attempt=attempt,
            name=target.name,
            position=positions[target.name],
            replicas=target.replicas,
        )
        for attempt in attempts
        for target in clusters_of(attempt)
        if target.replicas and target.name in positions
    ]
    return sorted(shares, key=lambda each: (-each.replicas, each.attempt.key, each.name))


def share_question(
    working: WorkingCopy,
    shares: Sequence[ClusterShare],
    now: float,
    names: Sequence[str],
    most_cr: FloatArray,
) -> MoveQuestion:
    """How many replicas of these could leave where they are, where clusters get ``most_cr`` at
    most. Raises PluginFailed.
    """
    rooms: dict[BindingName, IntArray] = {}
    for share in shares:
        if share.attempt.key not in rooms:
            rooms[share.attempt.key] = _room(working, share.attempt, share.attempt.candidate, now)
    room_bc = np.array([rooms[each.attempt.key] for each in shares], dtype=np.int64)
    room_bc = room_bc.reshape(len(shares), len(most_cr))
    home_b = [each.position for each in shares]
    room_bc[np.arange(len(shares)), home_b] = 0
    bindings = [each.attempt.candidate for each in shares]
    return MoveQuestion(
        units_b=np.array([each.units for each in shares], dtype=np.int64),
        replicas_b=np.array([unit_replicas(each) for each in bindings], dtype=np.int64),
        needless_b=np.zeros(len(shares), dtype=np.bool_),
        request_br=np.array(
            [[asked_by(each).get(name, 0) for name in names] for each in bindings],
            dtype=np.float64,
        ).reshape(len(shares), len(names)),
        room_bc=room_bc,
        free_cr=np.minimum(free_of(working, names), most_cr),
    )


def used_and_allocatable(
    working: WorkingCopy, names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """By cluster and resource: what its pods have and is promised, and what its nodes have in all.

    Both are 0 where nothing was reported.
    """
    states, outstanding = working.snapshot.states, working.snapshot.outstanding
    used_cr, allocatable_cr = np.zeros((2, len(states), len(names)))
    for c, state in enumerate(states):
        if state.report is None:
            continue
        summary = state.report.summary
        promised = Counter[str]()
        for each in outstanding.get(c, ()):
            for name, amount in per_replica(each.requirements.request).items():
                promised[name] += amount * each.to_pack
        used_cr[c] = [summary.allocated.get(name, 0) + promised[name] for name in names]
        allocatable_cr[c] = [summary.allocatable.get(name, 0) for name in names]
    return used_cr, allocatable_cr
