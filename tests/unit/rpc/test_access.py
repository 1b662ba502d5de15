"""Tokens over the wire: what each may see and do, and how it ends, on every control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1 import (
    access_pb2,
    access_pb2_grpc,
    clusters_pb2,
    estimates_pb2,
    failover_pb2,
    failover_pb2_grpc,
    resource_pb2,
    scheduling_pb2,
)
from lab.control_planes import (
    SECONDS,
    Caller,
    RunningControlPlane,
    refusal_of,
    refused,
    report,
    running_control_plane,
)
from tests.unit.rpc.test_scheduling import binding

DENIED, NOT_FOUND = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND
UNAUTHENTICATED, INVALID = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
VIEWER, SCHEDULER = access_pb2.ROLE_VIEWER, access_pb2.ROLE_SCHEDULER
OPERATOR, ADMIN = access_pb2.ROLE_OPERATOR, access_pb2.ROLE_ADMIN


@pytest.fixture
async def fleet(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("eu-1", report=report()),
        running.connected("us-1", report=report()),
    ):
        yield running


async def access(caller: Caller, method: str, request: Any) -> Any:
    return await caller.call(getattr(access_pb2_grpc.AccessStub(caller.channel), method), request)


async def made(running: RunningControlPlane, role: Any, **fields: Any) -> tuple[Caller, str]:
    """A caller with a token of its own, and the token's id."""
    request = access_pb2.CreateTokenRequest(name="test", role=role, **fields)
    answer = await access(running.admin, "CreateToken", request)
    return running.caller(answer.secret), answer.token.id


def in_namespace(namespace: str, name: str = "cart", replicas: int = 3) -> Any:
    wanted = binding(name, replicas=replicas)
    wanted.metadata.namespace = wanted.spec.resource.namespace = namespace
    return wanted


async def scheduled(caller: Caller, wanted: Any, **fields: Any) -> Any:
    request = scheduling_pb2.ScheduleRequest(binding=wanted, **fields)
    return await caller.call(caller.scheduling.Schedule, request)


async def events_until(
    caller: Caller, method: Any, request: Any, wanted: str
) -> tuple[set[str], Any]:
    """The names of all that a watch tells of until this one came, and the watch."""
    watch = method(request, metadata=caller.metadata)
    names = set[str]()
    async with asyncio.timeout(SECONDS):
        while wanted not in names:
            for event in (await watch.read()).events:
                is_cluster = isinstance(event, clusters_pb2.ClusterEvent)
                subject = event.cluster if is_cluster else event.binding
                names.add(subject.metadata.namespace or subject.metadata.name)
    return names - {""}, watch


async def to_the_end(watch: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while await watch.read() is not grpc.aio.EOF:
            pass


async def test_a_token_of_some_namespaces_sees_and_changes_these_alone(
    fleet: RunningControlPlane,
) -> None:
    caller, _ = await made(fleet, SCHEDULER, namespaces=["shop-*"])
    call, stub = caller.call, caller.scheduling
    mine = await scheduled(caller, in_namespace("shop-a"))
    other = await scheduled(fleet.admin, in_namespace("bank"))
    await scheduled(caller, in_namespace("shop-b", "big", 1000))
    await scheduled(fleet.admin, in_namespace("bank", "big", 1000))

    listed = await call(stub.ListBindings, scheduling_pb2.ListBindingsRequest())
    assert {each.metadata.namespace for each in listed.bindings} == {"shop-a", "shop-b"}
    hidden = await call(stub.ListBindings, scheduling_pb2.ListBindingsRequest(namespace="bank"))
    assert not hidden.bindings
    queue = await call(stub.ListQueue, scheduling_pb2.ListQueueRequest())
    assert [each.namespace for each in queue.bindings] == ["shop-b"]
    decisions = await call(stub.ListDecisions, scheduling_pb2.ListDecisionsRequest())
    assert {each.namespace for each in decisions.decisions} == {"shop-a", "shop-b"}
    await call(stub.GetDecision, scheduling_pb2.GetDecisionRequest(id=mine.decision.id))
    for method, request in (
        (stub.GetBinding, scheduling_pb2.GetBindingRequest(namespace="bank", name="cart")),
        (stub.DeleteBinding, scheduling_pb2.DeleteBindingRequest(namespace="bank", name="cart")),
        (stub.GetDecision, scheduling_pb2.GetDecisionRequest(id=other.decision.id)),
        (stub.ReplayDecision, scheduling_pb2.ReplayDecisionRequest(id=other.decision.id)),
    ):
        assert (await refused(call(method, request))).code is NOT_FOUND
        admins = fleet.admin.scheduling.GetBinding
    await fleet.admin.call(admins, scheduling_pb2.GetBindingRequest(namespace="bank", name="cart"))
    refusal = await refused(scheduled(caller, in_namespace("bank", "mine")))
    assert refusal.code is DENIED
    assert "may schedule in shop-*, not in 'bank'" in refusal.message
    await call(
        stub.DeleteBinding, scheduling_pb2.DeleteBindingRequest(namespace="shop-a", name="cart")
    )

    seen, watch = await events_until(
        caller, stub.WatchBindings, scheduling_pb2.WatchBindingsRequest(), "shop-b"
    )
    assert seen == {"shop-b"}
    watch.cancel()


async def test_a_token_of_some_clusters_sees_and_changes_these_alone(
    fleet: RunningControlPlane,
) -> None:
    caller, _ = await made(fleet, OPERATOR, clusters=["eu-*"])
    call, stub = caller.call, caller.clusters
    listed = await call(stub.ListClusters, clusters_pb2.ListClustersRequest())
    assert [each.metadata.name for each in listed.clusters] == ["eu-1"]
    seen, watch = await events_until(
        caller, stub.WatchClusters, clusters_pb2.WatchClustersRequest(), "eu-1"
    )
    assert seen == {"eu-1"}
    watch.cancel()
    hidden = await refused(call(stub.GetCluster, clusters_pb2.GetClusterRequest(name="us-1")))
    missing = await refused(call(stub.GetCluster, clusters_pb2.GetClusterRequest(name="no-1")))
    assert (hidden.code, hidden.message) == (NOT_FOUND, missing.message.replace("no-1", "us-1"))
    await call(stub.CordonCluster, clusters_pb2.CordonClusterRequest(name="eu-1", cordoned=True))
    await call(stub.CreateJoinToken, clusters_pb2.CreateJoinTokenRequest(cluster="eu-2"))

    shape = resource_pb2.ReplicaRequirements(resource_request={"cpu": "1"})
    asked = estimates_pb2.EstimateReplicasRequest(shapes=[shape], include_cluster_names=True)
    answer = await call(caller.estimates.EstimateReplicas, asked)
    assert list(answer.clusters) == ["eu-1"]
    asked.clusters.extend(["eu-1", "us-1"])
    refusal = await refused(call(caller.estimates.EstimateReplicas, asked))
    assert refusal.violations == {"clusters[1]": "there is no cluster 'us-1'"}
    blind, _ = await made(fleet, VIEWER, clusters=["none-*"])
    del asked.clusters[:]
    assert (await refused(blind.call(blind.estimates.EstimateReplicas, asked))).code is NOT_FOUND

    decision = (await scheduled(fleet.admin, in_namespace("shop"))).decision
    failover: Any = failover_pb2_grpc.FailoverStub(caller.channel)
    assert not (await call(failover.GetFailover, failover_pb2.GetFailoverRequest())).status.silent
    request = scheduling_pb2.GetDecisionRequest(id=decision.id)
    assert not (await call(caller.scheduling.GetDecision, request)).decision.HasField("trace")
    full = (await fleet.admin.call(caller.scheduling.GetDecision, request)).decision
    assert {each.name for each in full.trace.clusters} == {"eu-1", "us-1"}


async def label(fleet: RunningControlPlane, name: str, **labels: str) -> None:
    stub = fleet.admin.clusters
    cluster = await fleet.admin.call(stub.GetCluster, clusters_pb2.GetClusterRequest(name=name))
    cluster.cluster.metadata.labels.clear()
    cluster.cluster.metadata.labels.update(labels)
    await fleet.admin.call(
        stub.UpdateCluster, clusters_pb2.UpdateClusterRequest(cluster=cluster.cluster)
    )


async def test_a_token_of_labels_sees_the_clusters_that_have_them_by_then(
    fleet: RunningControlPlane,
) -> None:
    caller, _ = await made(fleet, VIEWER, cluster_labels={"tier": "edge"})
    call, stub = caller.call, caller.clusters

    async def names() -> list[str]:
        listed = await call(stub.ListClusters, clusters_pb2.ListClustersRequest())
        return [each.metadata.name for each in listed.clusters]

    assert await names() == []
    await label(fleet, "eu-1", tier="edge", other="x")
    assert await names() == ["eu-1"]
    told = await access(caller, "WhoAmI", access_pb2.WhoAmIRequest())
    assert dict(told.cluster_labels) == {"tier": "edge"}
    shape = resource_pb2.ReplicaRequirements(resource_request={"cpu": "1"})
    asked = estimates_pb2.EstimateReplicasRequest(shapes=[shape], include_cluster_names=True)
    assert list((await call(caller.estimates.EstimateReplicas, asked)).clusters) == ["eu-1"]
    hidden = await refused(call(stub.GetCluster, clusters_pb2.GetClusterRequest(name="us-1")))
    assert hidden.code is NOT_FOUND
    seen, watch = await events_until(
        caller, stub.WatchClusters, clusters_pb2.WatchClustersRequest(), "eu-1"
    )
    assert seen == {"eu-1"}
    # It is told when one comes into its scope, and when one leaves it.
    await label(fleet, "us-1", tier="edge")
    await label(fleet, "eu-1", tier="core")
    kinds: dict[str, Any] = {}
    async with asyncio.timeout(SECONDS):
        while kinds.get("eu-1") != resource_pb2.EVENT_TYPE_DELETED or "us-1" not in kinds:
            for event in (await watch.read()).events:
                kinds[event.cluster.metadata.name] = event.type
    watch.cancel()
    assert await names() == ["us-1"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"role": SCHEDULER, "cluster_labels": {"a": "b"}}, "clusterLabels"),
        ({"cluster_labels": {"": "b"}}, "clusterLabels"),
        ({"cluster_labels": {"a": "b" * 400}}, "clusterLabels[a]"),
        ({"name": "x" * 64}, "name"),
        ({"name": "a\x1b[2J"}, "name"),
        ({"role": 0}, "role"),
        ({"role": 99}, "role"),
        ({"namespaces": ["Shop"]}, "namespaces[0]"),
        ({"namespaces": ["a", "a"]}, "namespaces[1]"),
        ({"namespaces": [f"a{n}" for n in range(101)]}, "namespaces"),
        ({"clusters": [""]}, "clusters[0]"),
        ({"role": SCHEDULER, "clusters": ["a"]}, "clusters"),
        ({"role": ADMIN, "namespaces": ["a"]}, "namespaces"),
        ({"networks": ["10.0.0.1/8"]}, "networks[0]"),
        ({"ttl_seconds": 0}, "ttlSeconds"),
        ({"ttl_seconds": 10**9}, "ttlSeconds"),
    ],
)
async def test_what_no_token_can_be_is_refused_by_its_field(
    running: RunningControlPlane, fields: dict[str, Any], field: str
) -> None:
    request = access_pb2.CreateTokenRequest(**{"name": "test", "role": VIEWER, **fields})
    refusal = await refused(access(running.admin, "CreateToken", request))
    assert refusal.code is INVALID
    assert list(refusal.violations) == [field]


async def test_tokens_are_made_and_listed_by_admins_alone(running: RunningControlPlane) -> None:
    admin, admin_id = await made(running, ADMIN)
    operator, _ = await made(running, OPERATOR)
    request = access_pb2.CreateTokenRequest(name="more", role=VIEWER)
    assert (await refused(access(operator, "CreateToken", request))).code is DENIED
    answer = await access(admin, "CreateToken", request)
    assert answer.token.created_by == f"token test ({admin_id})"
    assert answer.token.expire_time.seconds - answer.token.create_time.seconds == 90 * 86_400
    pages = [await access(admin, "ListTokens", access_pb2.ListTokensRequest(page_size=2))]
    pages.append(
        await access(
            admin,
            "ListTokens",
            access_pb2.ListTokensRequest(page_token=pages[0].next_page_token),
        )
    )
    listed = [token for page in pages for token in page.tokens]
    assert [token.id for token in listed] == sorted(token.id for token in listed)
    assert len(listed) == 3
    assert not pages[1].next_page_token
    secret = answer.secret.partition(".")[2]
    assert secret not in str(listed)
    wrong = access_pb2.ListTokensRequest(page_token="x")
    assert (await refused(access(admin, "ListTokens", wrong))).code is INVALID


async def test_a_token_is_good_from_its_networks_alone(running: RunningControlPlane) -> None:
    near, _ = await made(running, VIEWER, networks=["127.0.0.0/8"])
    far, _ = await made(running, VIEWER, networks=["192.0.2.0/24"])
    request = clusters_pb2.ListClustersRequest()
    await near.call(near.clusters.ListClusters, request)
    refusal = await refused(far.call(far.clusters.ListClusters, request))
    assert refusal.code is DENIED
    assert "may be used from 192.0.2.0/24 alone, not from 127.0.0.1" in refusal.message


async def test_a_revoked_token_ends_with_its_watches_on_every_control_plane(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path / "a") as here,
        running_control_plane(database_url, tmp_path / "a") as elsewhere,
    ):
        caller, token_id = await made(here, VIEWER)
        request = clusters_pb2.ListClustersRequest()
        watches = []
        for running in (here, elsewhere):
            there = Caller(running.channel, None)
            there.metadata = caller.metadata
            await there.call(there.clusters.ListClusters, request)
            watch = there.clusters.WatchClusters(
                clusters_pb2.WatchClustersRequest(), metadata=there.metadata
            )
            await watch.read()
            watches.append((there, watch))
        revoked = access_pb2.RevokeTokenRequest(id=token_id)
        answer = await access(here.admin, "RevokeToken", revoked)
        assert answer.token.HasField("revoke_time")
        for there, watch in watches:
            assert (await refused(to_the_end(watch))).code is UNAUTHENTICATED
            refusal = await refused(there.call(there.clusters.ListClusters, request))
            assert refusal.code is UNAUTHENTICATED
            assert f"{token_id} was revoked" in refusal.message


async def test_a_token_with_limits_is_told_which_one_it_has_reached(
    fleet: RunningControlPlane,
) -> None:
    caller, token_id = await made(fleet, VIEWER, calls_at_once=1)
    asked = clusters_pb2.ListClustersRequest()
    watch = caller.clusters.WatchClusters(
        clusters_pb2.WatchClustersRequest(), metadata=caller.metadata
    )
    await watch.read()
    refusal = await refused(caller.call(caller.clusters.ListClusters, asked))
    assert (refusal.code, refusal.reason) == (EXHAUSTED, "CALLS_AT_ONCE")
    said = f"the token test ({token_id}) may have 1 calls at once; try again when one has ended"
    assert refusal.message == said
    watch.cancel()
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(grpc.aio.AioRpcError):
                await caller.call(caller.clusters.ListClusters, asked)
                break

    paced, token_id = await made(fleet, VIEWER, calls_per_second=1)
    calls = [paced.call(paced.clusters.ListClusters, asked) for _ in range(50)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [refusal_of(each) for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert {(each.code, each.reason) for each in refusals} == {(EXHAUSTED, "CALLS_PER_SECOND")}
    assert f"the token test ({token_id}) may make 1 calls a second" in refusals[0].message
    wrong = await refused(made(fleet, VIEWER, calls_per_second=-1, calls_at_once=1_000_001))
    assert wrong.violations.keys() == {"callsPerSecond", "callsAtOnce"}
