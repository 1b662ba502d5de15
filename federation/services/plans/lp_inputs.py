"""The inputs of the linear programmes that bound plans: shares, free capacity, and requests.

Plain functions of a thread of their own. Must not read or write the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from federation.model.arrays import BoolArray, FloatArray, IntArray
from federation.model.component_sets import shape_of
from federation.model.placement import Binding, BindingName, SchedulingType
from federation.model.pools.bounds import per_replica
from federation.model.resources import PODS
from federation.model.workload import TargetCluster
from federation.plans.bound import MoveProblem
from federation.scheduler.cycle import room_for
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.eligible_clusters import context_of
from federation.services.scheduling.working_copy import WorkingCopy


def reasons_to_leave(attempt: Attempt) -> Mapping[str, str]:
    """Return why the binding is to leave clusters, by their names."""
    return attempt.planned.why if attempt.planned else {}


def replicas_to_move(attempt: Attempt) -> int:
    """Count the replicas of the binding in the clusters that it is to leave."""
    why = reasons_to_leave(attempt)
    return sum(target.replicas for target in attempt.candidate.clusters if target.name in why)


def units_to_move(attempt: Attempt) -> int:
    return replicas_to_move(attempt) // unit_replicas(attempt.candidate)


def unit_request(binding: Binding) -> Mapping[str, int]:
    """Return what one unit requests: a replica, or a set of all components."""
    request = shape_of(binding).request
    return request if binding.components else per_replica(request)


def unit_replicas(binding: Binding) -> int:
    """Return how many replicas a unit is: one, or all of a set of components."""
    return max(1, sum(component.replicas for component in binding.components))


def resource_names(attempts: Iterable[Attempt]) -> list[str]:
    """Name all resources that any of the bindings requests."""
    return sorted({PODS}.union(*(unit_request(attempt.candidate) for attempt in attempts)))


def request_rows(bindings: Iterable[Binding], names: Sequence[str]) -> FloatArray:
    """Return the request of one unit of each binding, in the order of the resources ``names``."""
    requests = [unit_request(binding) for binding in bindings]
    rows = [[request.get(name, 0) for name in names] for request in requests]
    return np.array(rows, dtype=np.float64).reshape(len(requests), len(names))


def free_of(working: WorkingCopy, names: Sequence[str]) -> FloatArray:
    """Return the free part of each cluster's cells, into whose minima promises are packed."""
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


def used_and_allocatable(
    working: WorkingCopy, names: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Return by cluster and resource what pods have or are promised, and what its nodes have.

    Both are 0 where nothing was reported.
    """
    states, outstanding = working.snapshot.states, working.snapshot.outstanding
    used_cr, allocatable_cr = np.zeros((2, len(states), len(names)))
    for c, state in enumerate(states):
        if state.report is None:
            continue
        summary = state.report.summary
        promised = Counter[str]()
        for promise in outstanding.get(c, ()):
            for name, amount in per_replica(promise.requirements.request).items():
                promised[name] += amount * promise.to_pack
        used_cr[c] = [summary.allocated.get(name, 0) + promised[name] for name in names]
        allocatable_cr[c] = [summary.allocatable.get(name, 0) for name in names]
    return used_cr, allocatable_cr


def eligible_and_available(
    working: WorkingCopy, attempt: Attempt, binding: Binding, now: float
) -> tuple[BoolArray, IntArray]:
    """Return which clusters pass the filters, and how many units fit there if nothing else moves.

    Raises PluginFailed.
    """
    return room_for(
        binding,
        working.snapshot.fleet_at(now),
        working.availability(binding, binding.certificate or attempt.profile.certificate),
        now=now,
        profile=attempt.profile,
        surroundings=context_of(attempt, attempt.facts.peers),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterShare:
    """The replicas of a binding in one cluster, which is at a position of the fleet."""

    attempt: Attempt
    name: str
    position: int
    replicas: int

    @property
    def units(self) -> int:
        return self.replicas // unit_replicas(self.attempt.candidate)


def shares_in(
    scope: Collection[str],
    attempts: Iterable[Attempt],
    positions: Mapping[str, int],
    clusters_of: Callable[[Attempt], Iterable[TargetCluster]] = (
        lambda attempt: attempt.candidate.clusters
    ),
) -> list[ClusterShare]:
    """List what bindings have in the clusters in scope, by descending size and then by name."""
    shares = [
        ClusterShare(
            attempt=attempt,
            name=target.name,
            position=positions[target.name],
            replicas=target.replicas,
        )
        for attempt in attempts
        for target in clusters_of(attempt)
        if target.replicas and target.name in positions and target.name in scope
    ]
    return sorted(shares, key=lambda share: (-share.replicas, share.attempt.key, share.name))


def homes_of(shares: Sequence[ClusterShare]) -> IntArray:
    """Return the position of the cluster of each share."""
    return np.array([share.position for share in shares], dtype=np.int64)


def leaving_problem(working: WorkingCopy, attempts: Sequence[Attempt], now: float) -> MoveProblem:
    """Ask how many replicas could leave the clusters that bindings are to leave.

    Raises PluginFailed.
    """
    names = resource_names(attempts)
    available_bc = []
    for attempt in attempts:
        planned, binding = attempt.planned, attempt.candidate
        whole = binding if planned is None else planned.whole(binding)
        available_bc.append(eligible_and_available(working, attempt, whole, now)[1])
    bindings = [attempt.candidate for attempt in attempts]
    return MoveProblem(
        units_b=np.array([units_to_move(attempt) for attempt in attempts], dtype=np.int64),
        replicas_b=np.array([unit_replicas(binding) for binding in bindings], dtype=np.int64),
        needless_b=np.array([_is_needless(binding) for binding in bindings], dtype=np.bool_),
        request_br=request_rows(bindings, names),
        available_bc=np.array(available_bc, dtype=np.int64),
        free_cr=free_of(working, names),
    )


def _is_needless(binding: Binding) -> bool:
    """Whether all other clusters of the binding have all of it already."""
    is_duplicated = binding.placement.replica_scheduling.type is SchedulingType.DUPLICATED
    return is_duplicated and not binding.components


def share_problem(
    working: WorkingCopy,
    shares: Sequence[ClusterShare],
    now: float,
    names: Sequence[str],
    allowance_cr: FloatArray,
) -> MoveProblem:
    """Ask how many replicas of these shares could leave, if clusters get no more than allowed.

    Raises PluginFailed.
    """
    available: dict[BindingName, IntArray] = {}
    for share in shares:
        attempt = share.attempt
        if attempt.key not in available:
            _, units_c = eligible_and_available(working, attempt, attempt.candidate, now)
            available[attempt.key] = units_c
    available_bc = np.array([available[share.attempt.key] for share in shares], dtype=np.int64)
    available_bc = available_bc.reshape(len(shares), len(allowance_cr))
    available_bc[np.arange(len(shares)), homes_of(shares)] = 0
    bindings = [share.attempt.candidate for share in shares]
    return MoveProblem(
        units_b=np.array([share.units for share in shares], dtype=np.int64),
        replicas_b=np.array([unit_replicas(binding) for binding in bindings], dtype=np.int64),
        needless_b=np.zeros(len(shares), dtype=np.bool_),
        request_br=request_rows(bindings, names),
        available_bc=available_bc,
        free_cr=np.minimum(free_of(working, names), allowance_cr),
    )
