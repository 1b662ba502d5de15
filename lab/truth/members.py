"""Member clusters as seeds make them: mixed nodes, some of them tainted, and pods that run already.

Must not know what is scheduled onto them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.resources import PODS
from lab.fleets import GIB, MIB
from lab.kubeapi.documents import namespace
from lab.kubeapi.resources import Document

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
