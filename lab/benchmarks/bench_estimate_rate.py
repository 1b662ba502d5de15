"""How many shapes a second one process estimates through EstimateReplicas, codec included.

A shape answered over all clusters counts as one. Also how long one estimate takes after a change of
a larger fleet, while few or many bindings have something outstanding. Prints medians of CPU time;
must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count, product
from random import Random

from federation.model.estimate import EstimateOptions, Source
from federation.model.workload import ReplicaRequirements as ModelRequirements
from federation.rpc.calls import call_as
from federation.rpc.estimates import EstimatesServicer
from federation.services.estimates.availability import Availability, answer
from federation.services.fleet.registry import FleetOwner
from federation.services.values import Principal, PrincipalKind
from federation.v1.estimates_pb2 import (
    ESTIMATE_SOURCE_MODELS,
    ESTIMATE_SOURCE_POOLS,
    EstimateReplicasRequest,
    EstimateSource,
)
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.benchmarks.measuring import chosen
from lab.benchmarks.members import capacity_report
from lab.benchmarks.owned_fleets import NOTHING, owned_fleet, place
from lab.verdicts import Verdicts

FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
ROUNDS = chosen(7, quick=1)
# So many agents report to one control plane in the mixed load.
CLUSTERS_THAT_CHANGE = chosen(300, quick=100)
FEW, MANY = chosen((200, 1000), quick=(50, 200))

FIGURES = Verdicts("bench_estimate_rate")


def request(shapes: int, first: int, source: EstimateSource.ValueType) -> bytes:
    """So many different shapes, as they come over the wire."""
    asked = [
        ReplicaRequirements(
            resource_request={"cpu": f"{100 + first + place}m", "memory": f"{place % 50 + 1}Gi"}
        )
        for place in range(shapes)
    ]
    return EstimateReplicasRequest(shapes=asked, highest_source=source).SerializeToString()


async def print_rate(
    name: str,
    owner: FleetOwner,
    source: EstimateSource.ValueType,
    *,
    shapes: int,
    first: int,
    known: bool = False,
) -> None:
    """``first`` keeps the shapes of one measurement from being known to the next."""
    call_as(Principal(kind=PrincipalKind.ADMIN))
    servicer = EstimatesServicer(Availability(owner, NOTHING, NOTHING))
    times = []
    for turn in range(ROUNDS + 1):
        content = request(shapes, first if known else first + turn * shapes, source)
        start = time.process_time()
        asked = EstimateReplicasRequest.FromString(content)
        answer = await servicer.EstimateReplicas(asked, NOTHING)
        answer.SerializeToString()
        times.append(time.process_time() - start)
    # The first round is for warming up, and for making shapes known.
    rate = shapes / statistics.median(times[1:])
    FIGURES.row(name, rate, "/s")


def print_after_changes(bindings: int) -> None:
    """What an estimate costs after a binding was placed in three clusters, and after a report."""
    owner, choices, numbers = owned_fleet(CLUSTERS_THAT_CHANGE), Random(1), count(2)
    names = owner.snapshot.names

    def promise() -> None:
        place(owner, next(numbers), choices)

    def report() -> None:
        position = choices.randrange(len(names))
        newer = replace(capacity_report(position + 1, next(numbers)), interest_version=1)
        owner.put_report(names[position], newer, 0.0)

    for _ in range(bindings):
        promise()
    FIGURES.section(f"{CLUSTERS_THAT_CHANGE} clusters, {bindings:,} bindings outstanding")
    for change, source in product((promise, report), (Source.MODELS, Source.POOLS)):
        millis = [
            estimate_millis(owner, change, source, 100 + next(numbers)) for _ in range(3 * ROUNDS)
        ]
        name = f"{source.name}, a size never seen, after a {change.__name__}"
        FIGURES.row(name, statistics.median(millis), "ms")


def estimate_millis(
    owner: FleetOwner, change: Callable[[], None], source: Source, cpu_millis: int
) -> float:
    change()
    snapshot = owner.snapshot
    asked = [ModelRequirements(request={"cpu": cpu_millis, "memory": 1 << 30})]
    start = time.process_time()
    answer(snapshot, owner.known_estimates, asked, None, EstimateOptions(highest=source), 0.0)
    return (time.process_time() - start) * 1000


async def measure(clusters: int) -> None:
    owner = owned_fleet(clusters)
    FIGURES.section(f"sizes answered over {clusters:,} clusters, messages included")
    models, pools = ESTIMATE_SOURCE_MODELS, ESTIMATE_SOURCE_POOLS
    await print_rate("models, known", owner, models, shapes=MANY, first=0, known=True)
    await print_rate("models, never seen", owner, models, shapes=MANY, first=10_000)
    await print_rate("pools, known", owner, pools, shapes=MANY, first=20_000, known=True)
    name = "pools, never seen (LB+, UB)"
    await print_rate(name, owner, pools, shapes=FEW, first=30_000)


def main() -> None:
    for clusters in FLEETS:
        asyncio.run(measure(clusters))
    for bindings in chosen((0, 3000), quick=(0, 300)):
        print_after_changes(bindings)


if __name__ == "__main__":
    main()
