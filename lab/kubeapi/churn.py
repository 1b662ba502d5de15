"""A cluster that lives: pods and nodes come, are bound, end and go, as a seed says.

Must not read clocks: the same seed makes the same changes.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, replace

from lab.kubeapi.documents import node, pod
from lab.kubeapi.resources import NODES, PODS, Document
from lab.kubeapi.state import Cluster

ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePicture:
    """A node's cpu, and what the pods bound to it that have not ended take."""

    allocatable_cpu_millis: int
    requested_cpu_millis: int = 0
    pods: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What an agent that is in step knows."""

    nodes: dict[str, NodePicture]
    waiting_cpu_millis: int


class Churn:
    """Makes changes of a cluster that it fills."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._serial = itertools.count()
        for _ in range(3):
            self._add_node()

    def run(self, changes: int) -> None:
        for _ in range(changes):
            steps = (self._add_pod, self._bind, self._end, self._remove_pod, self._resize_node)
            weights = (5, 4, 1, 2, 1)
            self._random.choices(steps, weights)[0]()
        self._add_node()
        self._remove_node()

    def _add_node(self) -> None:
        self._cluster.put(node(f"n{next(self._serial)}", cpu="64"))

    def _remove_node(self) -> None:
        self._cluster.remove(self._random.choice(self._cluster.all(NODES)))

    def _resize_node(self) -> None:
        chosen = self._random.choice(self._cluster.all(NODES))
        cpu = str(self._random.randint(1, 64))
        self._cluster.put(node(chosen["metadata"]["name"], cpu=cpu))

    def _add_pod(self) -> None:
        self._cluster.put(pod(f"p{next(self._serial)}", cpu=f"{self._random.randint(1, 900)}m"))

    def _bind(self) -> None:
        waiting = [each for each in self._cluster.all(PODS) if "nodeName" not in each["spec"]]
        if not waiting:
            return
        chosen = self._random.choice(waiting)
        target = self._random.choice(self._cluster.all(NODES))
        spec = {**chosen["spec"], "nodeName": target["metadata"]["name"]}
        self._put({**chosen, "spec": spec}, phase="Running")

    def _end(self) -> None:
        running = [each for each in self._cluster.all(PODS) if "nodeName" in each["spec"]]
        if running:
            self._put(self._random.choice(running), phase=self._random.choice(ENDED))

    def _remove_pod(self) -> None:
        pods = self._cluster.all(PODS)
        if pods:
            self._cluster.remove(self._random.choice(pods))

    def _put(self, chosen: Document, *, phase: str) -> None:
        self._cluster.put({**chosen, "status": {"phase": phase}})


def picture_of(cluster: Cluster) -> Picture:
    """The truth, by the obvious loop."""
    nodes = {
        each["metadata"]["name"]: NodePicture(
            allocatable_cpu_millis=1000 * int(each["status"]["allocatable"]["cpu"])
        )
        for each in cluster.all(NODES)
    }
    waiting = 0
    for each in cluster.all(PODS):
        if each["status"]["phase"] in ENDED:
            continue
        cpu = each["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        cpu_millis = int(cpu.removesuffix("m"))
        on = each["spec"].get("nodeName")
        if on is None:
            waiting += cpu_millis
        elif on in nodes:
            nodes[on] = replace(
                nodes[on],
                requested_cpu_millis=nodes[on].requested_cpu_millis + cpu_millis,
                pods=nodes[on].pods + 1,
            )
    return Picture(nodes=nodes, waiting_cpu_millis=waiting)
