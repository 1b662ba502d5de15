"""Members and bindings as seeds make them: mixed nodes with pods, and more than there is room for.

Must not know who decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.echoes import BINDING_LABEL, DECISION_LABEL
from federation.model.placement import (
    Binding,
    Certificate,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.resources import PODS
from federation.model.workload import NodeClaim, ReplicaRequirements, Toleration
from lab.kubeapi.documents import namespace
from lab.kubeapi.resources import Document
from lab.packed_clusters import GIB, MIB

CPU, MEMORY = "cpu", "memory"
ROWS: Final = (CPU, MEMORY, PODS)
NAMESPACE, BASE_NAMESPACE = "shop", "base"
POOL_LABEL = "fleet.example/pool"
ZONE_LABEL = "topology.kubernetes.io/zone"
ARCH_LABEL = "kubernetes.io/arch"
HOST_LABEL = "kubernetes.io/hostname"
ZONES: Final = ("a", "b", "c")

Amounts = Mapping[str, int]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Nodes of one kind; a tainted pool takes only pods that tolerate its name."""

    name: str
    cores: int
    gibibytes: int
    pods: int
    weight: int
    is_tainted: bool = False
    arch: str = "amd64"


POOLS: Final = (
    Pool(name="general", cores=4, gibibytes=16, pods=58, weight=14),
    Pool(name="general-large", cores=16, gibibytes=64, pods=110, weight=10),
    Pool(name="memory", cores=8, gibibytes=64, pods=58, weight=8),
    Pool(name="compute", cores=16, gibibytes=32, pods=58, weight=8),
    Pool(name="arm", cores=8, gibibytes=32, pods=58, weight=4, arch="arm64"),
    Pool(name="spot", cores=8, gibibytes=32, pods=58, weight=6, is_tainted=True),
    Pool(name="infra", cores=4, gibibytes=16, pods=29, weight=4, is_tainted=True),
)
# Each one about 0.94 of what the machine has, as kubelets leave it.
KEPT_CPU, KEPT_MEMORY = 0.98, 0.93
DAEMONS: Final = ({CPU: 100, MEMORY: 128 * MIB}, {CPU: 60, MEMORY: 96 * MIB})
BASE_CPU: Final = (50, 100, 250, 500, 1000, 2000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, and what the pods ask for that run there from the beginning."""

    name: str
    labels: Mapping[str, str]
    taint: str
    allocatable: Amounts
    running: tuple[Amounts, ...]


def nodes_of(member: str, count: int, seed: int) -> list[Node]:
    """Of every pool at least one, where there are enough; 20 to 80 percent of each are taken."""
    choices = random.Random(f"{member}-{seed}")
    weights = [pool.weight for pool in POOLS]
    pools = [*POOLS, *choices.choices(POOLS, weights, k=max(0, count - len(POOLS)))][:count]
    return [_node(member, number, pool, choices) for number, pool in enumerate(pools)]


def free_rn(nodes: Iterable[Node]) -> Int64Array:
    """What is free on each node beside what runs there: ROWS x nodes."""
    return np.array(
        [
            [node.allocatable[row] - sum(_taken(pod, row) for pod in node.running) for row in ROWS]
            for node in nodes
        ],
        dtype=np.int64,
    ).T


def documents_of(nodes: Iterable[Node]) -> Iterator[Document]:
    """All that a member's API server holds at the beginning."""
    for name in ("default", "kube-system", "fedsched", NAMESPACE, BASE_NAMESPACE):
        yield namespace(name)
    for node in nodes:
        yield _node_document(node)
        for number, request in enumerate(node.running):
            document = pod_document(f"{node.name}-{number}", BASE_NAMESPACE, request)
            document["spec"]["nodeName"] = node.name
            document["status"] = {"phase": "Running"}
            yield document


def pod_document(name: str, pods_namespace: str, request: Amounts) -> Document:
    """A pod that waits for a node."""
    quantities = {CPU: f"{request[CPU]}m", MEMORY: str(request[MEMORY])}
    main = {"name": "main", "image": "app.example/app:1", "resources": {"requests": quantities}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": pods_namespace, "uid": f"uid-{name}"},
        "spec": {"containers": [main], "schedulerName": "default-scheduler"},
        "status": {"phase": "Pending"},
    }


def _node(member: str, number: int, pool: Pool, choices: random.Random) -> Node:
    name = f"{member}-{pool.name}-{number}"
    allocatable = {
        CPU: int(pool.cores * 1000 * KEPT_CPU) // 10 * 10,
        # Kernels differ in what they keep, so that equal machines differ by some pages.
        MEMORY: int(pool.gibibytes * GIB * KEPT_MEMORY) - 4096 * choices.randrange(8),
        PODS: pool.pods,
    }
    running: list[Amounts] = [*DAEMONS]
    fill = choices.uniform(0.2, 0.8)
    while True:
        cpu = choices.choice(BASE_CPU)
        request = {CPU: cpu, MEMORY: int(cpu * choices.uniform(1, 6)) * MIB}
        if any(
            sum(_taken(pod, row) for pod in [*running, request]) > fill * allocatable[row]
            for row in ROWS
        ):
            break
        running.append(request)
    labels = {
        POOL_LABEL: pool.name,
        ZONE_LABEL: choices.choice(ZONES),
        ARCH_LABEL: pool.arch,
        HOST_LABEL: name,
    }
    return Node(
        name=name,
        labels=labels,
        taint=pool.name if pool.is_tainted else "",
        allocatable=allocatable,
        running=tuple(running),
    )


def _taken(request: Amounts, row: str) -> int:
    return 1 if row == PODS else request[row]


def _node_document(node: Node) -> Document:
    taints = [{"key": POOL_LABEL, "value": node.taint, "effect": "NoSchedule"}]
    quantities = {
        CPU: f"{node.allocatable[CPU]}m",
        MEMORY: str(node.allocatable[MEMORY]),
        PODS: str(node.allocatable[PODS]),
    }
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": node.name, "uid": f"uid-{node.name}", "labels": dict(node.labels)},
        "spec": {"taints": taints} if node.taint else {},
        "status": {
            "allocatable": quantities,
            "capacity": quantities,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.1"},
        },
    }


LOADS: Final = (1.3, 1.6)
MOST_REPLICAS: Final = 60
DIVIDED: Final = SchedulingType.DIVIDED
SCHEDULINGS: Final = (
    ReplicaScheduling(type=DIVIDED, dynamic=True),
    ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
)


class Stream(StrEnum):
    """PLAIN: pods of up to two cores, anywhere. HARD: larger ones too, and not on any node."""

    PLAIN = "plain"
    HARD = "hard"


# Millicores, mebibytes.
PLAIN_SHAPES: Final = (
    *((50, 64), (100, 128), (100, 256), (250, 256), (250, 512), (500, 512), (500, 1024)),
    *((500, 2048), (1000, 1024), (1000, 2048), (1000, 4096), (2000, 4096), (2000, 8192)),
)
LARGE_SHAPES: Final = (
    *((3000, 6144), (4000, 4096), (4000, 8192), (4000, 16384), (6000, 12288), (7000, 8192)),
    *((8000, 16384), (12000, 16384), (1000, 16384), (2000, 24576)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A workload: so many pods that ask for so much, on nodes with these labels."""

    name: str
    replicas: int
    request: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    tolerated: str = ""
    scheduling: ReplicaScheduling

    def __str__(self) -> str:
        only = "".join(f", {key}={value}" for key, value in self.labels.items())
        tolerated = f", tolerates {self.tolerated}" if self.tolerated else ""
        return f"{self.request[CPU]}m, {self.request[MEMORY] // MIB} MiB{only}{tolerated}"

    @property
    def uid(self) -> str:
        return f"uid-of-{self.name}"

    @property
    def node_claim(self) -> NodeClaim | None:
        if not self.labels and not self.tolerated:
            return None
        tolerations = (Toleration(key=POOL_LABEL, value=self.tolerated),)
        return NodeClaim(
            node_selector=dict(self.labels), tolerations=tolerations if self.tolerated else ()
        )

    def takes(self, node: Node) -> bool:
        """Whether its pods may run there, room apart."""
        if node.taint and node.taint != self.tolerated:
            return False
        return all(node.labels.get(key) == value for key, value in self.labels.items())

    def binding(self, certificate: Certificate | None) -> Binding:
        return Binding(
            namespace=NAMESPACE,
            name=self.name,
            uid=self.uid,
            replicas=self.replicas,
            requirements=ReplicaRequirements(request=self.request, node_claim=self.node_claim),
            placement=Placement(replica_scheduling=self.scheduling),
            certificate=certificate,
        )

    def pod(self, number: int, decision: str, scheduler: str) -> Document:
        """One of its pods, as the controllers of a member make it."""
        document = pod_document(f"{self.name}-{number}", NAMESPACE, self.request)
        document["metadata"]["labels"] = {BINDING_LABEL: self.uid, DECISION_LABEL: decision}
        document["spec"] |= {"schedulerName": scheduler, "nodeSelector": dict(self.labels)}
        if self.tolerated:
            document["spec"]["tolerations"] = [
                {"key": POOL_LABEL, "operator": "Equal", "value": self.tolerated}
            ]
        return document


def stream(kind: Stream, seed: int, count: int, nodes: Sequence[Node]) -> list[Wanted]:
    """So many bindings, which ask for 1.3 to 1.6 times the free cpu or memory of the nodes."""
    choices = random.Random(f"{kind}-{seed}")
    free_r = free_rn(nodes).sum(axis=1).tolist()
    drawn = [_draw(kind, choices) for _ in range(count)]
    sizes = [choices.lognormvariate(0.0, 0.9) for _ in drawn]
    load = choices.uniform(*LOADS)
    replicas = _scaled(sizes, [request for request, _, _ in drawn], free_r, load)
    return [
        Wanted(
            name=f"app-{number:04}",
            replicas=replicas[number],
            request=request,
            labels=labels,
            tolerated=tolerated,
            scheduling=choices.choice(SCHEDULINGS),
        )
        for number, (request, labels, tolerated) in enumerate(drawn)
    ]


def _draw(kind: Stream, choices: random.Random) -> tuple[Amounts, Mapping[str, str], str]:
    """What a pod asks for, the labels its node must have, and the taint it tolerates."""
    is_hard = kind is Stream.HARD
    shapes = LARGE_SHAPES if is_hard and choices.random() < 0.5 else PLAIN_SHAPES
    cpu, mebibytes = choices.choice(shapes)
    labels: dict[str, str] = {}
    tolerated = ""
    if is_hard:
        if choices.random() < 0.2:
            labels[ZONE_LABEL] = choices.choice(ZONES)
        if choices.random() < 0.15:
            labels[POOL_LABEL] = choices.choice(("general", "general-large", "memory", "spot"))
        # Many tolerate what they need not.
        if labels.get(POOL_LABEL) == "spot" or choices.random() < 0.3:
            tolerated = choices.choice(("spot", "infra"))
    return {CPU: cpu, MEMORY: mebibytes * MIB}, labels, tolerated


def _scaled(
    sizes: Sequence[float], requests: Sequence[Amounts], free_r: Sequence[int], load: float
) -> list[int]:
    """Replicas in proportion to the sizes that together ask for ``load`` of the tighter one."""

    def replicas(scale: float) -> list[int]:
        return [min(MOST_REPLICAS, max(1, int(size * scale))) for size in sizes]

    def asked(scale: float) -> float:
        counts = replicas(scale)
        return max(
            sum(count * request[row] for count, request in zip(counts, requests, strict=True))
            / free
            for row, free in zip((CPU, MEMORY), free_r, strict=False)
        )

    low, high = 0.0, float(MOST_REPLICAS * 100)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if asked(middle) < load else (low, middle)
    return replicas(low)


def foreign_pods(seed: int) -> Iterator[Document]:
    """Pods that nobody decided anything about, without an end."""
    choices = random.Random(f"foreign-{seed}")
    number = 0
    while True:
        cpu, mebibytes = choices.choice(PLAIN_SHAPES)
        request = {CPU: cpu, MEMORY: mebibytes * MIB}
        yield pod_document(f"foreign-{number}", NAMESPACE, request)
        number += 1
