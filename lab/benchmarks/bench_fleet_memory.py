"""What a control plane needs for a large fleet: until it can decide, and how much memory.

10,000 clusters of 500 nodes and 100,000 bindings with reservations, nearly all of them echoed. Also
how long the event loop is busy when a cluster of so many joins, changes or leaves, alone or a
thousand at once, or reports a resource of its own, and how long it stands still at worst. Prints
figures beside their goals. 10,000 clusters with --full, or as many as are named.

    bench_fleet_memory.py [CLUSTERS] [BINDINGS]
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial

from federation.model.cluster import Cluster
from federation.services.fleet.registry import FleetOwner
from lab.benchmarks.measuring import TELLING_STALLS, arguments, chosen, show_stalls
from lab.benchmarks.members import CALL_SECONDS, capacity_report
from lab.benchmarks.owned_fleets import owned_fleet
from lab.benchmarks.stored_fleets import fill
from lab.callers import calling, enrolled
from lab.fleet import FleetPlan, cluster_name, report_of
from lab.planes import Plane, durable_postgres
from lab.processes import cpu_seconds, memory_bytes
from lab.programs import clean_up_when_ended, own_folder
from lab.verdicts import Verdicts, at_most

SIZES = chosen(
    ((100, 1000), (1000, 10_000)),
    quick=((100, 1000),),
    full=((100, 1000), (1000, 10_000), (10_000, 100_000)),
)
START_GOAL_SECONDS, MEMORY_GOAL_MEBIBYTES = 15.0, 1536.0
CHANGE_GOAL_MILLIS, STALL_GOAL_MILLIS = 5.0, 50.0
CHANGES = 20
AT_ONCE = 1000
PATIENT = ("--heartbeat-seconds=600",)
OWN_RESOURCES = ("example.com/fpga", "example.com/tpu")

FIGURES = Verdicts("bench_fleet_memory")


def show_changes(clusters: int) -> None:
    """The fleet in memory alone: what the next reader of its snapshot pays for one change."""
    owner = owned_fleet(clusters)
    numbers = list(range(0, clusters, max(1, clusters // CHANGES)))[:CHANGES]
    names = [cluster_name(number) for number in numbers]
    changes: Mapping[str, Callable[[str], None]] = {
        "joins": lambda name: owner.put_cluster(Cluster(name=f"{name}-new")),
        "changes": lambda name: owner.put_cluster(
            Cluster(name=name, uid=f"uid-{name}", labels={"team": name}, resource_version=2)
        ),
        "reports": lambda name: owner.put_report(name, capacity_report(1, 2), 1.0),
        "leaves": owner.remove,
    }
    assert len(owner.snapshot.names) == clusters
    for what, change in changes.items():
        show_change(f"a cluster {what}", owner, change, names)
    show_own_resource(owner, cluster_name(numbers[-1] + 1))
    many = [f"many-{number:05}" for number in range(AT_ONCE)]
    show_change_at_once(
        f"{AT_ONCE:,} clusters join at once",
        owner,
        lambda name: owner.put_cluster(Cluster(name=name)),
        many,
    )
    show_change_at_once(f"{AT_ONCE:,} clusters leave at once", owner, owner.remove, many)


def show_change(
    what: str, owner: FleetOwner, change: Callable[[str], None], names: Iterable[str]
) -> None:
    """The median of one change, with the next look at the fleet."""
    millis = []
    for name in names:
        start = time.process_time()
        change(name)
        assert owner.snapshot.names
        millis.append((time.process_time() - start) * 1000)
    FIGURES.row(what, statistics.median(millis), "ms", goal=at_most(CHANGE_GOAL_MILLIS))


def show_change_at_once(
    what: str, owner: FleetOwner, change: Callable[[str], None], names: Iterable[str]
) -> None:
    """All changes, and one look at the fleet after them."""
    start = time.process_time()
    for name in names:
        change(name)
    assert owner.snapshot.names
    FIGURES.row(what, (time.process_time() - start) * 1000, "ms")


def show_own_resource(owner: FleetOwner, name: str) -> None:
    """One agent reports a resource that no other cluster has, by turns one and another."""
    reports = [
        report_of(0, plan=FleetPlan(distinct=1, own_resource=resource))
        for resource in OWN_RESOURCES
    ]
    owner.put_cluster(Cluster(name=name, uid=f"uid-{name}"))
    turns = iter(range(2, 2 + CHANGES))

    def report(_: str) -> None:
        turn = next(turns)
        owner.put_report(name, replace(reports[turn % 2], sequence=turn), 0.0)

    show_change("a cluster reports a resource of its own", owner, report, [name] * CHANGES)


async def change_clusters(endpoint: str, token: str) -> None:
    """Clusters join, change and leave, one after the other, while somebody lists all of them."""
    names = [f"newcomer-{number:05}" for number in range(CHANGES)]
    async with calling(endpoint, token, CALL_SECONDS) as caller:
        listing = asyncio.create_task(caller.clusters_listed())
        for name in names:
            await enrolled(endpoint, token, [name])
        for name in names:
            await caller.ask("CordonCluster", name=name, cordoned=True)
        for name in names:
            await caller.ask("DeleteCluster", name=name, force=True)
        await listing


def main(clusters: int, count: int) -> None:
    with (
        own_folder("bench") as folder,
        durable_postgres(folder) as postgres,
    ):
        asyncio.run(fill(postgres.url, clusters, count))
        FIGURES.section(f"{clusters:,} clusters, {count:,} bindings")
        state = folder / "state"
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
    FIGURES.row("start until it serves", lasted, "s", goal=at_most(START_GOAL_SECONDS))
    FIGURES.row("CPU until then", used_seconds, "s")
    goal = at_most(MEMORY_GOAL_MEBIBYTES)
    FIGURES.row("memory once it serves", now / 2**20, "MiB", goal=goal)
    FIGURES.row("memory at most until then", peak / 2**20, "MiB", goal=goal)
    FIGURES.note(f"{CHANGES} clusters join, change and leave, and all are listed meanwhile")
    show_stalls(FIGURES, stalls, STALL_GOAL_MILLIS)
    show_changes(clusters)


if __name__ == "__main__":
    clean_up_when_ended()
    match [int(argument) for argument in arguments()]:
        case [clusters]:
            main(clusters, 10 * clusters)
        case [clusters, bindings]:
            main(clusters, bindings)
        case _:
            for clusters, bindings in SIZES:
                main(clusters, bindings)
