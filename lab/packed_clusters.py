"""Seeded synthetic clusters: mixes of machines, filled with workloads by a placer like Kubernetes'.

For comparing methods with each other; no claim about any real fleet. Must not estimate anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from federation.model.pools.values import NodeColumn, NodeColumns

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu")
CPU_ROW, MEMORY_ROW, PODS_ROW, STORAGE_ROW, GPU_ROW = range(5)

FILLS: Final = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

Int64Array = npt.NDArray[np.int64]


class PackingStrategy(StrEnum):
    """Which nodes the placer prefers."""

    LEAST_ALLOCATED = "LeastAllocated"
    DEFAULT_STRATEGY = "MostAllocated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of node, and how many there are in relation to the others."""

    cores: int
    memory_gibibytes: int
    gpus: int = 0
    weight: float = 1.0


def _cloud_machines() -> tuple[Machine, ...]:
    sizes = ((4, 6.0), (8, 5.0), (16, 4.0), (32, 2.0), (64, 1.0), (128, 0.4))
    return tuple(
        Machine(cores=cores, memory_gibibytes=cores * ratio, weight=weight)
        for cores, weight in sizes
        for ratio in (2, 4, 8)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Machines, and the medians of what is asked of them."""

    name: str
    machines: tuple[Machine, ...]
    pod_cpu_millis: float
    pod_gibibytes_per_core: float
    gpu_workloads: float = 0.0


MIXES: Final = (
    Mix(
        name="homog",
        machines=(Machine(cores=8, memory_gibibytes=32),),
        pod_cpu_millis=250,
        pod_gibibytes_per_core=3.0,
    ),
    Mix(
        name="cloud",
        machines=_cloud_machines(),
        pod_cpu_millis=300,
        pod_gibibytes_per_core=3.0,
    ),
    Mix(
        name="gpu",
        machines=(
            Machine(cores=16, memory_gibibytes=64, weight=3),
            Machine(cores=32, memory_gibibytes=128, weight=3),
            Machine(cores=16, memory_gibibytes=128, gpus=1, weight=2),
            Machine(cores=64, memory_gibibytes=512, gpus=4, weight=1),
            Machine(cores=128, memory_gibibytes=2048, gpus=8, weight=1),
        ),
        pod_cpu_millis=400,
        pod_gibibytes_per_core=4.0,
        gpu_workloads=0.12,
    ),
    Mix(
        name="bigmem",
        machines=(
            Machine(cores=8, memory_gibibytes=32, weight=4),
            Machine(cores=32, memory_gibibytes=256, weight=2),
            Machine(cores=96, memory_gibibytes=768, weight=1),
        ),
        pod_cpu_millis=300,
        pod_gibibytes_per_core=6.0,
    ),
    Mix(
        name="edge",
        machines=(
            Machine(cores=2, memory_gibibytes=4, weight=2),
            Machine(cores=4, memory_gibibytes=8, weight=1),
        ),
        pod_cpu_millis=100,
        pod_gibibytes_per_core=1.5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A cluster to be made; the same plan gives the same cluster."""

    mix: Mix
    nodes: int
    packing: PackingStrategy
    seed: int
    fills: Sequence[float] = FILLS


@dataclass(slots=True, kw_only=True)
class _Workload:
    """Pods of one shape, and the nodes (with repeats counted) they run on."""

    amount_r: Int64Array
    node_i: npt.NDArray[np.intp]
    pods_i: Int64Array


@dataclass(slots=True, kw_only=True)
class _Cluster:
    """Nodes while they are being filled."""

    allocatable_rn: Int64Array
    free_rn: Int64Array
    workloads: list[_Workload] = field(default_factory=list)
    window_start: int = 0

    @property
    def fill(self) -> float:
        used_r = 1 - self.free_rn.sum(axis=1) / np.maximum(self.allocatable_rn.sum(axis=1), 1)
        return float(max(used_r[CPU_ROW], used_r[MEMORY_ROW]))


def packed_clusters(plan: ClusterPlan) -> Iterator[tuple[float, Int64Array]]:
    """(fill, free amounts: RESOURCES x nodes) of one cluster that fills up, at every fill.

    At each, a quarter of the workloads goes and others come: holes are where they come from.
    """
    random = np.random.default_rng(plan.seed)
    allocatable_rn = _allocatable(plan, random)
    cluster = _Cluster(allocatable_rn=allocatable_rn, free_rn=allocatable_rn.copy())
    _place_daemons(cluster, random)
    for fill in plan.fills:
        _fill_to(cluster, fill, plan, random)
        leaving = random.random(len(cluster.workloads)) < 0.25
        for workload, leaves in zip(cluster.workloads, leaving, strict=True):
            if leaves:
                _add(cluster, workload, 1)
        cluster.workloads = [
            workload
            for workload, leaves in zip(cluster.workloads, leaving, strict=True)
            if not leaves
        ]
        _fill_to(cluster, fill, plan, random)
        yield fill, cluster.free_rn.copy()


def allocatable_of(plan: ClusterPlan) -> Int64Array:
    """What the nodes of a plan's cluster have for pods when none runs: RESOURCES x nodes."""
    return _allocatable(plan, np.random.default_rng(plan.seed))


def node_columns(free_rn: Int64Array, zones: int = 0) -> NodeColumns:
    """Free amounts as an agent hands them to the pools, over ``zones`` zones if there are any."""
    size = free_rn.shape[1]
    labels: dict[str, NodeColumn[str | None]] = {}
    if zones:
        code_n = (np.arange(size) % zones).astype(np.int32)
        labels["topology.kubernetes.io/zone"] = NodeColumn(
            values=[f"zone-{zone}" for zone in range(zones)], code_n=code_n
        )
    return NodeColumns(
        free=dict(zip(RESOURCES, free_rn, strict=True)),
        taints=NodeColumn(values=[()], code_n=np.zeros(size, dtype=np.int32)),
        labels=labels,
    )


def _allocatable(plan: ClusterPlan, random: np.random.Generator) -> Int64Array:
    machines = plan.mix.machines
    weights = np.array([machine.weight for machine in machines])
    machine_n = random.choice(len(machines), plan.nodes, p=weights / weights.sum())
    cores = np.array([machine.cores for machine in machines])
    gibibytes = np.array([machine.memory_gibibytes for machine in machines])
    cpu_millis = [_allocatable_millis(each) for each in cores]
    memory_bytes = np.array([_allocatable_bytes(each) for each in gibibytes])
    by_interfaces = np.select([cores <= 4, cores <= 16], [29, 58], 110)
    pods = by_interfaces if plan.packing is PackingStrategy.DEFAULT_STRATEGY else 110
    disk_gibibytes = np.select([cores <= 4, cores <= 16, cores <= 64], [50, 100, 200], 400)
    allocatable_rm = np.stack(
        [
            np.array(cpu_millis),
            memory_bytes,
            np.broadcast_to(pods, len(machines)),
            disk_gibibytes * GIB * 85 // 100,
            np.array([machine.gpus for machine in machines]),
        ]
    ).astype(np.int64)
    allocatable_rn = allocatable_rm[:, machine_n]
    # Kernels differ in what they keep, so that equal machines differ by some pages.
    allocatable_rn[MEMORY_ROW] -= 4 * KIB * random.integers(0, 8, plan.nodes)
    return allocatable_rn


def _allocatable_millis(cores: int) -> int:
    """Without what the kubelet reserves: 6 % of the first core, and ever less of the others."""
    shares = [60, 10, 5, 5]
    return cores * 1000 - sum(shares[:cores]) - max(cores - 4, 0) * 5 // 2


def _allocatable_bytes(gibibytes: int) -> int:
    """Without 25 % of the first 4 GiB, 20 % of the next 4, 10 % of 8, 6 % of 112, 2 % of more."""
    left, reserved = gibibytes, 0.1
    for size, share in ((4, 0.25), (4, 0.2), (8, 0.1), (112, 0.06), (left, 0.02)):
        step = min(left, size)
        reserved += step * share
        left -= step
    return int((gibibytes - reserved) * GIB) // (4 * KIB) * (4 * KIB)


def _place_daemons(cluster: _Cluster, random: np.random.Generator) -> None:
    nodes = cluster.free_rn.shape[1]
    one_more = random.random(nodes) < 0.2
    cluster.free_rn[CPU_ROW] -= 260 + 50 * one_more
    cluster.free_rn[MEMORY_ROW] -= (340 + 64 * one_more) * MIB
    cluster.free_rn[PODS_ROW] -= 5 + one_more


def _fill_to(
    cluster: _Cluster, fill: float, plan: ClusterPlan, random: np.random.Generator
) -> None:
    misses = 0
    while misses < 40 and cluster.fill < fill:
        amount_r, replicas = _next_workload(plan.mix, random)
        workload = _placed(cluster, amount_r, replicas, plan.packing)
        if workload is None:
            misses += 1
            continue
        misses = 0
        _add(cluster, workload, -1)
        cluster.workloads.append(workload)


def _add(cluster: _Cluster, workload: _Workload, sign: int) -> None:
    amounts = workload.amount_r[:, np.newaxis] * workload.pods_i
    cluster.free_rn[:, workload.node_i] += sign * amounts


CUSTOMARY_MILLIS = np.array([10, 25, 50, 100, 200, 250, 500, 750, 1000, 1500, 2000, 4000, 8000])
CUSTOMARY_MEBIBYTES = np.array(
    [32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768]
)


def _next_workload(mix: Mix, random: np.random.Generator) -> tuple[Int64Array, int]:
    """What a pod asks for, in the order of RESOURCES, and how many there are."""
    replicas = min(int(np.ceil(random.lognormal(np.log(3), 1.2))), 400)
    if random.random() < mix.gpu_workloads:
        gpus = int(random.choice([1, 2, 4, 8], p=[0.7, 0.1, 0.08, 0.12]))
        of_gpu = int(random.choice([2000, 4000, 8000])), int(random.choice([8, 16, 32])) * GIB
        amounts = [gpus * of_gpu[0], gpus * of_gpu[1], 1, 0, gpus]
        return np.array(amounts, dtype=np.int64), min(replicas, 8)
    cpu = float(random.lognormal(np.log(mix.pod_cpu_millis), 1.2))
    per_core = random.lognormal(np.log(mix.pod_gibibytes_per_core * 1024), 0.9)
    mebibytes = cpu / 1000 * float(per_core)
    if random.random() < 0.7:
        cpu = float(CUSTOMARY_MILLIS[np.abs(np.log(CUSTOMARY_MILLIS / cpu)).argmin()])
        nearest = np.abs(np.log(CUSTOMARY_MEBIBYTES / mebibytes)).argmin()
        mebibytes = float(CUSTOMARY_MEBIBYTES[nearest])
    if random.random() < 0.4:
        cpu, mebibytes = cpu + 100, mebibytes + 128
    storage = random.lognormal(np.log(4 * 1024), 1.0) if random.random() < 0.12 else 0.0
    return (
        np.array(
            [max(int(cpu), 5), max(int(mebibytes), 8) * MIB, 1, int(storage) * MIB, 0],
            dtype=np.int64,
        ),
        replicas,
    )


def _placed(
    cluster: _Cluster, amount_r: Int64Array, replicas: int, packing: PackingStrategy
) -> _Workload | None:
    """Where the replicas go among the nodes looked at; None when not all of them fit."""
    nodes = cluster.free_rn.shape[1]
    asked = np.flatnonzero(amount_r)
    for node_i in (_window(cluster), np.arange(nodes)):
        free_ri = cluster.free_rn[:, node_i]
        fits_i = (free_ri[asked] // amount_r[asked, np.newaxis]).min(axis=0)
        feasible = np.flatnonzero(fits_i > 0)
        if int(fits_i[feasible].sum()) >= replicas:
            break
    else:
        return None
    node_i, fits_i = node_i[feasible], fits_i[feasible]
    rows = [CPU_ROW, MEMORY_ROW]
    free_share_i = (cluster.free_rn[rows][:, node_i] / cluster.allocatable_rn[rows][:, node_i]).sum(
        axis=0
    )
    pods_i = np.zeros(len(node_i), dtype=np.int64)
    if packing is PackingStrategy.DEFAULT_STRATEGY:
        order = np.argsort(free_share_i, kind="stable")
        before = np.cumsum(fits_i[order]) - fits_i[order]
        pods_i[order] = np.clip(replicas - before, 0, fits_i[order])
    else:
        left = replicas
        order = np.argsort(-free_share_i, kind="stable")
        while left:
            more = order[fits_i[order] > pods_i[order]][:left]
            pods_i[more] += 1
            left -= len(more)
    used = np.flatnonzero(pods_i)
    return _Workload(amount_r=amount_r, node_i=node_i[used], pods_i=pods_i[used])


def _window(cluster: _Cluster) -> npt.NDArray[np.intp]:
    """The nodes that kube-scheduler looks at: a share that falls with the cluster's size."""
    nodes = cluster.free_rn.shape[1]
    size = min(nodes, max(100, nodes * max(5, 50 - nodes // 125) // 100))
    window: npt.NDArray[np.intp] = (cluster.window_start + np.arange(size)) % nodes
    cluster.window_start = (cluster.window_start + size) % nodes
    return window


def customary_shapes() -> list[Mapping[str, int]]:
    """33 requests of round sizes, from none to eight GPUs."""
    small = [(50, 64), (100, 128), (100, 256), (250, 256), (250, 512), (333, 500)]
    medium = [(500, 512), (500, 1024), (500, 2048), (1000, 1024)]
    medium += [(1000, 2048), (1000, 4096), (2000, 4096), (2000, 8192)]
    large = [(3000, 12), (4000, 8), (4000, 16), (8000, 32), (16000, 64)]
    cpu_heavy = [(2000, 1), (4000, 2), (8000, 4), (16000, 8), (30000, 16)]
    memory_heavy = [(250, 4), (1000, 16), (2000, 64)]
    shapes: list[Mapping[str, int]] = [{}]
    shapes += [{"cpu": cpu, "memory": mebibytes * MIB} for cpu, mebibytes in small + medium]
    shapes += [
        {"cpu": cpu, "memory": gibibytes * GIB}
        for cpu, gibibytes in large + cpu_heavy + memory_heavy
    ]
    shapes += [
        {"cpu": cpu, "memory": memory * GIB, "ephemeral-storage": storage * GIB}
        for cpu, memory, storage in ((500, 1, 10), (1000, 2, 40))
    ]
    shapes += [
        {"cpu": 4000 * gpus, "memory": 16 * gpus * GIB, "nvidia.com/gpu": gpus}
        for gpus in (1, 4, 8)
    ]
    return shapes


def random_shapes(count: int, seed: int) -> list[Mapping[str, int]]:
    """Requests as workloads spread them, none rounded and none near the cells' own shapes."""
    random = np.random.default_rng(seed)
    cpu_millis = np.clip(random.lognormal(np.log(250), 1.2, count), 10, 32_000)
    gibibytes = cpu_millis / 1000 * random.lognormal(np.log(3), 0.9, count)
    return [
        {"cpu": int(cpu), "memory": max(int(memory * GIB), 8 * MIB)}
        for cpu, memory in zip(cpu_millis, gibibytes, strict=True)
    ]
