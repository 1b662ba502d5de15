"""Tokens over the wire: what each may see and do, and how it ends, on every control plane."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.model.access import Role
from federation.model.errors import FederationError
from federation.operations.access import ROLE_NUMBERS
from federation.rpc.permissions import PERMISSIONS
from federation.services.access import tokens
from federation.v1 import clusters_pb2, resource_pb2
from lab.control_planes import (
    SECONDS,
    Caller,
    Plane,
    refusal_of,
    refused,
    report,
    running_control_plane,
)
from lab.patience import until
from tests.api.calls import (
    ADMIN,
    GUARDED,
    OPERATOR,
    SCHEDULER,
    VIEWER,
    header_of,
    in_namespace,
    made,
    paged,
    raw,
    scheduled,
    to_the_end,
)

DENIED, NOT_FOUND = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND
UNAUTHENTICATED, EXHAUSTED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED
LIST = "/federation.v1.Clusters/ListClusters"
SHAPES = [resource_pb2.ReplicaRequirements(resource_request={"cpu": "1"})]


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(api: Plane) -> AsyncIterator[Plane]:
    async with (
        api.connected("eu-1", report=report()),
        api.connected("us-1", report=report()),
    ):
        yield api


def watch_clusters(caller: Caller) -> Any:
    return caller.watch("WatchClusters")


async def told_until(watch: Any, wanted: str) -> set[str]:
    """The names of all that a watch tells of until this one came."""
    names = set[str]()
    async with asyncio.timeout(SECONDS):
        while wanted not in names:
            for event in (await watch.read()).events:
                is_cluster = isinstance(event, clusters_pb2.ClusterEvent)
                subject = event.cluster if is_cluster else event.binding
                names.add(subject.metadata.namespace or subject.metadata.name)
    return names - {""}


async def cluster_names(caller: Caller) -> list[str]:
    return [each.metadata.name for each in (await caller.ask("ListClusters")).clusters]


async def test_a_token_of_some_namespaces_sees_and_changes_these_alone(fleet: Plane) -> None:
    caller, _ = await made(fleet, SCHEDULER, namespaces=["shop-*"])
    mine = await scheduled(caller, in_namespace("shop-a"))
    other = await scheduled(fleet, in_namespace("bank"))
    await scheduled(caller, in_namespace("shop-b", "big", 1000))
    await scheduled(fleet, in_namespace("bank", "big", 1000))
    bindings = (await caller.ask("ListBindings")).bindings
    assert {each.metadata.namespace for each in bindings} == {"shop-a", "shop-b"}
    assert not (await caller.ask("ListBindings", namespace="bank")).bindings
    assert [each.namespace for each in (await caller.ask("ListQueue")).bindings] == ["shop-b"]
    decisions = (await caller.ask("ListDecisions")).decisions
    assert {each.namespace for each in decisions} == {"shop-a", "shop-b"}
    await caller.ask("GetDecision", id=mine.decision.id)
    hidden = {"namespace": "bank", "name": "cart"}
    for method, fields in (
        ("GetBinding", hidden),
        ("DeleteBinding", hidden),
        ("GetDecision", {"id": other.decision.id}),
        ("ReplayDecision", {"id": other.decision.id}),
    ):
        assert (await refused(caller.ask(method, **fields))).code is NOT_FOUND
    await fleet.ask("GetBinding", **hidden)
    refusal = await refused(scheduled(caller, in_namespace("bank", "mine")))
    assert refusal.code is DENIED
    assert "may schedule in shop-*, not in 'bank'" in refusal.message
    await caller.ask("DeleteBinding", namespace="shop-a", name="cart")
    watch = caller.watch("WatchBindings")
    assert await told_until(watch, "shop-b") == {"shop-b"}
    watch.cancel()


async def test_a_token_of_some_clusters_sees_and_changes_these_alone(fleet: Plane) -> None:
    caller, _ = await made(fleet, OPERATOR, clusters=["eu-*"])
    assert await cluster_names(caller) == ["eu-1"]
    watch = watch_clusters(caller)
    assert await told_until(watch, "eu-1") == {"eu-1"}
    watch.cancel()
    hidden = await refused(caller.ask("GetCluster", name="us-1"))
    missing = await refused(caller.ask("GetCluster", name="no-1"))
    assert (hidden.code, hidden.message) == (NOT_FOUND, missing.message.replace("no-1", "us-1"))
    await caller.ask("CordonCluster", name="eu-1", cordoned=True)
    await caller.ask("CreateJoinToken", cluster="eu-2")
    asked: dict[str, Any] = {"shapes": SHAPES, "include_cluster_names": True}
    assert list((await caller.ask("EstimateReplicas", **asked)).clusters) == ["eu-1"]
    refusal = await refused(caller.ask("EstimateReplicas", **asked, clusters=["eu-1", "us-1"]))
    assert refusal.violations == {"clusters[1]": "there is no cluster 'us-1'"}
    blind, _ = await made(fleet, VIEWER, clusters=["none-*"])
    assert (await refused(blind.ask("EstimateReplicas", **asked))).code is NOT_FOUND
    decision = (await scheduled(fleet, in_namespace("shop"))).decision
    assert not (await caller.ask("GetFailover")).status.silent
    assert not (await caller.ask("GetDecision", id=decision.id)).decision.HasField("trace")
    full = (await fleet.ask("GetDecision", id=decision.id)).decision
    assert {each.name for each in full.trace.clusters} == {"eu-1", "us-1"}


async def label(fleet: Plane, name: str, **labels: str) -> None:
    cluster = (await fleet.ask("GetCluster", name=name)).cluster
    cluster.metadata.labels.clear()
    cluster.metadata.labels.update(labels)
    await fleet.ask("UpdateCluster", cluster=cluster)


async def test_a_token_of_labels_sees_the_clusters_that_have_them_by_then(fleet: Plane) -> None:
    caller, _ = await made(fleet, VIEWER, cluster_labels={"tier": "edge"})
    assert await cluster_names(caller) == []
    await label(fleet, "eu-1", tier="edge", other="x")
    assert await cluster_names(caller) == ["eu-1"]
    assert dict((await caller.ask("WhoAmI")).cluster_labels) == {"tier": "edge"}
    answer = await caller.ask("EstimateReplicas", shapes=SHAPES, include_cluster_names=True)
    assert list(answer.clusters) == ["eu-1"]
    assert (await refused(caller.ask("GetCluster", name="us-1"))).code is NOT_FOUND
    watch = watch_clusters(caller)
    assert await told_until(watch, "eu-1") == {"eu-1"}
    # It is told when one comes into its scope, and when one leaves it.
    await label(fleet, "us-1", tier="edge")
    await label(fleet, "eu-1", tier="core")
    kinds: dict[str, Any] = {}
    async with asyncio.timeout(SECONDS):
        while kinds.get("eu-1") != resource_pb2.EVENT_TYPE_DELETED or "us-1" not in kinds:
            for event in (await watch.read()).events:
                kinds[event.cluster.metadata.name] = event.type
    watch.cancel()
    assert await cluster_names(caller) == ["us-1"]


async def test_tokens_are_made_and_listed_by_admins_alone(api: Plane) -> None:
    admin, admin_id = await made(api, ADMIN)
    operator, _ = await made(api, OPERATOR)
    refusal = await refused(operator.ask("CreateToken", name="more", role=VIEWER))
    assert refusal.code is DENIED
    answer = await admin.ask("CreateToken", name="more", role=VIEWER)
    assert answer.token.created_by == f"token test ({admin_id})"
    assert answer.token.expire_time.seconds - answer.token.create_time.seconds == 90 * 86_400
    listed = await paged(admin, "ListTokens", "tokens", 2)
    assert [token.id for token in listed] == sorted(token.id for token in listed)
    assert {token.id for token in listed} >= {admin_id, answer.token.id}
    assert answer.secret.partition(".")[2] not in str(listed)


async def test_a_token_is_good_from_its_networks_alone(fresh: Plane) -> None:
    near, near_id = await made(fresh, VIEWER, networks=["127.0.0.0/8"])
    far, _ = await made(fresh, VIEWER, networks=["192.0.2.0/24"])
    await near.ask("ListClusters")
    refusal = await refused(far.ask("ListClusters"))
    assert refusal.code is DENIED
    assert "may be used from 192.0.2.0/24 alone, not from 127.0.0.1" in refusal.message

    async def used() -> Any:
        tokens = (await fresh.ask("ListTokens", page_size=1000)).tokens
        return next(token for token in tokens if token.id == near_id)

    token = await until(used, lambda token: token.HasField("last_use_time"))
    assert token.last_use_address == "127.0.0.1"


async def test_an_expired_token_says_when(api: Plane) -> None:
    caller, token_id = await made(api, VIEWER)
    await api.sql(
        "UPDATE access_token SET created_at = '2026-01-01', expires_at = '2026-03-01 12:00+00' "
        "WHERE id = $1",
        token_id,
    )
    rows = await api.sql("SELECT * FROM access_token")
    refusal = await refused(caller.ask("ListClusters"))
    assert refusal.code is UNAUTHENTICATED
    assert f"{token_id} expired at 2026-03-01T12:00:00Z" in refusal.message
    assert caller.metadata[0][1].partition(".")[2] not in str(rows)


WRONG = [
    *("", "nonsense", "{id}", "{id}.", "{id}.x", ".{secret}", "{id}.{secret}x", "x{id}.{secret}"),
    *("unknown.{secret}", "tok-0.{secret}", "{id}.{secret}.", "{id}..{secret}"),
    "{id}.{secret}" * 100,
]


async def test_what_is_wrong_with_a_token_is_not_said(api: Plane) -> None:
    holder, _ = await made(api, VIEWER)
    agent = await api.enrolled("member1")
    for caller in (holder, agent, api.admin):
        token_id, secret = header_of(caller).removeprefix("Bearer ").split(".")
        messages = set()
        for wrong in WRONG:
            said = f"Bearer {wrong.format(id=token_id, secret=secret)}"
            refusal = await refused(raw(api, LIST, b"", said))
            assert refusal.code is UNAUTHENTICATED, wrong
            assert not {token_id, secret} & {*re.split(r"\W", refusal.message)}
            messages.add(refusal.message)
        # An empty header is said to be one.
        assert len(messages) <= 2


async def test_a_revoked_token_ends_with_its_watches_on_every_control_plane(
    api: Plane, other: Plane
) -> None:
    caller, token_id = await made(api, VIEWER)
    watches = []
    for each in (api, other):
        there = Caller(each.channel, None)
        there.metadata = caller.metadata
        await there.ask("ListClusters")
        watch = watch_clusters(there)
        await watch.read()
        watches.append((there, watch))
    assert (await api.ask("RevokeToken", id=token_id)).token.HasField("revoke_time")
    for there, watch in watches:
        assert (await refused(to_the_end(watch))).code is UNAUTHENTICATED
        refusal = await refused(there.ask("ListClusters"))
        assert refusal.code is UNAUTHENTICATED
        assert f"{token_id} was revoked" in refusal.message


async def test_a_token_with_limits_is_told_which_one_it_has_reached(api: Plane) -> None:
    caller, token_id = await made(api, VIEWER, calls_at_once=1)
    watch = watch_clusters(caller)
    await watch.read()
    refusal = await refused(caller.ask("ListClusters"))
    assert (refusal.code, refusal.reason) == (EXHAUSTED, "CALLS_AT_ONCE")
    said = f"the token test ({token_id}) may have 1 calls at once; try again when one has ended"
    assert refusal.message == said
    watch.cancel()

    async def is_listed() -> bool:
        try:
            await caller.ask("ListClusters")
        except grpc.aio.AioRpcError:
            return False
        return True

    await until(is_listed, bool)
    paced, token_id = await made(api, VIEWER, calls_per_second=1)
    calls = [paced.ask("ListClusters") for _ in range(50)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [refusal_of(each) for each in answers if isinstance(each, grpc.aio.AioRpcError)]
    assert {(each.code, each.reason) for each in refusals} == {(EXHAUSTED, "CALLS_PER_SECOND")}
    assert f"the token test ({token_id}) may make 1 calls a second" in refusals[0].message


async def test_a_role_may_call_what_its_row_says(api: Plane) -> None:
    for role in Role:
        token, _ = await made(api, ROLE_NUMBERS[role])
        for path in GUARDED:
            # What comes after the look at the role refuses these bytes.
            code = (await refused(raw(api, path, b"\xff\xff\xff", header_of(token)))).code
            assert (code is DENIED) is (role not in PERMISSIONS[path].roles), (role, path, code)
    viewer, token_id = await made(api, VIEWER)
    refusal = await refused(scheduled(viewer, in_namespace("shop")))
    assert f"token test ({token_id}) has the role viewer" in refusal.message
    assert "needs admin or bridge or scheduler" in refusal.message


async def test_what_may_not_be_done_is_refused_with_what_may(fleet: Plane) -> None:
    scheduler, _ = await made(fleet, SCHEDULER, namespaces=["shop-*"])
    for wanted, more in ((in_namespace("bank"), {"preview_token": "given"}), (None, {})):
        refusal = await refused(scheduled(scheduler, wanted, **more))
        assert "may schedule in shop-*, not in" in refusal.message
    # Whose preview it is says the preview.
    refusal = await refused(scheduled(scheduler, None, preview_token="given"))
    assert refusal.code is not DENIED
    items = [{"binding": in_namespace(name)} for name in ("shop-a", "bank")]
    refusal = await refused(scheduler.ask("ScheduleBatch", items=items))
    assert "items[1].binding.metadata" in refusal.message
    operator, _ = await made(fleet, OPERATOR, clusters=["eu-*"])
    refusal = await refused(operator.ask("CreateJoinToken", cluster="us-2"))
    assert "is for eu-*, not for 'us-2'" in refusal.message
    assert "the whole fleet" in (await refused(operator.ask("ResumeFailover"))).message
    for method, fields in (
        ("CordonCluster", {"name": "us-1"}),
        ("UpdateCluster", {"cluster": {"metadata": {"name": "us-1"}}}),
    ):
        refusal = await refused(operator.ask(method, **fields))
        assert (refusal.code, "no cluster 'us-1'" in refusal.message) == (NOT_FOUND, True)


async def test_there_are_not_too_many_tokens(fresh: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)
    _, first = await made(fresh, VIEWER)
    await made(fresh, VIEWER)
    assert (await refused(made(fresh, VIEWER))).code is EXHAUSTED
    await fresh.ask("RevokeToken", id=first)
    await made(fresh, VIEWER)


async def test_the_admins_token_is_made_once_and_never_lost(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FederationError):
        async with running_control_plane(database_url, tmp_path / "file" / "state"):
            pytest.fail("its token cannot be kept")
    async with (
        running_control_plane(database_url, tmp_path) as one,
        running_control_plane(database_url, tmp_path) as other,
    ):
        assert one.admin.metadata == other.admin.metadata
        await one.ask("ListTokens")
        ((admins,),) = await one.sql("SELECT count(*) FROM credential WHERE kind = 'admin'")
        assert admins == 1
