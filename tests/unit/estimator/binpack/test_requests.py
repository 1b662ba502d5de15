"""One pod in the views of kube-scheduler."""

from __future__ import annotations

from estimator.binpack.requests import replica_request
from federation.model.pod_request import ContainerRequest, PodResources

MI = 2**20


def test_defaults_are_counted_per_container_and_by_key() -> None:
    pod = PodResources(
        containers=(
            ContainerRequest(requests={"cpu": "0"}),
            ContainerRequest(requests={"memory": "50Mi"}),
        )
    )
    request = replica_request(pod)
    assert request.amounts == {"cpu": 0, "memory": 50 * MI, "pods": 1}
    assert request.nonzero == {"cpu": 100, "memory": 250 * MI}
    assert request.nonzero_placed == request.nonzero


def test_pod_level_amounts_are_overlooked_for_the_incoming_pod_only() -> None:
    pod = PodResources(
        containers=(ContainerRequest(requests={}),), pod_level={"cpu": "2", "memory": "1Gi"}
    )
    request = replica_request(pod)
    assert request.amounts == {"cpu": 2000, "memory": 1024 * MI, "pods": 1}
    assert request.nonzero == {"cpu": 100, "memory": 200 * MI}
    assert request.nonzero_placed == {"cpu": 2000, "memory": 1024 * MI}


def test_with_pod_level_amounts_a_default_stands_in_only_for_nothing_at_all() -> None:
    pod = PodResources(
        containers=(ContainerRequest(requests={"cpu": "1"}), ContainerRequest(requests={})),
        pod_level={"hugepages-2Mi": "4Mi"},
    )
    assert replica_request(pod).nonzero_placed == {"cpu": 1000, "memory": 400 * MI}


def test_names_the_scheduler_keeps_no_total_of_are_dropped() -> None:
    pod = PodResources(containers=(ContainerRequest(requests={"foo": "1", "a.b/c": "2"}),))
    assert replica_request(pod).amounts == {"a.b/c": 2, "pods": 1}
