"""A fleet as shipped agents report it: lists of nodes and pods, and the agent's reports of them.

The lists are what ``kubectl get nodes,pods -A -o json`` prints, and the agent's own code reads
them and makes the reports. A fleet has a bounded number of distinct clusters: cluster ``n`` reports
what cluster ``n % distinct`` does, under its own name. Must not know what is measured or tested.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from estimator.agent.agent import Agent, Rhythm
from estimator.agent.messages import report_message
from estimator.estimation.capacity import NodeSet
from estimator.kube.dump import read_dump
from estimator.sight import CURRENT
from estimator.watched_cluster import WatchedCluster
from federation.codec.echoes import fitting
from federation.codec.reports import content_hash
from federation.model.cluster import CapacityReport
from federation.model.grades import DEFAULT_MODEL, model_hash
from federation.model.pools.values import Pools
from federation.model.reported_pools import pools_of
from federation.model.resources import CPU, MEMORY
from federation.model.shapes import Echo
from federation.v1.agents_pb2 import ConnectRequest

MIB: Final = 1 << 20
GIB: Final = 1 << 30
GPU: Final = "nvidia.com/gpu"
NAMESPACE: Final = "base"
ZONES: Final = ("a", "b", "c")
# 28 groups, with two architectures, one system, three zones and six types: 40 label values.
GROUP_LABEL: Final = "fleet.example/node-group"
REPORT_SECONDS: Final = 10.0

Document = dict[str, Any]
Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineType:
    """A type of node."""

    name: str
    cpu_millis: int
    memory_mebibytes: int
    pod_slots: int
    gpus: int = 0
    arch: str = "amd64"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes of one machine type in one zone, all with the same taint or none."""

    name: str
    machine: MachineType
    zone: str
    taint: Document | None = None


SMALL: Final = MachineType(name="s", cpu_millis=3920, memory_mebibytes=14_700, pod_slots=58)
MEDIUM: Final = MachineType(name="m", cpu_millis=7910, memory_mebibytes=30_200, pod_slots=58)
ARM: Final = replace(MEDIUM, name="arm", arch="arm64")
LARGE: Final = MachineType(name="l", cpu_millis=15_890, memory_mebibytes=61_500, pod_slots=110)
HUGE: Final = MachineType(name="xl", cpu_millis=31_850, memory_mebibytes=124_900, pod_slots=110)
GPU_MACHINE: Final = replace(LARGE, name="gpu", gpus=4)
MACHINES: Final = 8 * [SMALL] + 6 * [MEDIUM] + 3 * [ARM] + 7 * [LARGE] + 3 * [HUGE] + [GPU_MACHINE]
TAINTS: Final[Mapping[int, Document]] = {
    7: {"key": "spot", "value": "true", "effect": "NoSchedule"},
    13: {"key": "spot", "value": "true", "effect": "NoSchedule"},
    23: {"key": "dedicated", "value": "database", "effect": "NoSchedule"},
    27: {"key": GPU, "value": "present", "effect": "NoSchedule"},
}
NODE_GROUPS: Final = tuple(
    NodeGroup(
        name=f"group-{number:02}",
        machine=machine,
        zone=ZONES[number % len(ZONES)],
        taint=TAINTS.get(number),
    )
    for number, machine in enumerate(MACHINES)
)

SMALL_SIZES: Final[tuple[Amounts, ...]] = (
    {CPU: 50, MEMORY: 64 * MIB},
    {CPU: 100, MEMORY: 128 * MIB},
    {CPU: 250, MEMORY: 256 * MIB},
    {CPU: 500, MEMORY: GIB},
    {CPU: 1000, MEMORY: 2 * GIB},
)
LARGE_SIZE: Final[Amounts] = {CPU: 8000, MEMORY: 16 * GIB}
LARGE_PERCENT: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPlan:
    """A fleet to be made; the same plan gives the same fleet. ``fill`` is the mean part of a
    node that pods have; 1 leaves no room on any node. Every node has one of ``own_resource``,
    which clusters of other plans do not have. ``is_unlike``: no two nodes are alike.
    """

    nodes: int = 500
    distinct: int = 16
    fill: float = 0.3
    seed: int = 1
    own_resource: str = ""
    is_unlike: bool = False


DEFAULT_PLAN: Final = FleetPlan()


def cluster_name(number: int) -> str:
    return f"member-{number:05}"


def pod_size(number: int) -> Amounts:
    """The request of a workload: one of six sizes, in turn; 5 of 100 are large."""
    if number % (100 // LARGE_PERCENT) == 7:
        return LARGE_SIZE
    return SMALL_SIZES[number % len(SMALL_SIZES)]


def varied_size(number: int) -> Amounts:
    """A size near one of the six that no other of the first 20,000 numbers gives."""
    size = pod_size(number)
    return {**size, CPU: size[CPU] + number // len(SMALL_SIZES) % 4000}


def dumped(plan: FleetPlan = DEFAULT_PLAN, number: int = 0) -> bytes:
    """The nodes and pods of one distinct cluster as a list of Kubernetes."""
    items = list(objects_of(plan, number))
    return json.dumps({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items}).encode()


def objects_of(plan: FleetPlan, number: int) -> Iterator[Document]:
    """Every node, followed by the pods on it."""
    choices = random.Random(f"{plan.seed}-{number}")
    for position in range(plan.nodes):
        group = choices.choice(NODE_GROUPS)
        node = _node(group, position, choices)
        if plan.is_unlike:
            _make_unlike(node, group.machine, choices)
        if plan.own_resource:
            node["status"]["allocatable"][plan.own_resource] = "1"
        yield node
        yield from _pods_on(node, group.machine, plan.fill, choices)


def _node(group: NodeGroup, position: int, choices: random.Random) -> Document:
    machine = group.machine
    name = f"node-{position:04}-{machine.name}"
    # Kernels differ in what they keep: nodes of one type differ by some pages.
    kibibytes = machine.memory_mebibytes * 1024 - 4 * choices.randrange(8)
    amounts = {
        CPU: f"{machine.cpu_millis}m",
        MEMORY: f"{kibibytes}Ki",
        "pods": str(machine.pod_slots),
        "ephemeral-storage": "100Gi",
    }
    if machine.gpus:
        amounts[GPU] = str(machine.gpus)
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": machine.arch,
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": group.zone,
        "node.kubernetes.io/instance-type": machine.name,
        GROUP_LABEL: group.name,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {
            "taints": [group.taint] if group.taint else [],
            "unschedulable": choices.random() < 0.01,
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "architecture": machine.arch},
        },
    }


def _make_unlike(node: Document, machine: MachineType, choices: random.Random) -> None:
    kibibytes = machine.memory_mebibytes * 1024 - choices.randrange(300_000)
    node["status"]["allocatable"] |= {
        CPU: f"{machine.cpu_millis - choices.randrange(400)}m",
        MEMORY: f"{kibibytes}Ki",
    }


def _pods_on(
    node: Document, machine: MachineType, fill: float, choices: random.Random
) -> Iterator[Document]:
    """Two daemons, and pods of all sizes up to the node's own part."""
    free = {CPU: machine.cpu_millis, MEMORY: machine.memory_mebibytes * MIB}
    spare = (1 - min(1.0, fill * choices.uniform(0.2, 1.8))) if fill < 1 else 0.0
    least = {name: int(amount * spare) for name, amount in free.items()}
    requests: list[Amounts] = [
        {CPU: 100, MEMORY: 128 * MIB},
        {CPU: 60, MEMORY: 96 * MIB},
    ]
    for request in requests:
        _take(free, request)
    while len(requests) < machine.pod_slots - 8:
        size = _any_size(choices)
        if any(free[name] - amount < least[name] for name, amount in size.items()):
            break
        _take(free, size)
        requests.append(size)
    if fill >= 1:
        requests.append(dict(free))
    gpus = choices.randrange(machine.gpus + 1)
    for number, request in enumerate(requests):
        yield _pod(node, number, request, choices, with_gpu=number < gpus)


def _take(free: dict[str, int], request: Amounts) -> None:
    for name, amount in request.items():
        free[name] -= amount


def _any_size(choices: random.Random) -> Amounts:
    if choices.randrange(100) < LARGE_PERCENT:
        return LARGE_SIZE
    return choices.choice(SMALL_SIZES)


def _pod(
    node: Document, number: int, request: Amounts, choices: random.Random, *, with_gpu: bool
) -> Document:
    quantities = {CPU: f"{request[CPU]}m", MEMORY: str(request[MEMORY])}
    if with_gpu:
        quantities[GPU] = "1"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _pod_metadata(f"{node['metadata']['name']}-{number}"),
        "spec": {
            "containers": [{"name": "main", "resources": {"requests": quantities}}],
            "nodeName": node["metadata"]["name"],
            "nodeSelector": _selector(node["metadata"]["labels"], choices.randrange(100)),
        },
        "status": {"phase": "Running"},
    }


def _pod_metadata(name: str) -> Document:
    return {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"}


def _selector(labels: Mapping[str, str], draw: int) -> dict[str, str]:
    """Some workloads choose their nodes: 10 of 100 by architecture, 5 by zone, 5 by group."""
    for limit, key in (
        (10, "kubernetes.io/arch"),
        (15, "topology.kubernetes.io/zone"),
        (20, GROUP_LABEL),
    ):
        if draw < limit:
            return {key: labels[key]}
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportingCluster:
    """A cluster in an agent's own picture, which pods may be put into, and its agent."""

    member: WatchedCluster
    agent: Agent

    @classmethod
    def of(cls, content: bytes, epoch: int = 1) -> ReportingCluster:
        """The cluster of a list of nodes and pods, as ``estimator run --from`` reads it."""
        member = WatchedCluster(NodeSet.SCHEDULABLE)
        dump = read_dump(content)
        member.cache.replace_nodes(dump.nodes)
        member.cache.replace_pods(dump.pods)
        agent = Agent(member, epoch=epoch, clock=time.time)
        agent.welcome(
            Rhythm(
                model=DEFAULT_MODEL,
                model_hash=model_hash(DEFAULT_MODEL),
                heartbeat_seconds=REPORT_SECONDS,
                report_seconds=REPORT_SECONDS,
            )
        )
        return cls(member=member, agent=agent)

    def report(self) -> CapacityReport:
        """The agent's next report; the caller may be within an event loop, which waits."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(self.agent.report())).result()


@lru_cache(maxsize=256)
def _distinct_report(plan: FleetPlan, number: int) -> CapacityReport:
    return ReportingCluster.of(dumped(plan, number)).report()


def report_of(
    number: int,
    sequence: int = 1,
    plan: FleetPlan = DEFAULT_PLAN,
    *,
    epoch: int = 1,
    interest_version: int = 0,
    echoes: Iterable[Echo] = (),
) -> CapacityReport:
    """The report of cluster ``number``, of now, with these echoes; hashed as an agent hashes it."""
    report = replace(
        _distinct_report(plan, number % plan.distinct),
        epoch=epoch,
        sequence=sequence,
        snapshot_time=time.time(),
        interest_version=interest_version,
        echoes=fitting(tuple(echoes)),
    )
    if interest_version:
        report = replace(report, content_hash=content_hash(report))
    return report


def message_of(cluster: str, report: CapacityReport) -> ConnectRequest:
    """The report as a shipped agent sends it while it sees its cluster."""
    return report_message(cluster, report, CURRENT)


def stored_pools(number: int, plan: FleetPlan = DEFAULT_PLAN) -> Pools:
    """The pools of a cluster's report as a control plane reckons with them."""
    pools = report_of(number, plan=plan).pools
    if pools is None:
        raise LookupError(f"the report of cluster {number} has no pools")
    return pools_of(pools)
