"""Bindings as seeds make them, more than there is room for, and the pods they stand for.

Must not know who decides them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from federation.model.echoes import BINDING_LABEL, DECISION_LABEL
from federation.model.placement import (
    Binding,
    Certificate,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import NodeClaim, ReplicaRequirements, Toleration
from lab.fleets import MIB
from lab.kubeapi.resources import Document
from lab.truth.members import (
    CPU,
    MEMORY,
    NAMESPACE,
    POOL_LABEL,
    ZONE_LABEL,
    ZONES,
    Amounts,
    Node,
    free_rn,
    pod_document,
)

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
