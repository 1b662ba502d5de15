"""What a pod asks for: containers, init containers, sidecars, overhead, pod level, resizes."""

from __future__ import annotations

from typing import Any

import pytest

from federation.model.pod_request import ContainerRequest, PodResources, pod_request

GIB = 1 << 30


def app(cpu: str, **other: Any) -> ContainerRequest:
    return ContainerRequest(requests={"cpu": cpu}, **other)


def sidecar(cpu: str, **other: Any) -> ContainerRequest:
    return app(cpu, restart_always=True, **other)


def resized(requests: str, allocated: str = "", actuated: str = "", **other: Any) -> Any:
    """A container whose status has what is allocated to it, and what the runtime has done."""
    amounts = [{"cpu": each} if each else None for each in (allocated, actuated)]
    return app(requests, allocated=amounts[0], actuated=amounts[1], **other)


def pod(*containers: ContainerRequest, init: Any = (), **other: Any) -> PodResources:
    return PodResources(containers=containers, init_containers=tuple(init), **other)


SPREAD_OUT = pod(
    ContainerRequest(requests={"cpu": "250m", "memory": "1Gi"}),
    init=(
        ContainerRequest(requests={"cpu": "50m", "memory": "50Mi"}, restart_always=True),
        ContainerRequest(requests={"cpu": "200m", "memory": "2Gi"}),
        ContainerRequest(requests={"cpu": "30m", "memory": "40Mi"}, restart_always=True),
    ),
)
POD_LEVEL = pod(
    ContainerRequest(requests={"cpu": "3", "example.com/card": "1"}),
    pod_level={"cpu": "2", "hugepages-2Mi": "4Mi", "example.com/card": "9"},
    overhead={"cpu": "250m", "memory": "160Mi"},
)
SHRINKING = ContainerRequest(requests={"cpu": "1"}, allocated={"cpu": "2", "memory": "1Gi"})
GROWING = ContainerRequest(requests={"cpu": "3"}, allocated={"cpu": "2"})
RESIZED_POD = {"allocated": {"cpu": "3"}, "actuated": {"cpu": "4"}}


@pytest.mark.parametrize(
    ("asked", "amounts"),
    [
        (pod(app("1"), app("250m")), {"cpu": 1250}),
        (pod(ContainerRequest()), {}),
        # Init containers run one at a time before the rest.
        (pod(app("1"), init=(app("4"), app("3"))), {"cpu": 4000}),
        # A sidecar runs beside everything after it.
        (pod(app("1"), init=(sidecar("2"), app("4"))), {"cpu": 6000}),
        (pod(app("1"), init=(app("4"), sidecar("2"))), {"cpu": 4000}),
        (SPREAD_OUT, {"cpu": 330, "memory": 2098 << 20}),
        # What is asked for the whole pod replaces the sum; overhead comes on top.
        (
            POD_LEVEL,
            {
                "cpu": 2250,
                "example.com/card": 1,
                "hugepages-2Mi": 4 << 20,
                "memory": 160 << 20,
            },
        ),
        # Rounding is done once a pod.
        (pod(app("0.4m"), app("0.4m")), {"cpu": 1}),
        # A resize counts until it is done: one that grows, ...
        (pod(resized("4", "1", "1")), {"cpu": 4000}),
        # ... that shrinks and is not allocated less yet, ...
        (pod(resized("1", "2")), {"cpu": 2000}),
        # ... that shrinks, and the runtime has not done it yet.
        (pod(resized("1", "1", "4")), {"cpu": 4000}),
        (pod(resized("1", "", "4")), {"cpu": 4000}),
        # The greatest of three sums counts, as kube-scheduler compares what all have together.
        (pod(SHRINKING, GROWING), {"cpu": 4000, "memory": GIB}),
        (pod(resized("64", "2", "3"), overhead={"cpu": "1"}), {"cpu": 65_000}),
        # An infeasible resize counts what there is.
        (
            pod(resized("64", "2", "3"), overhead={"cpu": "1"}, is_infeasible=True),
            {"cpu": 4000},
        ),
        # Sidecars are resized too, ...
        (
            pod(app("1"), init=(resized("1", "1", "3", restart_always=True), app("2"))),
            {"cpu": 5000},
        ),
        # ... and what is asked for the whole pod.
        (pod(resized("1"), pod_level={"cpu": "2"}, **RESIZED_POD), {"cpu": 4000}),
        (pod(resized("1"), pod_level={"cpu": "8"}, **RESIZED_POD), {"cpu": 8000}),
        (
            pod(resized("1"), pod_level={"cpu": "8"}, is_infeasible=True, **RESIZED_POD),
            {"cpu": 4000},
        ),
        # The status of a whole pod counts where the spec has no pod level.
        (
            pod(app("1"), allocated={"cpu": "1"}, actuated={"cpu": "2", "memory": "1Gi"}),
            {"cpu": 2000, "memory": GIB},
        ),
    ],
)
def test_pod_request(asked: PodResources, amounts: dict[str, int]) -> None:
    assert pod_request(asked) == amounts
