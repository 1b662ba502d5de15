"""How much CPU an estimate of a whole fleet takes, from reports that are already arrays.

Prints medians; must not judge them.
"""

from __future__ import annotations

from collections.abc import Callable

from federation.capacity.fleet_reports import FleetCapacity
from federation.capacity.summary_estimates import estimate_replicas
from federation.model.cluster import Cluster, ClusterState
from federation.model.estimate import EstimateOptions, Estimates, ModelRule, Source
from federation.model.pod_request import ContainerRequest, PodResources, pod_request
from federation.model.workload import ReplicaRequirements
from lab.benchmarks.measuring import chosen, median_micros
from lab.benchmarks.members import capacity_report
from lab.fleet import cluster_name
from lab.verdicts import Verdicts

GIB = 1 << 30
FIGURES = Verdicts("bench_estimates")
REQUIREMENTS = ReplicaRequirements(request={"cpu": 3_000, "memory": 20 * GIB})
WITH_STORAGE = ReplicaRequirements(
    request={"cpu": 3_000, "memory": 20 * GIB, "ephemeral-storage": GIB}
)


def fleet(clusters: int) -> list[ClusterState]:
    """Clusters of 500 nodes as agents report them, graded by the default model."""
    return [
        ClusterState(
            cluster=Cluster(name=cluster_name(number)),
            report=capacity_report(number),
            as_of=0.0,
        )
        for number in range(clusters)
    ]


def print_estimates(clusters: int) -> None:
    FIGURES.section(f"estimates of {clusters:,} clusters")
    states = fleet(clusters)
    capacity = FleetCapacity.of(states)

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
    rows["summary, 3 resources"] = estimate(capacity, WITH_STORAGE, Source.SUMMARY)
    rows["models, every cluster falls back"] = estimate(capacity, WITH_STORAGE, Source.MODELS)
    for name, call in rows.items():
        FIGURES.row(name, median_micros(call, repeat=50), "us")
    build = median_micros(lambda: FleetCapacity.of(states), rounds=3)
    change = median_micros(lambda: capacity.with_clusters({0: states[0]}), rounds=5, repeat=5)
    FIGURES.row("build the arrays", build, "us")
    FIGURES.row("replace one cluster", change, "us")


def print_pod_requests() -> None:
    pod = PodResources(
        containers=(
            ContainerRequest(requests={"cpu": "500m", "memory": "1Gi"}),
            ContainerRequest(requests={"cpu": "50m", "memory": "64Mi"}),
        ),
        init_containers=(ContainerRequest(requests={"cpu": "1"}),),
    )
    micros = median_micros(lambda: pod_request(pod), repeat=50)
    FIGURES.section("a pod of 2 containers and 1 init container")
    FIGURES.row("its request", micros, "us")


def main() -> None:
    for clusters in chosen((100, 1_000, 10_000), quick=(100,)):
        print_estimates(clusters)
    print_pod_requests()


if __name__ == "__main__":
    main()
