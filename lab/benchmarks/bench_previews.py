"""What previews cost: of a new binding, of one that is placed, and of one that is everywhere.

The control plane finds its clusters, their reports and many bindings in its database, as shipped
agents reported them. Prints CPU of the control plane beside its goal.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

from federation.codec.bindings import binding_to_message
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements
from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleRequest
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.benchmarks.measuring import chosen, cpu_seconds
from lab.benchmarks.members import CALL_SECONDS, PATIENT
from lab.benchmarks.stored_fleets import fill
from lab.chaos.planes import Planes, durable_postgres, running_planes
from lab.ending import clean_up_when_ended
from lab.fleet import SMALL_SIZES, cluster_name
from lab.verdicts import Verdicts, at_most

FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
BINDINGS_PER_CLUSTER = 10
ROUNDS = chosen(15, quick=3)
GOAL_MILLIS = 100.0
FEW = 5
DIVIDED = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
DUPLICATED = ReplicaScheduling(type=SchedulingType.DUPLICATED)

FIGURES = Verdicts("bench_previews")


def binding(name: str, placement: Placement, replicas: int) -> ResourceBinding:
    return binding_to_message(
        Binding(
            namespace="bench",
            name=name,
            uid=f"uid-{name}",
            replicas=replicas,
            requirements=ReplicaRequirements(request=SMALL_SIZES[3]),
            placement=placement,
        )
    )


def subjects() -> dict[str, ResourceBinding]:
    """Every binding by what it is; all but the new one are placed first."""
    few = ClusterAffinity(cluster_names=tuple(cluster_name(number) for number in range(FEW)))
    anywhere = Placement(replica_scheduling=DIVIDED)
    return {
        "a new binding": binding("new", anywhere, 50),
        f"a placed one, in {FEW} clusters": binding(
            "placed", Placement(affinity=few, replica_scheduling=DIVIDED), 50
        ),
        "a placed one that may go anywhere": binding("anywhere", anywhere, 50),
        "one that is everywhere (Duplicated)": binding(
            "everywhere", Placement(replica_scheduling=DUPLICATED), 2
        ),
    }


async def measure(planes: Planes) -> None:
    (plane,), metadata = planes.all, (("authorization", f"Bearer {planes.token}"),)
    async with grpc.aio.insecure_channel(plane.endpoint) as channel:
        stub: Any = SchedulingStub(channel)

        async def ask(subject: ResourceBinding, *, is_preview: bool) -> Any:
            request = ScheduleRequest(binding=subject, preview=is_preview)
            return await stub.Schedule(request, metadata=metadata, timeout=CALL_SECONDS)

        for what, subject in subjects().items():
            if subject.metadata.name != "new":
                answer = await ask(subject, is_preview=False)
                assert answer.decision.outcome == OUTCOME_SCHEDULED, answer.decision.reason
            millis, took = list[float](), list[float]()
            for _ in range(ROUNDS):
                before, began = cpu_seconds(plane.pid), time.monotonic()
                await ask(subject, is_preview=True)
                took.append(1000 * (time.monotonic() - began))
                millis.append(1000 * (cpu_seconds(plane.pid) - before))
            FIGURES.row(
                f"preview of {what}, CPU",
                statistics.mean(millis),
                "ms",
                goal=at_most(GOAL_MILLIS),
                detail=f"first {millis[0]:.0f} ms; answered after {statistics.median(took):.0f} ms",
            )


def main() -> None:
    for clusters in FLEETS:
        with tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as name:
            folder = Path(name)
            with durable_postgres(folder) as postgres:
                bindings = BINDINGS_PER_CLUSTER * clusters
                asyncio.run(fill(postgres.url, clusters, bindings))
                with running_planes(folder, 1, postgres.url, PATIENT) as planes:
                    FIGURES.section(f"previews, {clusters:,} clusters, {bindings:,} bindings")
                    asyncio.run(measure(planes))


if __name__ == "__main__":
    clean_up_when_ended()
    main()
