"""Remembering what pods of a shape ask for changes no answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from estimator.binpack.requests import replica_request
from estimator.kube.objects import RawPod
from estimator.kube.translate import pod_from_raw
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


def written(requests: tuple[ContainerRequest, ...]) -> tuple[list[Any], list[Any]]:
    """The containers and their statuses, by position for a name."""
    stored, statuses = [], []
    for position, each in enumerate(requests):
        name = {"name": str(position)}
        restart = {"restartPolicy": "Always"} if each.restart_always else {}
        stored.append({**name, "resources": {"requests": dict(each.requests)}, **restart})
        statuses.append({**name, **status(each)})
    return stored, statuses


def status(each: ContainerRequest | PodResources) -> dict[str, Any]:
    actuated = each.actuated
    return {
        "allocatedResources": each.allocated,
        "resources": None if actuated is None else {"requests": dict(actuated)},
    }


@given(st.lists(pods, min_size=1, max_size=4))
def test_a_pod_asks_for_what_its_containers_do(resources: list[PodResources]) -> None:
    for each in [*resources, *resources]:
        running, running_statuses = written(each.containers)
        starting, starting_statuses = written(each.init_containers)
        document = {
            "metadata": {"name": "p", "namespace": "shop"},
            "spec": {
                "nodeName": "a",
                "containers": running,
                "initContainers": starting,
                "overhead": dict(each.overhead),
                "resources": {"requests": dict(each.pod_level)},
            },
            "status": {
                "containerStatuses": running_statuses,
                "initContainerStatuses": starting_statuses,
                **status(each),
            },
        }
        found = pod_from_raw(msgspec.convert(document, RawPod))
        if each.actuated is None:
            # Without it Kubernetes takes no notice of the status of the pod as a whole.
            each = replace(each, allocated=None)  # noqa: PLW2901 - as stored
        expected = replica_request(each)
        assert found.nonzero == expected.nonzero_placed
        assert found.request == {
            name: amount for name, amount in expected.amounts.items() if name != PODS and amount
        }
