"""The cluster as it is now, kept current event by event; hands out snapshots.

A pod event costs O(1), a snapshot a copy of the columns, and more only where a node changed. Must
not read Kubernetes, keep time, or be shared between threads: everything happens on the loop's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from estimator.cluster.holds import Assumptions
from estimator.estimation.quota import Quota
from estimator.nodes import Node, Pod, PodState, WorkloadRef
from estimator.snapshot import NodeTable, Snapshot
from federation.model.arrays import IntArray
from federation.model.resources import MAX_AMOUNT, PODS

# Exact where 64 bits are not enough: broken pods ask for as much as an amount can be.
_Column: TypeAlias = "array[int] | list[int]"

_BYTES: Final = 8
# So many more than twice the places there were may be taken before they are worth arranging.
_SPARE_PLACES: Final = 1_024
# Pods that are taken at once, some milliseconds long.
_SLICE_PODS: Final = 500


class NodeLoads:
    """Sums by node and resource.

    The nodes of the newest ``arrange`` have the first places, in its order; behind them are
    others that pods are bound to.
    """

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._rows = 0
        self._most_places = _SPARE_PLACES
        self._requested: dict[str, _Column] = {PODS: array("q")}
        self._nonzero: dict[str, _Column] = {}

    @property
    def is_sparse(self) -> bool:
        """Whether to arrange them anew: pods may name nodes that never were, ever new ones."""
        return len(self._places) > self._most_places

    def add(self, pod: Pod, sign: int) -> None:
        """Count ``pod`` in (+1) or out (-1) on its node."""
        place = self._places.get(pod.node)
        if place is None:
            place = self._new_place(pod.node)
        self._requested[PODS][place] += sign
        self._accumulate(self._requested, place, pod.request, sign)
        self._accumulate(self._nonzero, place, pod.nonzero, sign)

    def arrange(self, names: Sequence[str]) -> None:
        """Make these the rows; nodes that are not among them stay behind as long as they have pods.

        A resource that no pod asks for is no longer there.
        """
        pods = self._requested[PODS]
        wanted_names = set(names)
        homeless = [
            name for name, place in self._places.items() if pods[place] and name not in wanted_names
        ]
        order = [*names, *homeless]
        places = [self._places.get(name) for name in order]
        for columns in (self._requested, self._nonzero):
            for name, column in list(columns.items()):
                columns[name] = _moved(column, places)
                if name != PODS and not any(columns[name]):
                    del columns[name]
        self._places = {name: place for place, name in enumerate(order)}
        self._rows = len(names)
        self._most_places = 2 * len(order) + _SPARE_PLACES

    def requested(self) -> dict[str, IntArray]:
        """Sums of the requests and of the pods themselves, one read-only array a resource."""
        return self._copied(self._requested)

    def nonzero(self) -> dict[str, IntArray]:
        """Sums as scoring counts them."""
        return self._copied(self._nonzero)

    def homeless(self) -> dict[str, int]:
        """Return the requested amounts behind the rows, by resource."""
        sums = {name: sum(column[self._rows :]) for name, column in self._requested.items()}
        return {name: amount for name, amount in sums.items() if amount}

    def _new_place(self, node: str) -> int:
        place = self._places[node] = len(self._places)
        for columns in (self._requested, self._nonzero):
            for column in columns.values():
                column.append(0)
        return place

    def _accumulate(
        self, columns: dict[str, _Column], place: int, amounts: Mapping[str, int], sign: int
    ) -> None:
        for name, amount in amounts.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = array("q", bytes(_BYTES * len(self._places)))
            try:
                column[place] += sign * amount
            except OverflowError:
                column = columns[name] = list(column)
                column[place] += sign * amount

    def _copied(self, columns: Mapping[str, _Column]) -> dict[str, IntArray]:
        return {name: _first(columns[name], self._rows) for name in sorted(columns)}


def _first(column: _Column, rows: int) -> IntArray:
    """A copy; amounts stop at MAX_AMOUNT, so that differences of two of them stay int64."""
    if isinstance(column, list):
        copy = np.array([min(amount, MAX_AMOUNT) for amount in column[:rows]], dtype=np.int64)
    else:
        copy = np.array(column[:rows], dtype=np.int64)
    copy.flags.writeable = False
    return copy


def _moved(column: _Column, places: Sequence[int | None]) -> _Column:
    amounts = (column[place] if place is not None else 0 for place in places)
    return list(amounts) if isinstance(column, list) else array("q", amounts)


# Python 3.11 is slow to look a member of an enum up, and events ask for this again and again.
_BOUND: Final = PodState.BOUND
_WAITING: Final = PodState.WAITING


class ClusterCache:
    """Nodes and pods, and what the pods sum to on every node."""

    def __init__(
        self,
        on_bound: Callable[[Pod], None] | None = None,
        on_change: Callable[[Pod | None, Pod | None], None] | None = None,
        is_promised: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        """``on_bound`` is told of every pod that was not known to hold room on its node.

        ``on_change`` is told before, of every pod, what it was and what it is: None, not there.
        ``is_promised`` says whether a pod stands for a promise, which takes its room already.
        """
        self.assumptions = Assumptions(lambda uid: uid in self._pods)
        self._on_bound = on_bound
        self._on_change = on_change
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._loads = NodeLoads()
        # Sums by resource name.
        self._without_node: dict[PodState, dict[str, int]] = {
            PodState.WAITING: {},
            PodState.GATED: {},
            PodState.DROPPED: {},
        }
        # Pods without a node by uid, of which Kubernetes says where they are expected to run.
        self._nominated: dict[str, Pod] = {}
        self._is_promised = is_promised
        # Nodes of assumed pods by uid, and the uids of pods that only a binder's watch has shown.
        self._assumed: dict[str, str] = {}
        self._unshown: set[str] = set()
        self._repelling: dict[str, Pod] = {}
        self._table = NodeTable.of(())
        self._nodes_changed = False
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
        """Add or replace a pod, as a watch shows it."""
        uid = pod.uid
        self.assumptions.shown(uid)
        if self._unshown:
            self._unshown.discard(uid)
        if self.assumptions:
            if not pod.state.has_no_node_yet:
                self._assumed.pop(uid, None)
                self.assumptions.end(uid)
            elif uid in self._assumed:
                pod = _bound_to(pod, self._assumed[uid])
        self._put(pod)

    def _put(self, pod: Pod) -> None:
        former = self._pods.get(pod.uid)
        if former == pod:
            return
        if former is not None:
            self._count(former, -1)
        self._pods[pod.uid] = pod
        self._count(pod, +1)
        if self._on_change is not None:
            self._on_change(former, pod)
        was_bound = former is not None and former.state is _BOUND
        if pod.state is _BOUND and not was_bound and self._on_bound is not None:
            self._on_bound(pod)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod that was deleted, or that the watch stopped telling us about."""
        self._assumed.pop(uid, None)
        self.assumptions.deleted(uid)
        self._drop(uid)

    def _drop(self, uid: str) -> None:
        self._unshown.discard(uid)
        former = self._pods.pop(uid, None)
        if former is None:
            return
        self._count(former, -1)
        if self._on_change is not None:
            self._on_change(former, None)

    def assume(self, pod: Pod, node: str, now: float, version: int = 0) -> bool:
        """Count a waiting pod as bound to ``node`` from now on: it is being bound there.

        False for a pod that was deleted or has ended. Ends when the pod is seen with a node, or
        gone, when the assumption is taken back, or after a time. ``version`` is as in
        ``Assumptions.begin``.
        """
        uid = pod.uid
        current = self._pods.get(uid)
        if current is not None and not current.state.has_no_node_yet and uid not in self._assumed:
            return current.state is _BOUND
        if not self.assumptions.begin(uid, now, self._uncount, version=version):
            return False
        self._assumed[uid] = node
        current = self._pods.get(uid)
        if current is None:
            self._unshown.add(uid)
        self._put(_bound_to(current or pod, node))
        return True

    def confirm(self, uid: str) -> None:
        """Note that another watch shows an assumed pod on its node: the cache's own is behind."""
        if uid in self._assumed:
            self._unshown.discard(uid)
            self.assumptions.confirm(uid)

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod counts on a node only because it is being bound there."""
        return uid in self._assumed

    def take_back(self, uid: str) -> None:
        """The pod was not bound after all."""
        if uid in self._assumed:
            self.assumptions.end(uid)

    def pod(self, uid: str) -> Pod | None:
        """A pod by its uid; None when it is not known, or not any more."""
        return self._pods.get(uid)

    def pods(self) -> Collection[Pod]:
        """All pods that are known, also those that have ended."""
        return self._pods.values()

    def unschedulable_replicas(self, owner: WorkloadRef, *, since: float) -> int:
        """Pods of the owner that have been unschedulable since ``since`` (Unix seconds) or longer.

        Of a Deployment those of its newest ReplicaSet, which its newest pod belongs to: the pods
        of the others are on their way out.
        """
        owned = [
            pod
            for pod in self._pods.values()
            if pod.namespace == owner.namespace and pod.owner == owner
        ]
        newest = max(owned, key=lambda pod: (pod.created_at, pod.revision), default=None)
        return sum(
            pod.unschedulable_since is not None and pod.unschedulable_since <= since
            for pod in owned
            if newest is not None and pod.revision == newest.revision
        )

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
        for _ in self.replacing_pods(pods):
            pass

    def replacing_pods(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Make these the pods, and yield after each slice: there may be a hundred thousand."""
        listed = {pod.uid: pod for pod in pods}
        # The list may be older than what a binder's watch has shown.
        for uid in self._pods.keys() - listed.keys() - self._unshown:
            self.remove_pod(uid)
        for number, pod in enumerate(listed.values()):
            self.put_pod(pod)
            if number % _SLICE_PODS == _SLICE_PODS - 1:
                yield

    def snapshot(self) -> Snapshot:
        """The cluster now, nodes by name. The same object until something changes."""
        if self._snapshot is None:
            if self._nodes_changed:
                self._rebuild()
            elif self._loads.is_sparse:
                self._loads.arrange([node.name for node in self._table.nodes])
            self._snapshot = Snapshot(
                table=self._table,
                requested=self._loads.requested(),
                nonzero=self._loads.nonzero(),
                waiting=dict(self._without_node[PodState.WAITING]),
                gated=dict(self._without_node[PodState.GATED]),
                dropped=dict(self._without_node[PodState.DROPPED]),
                homeless=self._loads.homeless(),
            ).with_nominated(
                pod
                for pod in self._nominated.values()
                if pod.nominated_node in self._nodes and not self._is_promised(pod)
            )
        return self._snapshot

    def _uncount(self, uid: str) -> None:
        """End an assumption: a pod that is shown meanwhile, or was removed, counts as it is."""
        if self._assumed.pop(uid, None) is None:
            return
        if uid in self._unshown:
            self._drop(uid)
        else:
            self._put(self._pods[uid]._replace(node="", state=_WAITING))

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.state is not _BOUND:
            if not pod.state.is_over:
                self._snapshot = None
                _accumulate(self._without_node[pod.state], pod, sign)
                if pod.nominated_node and sign > 0:
                    self._nominated[pod.uid] = pod
                elif pod.nominated_node:
                    self._nominated.pop(pod.uid, None)
            return
        self._snapshot = None
        if pod.repulsions and sign > 0:
            self._repelling[pod.uid] = pod
        elif pod.repulsions:
            self._repelling.pop(pod.uid, None)
        self._loads.add(pod, sign)

    def promises_changed(self) -> None:
        """Take another look at which nominated pods stand for a promise."""
        if self._nominated:
            self._snapshot = None

    def _rebuild(self) -> None:
        names = sorted(self._nodes)
        self._table = NodeTable.of(self._nodes[name] for name in names)
        self._loads.arrange(names)
        self._nodes_changed = False


def _bound_to(pod: Pod, node: str) -> Pod:
    return pod._replace(node=node, state=_BOUND, unschedulable_since=None)


def _accumulate(total: dict[str, int], pod: Pod, sign: int) -> None:
    """Count ``pod`` in or out; a resource whose sum is back at 0 is no longer there."""
    for name, amount in (*pod.request.items(), (PODS, 1)):
        amount_now = total.get(name, 0) + sign * amount
        if amount_now:
            total[name] = amount_now
        else:
            total.pop(name, None)


class ResourceQuotas:
    """Quotas by namespace and name; none where they are not watched."""

    def __init__(self) -> None:
        self._quotas: dict[tuple[str, str], Quota] = {}

    def put(self, quota: Quota) -> None:
        """Add or replace a quota."""
        self._quotas[quota.namespace, quota.name] = quota

    def remove(self, quota: Quota) -> None:
        self._quotas.pop((quota.namespace, quota.name), None)

    def replace(self, quotas: Iterable[Quota]) -> None:
        """Make these the quotas; what was not listed is gone."""
        self._quotas = {(quota.namespace, quota.name): quota for quota in quotas}

    def all(self) -> tuple[Quota, ...]:
        return tuple(self._quotas.values())
