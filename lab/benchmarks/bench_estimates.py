"""How much CPU an estimate of a whole fleet takes, from reports that are already arrays.

Prints medians; must not judge them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.cluster import (
    CapacityReport,
    Cluster,
    ClusterState,
    NodeSummary,
    ResourceSummary,
)
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.grade_counts import count_grades
from federation.model.grades import DEFAULT_MODEL, Grade, GradeRange, ResourceModel, model_hash
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.model.resources import CPU, EPHEMERAL_STORAGE, MAX_AMOUNT, MEMORY
from federation.model.workload import ReplicaRequirements
from lab.benchmarks.measuring import chosen, median_micros

GIB = 1 << 30
RESOURCES = (CPU, MEMORY, EPHEMERAL_STORAGE)
REQUIREMENTS = ReplicaRequirements(request={"cpu": 3_000, "memory": 20 * GIB})
WITH_STORAGE = ReplicaRequirements(
    request={"cpu": 3_000, "memory": 20 * GIB, "ephemeral-storage": GIB}
)


def with_storage(model: ResourceModel) -> ResourceModel:
    """The model with the local disk as a third resource, 25 GiB for every GiB of memory."""
    grades = []
    for grade in model.grades:
        memory = next(each for each in grade.ranges if each.name == MEMORY)
        most = memory.max if memory.max == MAX_AMOUNT else 25 * memory.max
        storage = GradeRange(name=EPHEMERAL_STORAGE, min=25 * memory.min, max=most)
        grades.append(Grade(grade=grade.grade, ranges=(*grade.ranges, storage)))
    return ResourceModel(grades=tuple(grades))


def fleet(clusters: int, model: ResourceModel = DEFAULT_MODEL) -> list[ClusterState]:
    """Clusters of 200 nodes each under a model."""
    random = np.random.default_rng(20)
    digest = model_hash(model)
    states = []
    for position in range(clusters):
        free_rn = np.stack(
            [
                random.integers(0, 128_000, 200),
                random.integers(0, 512 * GIB, 200),
                random.integers(0, 8 << 40, 200),
            ]
        ).astype(np.int64)
        totals = dict(zip(RESOURCES, free_rn.sum(axis=1).tolist(), strict=True))
        report = CapacityReport(
            epoch=1,
            sequence=1,
            snapshot_time=0.0,
            summary=ResourceSummary(allocatable={**totals, "pods": 22_000}),
            nodes=NodeSummary(total=200, ready=200, graded=200),
            grade_counts=count_grades(model, free_rn[: len(model.resources)]),
            model_hash=digest,
        )
        cluster = Cluster(name=f"member{position}", model=model)
        states.append(ClusterState(cluster=cluster, report=report, as_of=0.0))
    return states


def print_estimates(clusters: int) -> None:
    states = fleet(clusters)
    capacity = FleetCapacity.of(states)
    wide = FleetCapacity.of(fleet(clusters, with_storage(DEFAULT_MODEL)))

    def estimate(
        capacity: FleetCapacity,
        requirements: ReplicaRequirements,
        highest: Source,
        rule: ModelRule = ModelRule.DOCUMENTED,
    ) -> Callable[[], Estimates]:
        options = EstimateOptions(model_rule=rule, highest=highest)
        return lambda: estimate_replicas(capacity, requirements, options)

    rows = {
        f"models, {rule.value}": estimate(capacity, REQUIREMENTS, Source.MODELS, rule)
        for rule in ModelRule
    }
    rows |= {
        f"models, {rule.value}, 3 resources": estimate(wide, WITH_STORAGE, Source.MODELS, rule)
        for rule in ModelRule
    }
    rows["summary, 3 resources"] = estimate(capacity, WITH_STORAGE, Source.SUMMARY)
    rows["models, every cluster falls back"] = estimate(capacity, WITH_STORAGE, Source.MODELS)
    for name, call in rows.items():
        print(f"{clusters:>6} clusters  {name:<34} {median_micros(call, repeat=50):>10.1f} us")
    build = median_micros(lambda: FleetCapacity.of(states), rounds=3)
    change = median_micros(lambda: capacity.with_clusters({0: states[0]}), rounds=5, repeat=5)
    print(f"{clusters:>6} clusters  {'build the arrays':<34} {build:>10.1f} us")
    print(f"{clusters:>6} clusters  {'replace one cluster':<34} {change:>10.1f} us")


def print_pod_requests() -> None:
    pod = PodResources(
        containers=(
            ContainerRequest(requests={"cpu": "500m", "memory": "1Gi"}),
            ContainerRequest(requests={"cpu": "50m", "memory": "64Mi"}),
        ),
        init_containers=(ContainerRequest(requests={"cpu": "1"}),),
    )
    micros = median_micros(lambda: pod_request(pod), repeat=50)
    print(f"{'one pod request, 2 containers and 1 init container':<51} {micros:>10.1f} us")


def main() -> None:
    for clusters in chosen((100, 1_000, 10_000), quick=(1_000,)):
        print_estimates(clusters)
    print_pod_requests()


if __name__ == "__main__":
    main()
