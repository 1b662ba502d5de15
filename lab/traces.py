"""Traces of recorded decisions: of the corpus, and of storms that a seed makes.

Must not decide.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from federation.history.trace_files import (
    END,
    TraceChunk,
    TracedDecision,
    TracedDeletion,
    TraceHeader,
    beginning,
    chunk_bytes,
)
from federation.history.workload_rows import target_rows
from federation.model.cluster import Cluster
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    Binding,
    BindingName,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.reasons import stored_reason
from federation.model.workload import ObjectReference, ReplicaRequirements, TargetCluster
from federation.scheduler.decision import Decision
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE
from federation.scheduler.state import BindingContext
from federation.services.packed_traces import packed_traces
from federation.services.values import ReportEvidence, Verdict
from lab.replays.record import CORPUS

HEADER = TraceHeader(v=TraceHeader.newest)


def corpus() -> tuple[list[TracedDecision], dict[bytes, bytes]]:
    """All decisions, a second apart, and the bodies of what they were made on."""
    lines = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    bodies = {
        base64.b64decode(line["name"]): base64.b64decode(line["body"])
        for line in lines
        if "body" in line
    }
    recorded = [
        {
            **line,
            "id": f"decision-{number}",
            "namespace": "shop",
            "name": f"web-{number}",
            "at": 1_000_000 * (1000 + number),
            "trace": base64.b64decode(line["trace"]),
        }
        for number, line in enumerate(each for each in lines if "trace" in each)
    ]
    return msgspec.convert(recorded, list[TracedDecision]), bodies


def write_trace(
    path: Path,
    decisions: Iterable[TracedDecision],
    bodies: dict[bytes, bytes],
    *,
    in_chunk: int = 50,
    header: TraceHeader = HEADER,
    deletions: Iterable[TracedDeletion] = (),
) -> Path:
    made = list(decisions)
    chunks = [
        TraceChunk(
            v=TraceChunk.newest,
            decisions=tuple(made[start : start + in_chunk]),
            bodies=bodies,
            deletions=tuple(deletions) if start == 0 else (),
        )
        for start in range(0, len(made), in_chunk)
    ]
    path.write_bytes(beginning(header) + b"".join(map(chunk_bytes, chunks)) + END)
    return path


BEGAN = 1_780_000_000
CPU = 100
AGGREGATED = Placement(
    replica_scheduling=ReplicaScheduling(
        type=SchedulingType.DIVIDED, preference=DivisionPreference.AGGREGATED
    )
)
SPREAD = Placement(
    replica_scheduling=ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True), partial=True
)


def fleet_of(count: int) -> list[Cluster]:
    return [
        Cluster(name=f"member{number:03}", region=f"r{number % 3}", labels={"tier": "gold"})
        for number in range(count)
    ]


def web(number: int, replicas: int, placement: Placement = SPREAD, cpu: int = CPU) -> Binding:
    return Binding(
        namespace=f"team{number % 3}",
        name=f"web-{number}",
        resource=ObjectReference(
            api_version="apps/v1", kind="Deployment", name=f"web-{number}", uid=f"uid-{number}"
        ),
        replicas=replicas,
        requirements=ReplicaRequirements(request={"cpu": cpu}),
        placement=placement,
    )


@dataclass(slots=True)
class Storm:
    """Clusters with room for so many replicas of ``CPU`` each, and who is there."""

    clusters: list[Cluster]
    room: dict[str, int]
    placed: dict[BindingName, Binding] = field(default_factory=dict)
    fleet: Fleet = field(init=False)

    def __post_init__(self) -> None:
        self.fleet = Fleet.of(self.clusters)

    def asked(self, binding: Binding, now: float, trigger: str = "replicas changed") -> Verdict:
        """Decide, and take the room."""
        key = binding.namespace, binding.name
        before = self.placed.get(key)
        where = before.clusters if before else ()
        inputs = DecisionInputs(
            binding=replace(binding, clusters=where),
            fleet=self.fleet,
            profile=DEFAULT_PROFILE,
            surroundings=BindingContext(triggers=(stored_reason(trigger),)),
        )
        units = binding.requirements.request["cpu"] // CPU
        decision = inputs.schedule(self.known(units), now)
        if decision.is_placed:
            self._hold(where, -units)
            self._hold(decision.clusters, units)
            self.placed[key] = replace(binding, clusters=decision.clusters)
        return Verdict(decision=decision, evidence=ReportEvidence(), inputs=inputs)

    def known(self, units: int = 1) -> Estimates:
        room = [max(0, self.room[name]) // units for name in self.fleet.names]
        replicas_c = np.array(room, dtype=np.int64)
        return Estimates(
            replicas_c=replicas_c,
            source_c=np.full(len(replicas_c), Source.POOLS, dtype=np.int8),
            bound_c=np.full(len(replicas_c), Bound.LOWER, dtype=np.int8),
            reasons={},
        )

    def _hold(self, clusters: Iterable[TargetCluster], units: int) -> None:
        for each in clusters:
            self.room[each.name] -= each.replicas * units


def requests(count: int, seed: int, placement: Placement = SPREAD) -> Iterator[Binding]:
    """New ones, and others that grow and shrink."""
    chance = random.Random(seed)
    for number in range(count):
        which = number if chance.random() < 0.6 else chance.randrange(number + 1)
        yield web(which, chance.choice([1, 2, 5, 12]), placement, CPU * (1 + which % 2))


def traced(verdicts: Iterable[Verdict]) -> tuple[list[TracedDecision], dict[bytes, bytes]]:
    """As it is recorded, one a second."""
    made = list(verdicts)
    bodies: dict[bytes, bytes] = {}
    decisions = []
    for number, (verdict, packed) in enumerate(zip(made, packed_traces(made), strict=True)):
        for shared in packed.shared:
            bodies |= shared.bodies
        assert isinstance(verdict.inputs, DecisionInputs)
        decision, binding = verdict.decision, verdict.inputs.binding
        decisions.append(
            TracedDecision(
                id=f"{number:032x}",
                namespace=binding.namespace,
                name=binding.name,
                at=round(decision.trace.now * 1e6),
                outcome=decision.outcome,
                clusters=tuple(target_rows(decision.clusters)),
                remainder=decision.remainder,
                reason=str(decision.reason),
                trace=packed.body,
            )
        )
    return decisions, bodies


def storm_trace(
    path: Path, count: int, clusters: int, room: int, *, seed: int = 1, in_chunk: int = 100
) -> Path:
    """A trace file of a storm of so many decisions."""
    fleet = fleet_of(clusters)
    storm = Storm(fleet, {each.name: room for each in fleet})
    verdicts = [
        storm.asked(binding, BEGAN + number) for number, binding in enumerate(requests(count, seed))
    ]
    return write_trace(path, *traced(verdicts), in_chunk=in_chunk)


def decided(verdicts: Iterable[Verdict]) -> list[Decision]:
    return [each.decision for each in verdicts]
