"""Gives pending pods of this scheduler their nodes, one by one in order, and binds them.

Everything happens on one loop; only the writes wait. Must not bind what it cannot judge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from estimator.binder.gangs import Assigned, Gangs, UnreadableGroup
from estimator.binder.queue import SchedulingQueue
from estimator.binpack.strategy import Strategy
from estimator.kube.lease import Election, Lease, LeaseCandidate
from estimator.nodes import Pod, PodState
from estimator.placement.incoming import SCHEDULER_NAME, IncomingPod, PodEvent
from estimator.placement.judgement import Judgement, Positions
from estimator.snapshot import Snapshot
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import Conflict, FederationError, NotFound


class ClusterWrites(Protocol):
    """Everything the binder writes. All raise FederationError."""

    async def bind(self, *, namespace: str, name: str, uid: str, node: str) -> None:
        """Returns when the pod is bound to that node, by this call or by one before."""
        ...

    async def tell(self, event: PodEvent) -> None:
        """Record an event; a warning also in the pod's condition PodScheduled."""
        ...

    async def read_lease(self) -> Lease | None: ...

    async def write_lease(self, lease: Lease) -> None:
        """Raises Conflict when it was changed since it was read."""
        ...


MAX_WAITING: Final = 2_000
WRITERS: Final = 2

logger = logging.getLogger(__name__)


class Telling:
    """Queues events and writes them. What does not fit in the queue is dropped."""

    def __init__(self, writes: ClusterWrites) -> None:
        self._writes = writes
        self._waiting: asyncio.Queue[PodEvent] = asyncio.Queue(MAX_WAITING)
        self._last: dict[str, str] = {}

    def tell(self, event: PodEvent) -> None:
        uid = event.pod.uid
        if self._last.get(uid) == event.message:
            return
        self._last[uid] = event.message
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            logger.warning("event of pod %s dropped: too many wait", uid)

    def forget(self, uid: str) -> None:
        self._last.pop(uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(self._write())

    async def _write(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                await self._writes.tell(event)
            except FederationError as error:
                logger.warning("event of pod %s not written: %s", event.pod.uid, error.message)


MAX_BINDING: Final = 32
# Nobody says when the picture changes; it is looked at this often while pods wait for that.
LOOK_SECONDS: Final = 0.5

logger = logging.getLogger(__name__)


class Binder:
    """Binds by one cluster's picture while ``election`` says that it is the leader.

    The pods it is told of are those that name its scheduler, bound ones included. ``clock`` is in
    Unix seconds, ``monotonic`` does not go back.
    """

    def __init__(
        self,
        cluster: WatchedCluster,
        writes: ClusterWrites,
        strategy: Strategy,
        election: Election,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._writes = writes
        self._strategy = strategy
        self._election = election
        self._clock = clock
        self._monotonic = monotonic
        self._queue = SchedulingQueue()
        self._gangs = Gangs()
        self._telling = Telling(writes)
        self._candidate = LeaseCandidate(election, writes, clock=clock, monotonic=monotonic)
        self._positions = Positions()
        self._judged_on: Snapshot | None = None
        self._known: set[str] = set()
        self._binding: set[asyncio.Task[None]] = set()
        self._woken = asyncio.Event()

    def replace_pods(self, pods: Iterable[IncomingPod]) -> None:
        """These are all the pods there are for this scheduler."""
        listed = {pod.uid: pod for pod in pods}
        for uid in self._known - listed.keys():
            self._forget(uid)
        for pod in listed.values():
            self.put_pod(pod)

    def put_pod(self, pod: IncomingPod) -> None:
        """A pod came or changed."""
        self._known.add(pod.uid)
        if pod.node:
            self._cluster.cache.confirm(pod.uid)
        try:
            self._gangs.see(pod)
        except UnreadableGroup as error:
            self._queue.remove(pod.uid)
            self._warn(pod, str(error))
            return
        if pod.node or pod.held:
            self._queue.remove(pod.uid)
            return
        is_new = pod.uid not in self._queue
        self._queue.put(pod, self._gangs.order(pod))
        if is_new:
            self._queue.reconsider(self._gangs.others(pod.uid))
        self._woken.set()

    def remove_pod(self, pod: IncomingPod) -> None:
        """A pod is gone, or has ended."""
        self._forget(pod.uid)
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled; then give the lease back."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._candidate.stand(self._woken.set))
                tasks.create_task(self._telling.run())
                tasks.create_task(self._work())
        finally:
            await asyncio.gather(*self._binding, return_exceptions=True)
            await self._candidate.resign()

    async def _work(self) -> None:
        while True:
            if self._step(self._monotonic()):
                # Others use the loop too: the picture must not fall behind the work.
                await asyncio.sleep(0)
            else:
                await self._rest()

    def _step(self, now: float) -> bool:
        """Try one pod; False when there is nothing to do now."""
        if not self._election.is_leader(now):
            self._give_back(self._gangs.reject_all(), "this binder is not the leader any more", now)
            return False
        self._cluster.expire_assumptions(self._clock())
        self._give_back(self._gangs.expired(now), "its group did not come together in time", now)
        if not self._cluster.view().is_current or len(self._binding) >= MAX_BINDING:
            return False
        self._look(now)
        pod = self._queue.pop(now)
        if pod is None:
            return False
        self._try(pod, now)
        return True

    async def _rest(self) -> None:
        """Until something happens, or is due."""
        now = self._monotonic()
        times = [self._queue.next_time(now), self._gangs.next_deadline()]
        due = min((time for time in times if time is not None), default=None)
        seconds = None if due is None else max(due - now, 0.0)
        looks = self._queue.waits_for_change() or seconds == 0.0
        if looks:
            seconds = LOOK_SECONDS if not seconds else min(seconds, LOOK_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()

    def _look(self, now: float) -> None:
        """Whether the picture is another than the one that pods were last judged on."""
        if self._cluster.cache.snapshot() is not self._judged_on:
            self._queue.cluster_changed(now)
            self._judged_on = self._cluster.cache.snapshot()

    def _try(self, pod: IncomingPod, now: float) -> None:
        why_not = self._why_left_alone(pod) or self._gangs.why_not_yet(pod)
        node = ""
        if not why_not:
            judgement = self._judgement(pod)
            row = judgement.best_row()
            if row is None:
                why_not = judgement.why_nowhere()
            else:
                node = self._cluster.cache.snapshot().table.nodes[row].name
        if why_not:
            self._queue.failed(pod.uid, now)
            self._warn(pod, why_not)
            waiting = self._gangs.reject(pod.uid)
            self._give_back(waiting, f"pod {pod.name} of its group got no node", now)
            return
        shown = _as_waiting(pod)
        if not self._cluster.cache.assume(shown, node, self._clock(), pod.version):
            # The watch of all pods is ahead of the binder's own: this pod is gone.
            self._forget(pod.uid)
            return
        # Room that this pod takes is no news to the others.
        self._judged_on = self._cluster.cache.snapshot()
        for assigned in self._gangs.permit(pod, node, now):
            task = asyncio.create_task(self._bind(assigned))
            self._binding.add(task)
            task.add_done_callback(self._bound)

    def _why_left_alone(self, pod: IncomingPod) -> str:
        if pod.unjudged:
            return f"left alone: {SCHEDULER_NAME} cannot judge {', '.join(pod.unjudged)}"
        for other in self._cluster.cache.repelling():
            if any(repulsion.concerns(pod.namespace, pod.labels) for repulsion in other.repulsions):
                return (
                    f"left alone: {SCHEDULER_NAME} cannot judge the anti-affinity of pod "
                    f"{other.namespace}/{other.name}"
                )
        return ""

    def _judgement(self, pod: IncomingPod) -> Judgement:
        snapshot = self._cluster.cache.snapshot()
        return Judgement.of(
            pod,
            snapshot,
            self._positions.of(snapshot),
            self._cluster.claimed_for(pod, self._clock()),
            self._strategy,
        )

    async def _bind(self, assigned: Assigned) -> None:
        pod, node = assigned.pod, assigned.node
        try:
            if not self._election.is_leader(self._monotonic()):
                raise Conflict("this binder is not the leader any more")
            await self._writes.bind(namespace=pod.namespace, name=pod.name, uid=pod.uid, node=node)
        except NotFound:
            self._forget(pod.uid)
            return
        except FederationError as error:
            self._gangs.not_bound(pod.uid)
            self._give_back([assigned], f"not bound to {node}: {error.message}", self._monotonic())
            return
        self._queue.remove(pod.uid)
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        event = PodEvent(pod=pod, is_warning=False, reason="Scheduled", message=message)
        self._telling.tell(event)

    def _bound(self, task: asyncio.Task[None]) -> None:
        self._binding.discard(task)
        self._woken.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("binding failed unexpectedly", exc_info=task.exception())

    def _give_back(self, assigned: Iterable[Assigned], why: str, now: float) -> None:
        """These got a node and do not keep it; they come again after a while."""
        for entry in assigned:
            self._cluster.cache.take_back(entry.pod.uid)
            self._queue.postpone(entry.pod.uid, now)
            self._warn(entry.pod, why)

    def _forget(self, uid: str) -> None:
        if self._cluster.cache.is_assumed(uid):
            self._cluster.cache.remove_pod(uid)
        self._known.discard(uid)
        self._queue.remove(uid)
        self._gangs.forget(uid)
        self._telling.forget(uid)

    def _warn(self, pod: IncomingPod, message: str) -> None:
        event = PodEvent(pod=pod, is_warning=True, reason="FailedScheduling", message=message)
        self._telling.tell(event)


def _as_waiting(pod: IncomingPod) -> Pod:
    """The pod as capacity counts it, for when the other watch has not told of it yet."""
    return Pod(
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        state=PodState.WAITING,
        request=pod.amounts,
        nonzero=pod.request.nonzero_placed,
        origin=pod.origin,
    )
