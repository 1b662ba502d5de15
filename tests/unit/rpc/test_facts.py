"""What a cluster says of itself when it joins, and what is said of it: checked at the border."""

from __future__ import annotations

from typing import Any

import pytest

from federation.v1.agents_pb2 import Hello
from federation.v1.clusters_pb2 import (
    EnrollClusterRequest,
    ReplaceClusterRequest,
    UpdateClusterRequest,
)
from federation.v1.resource_pb2 import ApiEnablement, ApiResource, Cluster
from lab.control_planes import AgentStream, RunningControlPlane, refused

HOSTILE = "a\x1b[2J\nerror: forged"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"cluster_uid": "not a uid"}, "clusterUid"),
        ({"cluster_uid": HOSTILE}, "clusterUid"),
        ({"region": HOSTILE}, "region"),
        ({"provider": "x" * 254}, "provider"),
        ({"zones": ["a", HOSTILE]}, "zones[1]"),
        ({"kubernetes_version": HOSTILE}, "kubernetesVersion"),
        ({"agent_version": "\u202e1.0"}, "agentVersion"),
    ],
)
async def test_an_agent_joins_with_facts_that_can_be_shown(
    running: RunningControlPlane, fields: dict[str, Any], field: str
) -> None:
    anybody = running.caller(None)
    request = EnrollClusterRequest(
        **{"cluster": "member1", "token": "a.b", "cluster_uid": "uid-1", **fields}
    )
    refusal = await refused(anybody.call(anybody.clusters.EnrollCluster, request))
    assert refusal.code.name == "INVALID_ARGUMENT"
    assert set(refusal.violations) == {field}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kubernetes_version": HOSTILE}, "hello.kubernetesVersion"),
        ({"agent_version": HOSTILE}, "hello.agentVersion"),
        (
            {"api_enablements": [ApiEnablement(group_version="\x1b")]},
            "hello.apiEnablements[0].groupVersion",
        ),
        (
            {"api_enablements": [ApiEnablement(resources=[ApiResource(kind="\x9b")])]},
            "hello.apiEnablements[0].resources[0].kind",
        ),
    ],
)
async def test_an_agent_says_hello_with_facts_that_can_be_shown(
    running: RunningControlPlane, fields: dict[str, Any], field: str
) -> None:
    agent = await running.enrolled("member1")
    async with AgentStream(agent, "member1") as stream:
        await stream.say(
            hello=Hello(**{"epoch": 1, "agent_version": "1", "placer": "none", **fields})
        )
        _, refusal = await stream.end()
    assert refusal is not None
    assert set(refusal.violations) == {field}


async def test_another_cluster_takes_a_name_with_a_uid_only(running: RunningControlPlane) -> None:
    await running.enrolled("member1")
    admin = running.admin
    for uid in ("not a uid", "", HOSTILE):
        request = ReplaceClusterRequest(name="member1", cluster_uid=uid)
        refusal = await refused(admin.call(admin.clusters.ReplaceCluster, request))
        assert set(refusal.violations) == {"clusterUid"}


async def test_people_say_what_kubernetes_takes(running: RunningControlPlane) -> None:
    await running.enrolled("member1")
    admin = running.admin
    said = Cluster(
        metadata={"name": "member1", "labels": {"k": "x" * 100_000, "bad key": "v"}},
        spec={"region": HOSTILE, "taints": [{"key": "a b", "effect": "NoSchedule"}]},
    )
    request = UpdateClusterRequest(cluster=said)
    refusal = await refused(admin.call(admin.clusters.UpdateCluster, request))
    assert set(refusal.violations) == {
        "metadata.labels[k]",
        "metadata.labels[bad key]",
        "spec.region",
        "spec.taints[0].key",
    }
