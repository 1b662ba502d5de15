"""Remembering shapes changes no answer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from estimator.binpack.requests import replica_request
from estimator.kube.objects import Container, ContainerStatus, PodSpec, PodStatus, Resources
from estimator.kube.shapes import pod_shape
from federation.model.pod_request import ContainerRequest, PodResources
from federation.model.resources import PODS

quantities = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi", "nvidia.com/gpu"]),
    st.sampled_from(["0", "1", "250m", "2Gi"]),
    max_size=3,
)
containers = st.lists(
    st.builds(
        ContainerRequest,
        requests=quantities,
        restart_always=st.booleans(),
        allocated=st.none() | quantities,
        actuated=st.none() | quantities.filter(bool),
    ),
    max_size=3,
).map(tuple)
pods = st.builds(
    PodResources,
    containers=containers,
    init_containers=containers,
    overhead=quantities,
    pod_level=quantities,
    allocated=st.none() | quantities,
    actuated=st.none() | quantities,
)


def as_stored(
    requests: tuple[ContainerRequest, ...],
) -> tuple[list[Container], list[ContainerStatus]]:
    """The containers and their statuses, by position for a name."""
    stored = [
        Container(
            name=str(position),
            resources=Resources(requests=dict(each.requests)),
            restart_policy="Always" if each.restart_always else None,
        )
        for position, each in enumerate(requests)
    ]
    statuses = [
        ContainerStatus(
            name=str(position),
            allocated_resources=None if each.allocated is None else dict(each.allocated),
            resources=None if each.actuated is None else Resources(requests=dict(each.actuated)),
        )
        for position, each in enumerate(requests)
    ]
    return stored, statuses


@given(st.lists(pods, min_size=1, max_size=4))
def test_a_shape_is_what_its_pod_asks_for(resources: list[PodResources]) -> None:
    for each in [*resources, *resources]:
        running, running_statuses = as_stored(each.containers)
        starting, starting_statuses = as_stored(each.init_containers)
        shape = pod_shape(
            PodSpec(
                containers=running,
                init_containers=starting,
                overhead=dict(each.overhead),
                resources=Resources(requests=dict(each.pod_level)),
            ),
            PodStatus(
                container_statuses=running_statuses,
                init_container_statuses=starting_statuses,
                allocated_resources=None if each.allocated is None else dict(each.allocated),
                resources=(
                    None if each.actuated is None else Resources(requests=dict(each.actuated))
                ),
            ),
        )
        if each.actuated is None:
            # Without it Kubernetes takes no notice of the status of the pod as a whole.
            each = replace(each, allocated=None)  # noqa: PLW2901 - as stored
        expected = replica_request(each)
        assert shape.request == expected
        assert shape.counted == {
            name: amount for name, amount in expected.amounts.items() if name != PODS and amount
        }


def test_pods_of_one_shape_share_it() -> None:
    spec = PodSpec(containers=[Container(resources=Resources(requests={"cpu": "1"}))])
    assert pod_shape(spec, PodStatus()) is pod_shape(spec, PodStatus())
