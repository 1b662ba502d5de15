"""What previews cost: of a new binding, of one that is placed, and of one that is everywhere.

The control plane finds its clusters, their reports and many bindings in its database, as shipped
agents reported them. Prints CPU of the control plane beside its goal.
"""

from __future__ import annotations

import asyncio
import statistics
import time

from federation.v1.resource_pb2 import ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.benchmarks.measuring import chosen
from lab.benchmarks.members import CALL_SECONDS, PATIENT
from lab.benchmarks.stored_fleets import fill
from lab.callers import calling
from lab.fleet import SMALL_SIZES, cluster_name
from lab.planes import Planes, durable_postgres, running_planes
from lab.processes import cpu_seconds
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_most
from lab.workloads import DUPLICATED, workload_message

FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
BINDINGS_PER_CLUSTER = 10
ROUNDS = chosen(15, quick=3)
GOAL_MILLIS = 100.0
FEW = 5

FIGURES = Verdicts("bench_previews")


def subjects() -> dict[str, ResourceBinding]:
    """Every binding by what it is; all but the new one are placed first."""
    few, size = [cluster_name(number) for number in range(FEW)], SMALL_SIZES[3]
    return {
        "a new binding": workload_message("new", size, 50),
        f"a placed one, in {FEW} clusters": workload_message("placed", size, 50, among=few),
        "a placed one that may go anywhere": workload_message("anywhere", size, 50),
        "one that is everywhere (Duplicated)": workload_message(
            "everywhere", size, 2, scheduling=DUPLICATED
        ),
    }


async def measure(planes: Planes) -> None:
    (plane,) = planes.all
    async with calling(plane.endpoint, planes.token, CALL_SECONDS) as caller:
        for what, subject in subjects().items():
            if subject.metadata.name != "new":
                answer = await caller.ask("Schedule", binding=subject)
                assert answer.decision.outcome == OUTCOME_SCHEDULED, answer.decision.reason
            millis, took = list[float](), list[float]()
            for _ in range(ROUNDS):
                before, began = cpu_seconds(plane.pid), time.monotonic()
                await caller.ask("Schedule", binding=subject, preview=True)
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
        bindings = BINDINGS_PER_CLUSTER * clusters
        with own_folder("bench") as folder, durable_postgres(folder) as postgres:
            asyncio.run(fill(postgres.url, clusters, bindings))
            with running_planes(folder, 1, postgres.url, PATIENT) as planes:
                FIGURES.section(f"previews, {clusters:,} clusters, {bindings:,} bindings")
                asyncio.run(measure(planes))


if __name__ == "__main__":
    clean_up_when_ended()
    main()
