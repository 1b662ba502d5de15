"""Bound pods, claims and pods on their way: never more on a node than it holds, whatever comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node, Pod, PodState
from estimator.placement.place import arrays_beside
from estimator.watched_cluster import WatchedCluster
from federation.model.echoes import (
    BINDING_LABEL,
    Interest,
    InterestUpdate,
    PodOrigin,
    SoughtShape,
)
from federation.model.node_plans import PlaceOrder, ShareOrder
from federation.model.reservations import PromiseCertificate, Share
from federation.model.resources import CPU, PODS
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements
from lab.extenders import extender_of

NAMES = ["a", "b", "c"]
CORES = 6


def answer(filtering: Any) -> Any:
    """What a verb answers that has nothing to wait for."""
    try:
        filtering.send(None)
    except StopIteration as done:
        return json.loads(done.value)
    raise AssertionError


def filter_call(uid: str, cpu: int, labels: dict[str, str], offered: list[str]) -> bytes:
    pod = {
        "metadata": {"name": uid, "namespace": "shop", "uid": uid, "labels": labels},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}]},
    }
    return json.dumps({"Pod": pod, "NodeNames": offered}).encode()


class Racing(RuleBasedStateMachine):
    """Promises, their pods and others', each let on nodes, bound somewhere, and seen there late."""

    def __init__(self) -> None:
        super().__init__()
        self.member = WatchedCluster(NodeSet.SCHEDULABLE)
        self.member.follows_claims = True
        self.member.cache.replace_nodes(
            [Node(name=name, allocatable={CPU: CORES, PODS: 20}) for name in NAMES]
        )
        self.extender = extender_of(self.member)
        self.count = 0
        self.version = 0
        # By uid: what the pod asks for, its binding, where kube-scheduler put it, and if it is seen
        self.placed: dict[str, tuple[int, str, str]] = {}
        self.to_see: list[str] = []
        self.due: list[tuple[str, int]] = []

    @rule(cpu=st.integers(1, 4), replicas=st.integers(1, 3))
    def promise(self, cpu: int, replicas: int) -> None:
        self.count += 1
        key = f"shop/b{self.count}"
        requirements = ReplicaRequirements(request={CPU: cpu})
        share = ShareOrder(replicas=replicas, requirements=requirements)
        order = PlaceOrder(binding_key=key, shares=(share,), planned=True)
        if not self.member.place(order, 0.0).claimed:
            return
        planned = Share(
            requirements=requirements, replicas=replicas, certificate=PromiseCertificate.PLANNED
        )
        sought = SoughtShape(
            component="", shape=request_shape({CPU: cpu}), decisions=("d",), planned=planned
        )
        self.version += 1
        update = InterestUpdate(
            version=self.version,
            whole=False,
            interests=(Interest(binding=key, uid=key, owner=None, shapes=(sought,)),),
        )
        list(self.member.look_for(update, 0.0))
        self.due += [(key, cpu)] * replicas

    @precondition(lambda self: self.due)
    @rule(data=st.data())
    def own_pod(self, data: st.DataObject) -> None:
        key, cpu = self.due.pop(data.draw(st.integers(0, len(self.due) - 1)))
        kept = self.ask(cpu, key, data.draw)
        assert kept, "a planned promise's pod was let on no node"

    @rule(cpu=st.integers(1, 4), data=st.data())
    def foreign_pod(self, cpu: int, data: st.DataObject) -> None:
        self.ask(cpu, "", data.draw)

    @precondition(lambda self: self.to_see)
    @rule(data=st.data())
    def watch(self, data: st.DataObject) -> None:
        uid = self.to_see.pop(data.draw(st.integers(0, len(self.to_see) - 1)))
        cpu, binding, node = self.placed[uid]
        self.member.cache.put_pod(
            Pod(
                uid=uid,
                namespace="shop",
                name=uid,
                node=node,
                state=PodState.BOUND,
                request={CPU: cpu},
                origin=PodOrigin.of({BINDING_LABEL: binding} if binding else {}, ()),
            )
        )

    @precondition(lambda self: any(not each[1] for each in self.placed.values()))
    @rule(data=st.data())
    def foreign_pod_ends(self, data: st.DataObject) -> None:
        foreign = sorted(uid for uid, each in self.placed.items() if not each[1])
        uid = data.draw(st.sampled_from(foreign))
        del self.placed[uid]
        if uid in self.to_see:
            self.to_see.remove(uid)
        self.member.cache.remove_pod(uid)

    @rule(cpu=st.integers(1, 4))
    def pod_deleted_before_its_call_comes(self, cpu: int) -> None:
        self.count += 1
        uid = f"p{self.count}"
        waiting = Pod(uid=uid, namespace="shop", name=uid, state=PodState.WAITING)
        self.member.cache.put_pod(waiting._replace(request={CPU: cpu}))
        self.member.cache.remove_pod(uid)
        before = len(self.member.assumed)
        answer(self.extender.filter(filter_call(uid, cpu, {}, NAMES)))
        assert len(self.member.assumed) == before

    @invariant()
    def nothing_holds_more_than_it_can(self) -> None:
        snapshot = self.member.cache.snapshot()
        claims = list(self.member.claims.all())
        rows = {node.name: row for row, node in enumerate(snapshot.table.nodes)}
        claimed = arrays_beside(claims, snapshot, rows)
        assumed = self.member.assumed.beside(claims, snapshot.table)
        for name in (CPU, PODS):
            taken_n = claimed.requested_n(name) + assumed.get(name, 0)
            assert (taken_n <= claimed.allocatable_n(name)).all()

    def ask(self, cpu: int, binding: str, draw: Callable[[Any], Any]) -> list[str]:
        """Ask the extender, and put the pod where kube-scheduler, who sees all pods, would."""
        self.count += 1
        uid = f"p{self.count}"
        free = dict.fromkeys(NAMES, CORES)
        for amount, _, node in self.placed.values():
            free[node] -= amount
        offered = [name for name in NAMES if free[name] >= cpu]
        labels = {BINDING_LABEL: binding} if binding else {}
        body = filter_call(uid, cpu, labels, offered)
        kept: list[str] = answer(self.extender.filter(body)).get("NodeNames") or []
        if kept:
            self.placed[uid] = cpu, binding, draw(st.sampled_from(kept))
            self.to_see.append(uid)
        return kept


TestRacing = Racing.TestCase
TestRacing.settings = settings(max_examples=50, stateful_step_count=25, deadline=None)
