"""What a control plane needs for a large fleet: until it can decide, and how much memory.

10,000 clusters of 64 cells and 100,000 bindings with reservations, nearly all of them echoed. Also
how long the event loop is busy when a cluster of so many joins, changes or leaves, and how long it
stands still at worst. Prints figures beside their goals.

    bench_fleet_memory.py [CLUSTERS] [BINDINGS]
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import grpc

from federation.model.cluster import Cluster
from federation.model.echoes import Owner
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.reservations import Reservation
from federation.model.shapes import Echo
from federation.model.workload import ObjectReference, ReplicaRequirements, TargetCluster
from federation.services.agent_values import AgentFacts
from federation.services.decision_ports import NewDecision
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import StoredReservations
from federation.services.member_ports import NamedReport
from federation.services.packed_traces import packed_traces
from federation.services.ports import Transaction
from federation.services.values import ReportEvidence, Verdict
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.v1.clusters_pb2 import (
    CordonClusterRequest,
    DeleteClusterRequest,
    ListClustersRequest,
)
from federation.v1.clusters_pb2_grpc import ClustersStub
from lab.benchmarks.measuring import (
    TELLING_STALLS,
    arguments,
    chosen,
    cpu_seconds,
    show,
    show_stalls,
)
from lab.benchmarks.members import CALL_SECONDS, capacity_report
from lab.chaos.members import enrolled
from lab.chaos.planes import Plane, durable_postgres
from lab.decisions import make_decision
from lab.ending import clean_up_when_ended
from lab.fleets import random_shapes

CLUSTERS, BINDINGS = chosen((10_000, 100_000), quick=(300, 3000))
START_GOAL_SECONDS, MEMORY_GOAL_BYTES = 15.0, 1.5 * 2**30
CHANGE_GOAL_MILLIS, STALL_GOAL_MILLIS = 5.0, 50.0
MOST_TARGETS = 5
SHAPES = 500
# Of every so many shares one is not seen by any agent yet.
OPEN_EVERY = 20
AT_ONCE = 1000
CHANGES = 20
PATIENT = ("--heartbeat-seconds=600",)

T = TypeVar("T")


def bindings(count: int, clusters: int) -> Iterator[Binding]:
    """Each in a few clusters, of one of many shapes."""
    choices = random.Random(1)
    shapes = random_shapes(SHAPES, seed=1)
    for number in range(count):
        name = f"workload-{number:06}"
        targets = choices.sample(range(clusters), min(choices.randint(1, MOST_TARGETS), clusters))
        yield Binding(
            namespace=f"team-{number % 100:02}",
            name=name,
            uid=str(uuid4()),
            resource=ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
            replicas=2 * len(targets),
            requirements=ReplicaRequirements(request=shapes[choices.randrange(SHAPES)]),
            clusters=tuple(
                TargetCluster(name=cluster_name(each), replicas=2) for each in sorted(targets)
            ),
            placement=Placement(
                replica_scheduling=ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
            ),
        )


def cluster_name(number: int) -> str:
    return f"member-{number:05}"


def reserved(binding: Binding, decision: str) -> StoredReservations:
    return StoredReservations(
        namespace=binding.namespace,
        name=binding.name,
        uid=binding.uid,
        owner=Owner("apps/v1", "Deployment", binding.namespace, binding.name),
        reservations=tuple(
            Reservation(
                binding=binding.key,
                cluster=each.name,
                requirements=binding.requirements,
                replicas=each.replicas,
                decisions=(decision,),
                interest_version=1,
                grown_version=1,
            )
            for each in binding.clusters
        ),
    )


def verdict(binding: Binding) -> Verdict:
    decision = make_decision(*((each.name, each.replicas) for each in binding.clusters))
    size = len(binding.clusters)
    return Verdict(
        decision=decision,
        evidence=ReportEvidence(sequences=(1,) * size, age_seconds=(0.25,) * size),
    )


async def put_bindings(tx: Transaction, given: Sequence[Binding]) -> list[StoredReservations]:
    decided = [(str(uuid4()), binding) for binding in given]
    await tx.decisions.add_all(
        [
            NewDecision(
                id=each,
                binding_id=None,
                binding=binding,
                verdict=(made := verdict(binding)),
                trace=packed_traces([made])[0],
                placed=True,
            )
            for each, binding in decided
        ]
    )
    rows = [reserved(binding, each) for each, binding in decided]
    await tx.reservations.put(rows, {})
    return rows


async def fill(url: str, clusters: int, count: int) -> None:
    engine = create_engine(url)
    store = PostgresStore(engine)
    for numbers in parts(range(clusters)):
        async with store.transaction() as tx:
            for number in numbers:
                name = cluster_name(number)
                await tx.clusters.add(Cluster(name=name, uid=f"uid-{name}"), AgentFacts())
    echoes: dict[str, list[Echo]] = defaultdict(list)
    shares = 0
    for some in parts(list(bindings(count, clusters))):
        async with store.transaction() as tx:
            rows = await put_bindings(tx, some)
        for each in (held for row in rows for held in row.reservations):
            shares += 1
            if shares % OPEN_EVERY:
                echo = Echo(binding=each.binding, shape=each.shape, bound=each.replicas)
                echoes[each.cluster].append(echo)
    for numbers in parts(range(clusters)):
        async with store.transaction() as tx:
            await tx.reports.advance([reported(number, echoes) for number in numbers])
    await engine.dispose()


def reported(number: int, echoes: Mapping[str, Sequence[Echo]]) -> NamedReport:
    name = cluster_name(number)
    report = replace(capacity_report(number), interest_version=1, echoes=tuple(echoes[name]))
    return NamedReport(cluster=name, cluster_uid=f"uid-{name}", report=report)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]


def memory_bytes(pid: int, line: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (found,) = (each for each in status.splitlines() if each.startswith(line))
    return int(found.split()[1]) * 1024


def show_changes(clusters: int) -> None:
    """The fleet in memory alone: what the next reader of its snapshot pays for one change."""
    nothing: Any = None
    owner = FleetOwner(nothing)
    for number in range(clusters):
        name = cluster_name(number)
        owner.put_cluster(Cluster(name=name, uid=f"uid-{name}"))
        owner.put_report(name, capacity_report(number), 0.0)
    numbers = list(range(0, clusters, max(1, clusters // CHANGES)))[:CHANGES]
    changes: Mapping[str, Callable[[str], None]] = {
        "joins": lambda name: owner.put_cluster(Cluster(name=f"{name}-new")),
        "changes": lambda name: owner.put_cluster(
            Cluster(name=name, uid=f"uid-{name}", labels={"team": name}, resource_version=2)
        ),
        "leaves": owner.remove,
    }
    assert len(owner.snapshot.names) == clusters
    for what, change in changes.items():
        millis = []
        for number in numbers:
            start = time.process_time()
            change(cluster_name(number))
            assert owner.snapshot.names
            millis.append((time.process_time() - start) * 1000)
        took = statistics.median(millis)
        show(
            f"a cluster {what}",
            f"{took:.1f} ms",
            goal=f"<= {CHANGE_GOAL_MILLIS:g} ms",
            kept=took <= CHANGE_GOAL_MILLIS,
        )


async def change_clusters(endpoint: str, token: str) -> None:
    """Clusters join, change and leave, one after the other, while somebody lists all of them."""
    metadata = (("authorization", f"Bearer {token}"),)
    names = [f"newcomer-{number:05}" for number in range(CHANGES)]
    async with grpc.aio.insecure_channel(endpoint) as channel:
        stub: Any = ClustersStub(channel)
        listing = asyncio.create_task(list_all(stub, metadata))
        await enrolled(endpoint, token, names)
        for name in names:
            cordon = CordonClusterRequest(name=name, cordoned=True)
            await stub.CordonCluster(cordon, metadata=metadata, timeout=CALL_SECONDS)
        for name in names:
            leave = DeleteClusterRequest(name=name, force=True)
            await stub.DeleteCluster(leave, metadata=metadata, timeout=CALL_SECONDS)
        await listing


async def list_all(stub: Any, metadata: tuple[tuple[str, str], ...]) -> None:
    request = ListClustersRequest(page_size=1000)
    while True:
        page = await stub.ListClusters(request, metadata=metadata, timeout=CALL_SECONDS)
        request.page_token = page.next_page_token
        if not request.page_token:
            return


def main(clusters: int, count: int) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-bench-", dir="/var/tmp") as folder,
        durable_postgres(Path(folder)) as postgres,
    ):
        asyncio.run(fill(postgres.url, clusters, count))
        print(f"{clusters:,} clusters, {count:,} bindings")
        state = Path(folder) / "state"
        plane = Plane(0, postgres.url, state, (*PATIENT, *TELLING_STALLS))
        began = time.monotonic()
        plane.start()
        lasted = time.monotonic() - began
        resident = partial(memory_bytes, plane.pid)
        now, peak = resident("VmRSS"), resident("VmHWM")
        used_seconds = cpu_seconds(plane.pid)
        plane.newest_lines()
        token = (state / "admin.token").read_text(encoding="ascii").strip()
        asyncio.run(change_clusters(plane.endpoint, token))
        stalls = plane.newest_lines()
        plane.stop()
    print(f"  it used {used_seconds:.1f} s of CPU until then")
    show(
        "start until it serves",
        f"{lasted:.1f} s",
        goal=f"<= {START_GOAL_SECONDS:g} s",
        kept=lasted <= START_GOAL_SECONDS,
    )
    for what, size in (("memory once it serves", now), ("memory at most until then", peak)):
        show(
            what,
            f"{size / 2**20:,.0f} MiB",
            goal=f"<= {MEMORY_GOAL_BYTES / 2**20:,.0f} MiB",
            kept=size <= MEMORY_GOAL_BYTES,
        )
    print(f"  {CHANGES} clusters join, change and leave, and all are listed meanwhile")
    show_stalls(stalls, STALL_GOAL_MILLIS)
    show_changes(clusters)


if __name__ == "__main__":
    clean_up_when_ended()
    given = [int(each) for each in arguments()]
    main(*(given + [CLUSTERS, BINDINGS][len(given) :]))
