"""An extender of two nodes, as its tests need one.

Must not hold any judgement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from estimator.binpack.strategy import Strategy
from estimator.estimation.capacity import NodeSet
from estimator.kube.incoming import read_incoming
from estimator.nodes import Node, Pod, PodState
from estimator.placement.place import DEFAULT_STRATEGY
from estimator.servers.extender import Extender
from estimator.sight import Sight
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import Conflict

GI = 2**30
CAPACITY = {"cpu": 4000, "memory": 8 * GI, "example.com/foo": 4, "pods": 10}


@dataclass(slots=True)
class RecordingBinding:
    """Binds in memory; what is ``taken`` is bound already."""

    taken: set[str] = field(default_factory=set)
    bound: list[tuple[str, str, str, str]] = field(default_factory=list)

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        if uid in self.taken:
            raise Conflict(f'pod {name} is already assigned to node "{node}"')
        self.bound.append((namespace, name, uid, node))


def pod(name: str, node: str = "", **request: int) -> Pod:
    """A pod of namespace d, bound if it has a node."""
    nonzero = {name: request.get(name, 0) for name in ("cpu", "memory")}
    state = PodState.BOUND if node else PodState.WAITING
    return Pod(
        uid=f"{name}-uid",
        namespace="d",
        name=name,
        node=node,
        state=state,
        request=request,
        nonzero=nonzero,
    )


def two_nodes(*pods: Pod, sight: Sight | None = None) -> WatchedCluster:
    """n0 and n1, alike, with these pods."""
    cluster = WatchedCluster(NodeSet.SCHEDULABLE, sight)
    cluster.cache.replace_nodes([Node(name=name, allocatable=CAPACITY) for name in ("n0", "n1")])
    cluster.cache.replace_pods(pods)
    return cluster


def extender_of(
    cluster: WatchedCluster,
    binding: RecordingBinding | None = None,
    strategy: Strategy = DEFAULT_STRATEGY,
    clock: Callable[[], float] = lambda: 0.0,
) -> Extender:
    return Extender(
        cluster,
        lambda _: strategy,
        read_incoming,
        clock=clock,
        binding=binding,
        unbound="binding is off",
    )
