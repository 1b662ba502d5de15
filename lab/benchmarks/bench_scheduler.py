"""How much CPU dividing, selecting and whole decisions take; availability is given.

It is what fits into clusters as shipped agents report them. Prints medians; must not judge them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.reserve import FleetRooms, packable_c
from federation.model.arrays import IntArray, UintArray
from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    Binding,
    Certificate,
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.workload import (
    ObjectReference,
    ReplicaRequirements,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.cycle import schedule
from federation.scheduler.division.apportion import apportion
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.selection.regions import Region, choose_regions
from federation.scheduler.selection.search import UNLIMITED, Level, SearchProblem, search
from lab.benchmarks.measuring import median_millis
from lab.benchmarks.members import PLAN
from lab.fleet import SMALL_SIZES, stored_pools
from lab.verdicts import Verdicts

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
REGION_THEN_CLUSTER = (
    SpreadConstraint(by=SpreadField.REGION, min_groups=2, max_groups=3),
    SpreadConstraint(by=SpreadField.CLUSTER, min_groups=3, max_groups=20),
)
FIGURES = Verdicts("bench_scheduler")
APIS = frozenset(("apps/v1", f"Kind{number}") for number in range(29)) | {("apps/v1", "Deployment")}


def fleet(clusters: int, regions: int = 10) -> Fleet:
    """Clusters with labels, 30 APIs each and a taint on every tenth."""
    taint = Taint(key="dedicated", value="infra", effect=TaintEffect.NO_SCHEDULE)
    return Fleet.of(
        Cluster(
            name=f"member{number:05d}",
            labels={"tier": "abc"[number % 3], "serial": str(number)},
            provider=f"provider{number % 3}",
            region=f"region{number % regions:03d}",
            zones=(f"zone{number % (3 * regions):03d}",),
            taints=(taint,) if number % 10 == 0 else (),
            api_enablements=APIS,
        )
        for number in range(clusters)
    )


@cache
def packable() -> IntArray:
    """How many replicas of a size each distinct cluster of the fleet takes, 500 at most."""
    report = ReportId(1, 1)
    own_rooms = [Room.of(report, stored_pools(number, PLAN)) for number in range(PLAN.distinct)]
    size = ReplicaRequirements(request=SMALL_SIZES[3])
    most_c = packable_c(FleetRooms.of(own_rooms), size, Certificate.CAREFUL, {})
    return np.clip(most_c // 10, 1, 500)


def availability(clusters: int) -> Estimates:
    """What a size gets in clusters of 500 nodes as agents report them, nearly all of it taken."""
    return Estimates(
        # Clusters that report alike have promised more or less.
        replicas_c=(
            np.resize(packable(), clusters) * np.random.default_rng(9).uniform(0.5, 1, clusters)
        ).astype(np.int64),
        source_c=np.full(clusters, Source.POOLS, dtype=np.int8),
        bound_c=np.full(clusters, Bound.LOWER, dtype=np.int8),
        reasons={},
    )


def binding(replicas: int, spread: tuple[SpreadConstraint, ...]) -> Binding:
    return Binding(
        namespace="shop",
        name="web",
        replicas=replicas,
        resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web", uid="6f1c"),
        clusters=(TargetCluster(name="member00003", replicas=replicas // 10),),
        placement=Placement(
            affinity=ClusterAffinity(match_labels={"tier": "a"}),
            tolerations=(Toleration(key="other", operator=TolerationOperator.EXISTS),),
            replica_scheduling=DYNAMIC,
            spread_constraints=spread,
        ),
    )


def by_position(position_k: IntArray) -> UintArray:
    return position_k.astype(np.uint64)


def report(what: str, work: Callable[[], object]) -> None:
    FIGURES.row(what, median_millis(work), "ms")


def bench_apportion() -> None:
    random = np.random.default_rng(3)
    for clusters, seats in ((100, 10_000), (5_000, 10_000), (10_000, 1_000_000)):
        weights = random.integers(1, 500, clusters)
        report(
            f"divide {seats:,} replicas over {clusters:,} clusters",
            partial(apportion, weights, seats, by_position),
        )


def bench_regions() -> None:
    random = np.random.default_rng(4)
    for count, least, most, clusters in ((20, 5, 10, 40), (200, 20, 20, 100), (200, 10, 20, 600)):
        regions = [
            Region(name=f"region{number:03d}", clusters=size, score=score)
            for number, (size, score) in enumerate(
                zip(
                    random.integers(1, 60, count).tolist(),
                    random.integers(0, 9_000, count).tolist(),
                    strict=True,
                )
            )
        ]
        report(
            f"choose {least} to {most} of {count} regions with {clusters} clusters",
            partial(choose_regions, regions, least=least, most=most, least_clusters=clusters),
        )


def bench_search() -> None:
    """What runs when Karmada's choice of regions is too small, or zones and providers matter."""
    values = np.random.default_rng(5).integers(0, 500, 10_000)
    regions: Column[tuple[str, ...]] = Column.of(
        (f"region{number % 200:03d}",) for number in range(10_000)
    )
    for most in (100, UNLIMITED):
        problem = SearchProblem(
            value_k=values,
            levels=(Level(groups=regions, least=10, most=20),),
            least=20,
            most=most,
        )
        clusters = "any number of" if most == UNLIMITED else f"at most {most}"
        report(
            f"search {clusters} clusters in 10 to 20 of 200 regions, 10,000 clusters",
            partial(search, problem),
        )


def bench_decisions() -> None:
    for clusters in (100, 1_000, 10_000):
        members, fits = fleet(clusters), availability(clusters)
        for what, spread in (("region and cluster spread", REGION_THEN_CLUSTER), ("no spread", ())):
            asked = binding(500, spread)
            report(
                f"decide with trace, {clusters:,} clusters, 500 replicas, {what}",
                partial(schedule, asked, members, fits, now=0.0),
            )
    wide = (
        SpreadConstraint(by=SpreadField.REGION, min_groups=20, max_groups=20),
        SpreadConstraint(by=SpreadField.CLUSTER, min_groups=200, max_groups=400),
    )
    members, fits = fleet(10_000, regions=200), availability(10_000)
    asked = binding(5_000, wide)
    report(
        "decide with trace, 10,000 clusters, 20 of 200 regions",
        partial(schedule, asked, members, fits, now=0.0),
    )
    everywhere = Binding(
        name="web",
        replicas=1_000_000,
        resource=asked.resource,
        placement=Placement(replica_scheduling=DYNAMIC),
    )
    report(
        "decide with trace, 10,000 clusters, 1,000,000 replicas on all of them",
        partial(schedule, everywhere, members, fits, now=0.0),
    )


def main() -> None:
    bench_apportion()
    bench_regions()
    bench_search()
    bench_decisions()


if __name__ == "__main__":
    main()
