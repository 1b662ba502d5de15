"""A member cluster that only exists in memory: nodes, pods, a placer, and the agent that reports.

Must not know the control plane: it is told what to run and what to look for, and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from federation.capacity.assignments import Assignment
from federation.capacity.cluster_room import ReportId
from federation.model.echoes import (
    BINDING_LABEL,
    DECISION_LABEL,
    Interest,
    PodOrigin,
    PodSighting,
    SightingState,
)
from federation.model.pools.building import every_node, grouped, partition_nodes, resources_of
from federation.model.pools.grouping import group_nodes
from federation.model.pools.values import Pools
from federation.model.resources import PODS
from federation.model.shapes import Echo
from federation.model.workload import ReplicaRequirements
from lab.packed_clusters import (
    CPU_ROW,
    GPU_ROW,
    MEMORY_ROW,
    PODS_ROW,
    RESOURCES,
    Int64Array,
    node_columns,
)
from lab.promising import echoes_of

ZONE_LABEL = "topology.kubernetes.io/zone"


class Placer(StrEnum):
    """Who chooses nodes: kube-scheduler's strategies, anybody, or the agent's claims."""

    DEFAULT_STRATEGY = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    RANDOM = "random"
    CLAIMS = "claims"


@dataclass(slots=True, kw_only=True, eq=False)
class Pod:
    """A pod of a binding. ``claim`` is the node that the agent keeps for it."""

    binding: str
    decision: str
    requirements: ReplicaRequirements
    amount_r: Int64Array
    node: int | None = None
    claim: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What an agent reports, all of one instant."""

    report: ReportId
    interest_version: int
    pools: Pools
    echoes: tuple[Echo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a decision wants of a cluster; ``holding`` is how it is packed into ``report``."""

    binding: str
    decision: str
    requirements: ReplicaRequirements
    replicas: int
    report: ReportId | None = None
    holding: Assignment | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class SimulatedCluster:
    """``free_rn`` shrinks as pods are bound. ``budget`` of 0 reports every node as a cell.

    ``never_placed`` counts the times that a pod found no node when its turn came.
    """

    name: str
    allocatable_rn: Int64Array
    free_rn: Int64Array
    placer: Placer
    budget: int = 64
    zones: int = 0
    pods: list[Pod] = field(default_factory=list)
    never_placed: int = 0
    epoch: int = 1
    sequence: int = 0
    interest_version: int = 0
    interests: Sequence[Interest] = ()
    _report: ReportId | None = None
    _resources: tuple[str, ...] = ()
    # What the last report says of each node: pool, and the minimums of its cell less all claims.
    _reported: dict[tuple[int, tuple[int, ...]], list[int]] = field(default_factory=dict)

    @property
    def follows_claims(self) -> bool:
        return self.placer is Placer.CLAIMS

    @property
    def waiting(self) -> list[Pod]:
        return [pod for pod in self.pods if pod.node is None]

    @property
    def unplanned(self) -> set[str]:
        """Bindings with pods that wait and for which the agent keeps no node."""
        return {pod.binding for pod in self.waiting if pod.claim is None}

    def told(self, version: int, interests: Sequence[Interest]) -> None:
        """What to look for from now on; a restarted agent plans its claims again."""
        self.interest_version, self.interests = version, interests
        if self.follows_claims:
            self._claim([pod for pod in self.waiting if pod.claim is None])

    def crash(self) -> None:
        """The agent forgets all; nodes and pods are there as before."""
        self.epoch += 1
        self.sequence = 0
        self.interest_version, self.interests = 0, ()
        self._report, self._reported = None, {}
        for pod in self.pods:
            pod.claim = None

    def snapshot(self) -> Snapshot:
        """A report with its echoes. What is claimed counts as bound: nobody else may have it."""
        self.sequence += 1
        self._report = ReportId(self.epoch, self.sequence)
        columns = node_columns(self._unclaimed_rn(), self.zones)
        keys = [ZONE_LABEL] if self.zones else []
        budget = self.budget or max(16, len(self.free_rn.T))
        built = partition_nodes(columns, budget, keys)
        grouping = group_nodes(columns, keys, most_pools=budget // 2)
        every = every_node(columns, grouping, resources_of(columns))
        _, _, group_n = grouped(every, built.partition.grid)
        cells = built.pools.cells
        self._resources, self._reported = cells.resources, {}
        for node, place in enumerate(built.partition.cell_b[group_n].tolist()):
            seen = int(cells.pool_k[place]), tuple(cells.min_rk[:, place].tolist())
            self._reported.setdefault(seen, []).append(node)
        return Snapshot(
            report=self._report,
            interest_version=self.interest_version,
            pools=built.pools,
            echoes=echoes_of(self.interests, map(_sighting, self.pods)),
        )

    def run(self, order: Order) -> None:
        """Create and delete pods until there is what was ordered, and claim nodes for new ones.

        Pods of an older shape go first, then those that wait.
        """
        own = [pod for pod in self.pods if pod.binding == order.binding]
        for pod in own:
            if pod.requirements != order.requirements:
                self._delete(pod)
        own = [pod for pod in own if pod.requirements == order.requirements]
        own.sort(key=lambda pod: pod.node is None)
        for pod in own[order.replicas :]:
            self._delete(pod)
        had_waiting = any(pod.node is None for pod in own)
        new = [_pod(order) for _ in range(order.replicas - len(own))]
        self.pods += new
        if not self.follows_claims:
            return
        if order.holding is not None and order.report == self._report and not had_waiting:
            self._replay(order.holding, list(new))
        self._claim([pod for pod in new if pod.claim is None])

    def remove(self, binding: str) -> None:
        for pod in [pod for pod in self.pods if pod.binding == binding]:
            self._delete(pod)

    def place(self, pods: Sequence[Pod], random: np.random.Generator) -> None:
        """Let the placer choose a node for pod after pod; without a plan ours waits for one."""
        if self.follows_claims and not self.interest_version:
            return
        for pod in pods:
            node = pod.claim if pod.claim is not None else self._choice(pod, random)
            if node is None:
                self.never_placed += 1
                continue
            pod.node, pod.claim = node, None
            self.free_rn[:, node] -= pod.amount_r
            assert (self.free_rn[:, node] >= 0).all()

    def _choice(self, pod: Pod, random: np.random.Generator) -> int | None:
        free_rn = self._unclaimed_rn()
        (feasible,) = np.nonzero(self._feasible_n(pod, free_rn))
        if len(feasible) == 0:
            return None
        if self.placer is Placer.RANDOM:
            return int(random.choice(feasible))
        rows = [CPU_ROW, MEMORY_ROW]
        after_ri = free_rn[rows][:, feasible] - pod.amount_r[rows, np.newaxis]
        free_share_i = (after_ri / self.allocatable_rn[rows][:, feasible]).sum(axis=0)
        if self.placer is Placer.LEAST_ALLOCATED:
            return int(feasible[free_share_i.argmax()])
        return int(feasible[free_share_i.argmin()])

    def _feasible_n(self, pod: Pod, free_rn: Int64Array) -> npt.NDArray[np.bool_]:
        asked = np.flatnonzero(pod.amount_r)
        feasible_n = (free_rn[asked] >= pod.amount_r[asked, np.newaxis]).all(axis=0)
        claim = pod.requirements.node_claim
        if claim is not None and self.zones:
            zone = claim.node_selector.get(ZONE_LABEL, "")
            feasible_n &= np.arange(len(feasible_n)) % self.zones == int(zone[-1])
        return feasible_n

    def _unclaimed_rn(self) -> Int64Array:
        if not self.follows_claims:
            return self.free_rn
        free_rn = self.free_rn.copy()
        for pod in self.pods:
            if pod.claim is not None:
                free_rn[:, pod.claim] -= pod.amount_r
        return free_rn

    def _replay(self, holding: Assignment, pods: list[Pod]) -> None:
        """Turn the steps of a packing into claims, node by node, as long as the nodes are there.

        They are not where something came meanwhile that no report spoke of.
        """
        free_rn = self._unclaimed_rn()
        for step in holding.steps:
            seen = step.pool, step.free
            for _ in range(step.nodes):
                if not self._reported.get(seen) or len(pods) < step.replicas:
                    return
                node = self._reported[seen].pop()
                free_rn[:, node] -= step.replicas * pods[0].amount_r
                if (free_rn[:, node] < 0).any():
                    return
                for pod in pods[: step.replicas]:
                    pod.claim = node
                asked = {**pods[0].requirements.request, PODS: 1}
                left = tuple(
                    free - step.replicas * asked.get(name, 0)
                    for name, free in zip(self._resources, step.free, strict=True)
                )
                self._reported.setdefault((step.pool, left), []).append(node)
                del pods[: step.replicas]

    def _claim(self, pods: Sequence[Pod]) -> None:
        """Claim the smallest nodes with room; if there are not enough, all claims anew.

        Where that is no better everything stays as it was.
        """
        before = {id(pod): pod.claim for pod in self.waiting}
        if self._claim_each(pods):
            return
        every = [pod for pod in self.waiting if before[id(pod)] is not None or pod in pods]
        for pod in every:
            pod.claim = None
        every.sort(key=self._size, reverse=True)
        self._reported = {}
        if not self._claim_each(every):
            for pod in every:
                pod.claim = before[id(pod)]

    def _claim_each(self, pods: Sequence[Pod]) -> bool:
        free_rn = self._unclaimed_rn().copy()
        for pod in pods:
            (feasible,) = np.nonzero(self._feasible_n(pod, free_rn))
            if len(feasible) == 0:
                return False
            size_n = (free_rn / np.maximum(free_rn.sum(axis=1, keepdims=True), 1)).sum(axis=0)
            size_n += (free_rn[GPU_ROW] > 0) & (pod.amount_r[GPU_ROW] == 0)
            pod.claim = int(feasible[size_n[feasible].argmin()])
            free_rn[:, pod.claim] -= pod.amount_r
        return True

    def _size(self, pod: Pod) -> float:
        total_r = np.maximum(self.allocatable_rn.sum(axis=1), 1)
        return float((pod.amount_r / total_r).max())

    def _delete(self, pod: Pod) -> None:
        self.pods.remove(pod)
        if pod.node is not None:
            self.free_rn[:, pod.node] += pod.amount_r


def _pod(order: Order) -> Pod:
    return Pod(
        binding=order.binding,
        decision=order.decision,
        requirements=order.requirements,
        amount_r=amounts_of(order.requirements.request),
    )


def amounts_of(request: Mapping[str, int]) -> Int64Array:
    """What a pod takes, in the order of RESOURCES."""
    amount_r = np.array([request.get(name, 0) for name in RESOURCES], dtype=np.int64)
    amount_r[PODS_ROW] = 1
    return amount_r


def _sighting(pod: Pod) -> PodSighting:
    is_kept = pod.node is not None or pod.claim is not None
    return PodSighting(
        state=SightingState.BOUND if is_kept else SightingState.UNBOUND,
        request=pod.requirements.request,
        origin=PodOrigin.of({BINDING_LABEL: pod.binding, DECISION_LABEL: pod.decision}),
    )
