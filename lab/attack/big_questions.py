"""Callers with a credential who ask for much, and leave before they are answered.

Must not send what is refused by its size alone: that costs nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import Message

from federation.v1.estimates_pb2 import EstimateComponentSetsRequest, EstimateReplicasRequest
from federation.v1.resource_pb2 import Cluster, ResourceBinding, Taint, Toleration
from federation.v1.scheduling_pb2 import ScheduleBatchRequest, ScheduleRequest
from federation.v1.scoring_pb2 import ScoreNodesRequest
from federation.v1.simulation_pb2 import SimulateRequest
from lab.attack.attack import CALLER_GOALS, REST_GOALS, Attack
from lab.attack.target import Target
from lab.callers import unary_methods

SECONDS = 20.0
CALL_SECONDS = 60.0
CALLERS = 4
ABANDONED_SECONDS = 0.5
ABANDONED_CALLERS = 8
MOST_BYTES = 4 << 20


def clusters_with_taints(clusters: int, taints: int) -> list[Cluster]:
    made = []
    for number in range(clusters):
        cluster = Cluster()
        cluster.metadata.name = f"c{number}"
        cluster.spec.taints.extend(
            Taint(key=f"k{(number + each) % 5000}", effect="NoExecute") for each in range(taints)
        )
        made.append(cluster)
    return made


def binding(number: int, tolerations: int = 0) -> ResourceBinding:
    made = ResourceBinding()
    made.metadata.namespace, made.metadata.name = "shop", f"web-{number}"
    made.spec.resource.api_version, made.spec.resource.kind = "apps/v1", "Deployment"
    made.spec.replicas = 5
    made.spec.placement.cluster_tolerations.extend(
        Toleration(key=f"k{each}", operator="Exists") for each in range(tolerations)
    )
    return made


def tolerant_simulation() -> SimulateRequest:
    return SimulateRequest(
        clusters=clusters_with_taints(1000, 100),
        bindings=[binding(number, 3000) for number in range(20)],
    )


def wide_simulation() -> SimulateRequest:
    return SimulateRequest(
        clusters=clusters_with_taints(10_000, 0),
        bindings=[binding(number) for number in range(100)],
    )


def wrong_simulation() -> SimulateRequest:
    """Every binding breaks many rules, and every cluster some."""
    asked = wide_simulation()
    for cluster in asked.clusters:
        cluster.spec.taints.add(key="", effect="Whatever")
    for each in asked.bindings:
        each.spec.placement.cluster_tolerations.extend([Toleration(value="v")] * 1000)
    return asked


def wide_estimate() -> EstimateReplicasRequest:
    asked = EstimateReplicasRequest()
    shape = asked.shapes.add()
    for number in range(10_000):
        shape.resource_request[f"example.com/r{number}"] = "1"
    return asked


def wide_sets() -> EstimateComponentSetsRequest:
    asked = EstimateComponentSetsRequest()
    for number in range(1000):
        component = asked.components.add(name=f"part-{number}", replicas=2)
        for each in range(50):
            component.replica_requirements.resource_request[f"example.com/r{each}"] = "1"
    return asked


def tolerant_binding() -> ScheduleRequest:
    return ScheduleRequest(binding=binding(0, 100_000))


def choosy_binding() -> ScheduleRequest:
    made = binding(0)
    for number in range(30_000):
        names = made.spec.placement.replica_scheduling.weight_preference.static_weight_list.add()
        names.target_cluster.cluster_names.append(f"c{number}")
        names.weight = 1
    return ScheduleRequest(binding=made)


def tolerant_batch() -> ScheduleBatchRequest:
    asked = ScheduleBatchRequest()
    for number in range(1000):
        asked.items.add(binding=binding(number, 200))
    return asked


def many_nodes() -> ScoreNodesRequest:
    asked = ScoreNodesRequest(configuration="apiVersion: v1")
    asked.pod.SetInParent()
    for number in range(5000):
        node = asked.nodes.add(name=f"n{number}")
        for each in range(30):
            node.allocatable[f"example.com/r{each}"] = "1"
    return asked


def ask(method: str, make: Callable[[], Message], target: Target, force: float) -> None:
    """Some callers ask again and again; whatever they hear is right."""
    body = make().SerializeToString()
    assert len(body) < MOST_BYTES, len(body)
    callers = at_least_two(CALLERS * force)
    asyncio.run(_ask(target, method, body, SECONDS * force, callers, CALL_SECONDS))


def abandon(target: Target, force: float) -> None:
    """Callers that leave half a second after they asked, and ask again."""
    body = tolerant_simulation().SerializeToString()
    callers = at_least_two(ABANDONED_CALLERS * force)
    asyncio.run(_ask(target, "Simulate", body, SECONDS * force, callers, ABANDONED_SECONDS))


def at_least_two(callers: float) -> int:
    """With little force, too, one asks while another is served."""
    return max(2, round(callers))


async def _ask(
    target: Target, method: str, body: bytes, seconds: float, callers: int, call_seconds: float
) -> None:
    until = time.monotonic() + seconds

    async def go_on(channel: grpc.aio.Channel) -> None:
        call: Any = channel.unary_unary(unary_methods()[method][0])
        while time.monotonic() < until:
            try:
                await call(body, metadata=target.metadata, timeout=call_seconds)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.INTERNAL:
                    raise

    async with target.aio_channel() as channel:
        await asyncio.gather(*(go_on(channel) for _ in range(callers)))


GOALS = {**CALLER_GOALS, **REST_GOALS}
# Of the control plane and its worker, which could take twice as much alone.
SIMULATION_GOALS = {**GOALS, "RSS at peak, MiB": 512.0}
QUESTIONS: dict[str, tuple[str, Callable[[], Message]]] = {
    "simulations of many taints and tolerations": ("Simulate", tolerant_simulation),
    "simulations of 10,000 clusters": ("Simulate", wide_simulation),
    "simulations that break all rules": ("Simulate", wrong_simulation),
    "estimates of 10,000 resources": ("EstimateReplicas", wide_estimate),
    "estimates of 1,000 components": ("EstimateComponentSets", wide_sets),
    "a binding with 100,000 tolerations": ("Schedule", tolerant_binding),
    "a binding with 30,000 weights": ("Schedule", choosy_binding),
    "batches with 200,000 tolerations": ("ScheduleBatch", tolerant_batch),
    "scores of 5,000 nodes": ("ScoreNodes", many_nodes),
}
ATTACKS = (
    *(
        Attack(
            name=name,
            run=partial(ask, method, make),
            goals=SIMULATION_GOALS if method == "Simulate" else GOALS,
        )
        for name, (method, make) in QUESTIONS.items()
    ),
    Attack(name="simulations that are given up", run=abandon, goals=SIMULATION_GOALS),
)
