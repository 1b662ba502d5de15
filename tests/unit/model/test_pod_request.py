"""What a pod asks of its node, part by part."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.model.pod_request import (
    ContainerRequest,
    PodResources,
    pod_request,
)


def app(cpu: str) -> ContainerRequest:
    return ContainerRequest(requests={"cpu": cpu})


def sidecar(cpu: str) -> ContainerRequest:
    return ContainerRequest(requests={"cpu": cpu}, restart_always=True)


def test_containers_add_up() -> None:
    assert pod_request(PodResources(containers=(app("1"), app("250m")))) == {"cpu": 1250}


def test_a_pod_without_requests_asks_for_nothing() -> None:
    assert pod_request(PodResources(containers=(ContainerRequest(),))) == {}


def test_init_containers_run_one_at_a_time_before_the_rest() -> None:
    pod = PodResources(containers=(app("1"),), init_containers=(app("4"), app("3")))
    assert pod_request(pod) == {"cpu": 4000}


def test_a_sidecar_runs_beside_everything_after_it() -> None:
    before = PodResources(containers=(app("1"),), init_containers=(sidecar("2"), app("4")))
    after = PodResources(containers=(app("1"),), init_containers=(app("4"), sidecar("2")))
    assert pod_request(before) == {"cpu": 6000}
    assert pod_request(after) == {"cpu": 4000}


def test_sidecars_around_an_init_container() -> None:
    pod = PodResources(
        containers=(ContainerRequest(requests={"cpu": "250m", "memory": "1Gi"}),),
        init_containers=(
            ContainerRequest(requests={"cpu": "50m", "memory": "50Mi"}, restart_always=True),
            ContainerRequest(requests={"cpu": "200m", "memory": "2Gi"}),
            ContainerRequest(requests={"cpu": "30m", "memory": "40Mi"}, restart_always=True),
        ),
    )
    assert pod_request(pod) == {"cpu": 330, "memory": 2098 << 20}


def test_pod_level_resources_replace_the_sum_and_overhead_comes_on_top() -> None:
    pod = PodResources(
        containers=(ContainerRequest(requests={"cpu": "3", "example.com/card": "1"}),),
        pod_level={"cpu": "2", "hugepages-2Mi": "4Mi", "example.com/card": "9"},
        overhead={"cpu": "250m", "memory": "160Mi"},
    )
    assert pod_request(pod) == {
        "cpu": 2250,
        "example.com/card": 1,
        "hugepages-2Mi": 4 << 20,
        "memory": 160 << 20,
    }


def test_rounding_is_done_once_a_pod() -> None:
    pod = PodResources(containers=(app("0.4m"), app("0.4m")))
    assert pod_request(pod) == {"cpu": 1}


def resized(
    requests: str, allocated: str | None = None, actuated: str | None = None
) -> ContainerRequest:
    return ContainerRequest(
        requests={"cpu": requests},
        allocated=None if allocated is None else {"cpu": allocated},
        actuated=None if actuated is None else {"cpu": actuated},
    )


@pytest.mark.parametrize(
    ("container", "millis"),
    [
        (resized("4", "1", "1"), 4000),  # grows
        (resized("1", "2"), 2000),  # shrinks, and is not allocated less yet
        (resized("1", "1", "4"), 4000),  # shrinks, and the runtime has not done it yet
        (resized("1", None, "4"), 4000),
        (resized("1"), 1000),
    ],
)
def test_a_resize_counts_until_it_is_done(container: ContainerRequest, millis: int) -> None:
    assert pod_request(PodResources(containers=(container,))) == {"cpu": millis}


def test_the_greatest_of_three_sums_counts() -> None:
    """Not the sum of the greatest: kube-scheduler compares what all containers have together."""
    shrinking = ContainerRequest(requests={"cpu": "1"}, allocated={"cpu": "2", "memory": "1Gi"})
    growing = ContainerRequest(requests={"cpu": "3"}, allocated={"cpu": "2"})
    pod = PodResources(containers=(shrinking, growing))
    assert pod_request(pod) == {"cpu": 4000, "memory": 1 << 30}


def test_an_infeasible_resize_counts_what_there_is() -> None:
    pod = PodResources(containers=(resized("64", "2", "3"),), overhead={"cpu": "1"})
    assert pod_request(pod) == {"cpu": 65000}
    assert pod_request(replace(pod, is_infeasible=True)) == {"cpu": 4000}


def test_sidecars_and_init_containers_are_resized_too() -> None:
    growing = replace(resized("1", "1", "3"), restart_always=True)
    pod = PodResources(containers=(app("1"),), init_containers=(growing, app("2")))
    assert pod_request(pod) == {"cpu": 5000}


def test_pod_level_resources_are_resized_too() -> None:
    pod = PodResources(
        containers=(resized("1"),),
        pod_level={"cpu": "2"},
        allocated={"cpu": "3"},
        actuated={"cpu": "4"},
    )
    assert pod_request(pod) == {"cpu": 4000}
    growing = replace(pod, pod_level={"cpu": "8"})
    assert pod_request(growing) == {"cpu": 8000}
    assert pod_request(replace(growing, is_infeasible=True)) == {"cpu": 4000}


def test_the_status_of_a_whole_pod_counts_where_the_spec_has_no_pod_level() -> None:
    pod = PodResources(
        containers=(app("1"),), allocated={"cpu": "1"}, actuated={"cpu": "2", "memory": "1Gi"}
    )
    assert pod_request(pod) == {"cpu": 2000, "memory": 1 << 30}
