"""How much CPU dividing, selecting and whole decisions take; availability is given.

Prints medians; must not judge them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from federation.model.arrays import IntArray, UintArray
from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Bound, Estimates, Source
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.workload import ObjectReference, TargetCluster, Toleration, TolerationOperator
from federation.scheduler.cycle import schedule
from federation.scheduler.division.apportion import apportion
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.selection.regions import Region, choose_regions
from federation.scheduler.selection.search import UNLIMITED, Level, SearchProblem, search
from lab.benchmarks.measuring import median_millis

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
REGION_THEN_CLUSTER = (
    SpreadConstraint(by=SpreadField.REGION, min_groups=2, max_groups=3),
    SpreadConstraint(by=SpreadField.CLUSTER, min_groups=3, max_groups=20),
)
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


def availability(clusters: int) -> Estimates:
    return Estimates(
        replicas_c=np.random.default_rng(9).integers(50, 500, clusters),
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
    print(f"{what:<72}{median_millis(work):9.3f} ms")


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
