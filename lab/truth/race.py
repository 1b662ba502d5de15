"""The race for promised room: a node of eight cores, four of them promised to one pod by plan.

Eight pods of others come at once, and the promised one so much later, on a cluster whose simulated
kube-scheduler asks the real extender over HTTP. Run as a program it goes through many spacings and
exits with 1 when a promised pod was left without a node.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec
import numpy as np

from estimator.estimation.capacity import NodeSet
from estimator.kube.incoming import read_incoming
from estimator.kube.objects import RawPod
from estimator.kube.translate import pod_from_raw
from estimator.nodes import Node, Pod
from estimator.placement.incoming import IncomingPod
from estimator.placement.place import DEFAULT_STRATEGY
from estimator.servers.extender import Extender
from estimator.servers.extender_http import ExtenderServer
from estimator.watched_cluster import WatchedCluster
from federation.model.echoes import BINDING_LABEL, Interest, InterestUpdate, SoughtShape
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.reservations import PromiseCertificate, Share
from federation.model.resources import CPU, MEMORY, PODS
from federation.model.shapes import ReservationKey, request_shape
from federation.model.workload import ReplicaRequirements
from lab.programs import parser
from lab.truth.kube_scheduler import Delays, HttpExtender, KubeScheduler, Timeline
from lab.verdicts import Verdicts, at_most

T = TypeVar("T")

STARTED_AT = 1_000_000.0


class Loop:
    """An event loop in a thread of its own, for what is asked over HTTP by a caller that blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def call(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self.wait_for(called())


class ExtendedCluster:
    """Nodes, a scheduler with the extender, and the agent's picture, which is ``late`` seconds old.

    Use as a context manager.
    """

    def __init__(
        self, loop: Loop, nodes: Iterable[Node], *, seed: int, late: float, delays: Delays
    ) -> None:
        self.timeline = Timeline()
        self.member = WatchedCluster(NodeSet.SCHEDULABLE)
        self.member.follows_claims = True
        self.bound: dict[str, str] = {}
        self._loop = loop
        self._late = late
        self._manifests: dict[str, dict[str, Any]] = {}
        self._version = 0
        self._interests: dict[str, Interest] = {}
        self._nodes = list(nodes)
        self._seed = seed
        self._delays = delays

    def __enter__(self) -> Self:
        extender = Extender(
            self.member,
            lambda _: DEFAULT_STRATEGY,
            read_incoming,
            clock=lambda: STARTED_AT + self.timeline.now,
            binding=None,
        )
        self._server = ExtenderServer(extender, host="127.0.0.1", port=0, tls=None)
        self._loop.wait_for(self._server.start())
        self._loop.call(lambda: self.member.cache.replace_nodes(self._nodes))
        self.client = HttpExtender(f"http://127.0.0.1:{self._server.port}/")
        self.scheduler = KubeScheduler(
            nodes=self._nodes,
            timeline=self.timeline,
            bind=self._bind,
            random=np.random.default_rng(self._seed),
            extender=self.client,
            delays=self._delays,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._loop.wait_for(self._server.stop())

    def create(self, manifest: dict[str, Any], *, is_deleted: bool = False) -> None:
        """A pod is made: kube-scheduler hears of it at once, the agent after a while.

        ``is_deleted``: it is deleted while kube-scheduler first asks about it; the agent sees both
        before the call comes.
        """
        self._manifests[manifest["metadata"]["uid"]] = manifest
        if is_deleted:
            self._delete_during_call(manifest)
        else:
            self._tell(manifest)
        self.scheduler.put_pod(manifest)

    def delete(self, uid: str) -> None:
        del self._manifests[uid]
        self.bound.pop(uid, None)
        self.scheduler.remove_pod(uid)
        remove = self.member.cache.remove_pod
        self.timeline.after(self._late, lambda: self._loop.call(lambda: remove(uid)))

    def _delete_during_call(self, manifest: dict[str, Any]) -> None:
        uid = manifest["metadata"]["uid"]
        pod = _seen(manifest)

        def see_all() -> None:
            self.member.cache.put_pod(pod)
            self.member.cache.remove_pod(uid)

        def delete() -> None:
            self._loop.call(see_all)
            # kube-scheduler takes events between two cycles.
            self.timeline.after(0.0, lambda: self._forget(uid))

        self.client.before_filter[uid] = delete

    def _forget(self, uid: str) -> None:
        del self._manifests[uid]
        self.scheduler.remove_pod(uid)

    def promise(self, binding: str, request: Mapping[str, int], replicas: int) -> NodePlan:
        """Ask the agent for a plan, and tell it of the promise when it made one."""
        requirements = ReplicaRequirements(request=request)
        share = ShareOrder(replicas=replicas, requirements=requirements)
        order = PlaceOrder(binding_key=binding, shares=(share,), planned=True)
        now = STARTED_AT + self.timeline.now
        plan = self._loop.call(lambda: self.member.place(order, now))
        if plan.claimed:
            planned = Share(
                requirements=requirements,
                replicas=replicas,
                certificate=PromiseCertificate.PLANNED,
            )
            sought = SoughtShape(
                component="", shape=request_shape(request), decisions=("d",), planned=planned
            )
            self._interests[binding] = Interest(
                binding=binding, uid=binding, owner=None, shapes=(sought,)
            )
            self._look_for(self._interests[binding])
        return plan

    def claimed(self, binding: str, request: Mapping[str, int]) -> dict[str, int]:
        """Replicas that have nodes kept for them, by node."""
        key = ReservationKey(binding, "", request_shape(request))
        return {claim.node: claim.replicas for claim in self.member.claims.planned(key)}

    def _look_for(self, *interests: Interest) -> None:
        self._version += 1
        update = InterestUpdate(version=self._version, whole=False, interests=interests)
        self._loop.call(lambda: list(self.member.look_for(update, STARTED_AT + self.timeline.now)))

    def _bind(self, pod: IncomingPod, node: str) -> None:
        self.bound[pod.uid] = node
        manifest = self._manifests[pod.uid]
        bound = {**manifest, "spec": {**manifest["spec"], "nodeName": node}}
        self._manifests[pod.uid] = bound
        self._tell(bound)

    def _tell(self, manifest: dict[str, Any]) -> None:
        pod = _seen(manifest)
        put = self.member.cache.put_pod
        self.timeline.after(self._late, lambda: self._loop.call(lambda: put(pod)))


def promised_pod(name: str, binding: str, cpu: str) -> dict[str, Any]:
    return pod(name, cpu, {BINDING_LABEL: binding})


def pod(name: str, cpu: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A pod of the namespace shop that waits."""
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": dict(labels or {}),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Pending"},
    }


def _seen(manifest: dict[str, Any]) -> Pod:
    return pod_from_raw(msgspec.json.decode(msgspec.json.encode(manifest), type=RawPod))


BINDING = "shop/web"
DELAYS = Delays(cycle=0.003, bind=0.2)
LATE_SECONDS = 0.15
ROUNDS = 200
LONGEST_SPACING_SECONDS = 0.5
FOREIGN = 8
PATIENT_SECONDS = 60.0


def cluster(loop: Loop, nodes: int, seed: int) -> ExtendedCluster:
    """Nodes of eight cores; the agent sees what happens with a delay."""
    members = [
        Node(name=f"n{number}", allocatable={CPU: 8000, MEMORY: 64 << 30, PODS: 110})
        for number in range(nodes)
    ]
    return ExtendedCluster(loop, members, seed=seed, late=LATE_SECONDS, delays=DELAYS)


def run_once(loop: Loop, seed: int, spacing_seconds: float) -> tuple[bool, int]:
    """Whether the promised pod got a node, and how many of the others did."""
    with cluster(loop, 1, seed) as race:
        assert race.promise(BINDING, {CPU: 4000}, 1).claimed
        for number in range(FOREIGN):
            race.create(pod(f"f{number}", "1"))
        race.timeline.run(spacing_seconds)
        race.create(promised_pod("p", BINDING, "4"))
        race.timeline.run(PATIENT_SECONDS)
        is_bound = "uid-p" in race.bound
        return is_bound, len(race.bound) - is_bound


def main() -> int:
    parser("truth.race", __doc__).parse_args()
    with Loop() as loop:
        found = [
            run_once(loop, number, LONGEST_SPACING_SECONDS * number / (ROUNDS - 1))
            for number in range(ROUNDS)
        ]
    pending = sum(not is_bound for is_bound, _ in found)
    others = sum(bound for _, bound in found)
    figures = Verdicts("race")
    figures.section(f"{ROUNDS} rounds")
    detail = f"{others / ROUNDS:.2f} others bound"
    figures.row("promised pods pending", pending, goal=at_most(0), detail=detail)
    return int(figures.missed > 0)


if __name__ == "__main__":
    sys.exit(main())
