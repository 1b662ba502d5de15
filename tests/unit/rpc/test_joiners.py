"""Who joins while joiners are held, with which tokens, and with which release."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1 import clusters_pb2, scheduling_pb2
from lab.control_planes import (
    AgentStream,
    RunningControlPlane,
    hello,
    refused,
    report,
    running_control_plane,
)
from tests.unit.cli.test_reservations import run
from tests.unit.rpc.test_access import OPERATOR, in_namespace, made, scheduled

FAILED, NOT_FOUND = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND
UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path, accept="manual") as running:
        yield running


async def call(plane: RunningControlPlane, method: str, **fields: Any) -> Any:
    request = getattr(clusters_pb2, f"{method}Request")(**fields)
    return await plane.admin.call(getattr(plane.admin.clusters, method), request)


async def test_a_joiner_gets_nothing_until_it_is_accepted(plane: RunningControlPlane) -> None:
    async with (
        plane.connected("eu-1", report=report()),
        plane.connected("eu-2", report=report()) as rejected,
    ):
        waits = await scheduled(plane.admin, in_namespace("shop"))
        assert waits.decision.outcome != scheduling_pb2.OUTCOME_SCHEDULED
        assert "is held until somebody accepts it" in str(waits.decision)
        listed = await run(plane, "get", "joiners")
        assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["eu-1", "eu-2"]
        assert "uid-of-eu-1" in listed.stdout
        assert "Held" in (await run(plane, "get", "clusters")).stdout

        accepted = await run(plane, "accept", "eu-1")
        assert (accepted.exit_code, accepted.stdout) == (0, "cluster/eu-1 accepted\n")
        placed = await scheduled(plane.admin, in_namespace("shop", "second"))
        assert [each.name for each in placed.decision.clusters] == ["eu-1"]
        for method in ("AcceptCluster", "RejectCluster"):
            refusal = await refused(call(plane, method, name="eu-1"))
            assert (refusal.code, refusal.reason) == (FAILED, "NOT_HELD")
            assert (await refused(call(plane, method, name="no-1"))).code is NOT_FOUND
        named = await run(plane, "get", "joiner", "eu-2", "-o", "name")
        assert named.stdout == "cluster/eu-2\n"
        nobody = await run(plane, "get", "joiners", "eu-1")
        assert (nobody.exit_code, "eu-1" in nobody.stderr) == (1, True)
        gone = await run(plane, "reject", "eu-2")
        assert (gone.exit_code, gone.stdout) == (0, "cluster/eu-2 rejected\n")
        _, end = await rejected.end()
        assert end is not None
        assert end.message == "Cluster 'eu-2' was rejected."
        assert (await refused(call(plane, "GetCluster", name="eu-2"))).code is NOT_FOUND
        assert (await run(plane, "get", "joiners", "-o", "json")).stdout == "[]\n"


async def test_join_tokens_are_listed_and_revoked(plane: RunningControlPlane) -> None:
    made_ones = [await call(plane, "CreateJoinToken", cluster=name) for name in ("eu-1", "us-1")]
    ids = [each.token.partition(".")[0] for each in made_ones]
    listed = await run(plane, "join-token", "list")
    for text in (*ids, "eu-1", "us-1", "in 60m"):
        assert text in listed.stdout
    for each in made_ones:
        assert each.token not in listed.stdout
    caller, _ = await made(plane, OPERATOR, clusters=["eu-*"])
    request = clusters_pb2.ListJoinTokensRequest(page_size=1)
    page = await caller.call(caller.clusters.ListJoinTokens, request)
    assert [each.cluster for each in page.tokens] == ["eu-1"]
    assert not page.next_page_token
    other = clusters_pb2.RevokeJoinTokenRequest(id=ids[1])
    hidden = await refused(caller.call(caller.clusters.RevokeJoinToken, other))
    assert hidden.code is NOT_FOUND

    revoked = await run(plane, "join-token", "revoke", ids[0])
    assert revoked.stdout == f"join-token/{ids[0]} for eu-1 revoked\n"
    assert (await refused(call(plane, "RevokeJoinToken", id=ids[0]))).code is NOT_FOUND
    enroll = {"cluster_uid": "uid", "agent_version": "0.1.0"}
    late = await refused(
        call(plane, "EnrollCluster", cluster="eu-1", token=made_ones[0].token, **enroll)
    )
    assert late.code is UNAUTHENTICATED
    # What a scope hides was not revoked in passing.
    await call(plane, "EnrollCluster", cluster="us-1", token=made_ones[1].token, **enroll)
    assert not (await call(plane, "ListJoinTokens")).tokens
    wrong = await refused(call(plane, "RevokeJoinToken"))
    assert wrong.violations == {"id": "is required"}


async def test_a_cordon_says_why_and_by_whom(plane: RunningControlPlane) -> None:
    async with plane.connected("eu-1", report=report()):
        await call(plane, "AcceptCluster", name="eu-1")
        caller, token_id = await made(plane, OPERATOR)
        request = clusters_pb2.CordonClusterRequest(name="eu-1", cordoned=True, reason="new kernel")
        answer = await caller.call(caller.clusters.CordonCluster, request)
        assert answer.cluster.status.cordoned_by == f"token test ({token_id})"
        shown = await run(plane, "describe", "cluster", "eu-1")
        assert f"by token test ({token_id}), new kernel" in " ".join(shown.stdout.split())
        waits = await scheduled(plane.admin, in_namespace("shop"))
        assert "is cordoned (new kernel)" in str(waits.decision)
        await run(plane, "cordon", "eu-1", "--reason", "new disks")
        status = (await call(plane, "GetCluster", name="eu-1")).cluster.status
        assert (status.cordon_reason, status.cordoned_by) == ("new disks", "admin")
        status = (await call(plane, "CordonCluster", name="eu-1")).cluster.status
        assert (status.cordoned, status.cordon_reason, status.cordoned_by) == (False, "", "")
    for reason in ("x" * 201, "a\x1b[2J"):
        refusal = await refused(call(plane, "CordonCluster", name="eu-1", reason=reason))
        assert refusal.violations.keys() == {"reason"}


async def test_an_agent_of_another_release_is_told_of_or_refused(
    plane: RunningControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    agent = await plane.enrolled("eu-1")

    async def welcomed(version: str) -> Any:
        said = hello(2)
        said.agent_version = version
        async with AgentStream(agent, "eu-1") as stream:
            await stream.say(hello=said)
            return await stream.end() if version == "0.9.0" else await stream.hear("welcome")

    with caplog.at_level(logging.WARNING):
        await welcomed("0.1.0")
    told = [each for each in caplog.records if each.message == "agent of another release"]
    assert [vars(each)["fields"]["cluster"] for each in told] == ["eu-1"]
    kinds, end = await welcomed("0.9.0")
    assert kinds == ["goodbye"]
    assert end is not None
    assert (end.code, end.reason) == (FAILED, "RELEASES_APART")
    assert "The agent of cluster 'eu-1' runs '0.9.0' and this control plane 0.2.0" in end.message
    token = (await call(plane, "CreateJoinToken", cluster="eu-2")).token
    late = await refused(
        call(
            plane,
            "EnrollCluster",
            cluster="eu-2",
            token=token,
            cluster_uid="u",
            agent_version="2.0",
        )
    )
    assert (late.code, late.reason) == (FAILED, "RELEASES_APART")
    # The token was not used up by that.
    assert len((await call(plane, "ListJoinTokens")).tokens) == 1
