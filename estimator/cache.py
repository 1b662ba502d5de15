"""The cluster as it is now, kept current event by event; hands out snapshots.

A pod event costs O(1), a snapshot O(what changed) and a copy of the columns. Must not read
Kubernetes, keep time, or be shared between threads: everything happens on the loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from estimator.nodes import Node, Pod, PodState
from estimator.snapshot import Int64Array, NodeTable, Snapshot, columns_of, with_rows
from federation.model.resources import PODS

# Python 3.11 is slow to look a member of an enum up, and events ask for this again and again.
_BOUND: Final = PodState.BOUND
_ONE_POD: Final = {PODS: 1}


class _Load:
    """Sums over some pods, by resource name."""

    __slots__ = ("nonzero", "request")

    def __init__(self) -> None:
        self.request: dict[str, int] = {}
        self.nonzero: dict[str, int] = {}

    def add(self, pod: Pod, sign: int) -> None:
        """Count ``pod`` in (+1) or out (-1)."""
        _accumulate(self.request, pod.request, sign)
        _accumulate(self.request, _ONE_POD, sign)
        _accumulate(self.nonzero, pod.nonzero, sign)


class ClusterCache:
    """Nodes and pods, and what the pods sum to on every node."""

    def __init__(
        self,
        on_bound: Callable[[Pod], None] | None = None,
        on_change: Callable[[Pod | None, Pod | None], None] | None = None,
    ) -> None:
        """``on_bound`` is told of every pod that was not known to hold room on its node.

        ``on_change`` is told before, of every pod, what it was and what it is: None, not there.
        """
        self._on_bound = on_bound
        self._on_change = on_change
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._on_node: dict[str, _Load] = {}
        self._without_node = {PodState.WAITING: _Load(), PodState.DROPPED: _Load()}
        self._assumed: dict[str, str] = {}
        self._repelling: dict[str, Pod] = {}
        self._table = NodeTable.of(())
        self._positions: dict[str, int] = {}
        self._requested: dict[str, Int64Array] = {}
        self._nonzero: dict[str, Int64Array] = {}
        self._nodes_changed = False
        self._loads_changed: set[str] = set()
        self._snapshot: Snapshot | None = None

    def put_node(self, node: Node) -> None:
        """Add or replace a node. Kubelets often write a status that changes nothing here."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._nodes_changed = True
            self._snapshot = None

    def remove_node(self, name: str) -> None:
        """Forget a node; pods still bound to it are kept, and count nowhere."""
        if self._nodes.pop(name, None) is not None:
            self._nodes_changed = True
            self._snapshot = None

    def put_pod(self, pod: Pod) -> None:
        """Add or replace a pod."""
        if self._assumed:
            pod = self._as_assumed(pod)
        known = self._pods.get(pod.uid)
        if known == pod:
            return
        if known is not None:
            self._count(known, -1)
        self._pods[pod.uid] = pod
        self._count(pod, +1)
        if self._on_change is not None:
            self._on_change(known, pod)
        was_bound = known is not None and known.state is _BOUND
        if pod.state is _BOUND and not was_bound and self._on_bound is not None:
            self._on_bound(pod)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that was deleted, or that the watch stopped telling us about."""
        self._assumed.pop(uid, None)
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self._count(known, -1)
        if self._on_change is not None:
            self._on_change(known, None)

    def assume(self, pod: Pod, node: str) -> None:
        """Count a waiting pod as bound to ``node`` from now on: it is being bound there.

        Ends when the pod is seen with a node, or gone, or when the assumption is taken back.
        """
        self._assumed[pod.uid] = node
        self.put_pod(pod)

    def take_back(self, uid: str) -> None:
        """The pod was not bound after all."""
        known = self._pods.get(uid)
        if self._assumed.pop(uid, None) is not None and known is not None:
            self.put_pod(known._replace(node="", state=PodState.WAITING))

    def pod(self, uid: str) -> Pod | None:
        """A pod by its uid; None when it is not known, or not any more."""
        return self._pods.get(uid)

    def pods(self) -> Collection[Pod]:
        """All pods that are known, also those that have ended."""
        return self._pods.values()

    def repelling(self) -> Collection[Pod]:
        """Bound pods that keep others away by a required anti-affinity."""
        return self._repelling.values()

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Make these the nodes; what was not listed is gone."""
        listed = {node.name: node for node in nodes}
        for name in self._nodes.keys() - listed.keys():
            self.remove_node(name)
        for node in listed.values():
            self.put_node(node)

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        """Make these the pods; what was not listed is gone."""
        listed = {pod.uid: pod for pod in pods}
        for uid in self._pods.keys() - listed.keys():
            self.remove_pod(uid)
        for pod in listed.values():
            self.put_pod(pod)

    def snapshot(self) -> Snapshot:
        """The cluster now, nodes by name. The same object until something changes."""
        if self._snapshot is None:
            if self._nodes_changed:
                self._rebuild()
            elif self._loads_changed:
                self._patch()
            self._loads_changed.clear()
            self._snapshot = Snapshot(
                table=self._table,
                requested=self._requested,
                nonzero=self._nonzero,
                waiting=dict(self._without_node[PodState.WAITING].request),
                dropped=dict(self._without_node[PodState.DROPPED].request),
                homeless=self._homeless(),
            )
        return self._snapshot

    def _as_assumed(self, pod: Pod) -> Pod:
        node = self._assumed.get(pod.uid)
        if node is None:
            return pod
        if pod.state is PodState.WAITING:
            return pod._replace(node=node, state=_BOUND, unschedulable_since=None)
        del self._assumed[pod.uid]
        return pod

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.state is not _BOUND:
            if not pod.state.is_over:
                self._snapshot = None
                self._without_node[pod.state].add(pod, sign)
            return
        self._snapshot = None
        if pod.repulsions and sign > 0:
            self._repelling[pod.uid] = pod
        elif pod.repulsions:
            self._repelling.pop(pod.uid, None)
        node = pod.node
        load = self._on_node.get(node)
        if load is None:
            load = self._on_node[node] = _Load()
        load.add(pod, sign)
        if not load.request:
            del self._on_node[node]
        self._loads_changed.add(node)

    def _rebuild(self) -> None:
        names = sorted(self._nodes)
        self._table = NodeTable.of(self._nodes[name] for name in names)
        self._positions = {name: position for position, name in enumerate(names)}
        loads = [self._on_node.get(name, _Load()) for name in names]
        self._requested = columns_of([load.request for load in loads])
        self._nonzero = columns_of([load.nonzero for load in loads])
        self._nodes_changed = False

    def _patch(self) -> None:
        loads = {
            self._positions[name]: self._on_node.get(name, _Load())
            for name in self._loads_changed & self._positions.keys()
        }
        requests = {position: load.request for position, load in loads.items()}
        nonzero = {position: load.nonzero for position, load in loads.items()}
        self._requested = with_rows(self._requested, len(self._table), requests)
        self._nonzero = with_rows(self._nonzero, len(self._table), nonzero)

    def _homeless(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for name in self._on_node.keys() - self._nodes.keys():
            _accumulate(total, self._on_node[name].request, +1)
        return total


def _accumulate(total: dict[str, int], amounts: Mapping[str, int], sign: int) -> None:
    """Add or subtract; a resource whose sum is back at 0 is no longer there."""
    sum_of = total.get
    for name, amount in amounts.items():
        left = sum_of(name, 0) + sign * amount
        if left:
            total[name] = left
        else:
            total.pop(name, None)
