"""The four verbs of an extender, from the bytes of a request to the bytes of its answer.

Must not speak HTTP. Verbs read the picture on the loop that owns it; only what is long in reading
or writing leaves for a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol, TypeVar

from estimator.binpack.strategy import Strategy
from estimator.extender.verdicts import UNKNOWN_NODE, fits_without, points, verdicts
from estimator.extender.wire import (
    error_answer,
    filter_answer,
    preempt_answer,
    prioritize_answer,
    read_bind,
    read_nodes,
    read_victims,
)
from estimator.placing.incoming import IncomingPod
from estimator.placing.judgement import Judgement, Positions
from estimator.watched_cluster import WatchedCluster
from federation.model.arrays import BoolArray
from federation.model.errors import InvalidRequest, PermissionRefused, Unavailable

# Reading more than this takes longer than the loop may stand still.
THREAD_BYTES: Final = 256 * 1024

T = TypeVar("T")


class PodBinder(Protocol):
    """Binds pods to nodes."""

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Raises FederationError when the pod is not bound to that node."""
        ...


class Extender:
    """Answers kube-scheduler by one cluster's picture.

    ``read_pod`` raises ValueError for what is no pod. ``strategy_for`` picks by scheduler name and
    may raise InvalidRequest. Without ``binding`` nothing is bound, and ``unbound`` says why.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        strategy_for: Callable[[str], Strategy],
        read_pod: Callable[[bytes], IncomingPod],
        *,
        clock: Callable[[], float],
        binding: PodBinder | None,
        unbound: str = "",
    ) -> None:
        self._cluster = cluster
        self._strategy_for = strategy_for
        self._read_pod = read_pod
        self._clock = clock
        self._binding = binding
        self._unbound = unbound
        self._positions = Positions()

    async def filter(self, body: bytes) -> bytes:
        """Raises InvalidRequest, as all of them do."""
        offered = await _aside(len(body), partial(read_nodes, body))
        pod = self._pod(offered.pod)
        # Whoever asks again was not bound, and is on none of the nodes it was let on before.
        self._cluster.assumed.drop(pod.uid)
        judgement, positions = self._judged(pod)
        found = verdicts(judgement, positions, offered.names)
        if found.awaited and not found.kept:
            # Of a refusal kube-scheduler would try again after an event; of an error, in a moment.
            return error_answer(
                f"{found.awaited} nodes have room only if pods that were let on them just now are "
                "on others: ask again"
            )
        self._assume(judgement, found.kept_n)
        return await _aside(
            len(body),
            partial(filter_answer, offered, found.kept, found.failed, found.unresolvable),
        )

    async def prioritize(self, body: bytes) -> bytes:
        offered = await _aside(len(body), partial(read_nodes, body))
        judgement, positions = self._judged(self._pod(offered.pod))
        return prioritize_answer(points(judgement, positions, offered.names))

    async def preempt(self, body: bytes) -> bytes:
        """The nodes where the pod fits once the victims are gone; the victims as they came.

        A victim this agent has not seen frees nothing. A node without victims would be an error.
        """
        offered = await _aside(len(body), partial(read_victims, body))
        judgement, positions = self._judged(self._pod(offered.pod))
        kept = {}
        for node, victims in offered.victims.items():
            known = (self._cluster.cache.pod(uid) for uid in victims.uids)
            leaving = [pod for pod in known if pod is not None]
            if victims.uids and fits_without(judgement, positions, node, leaving):
                kept[node] = victims
        return preempt_answer(kept)

    async def bind(self, body: bytes) -> bytes:
        """Raises FederationError when the pod could not be bound."""
        order = read_bind(body)
        if self._binding is None:
            raise PermissionRefused(self._unbound)
        if order.node not in self._positions.of(self._cluster.cache.snapshot()):
            # The API server would bind to a node that does not exist.
            raise InvalidRequest.of("Node", f"{order.node!r}: {UNKNOWN_NODE}")
        await self._binding.bind(
            namespace=order.namespace, name=order.name, uid=order.uid, node=order.node
        )
        waiting = self._cluster.cache.pod(order.uid)
        if waiting is not None:
            self._cluster.cache.assume(waiting, order.node, self._clock())
        return error_answer("")

    def _pod(self, content: bytes) -> IncomingPod:
        try:
            return self._read_pod(content)
        except ValueError as error:
            raise InvalidRequest.of("Pod", str(error)) from error

    def _assume(self, judgement: Judgement, kept_n: BoolArray) -> None:
        """Count the pod on the nodes that it may get now."""
        pod, cache = judgement.pod, self._cluster.cache
        known = cache.pod(pod.uid)
        if known is not None and not known.state.has_no_node_yet:
            return
        is_planned = bool((judgement.planned_n | ~kept_n).all())
        self._cluster.assumed.assume(
            pod.uid,
            pod.amounts,
            kept_n,
            cache.snapshot().table,
            self._clock(),
            judgement.promise if is_planned else None,
            is_prepared=pod.is_prepared,
            version=pod.version,
        )

    def _judged(self, pod: IncomingPod) -> tuple[Judgement, Mapping[str, int]]:
        """The pod against the cluster now, and the nodes' rows."""
        view = self._cluster.view()
        if view.is_blind:
            view.check()
        snapshot = self._cluster.cache.snapshot()
        if not len(snapshot):
            raise Unavailable("the agent knows no nodes yet")
        positions = self._positions.of(snapshot)
        claimed = self._cluster.claimed_for(pod, self._clock())
        strategy = self._strategy_for(pod.scheduler_name)
        return Judgement.of(pod, snapshot, positions, claimed, strategy), positions


async def _aside(size_bytes: int, work: Callable[[], T]) -> T:
    """``work``, in a thread when so many bytes make it long."""
    return await asyncio.to_thread(work) if size_bytes > THREAD_BYTES else work()
