"""Clusters over the wire: joined, described, cordoned, replaced, revoked and deleted."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.certificates import make_certificates
from federation.v1.resource_pb2 import Cluster, ClusterSpec, ObjectMeta, Taint
from lab.control_planes import (
    AgentStream,
    Caller,
    Plane,
    heartbeat,
    hello,
    refused,
    report,
    running_control_plane,
)
from tests.api.calls import OPERATOR, binding, header_of, made, paged, scheduled, shares
from tests.api.world import code_of
from tests.unit.cli.calling import run

# The deletion begins later in each round, until both calls have won one.
MIN_ROUNDS, MAX_ROUNDS = 12, 100
OK, FAILED = grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION
NOT_FOUND = grpc.StatusCode.NOT_FOUND
UNAUTHENTICATED, EXISTS = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.ALREADY_EXISTS


async def token_for(api: Plane, cluster: str = "member1") -> str:
    return str((await api.ask("CreateJoinToken", cluster=cluster)).token)


async def enroll(
    api: Plane, token: str, cluster: str = "member1", uid: str = "uid-of-member1", **facts: Any
) -> Any:
    anybody = api.caller(None)
    joining = {"cluster": cluster, "token": token, "cluster_uid": uid, **facts}
    return await anybody.ask("EnrollCluster", **joining)


async def cluster_of(api: Plane, name: str = "member1") -> Cluster:
    cluster: Cluster = (await api.ask("GetCluster", name=name)).cluster
    return cluster


async def updated(api: Plane, cluster: Cluster) -> Cluster:
    answer: Cluster = (await api.ask("UpdateCluster", cluster=cluster)).cluster
    return answer


async def opened(agent: Caller, epoch: int = 1, cluster: str = "member1") -> str:
    """How a stream of the agent begins: welcome, or the reason of its end."""
    async with AgentStream(agent, cluster) as stream:
        await stream.say(hello=hello(epoch))
        try:
            await stream.hear("welcome")
        except (grpc.aio.AioRpcError, AssertionError):
            _, refusal = await stream.end()
            assert refusal is not None
            return refusal.code.name
        return "welcome"


async def test_a_join_token_comes_with_the_one_command(api: Plane) -> None:
    answer = await api.ask("CreateJoinToken", cluster="member1")
    assert answer.endpoint == str(api.plane.endpoint)
    assert (answer.ca_url, answer.ca_sha256) == ("", "")
    assert answer.command == (
        f"ESTIMATOR_JOIN_TOKEN={answer.token} estimator run --cluster member1 "
        f"--endpoint {answer.endpoint} --insecure --credential-file member1.credential"
    )


async def test_over_tls_the_command_pins_the_ca_and_the_agent_gets_in(
    database_url: str, tmp_path: Path
) -> None:
    files = make_certificates(tmp_path / "certs", ["127.0.0.1"])
    tls = {"tls_cert": files.cert, "tls_key": files.key, "tls_ca": files.ca}
    flags = {name: str(path) for name, path in tls.items()}
    async with running_control_plane(database_url, tmp_path / "state", **flags) as api:
        answer = await api.ask("CreateJoinToken", cluster="member1")
        der = ssl.PEM_cert_to_DER_cert(files.ca.read_text(encoding="ascii"))
        assert answer.ca_sha256 == hashlib.sha256(der).hexdigest()
        assert answer.ca_url == f"http://{api.plane.web_endpoint}/ca.pem"
        assert f"--ca-url {answer.ca_url} --ca-sha256 {answer.ca_sha256}" in answer.command
        async with api.connected("member1"):
            pass


async def test_what_agents_dial_can_be_said(database_url: str, tmp_path: Path) -> None:
    flags = {"advertise_endpoint": "api.example:443"}
    async with running_control_plane(database_url, tmp_path, **flags) as api:
        answer = await api.ask("CreateJoinToken", cluster="member1")
        assert answer.endpoint == "api.example:443"


async def test_a_new_cluster_starts_with_what_its_agent_found(api: Plane) -> None:
    facts = {"kubernetes_version": "v1.33.1", "provider": "example", "region": "north"}
    await enroll(api, await token_for(api), zones=["n-2", "n-1", "n-2"], **facts)
    cluster = await cluster_of(api)
    assert (cluster.metadata.name, cluster.metadata.uid) == ("member1", "uid-of-member1")
    assert (cluster.spec.provider, cluster.spec.region) == ("example", "north")
    assert list(cluster.spec.zones) == ["n-1", "n-2"]
    assert cluster.status.kubernetes_version == "v1.33.1"
    assert not cluster.status.agent.connected


async def test_whatever_is_wrong_with_a_join_token_is_not_said(api: Plane) -> None:
    used, foreign, good = [await token_for(api, f"member{number}") for number in (2, 3, 1)]
    await enroll(api, used, "member2", "uid-2")
    messages = set()
    for token in ("x", "x.y", used, foreign, good[:-1], good + "x"):
        refusal = await refused(enroll(api, token))
        assert refusal.code is UNAUTHENTICATED
        messages.add(refusal.message)
    assert len(messages) == 1
    assert await code_of(api.ask("GetCluster", name="member1")) is NOT_FOUND
    # None of them was used up, and nothing but a hash is kept.
    issued = await enroll(api, good)
    assert await code_of(enroll(api, good)) is UNAUTHENTICATED
    rows = str(await api.sql("SELECT * FROM credential, join_token"))
    for shown in (good, issued.credential):
        secret = shown.partition(".")[2]
        assert len(secret) >= 43  # 256 bits in base64
        assert secret not in rows


async def test_of_many_who_join_at_once_one_gets_in(api: Plane) -> None:
    async def winner(number: int, token: str) -> str:
        code = await code_of(enroll(api, token, uid=f"uid-{number}"))
        assert code in (OK, UNAUTHENTICATED, EXISTS)
        return f"uid-{number}" if code is OK else ""

    for count, each in ((1, 10), (4, 1)):
        tokens = [await token_for(api) for _ in range(count)] * each
        trying = (winner(number, token) for number, token in enumerate(tokens))
        winners = [uid for uid in await asyncio.gather(*trying) if uid]
        assert winners == [(await cluster_of(api)).metadata.uid]
        await api.ask("DeleteCluster", name="member1")


async def test_a_name_is_not_given_to_another_cluster_and_its_token_stays_good(
    api: Plane,
) -> None:
    await api.enrolled("member1")
    token = await token_for(api)
    refusal = await refused(enroll(api, token, uid="other"))
    assert refusal.code is EXISTS
    assert "ReplaceCluster" in refusal.message
    await enroll(api, token)


async def test_one_cluster_under_two_names_is_told(
    fresh: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    await fresh.enrolled("member1", uid="uid-of-both")
    await fresh.enrolled("member2", uid="another-uid")
    assert "two names" not in caplog.text
    await fresh.enrolled("member3", uid="uid-of-both")
    assert "one cluster has joined under two names" in caplog.text
    found = await run(fresh, "doctor", "-o", "json")
    assert found.exit_code == 1
    assert "member1, member3 are one Kubernetes cluster" in found.output


async def test_joining_again_keeps_the_spec_and_one_older_credential(api: Plane) -> None:
    first = await api.enrolled("member1")
    spec = ClusterSpec(region="south")
    await updated(api, Cluster(metadata=ObjectMeta(name="member1"), spec=spec))
    second, third = [await api.enrolled("member1") for _ in range(2)]
    assert (await cluster_of(api)).spec.region == "south"
    ends = [await opened(agent) for agent in (first, second, third)]
    assert ends == ["UNAUTHENTICATED", "welcome", "welcome"]


async def test_lists_page_by_name_and_tell_the_generation(api: Plane) -> None:
    names = ["a", "a-2", "b", "c", "d"]
    for name in reversed(names):
        await api.enrolled(name)
    rows = await paged(api, "ListClusters", "clusters", 2)
    assert [cluster.metadata.name for cluster in rows] == names
    generation = (await api.ask("ListClusters", page_size=1)).fleet_generation
    assert (await api.ask("ListClusters")).fleet_generation == generation != ""
    await api.enrolled("f")
    assert (await api.ask("ListClusters")).fleet_generation != generation


async def test_an_update_replaces_what_people_say_and_nothing_else(api: Plane) -> None:
    await api.enrolled("member1")
    wanted = Cluster(
        metadata=ObjectMeta(
            name="member1", uid="ignored", labels={"tier": "gold"}, annotations={"note": "x"}
        ),
        spec=ClusterSpec(
            provider="p",
            region="r",
            zones=["z"],
            taints=[Taint(key="k", effect="NoSchedule")],
            resource_modeling_disabled=True,
        ),
    )
    wanted.status.cordoned = True
    first = await updated(api, wanted)
    assert first.spec.SerializeToString() == wanted.spec.SerializeToString()
    assert (first.metadata.uid, first.status.cordoned) == ("uid-of-member1", False)
    assert (first.metadata.labels, first.metadata.annotations) == ({"tier": "gold"}, {"note": "x"})
    # Labels move the version and not the generation, and what says the same moves neither.
    wanted.metadata.labels["tier"] = "lead"
    wanted.metadata.resource_version = first.metadata.resource_version
    second = await updated(api, wanted)
    assert second.metadata.generation == first.metadata.generation
    assert second.metadata.resource_version != first.metadata.resource_version
    # Of those who have read an older version none overwrites it.
    refusal = await refused(updated(api, wanted))
    assert refusal.code is grpc.StatusCode.ABORTED
    wanted.metadata.resource_version = ""
    assert (await updated(api, wanted)).metadata == second.metadata
    assert (await cluster_of(api)).metadata == second.metadata


async def test_of_two_updates_of_one_version_one_wins(api: Plane) -> None:
    await api.enrolled("member1")
    before = await cluster_of(api)

    async def update(region: str) -> str:
        wanted = Cluster(metadata=before.metadata, spec=ClusterSpec(region=region))
        code = await code_of(updated(api, wanted))
        assert code in (OK, grpc.StatusCode.ABORTED)
        return region if code is OK else ""

    winners = [region for region in await asyncio.gather(*map(update, "abcd")) if region]
    assert winners == [(await cluster_of(api)).spec.region]


async def test_a_cordoned_cluster_keeps_its_shares_and_gets_no_more(
    api: Plane, member1: AgentStream
) -> None:
    caller, token_id = await made(api, OPERATOR)
    await scheduled(api, binding(replicas=4))
    cordon = {"name": "member1", "cordoned": True}
    answer = await caller.ask("CordonCluster", reason="new kernel", **cordon)
    assert answer.cluster.status.cordoned_by == f"token test ({token_id})"
    shown = await run(api, "describe", "cluster", "member1")
    assert f"by token test ({token_id}), new kernel" in " ".join(shown.stdout.split())
    grown = await scheduled(api, binding(replicas=5), wait=False)
    assert "is cordoned (new kernel)" in str(grown.decision)
    held = (await api.ask("GetBinding", namespace="shop", name="cart")).reservations
    assert [each.replicas for each in held] == [4]
    # It outlives an update of the spec.
    spec = ClusterSpec(region="north")
    described = await updated(api, Cluster(metadata=ObjectMeta(name="member1"), spec=spec))
    assert described.status.cordoned
    await run(api, "cordon", "member1", "--reason", "new disks")
    status = (await cluster_of(api)).status
    assert (status.cordon_reason, status.cordoned_by) == ("new disks", "admin")
    status = (await api.ask("CordonCluster", name="member1")).cluster.status
    assert (status.cordoned, status.cordon_reason, status.cordoned_by) == (False, "", "")
    assert shares((await scheduled(api, binding(replicas=5))).decision) == {"member1": 5}


async def test_a_cordon_outlives_a_restart(database_url: str, tmp_path: Path) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as api,
        api.connected("member1", report=report()) as stream,
    ):
        await api.ask("CordonCluster", name="member1", cordoned=True, reason="new disks")
    async with running_control_plane(database_url, tmp_path) as again:
        status = (await cluster_of(again)).status
        assert (status.cordoned, status.cordon_reason) == (True, "new disks")
        assert status.cordoned_by == "admin"
        async with AgentStream(again.caller(header_of(stream.agent)[7:]), "member1") as back:
            await back.say(hello=hello(2))
            await back.hear("welcome")
            await back.say(report=report(2))
            await back.hear("ack")
            refused_there = await scheduled(again, binding(), wait=False)
            assert "is cordoned (new disks)" in str(refused_there.decision)
            await again.ask("CordonCluster", name="member1")
            assert shares((await scheduled(again, binding())).decision) == {"member1": 3}


async def test_a_deleted_cluster_leaves_nothing_that_lets_its_agent_in(api: Plane) -> None:
    async with api.connected("member1", report=report()) as stream:
        token = await token_for(api)
        await api.ask("DeleteCluster", name="member1")
        _, refusal = await stream.end()
        assert refusal is not None
        assert "deleted" in refusal.message
        assert await opened(stream.agent, 2) in ("UNAUTHENTICATED", "NOT_FOUND")
    assert await code_of(enroll(api, token)) is UNAUTHENTICATED
    # And the name is free for any other.
    await api.enrolled("member1", uid="uid-other")
    assert not (await cluster_of(api)).status.HasField("resource_summary")


async def test_a_replaced_cluster_is_another_one(api: Plane) -> None:
    replace = {"name": "member1", "cluster_uid": "uid-new"}
    async with api.connected("member1", epoch=9, report=report(9, 5)) as stream:
        token = await token_for(api)
        assert await code_of(enroll(api, token, uid="uid-new")) is EXISTS
        cluster = (await api.ask("ReplaceCluster", **replace)).cluster
        assert cluster.metadata.uid == "uid-new"
        assert not cluster.status.HasField("resource_summary")
        _, refusal = await stream.end()
        assert refusal is not None
        assert "replaced" in refusal.message
        assert await opened(stream.agent, 10) == "UNAUTHENTICATED"
    # The refusal did not spend the token, and an epoch below the old one's is a new beginning.
    agent = api.caller((await enroll(api, token, uid="uid-new")).credential)
    async with AgentStream(agent, "member1") as stream:
        await stream.say(hello=hello(1))
        await stream.hear("welcome")
        await stream.say(report=report())
        assert (await stream.hear("ack")).sequence == 1


async def test_revoking_ends_all_credentials_and_tokens_and_nothing_of_others(
    api: Plane,
) -> None:
    async with (
        api.connected("member1", report=report()) as stream,
        api.connected("member2", report=report()) as other,
    ):
        second = await api.enrolled("member1")
        token = await token_for(api)
        assert (await api.ask("RevokeCluster", name="member1")).credentials == 2
        _, refusal = await stream.end()
        assert refusal is not None
        assert refusal.code is UNAUTHENTICATED
        for agent in (stream.agent, second):
            assert await opened(agent, 2) == "UNAUTHENTICATED"
        assert await code_of(enroll(api, token)) is UNAUTHENTICATED
        await other.say(heartbeat=heartbeat(1, "another"))
        await other.hear("resync")
    # The cluster stays what it was, and may join again.
    assert (await cluster_of(api)).status.resource_summary.allocatable["cpu"] == "16"
    assert await opened(await api.enrolled("member1"), 2) == "welcome"
    for count in (1, 0):
        answer = await api.ask("RevokeCluster", name="member2")
        assert answer.credentials == count


@pytest_asyncio.fixture(loop_scope="module")
async def manual(database_url: str, tmp_path: Path) -> AsyncIterator[Plane]:
    """A control plane on which joiners are held until somebody accepts them."""
    async with running_control_plane(database_url, tmp_path, accept="manual") as api:
        yield api


async def test_a_joiner_gets_nothing_until_it_is_accepted(manual: Plane) -> None:
    async with (
        manual.connected("eu-1", report=report()),
        manual.connected("eu-2", report=report()) as rejected,
    ):
        waits = await scheduled(manual, binding())
        assert not waits.decision.clusters
        assert "is held until somebody accepts it" in str(waits.decision)
        listed = await run(manual, "get", "joiners")
        assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["eu-1", "eu-2"]
        assert "uid-of-eu-1" in listed.stdout
        assert "Held" in (await run(manual, "get", "clusters")).stdout
        accepted = await run(manual, "accept", "eu-1")
        assert (accepted.exit_code, accepted.stdout) == (0, "cluster/eu-1 accepted\n")
        placed = await scheduled(manual, binding("second"))
        assert shares(placed.decision).keys() == {"eu-1"}
        for method in ("AcceptCluster", "RejectCluster"):
            refusal = await refused(manual.ask(method, name="eu-1"))
            assert (refusal.code, refusal.reason) == (FAILED, "NOT_HELD")
        named = await run(manual, "get", "joiner", "eu-2", "-o", "name")
        assert named.stdout == "cluster/eu-2\n"
        nobody = await run(manual, "get", "joiners", "eu-1")
        assert (nobody.exit_code, "eu-1" in nobody.stderr) == (1, True)
        gone = await run(manual, "reject", "eu-2")
        assert (gone.exit_code, gone.stdout) == (0, "cluster/eu-2 rejected\n")
        _, end = await rejected.end()
        assert end is not None
        assert end.message == "Cluster 'eu-2' was rejected."
        assert await code_of(manual.ask("GetCluster", name="eu-2")) is NOT_FOUND
        assert (await run(manual, "get", "joiners", "-o", "json")).stdout == "[]\n"


async def test_join_tokens_are_listed_and_revoked(fresh: Plane) -> None:
    tokens = [await token_for(fresh, name) for name in ("eu-1", "us-1")]
    ids = [token.partition(".")[0] for token in tokens]
    listed = await run(fresh, "join-token", "list")
    assert all(text in listed.stdout for text in (*ids, "eu-1", "us-1", "in 60m"))
    assert not any(token in listed.stdout for token in tokens)
    caller, _ = await made(fresh, OPERATOR, clusters=["eu-*"])
    page = await caller.ask("ListJoinTokens", page_size=1)
    assert [each.cluster for each in page.tokens] == ["eu-1"]
    assert not page.next_page_token
    assert await code_of(caller.ask("RevokeJoinToken", id=ids[1])) is NOT_FOUND
    revoked = await run(fresh, "join-token", "revoke", ids[0])
    assert revoked.stdout == f"join-token/{ids[0]} for eu-1 revoked\n"
    assert await code_of(fresh.ask("RevokeJoinToken", id=ids[0])) is NOT_FOUND
    assert await code_of(enroll(fresh, tokens[0], "eu-1")) is UNAUTHENTICATED
    # What a scope hides was not revoked in passing.
    await enroll(fresh, tokens[1], "us-1")
    assert not (await fresh.ask("ListJoinTokens")).tokens


async def test_an_agent_of_another_release_is_told_of_or_refused(
    api: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await api.enrolled("member1")
    for version in ("0.1.0", "0.9.0"):
        caplog.clear()
        async with AgentStream(agent, "member1") as stream:
            said = hello(2)
            said.agent_version = version
            with caplog.at_level(logging.WARNING):
                await stream.say(hello=said)
                if version == "0.1.0":
                    await stream.hear("welcome")
                    (told,) = [r for r in caplog.records if r.message == "agent of another release"]
                    assert vars(told)["fields"]["cluster"] == "member1"
                    continue
                kinds, end = await stream.end()
        assert kinds == ["goodbye"]
        assert end is not None
        assert (end.code, end.reason) == (FAILED, "RELEASES_APART")
        assert "The agent of cluster 'member1' runs '0.9.0' and this control plane" in end.message
    token = await token_for(api, "member2")
    late = await refused(enroll(api, token, "member2", agent_version="2.0"))
    assert (late.code, late.reason) == (FAILED, "RELEASES_APART")
    # The token was not used up by that.
    await enroll(api, token, "member2")


async def test_no_binding_keeps_a_cluster_that_was_deleted_without_force(
    api: Plane, other: Plane
) -> None:
    """It is deleted while a binding is scheduled into it: one of the two is refused."""
    outcomes = set[bool]()
    elsewhere = Caller(other.channel, None)
    elsewhere.metadata = api.admin.metadata
    for number in range(MAX_ROUNDS):
        name = f"z{number}"
        async with api.connected(name, report=report()):
            wanted = binding(name)
            wanted.spec.placement.cluster_affinity.cluster_names.append(name)

            async def delete(cluster: str = name, pause: int = 2 * number) -> bool:
                for _ in range(pause):
                    await api.ask("WhoAmI")
                code = await code_of(api.ask("DeleteCluster", name=cluster))
                assert code in (OK, FAILED)
                return code is OK

            _, is_deleted = await asyncio.gather(scheduled(elsewhere, wanted), delete())
            found = await api.ask("GetBinding", namespace="shop", name=name)
            is_placed = bool(found.binding.spec.clusters)
            assert is_placed is not is_deleted, f"round {number}"
            assert is_placed is not found.HasField("wait")
            outcomes.add(is_deleted)
        if number >= MIN_ROUNDS and outcomes == {True, False}:
            break
    assert outcomes == {True, False}
