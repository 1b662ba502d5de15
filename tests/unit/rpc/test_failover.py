"""Failover over the wire: frozen and resumed, as a whole and in places, and what is refused."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from federation.v1.clusters_pb2 import (
    GetClusterRequest,
    ListClustersRequest,
    UpdateClusterRequest,
)
from federation.v1.failover_pb2 import (
    FailoverStatus,
    FreezeFailoverRequest,
    GetFailoverRequest,
    ResumeFailoverRequest,
)
from federation.v1.failover_pb2_grpc import FailoverStub
from federation.v1.resource_pb2 import Cluster, ClusterSpec, Condition, ObjectMeta
from lab.control_planes import RunningControlPlane, refused

WHY = "network change"


async def told(running: RunningControlPlane, request: Any) -> FailoverStatus:
    """How failover stands after that."""
    stub: Any = FailoverStub(running.channel)
    name = type(request).__name__.removesuffix("Request")
    answer = await running.admin.call(getattr(stub, name), request)
    status: FailoverStatus = answer.status
    assert status.HasField("time")
    status.ClearField("time")
    return status


async def in_region(running: RunningControlPlane, region: str) -> None:
    await running.enrolled("member1")
    cluster = Cluster(metadata=ObjectMeta(name="member1"), spec=ClusterSpec(region=region))
    request = UpdateClusterRequest(cluster=cluster)
    await running.admin.call(running.admin.clusters.UpdateCluster, request)


@pytest.mark.parametrize("place", [{}, {"region": "eu-west"}])
async def test_what_is_frozen_is_not_frozen_again_and_goes_on_once(
    running: RunningControlPlane, place: dict[str, str]
) -> None:
    await in_region(running, "eu-west")
    named = "Failover of region eu-west" if place else "Failover"
    frozen = await told(running, FreezeFailoverRequest(reason=WHY, **place))
    freeze = frozen.places[0].freeze if place else frozen.freeze
    assert freeze.reason == WHY
    refusal = await refused(told(running, FreezeFailoverRequest(reason="again", **place)))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "ALREADY_FROZEN",
    )
    assert refusal.message == f"{named} is frozen already, by “{freeze.by}”: “{WHY}”"
    assert await told(running, GetFailoverRequest()) == frozen
    resumed = await told(running, ResumeFailoverRequest(**place))
    assert not resumed.HasField("freeze")
    assert not resumed.places
    refusal = await refused(told(running, ResumeFailoverRequest(**place)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_FROZEN")
    assert refusal.message == f"{named} is not frozen."


@pytest.mark.parametrize("place", [{}, {"region": "eu-west"}])
async def test_a_silent_cluster_says_that_failover_of_it_is_frozen(
    running: RunningControlPlane, place: dict[str, str]
) -> None:
    await in_region(running, "eu-west")
    await running.enrolled("elsewhere")

    async def conditions() -> dict[str, dict[str, Condition]]:
        clusters = running.admin.clusters
        listed = await running.admin.call(clusters.ListClusters, ListClustersRequest())
        found = {
            each.metadata.name: {it.type: it for it in each.status.conditions}
            for each in listed.clusters
        }
        one = await running.admin.call(clusters.GetCluster, GetClusterRequest(name="member1"))
        assert {it.type: it for it in one.cluster.status.conditions} == found["member1"]
        return found

    assert all("FailoverFrozen" not in each for each in (await conditions()).values())
    status = await told(running, FreezeFailoverRequest(reason=WHY, **place))
    freeze = status.places[0].freeze if place else status.freeze
    frozen = await conditions()
    assert ("FailoverFrozen" in frozen["elsewhere"]) == (not place)
    condition = frozen["member1"]["FailoverFrozen"]
    assert (condition.status, condition.reason) == ("True", "FrozenByPeople")
    assert condition.message.endswith(f"failover is frozen by “{freeze.by}”: “{WHY}”")
    await told(running, ResumeFailoverRequest(**place))
    assert all("FailoverFrozen" not in each for each in (await conditions()).values())


@pytest.mark.parametrize(
    ("request_", "field", "rule"),
    [
        (FreezeFailoverRequest(), "reason", "is required"),
        (
            FreezeFailoverRequest(reason=WHY, region="eu-west", provider="cloud"),
            "provider",
            "must not be set beside region: a freeze is of one place",
        ),
        (
            ResumeFailoverRequest(region="eu-west", control_plane="one"),
            "controlPlane",
            "must not be set beside region: a freeze is of one place",
        ),
        (FreezeFailoverRequest(reason=WHY, region="eu"), "region", "is that of no cluster: 'eu'"),
        (
            ResumeFailoverRequest(control_plane="a\nb"),
            "controlPlane",
            "must be at most 253 printable characters",
        ),
    ],
)
async def test_what_names_no_place_is_refused_and_nothing_is_frozen(
    running: RunningControlPlane, request_: Any, field: str, rule: str
) -> None:
    await in_region(running, "eu-west")
    refusal = await refused(told(running, request_))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.violations == {field: rule}
    status = await told(running, GetFailoverRequest())
    assert not status.HasField("freeze")
    assert not status.places
