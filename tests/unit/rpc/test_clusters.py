from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.certificates import make_certificates
from federation.v1.clusters_pb2 import (
    CreateJoinTokenRequest,
    EnrollClusterRequest,
    GetClusterRequest,
    ListClustersRequest,
    UpdateClusterRequest,
)
from federation.v1.resource_pb2 import Cluster, ClusterSpec, ObjectMeta, Taint
from lab.control_planes import (
    AgentStream,
    RunningControlPlane,
    hello,
    refused,
    running_control_plane,
)


async def listed(running: RunningControlPlane, **fields: Any) -> Any:
    return await running.admin.call(
        running.admin.clusters.ListClusters, ListClustersRequest(**fields)
    )


async def updated(running: RunningControlPlane, cluster: Cluster) -> Cluster:
    answer = await running.admin.call(
        running.admin.clusters.UpdateCluster, UpdateClusterRequest(cluster=cluster)
    )
    return answer.cluster


async def test_a_join_token_comes_with_the_one_command(running: RunningControlPlane) -> None:
    made = await running.admin.call(
        running.admin.clusters.CreateJoinToken, CreateJoinTokenRequest(cluster="member1")
    )
    assert made.endpoint == str(running.plane.endpoint)
    assert (made.ca_url, made.ca_sha256) == ("", "")
    assert made.command == (
        f"ESTIMATOR_JOIN_TOKEN={made.token} estimator run --cluster member1 "
        f"--endpoint {made.endpoint} --insecure --credential-file member1.credential"
    )


async def test_over_tls_the_command_pins_the_ca_and_the_agent_gets_in(
    database_url: str, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path / "certs", ["127.0.0.1"])
    tls = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.ca}
    flags = {name: str(path) for name, path in tls.items()}
    async with running_control_plane(database_url, tmp_path / "state", **flags) as running:
        made = await running.admin.call(
            running.admin.clusters.CreateJoinToken, CreateJoinTokenRequest(cluster="member1")
        )
        der = ssl.PEM_cert_to_DER_cert(files.ca.read_text(encoding="ascii"))
        assert made.ca_sha256 == hashlib.sha256(der).hexdigest()
        assert made.ca_url == f"http://{running.plane.web_endpoint}/ca.pem"
        assert f"--ca-url {made.ca_url} --ca-sha256 {made.ca_sha256}" in made.command
        async with AgentStream(await running.enrolled("member1"), "member1") as stream:
            await stream.say(hello=hello())
            await stream.hear("welcome")


async def test_what_agents_dial_can_be_said(database_url: str, tmp_path: Path) -> None:
    flags = {"advertise_endpoint": "api.example:443"}
    async with running_control_plane(database_url, tmp_path, **flags) as running:
        made = await running.admin.call(
            running.admin.clusters.CreateJoinToken, CreateJoinTokenRequest(cluster="member1")
        )
        assert made.endpoint == "api.example:443"


@pytest.mark.parametrize(
    ("fields", "violations"),
    [
        ({"cluster": ""}, {"cluster"}),
        ({"cluster": "Upper"}, {"cluster"}),
        ({"cluster": "a" * 49}, {"cluster"}),
        ({"cluster": "a\x00"}, {"cluster"}),
        ({"cluster": "a", "ttl_seconds": 0}, {"ttlSeconds"}),
        ({"cluster": "-", "ttl_seconds": 604801}, {"cluster", "ttlSeconds"}),
    ],
)
async def test_join_tokens_that_break_rules_are_refused_by_field(
    running: RunningControlPlane, fields: dict[str, Any], violations: set[str]
) -> None:
    refusal = await refused(
        running.admin.call(running.admin.clusters.CreateJoinToken, CreateJoinTokenRequest(**fields))
    )
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == violations


async def test_a_token_lets_one_agent_in_once(running: RunningControlPlane) -> None:
    made = await running.admin.call(
        running.admin.clusters.CreateJoinToken, CreateJoinTokenRequest(cluster="member1")
    )
    anybody = running.caller(None)

    def enroll(cluster: str, token: str) -> Any:
        return anybody.call(
            anybody.clusters.EnrollCluster,
            EnrollClusterRequest(cluster=cluster, token=token, cluster_uid="u"),
        )

    refusal = await refused(enroll("member2", made.token))
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED
    await enroll("member1", made.token)
    refusal = await refused(enroll("member1", made.token))
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_known_name_with_another_uid_exists_already(running: RunningControlPlane) -> None:
    await running.enrolled("member1", uid="one")
    refusal = await refused(running.enrolled("member1", uid="other"))
    assert refusal.code is grpc.StatusCode.ALREADY_EXISTS


async def test_texts_that_no_database_holds_are_bad_requests(running: RunningControlPlane) -> None:
    anybody = running.caller(None)
    refusal = await refused(
        anybody.call(
            anybody.clusters.EnrollCluster,
            EnrollClusterRequest(cluster="a", token="t", cluster_uid="u\x00", zones=["z", "\x00"]),
        )
    )
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == {"clusterUid", "zones[1]"}


async def test_lists_page_by_name_and_tell_the_generation(running: RunningControlPlane) -> None:
    names = ["a", "b", "c", "d", "e"]
    for name in reversed(names):
        await running.enrolled(name)
    found: list[str] = []
    generations: set[str] = set()
    token = ""
    while True:
        page = await listed(running, page_size=2, page_token=token)
        assert len(page.clusters) <= 2
        found += [cluster.metadata.name for cluster in page.clusters]
        generations.add(page.fleet_generation)
        token = page.next_page_token
        if not token:
            break
    assert found == names
    assert len(generations) == 1
    await running.enrolled("f")
    assert (await listed(running)).fleet_generation not in generations


@pytest.mark.parametrize(
    ("fields", "violation"),
    [
        ({"page_size": -1}, "pageSize"),
        ({"page_size": 1001}, "pageSize"),
        ({"page_token": "nonsense"}, "pageToken"),
    ],
)
async def test_pages_that_break_rules_are_refused_by_field(
    running: RunningControlPlane, fields: dict[str, Any], violation: str
) -> None:
    refusal = await refused(listed(running, **fields))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == {violation}


async def test_a_cluster_that_is_not_there(running: RunningControlPlane) -> None:
    admin = running.admin
    for name, code in (("no", grpc.StatusCode.NOT_FOUND), ("", grpc.StatusCode.INVALID_ARGUMENT)):
        request = GetClusterRequest(name=name)
        assert (await refused(admin.call(admin.clusters.GetCluster, request))).code is code
    refusal = await refused(updated(running, Cluster(metadata=ObjectMeta(name="no"))))
    assert refusal.code is grpc.StatusCode.NOT_FOUND


async def test_an_update_needs_the_version_that_was_read_when_it_names_one(
    running: RunningControlPlane,
) -> None:
    await running.enrolled("member1")
    taint = Taint(key="k", effect="NoSchedule")
    cluster = Cluster(
        metadata=ObjectMeta(name="member1", labels={"tier": "gold"}),
        spec=ClusterSpec(region="eu", taints=[taint]),
    )
    first = await updated(running, cluster)
    assert (first.spec.region, first.spec.taints[0].key) == ("eu", "k")
    assert first.metadata.labels == {"tier": "gold"}
    cluster.metadata.resource_version = first.metadata.resource_version
    cluster.spec.region = "us"
    second = await updated(running, cluster)
    assert second.metadata.resource_version != first.metadata.resource_version
    cluster.spec.region = "ap"
    refusal = await refused(updated(running, cluster))
    assert refusal.code is grpc.StatusCode.ABORTED
    got = await running.admin.call(
        running.admin.clusters.GetCluster, GetClusterRequest(name="member1")
    )
    assert got.cluster.spec.region == "us"


async def test_an_update_that_breaks_rules_names_them_all_and_changes_nothing(
    running: RunningControlPlane,
) -> None:
    await running.enrolled("member1")
    before = await running.admin.call(
        running.admin.clusters.GetCluster, GetClusterRequest(name="member1")
    )
    taints = [Taint(key="", effect="NoSchedule"), Taint(key="k", effect="Sometimes")]
    refusal = await refused(
        updated(
            running,
            Cluster(metadata=ObjectMeta(name="member1"), spec=ClusterSpec(taints=taints)),
        )
    )
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert {"spec.taints[0].key", "spec.taints[1].effect"} <= set(refusal.violations)
    after = await running.admin.call(
        running.admin.clusters.GetCluster, GetClusterRequest(name="member1")
    )
    assert after == before
