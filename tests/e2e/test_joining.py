"""Agents as processes that join, are revoked, replaced, joined twice, and outlive a restart."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from estimator.app import run
from estimator.settings import OPTIONS, run_settings
from federation.cli.__main__ import fedctl
from federation.parts import SystemClock
from federation.services.members.reports import MAX_AHEAD_SECONDS
from federation.v1.resource_pb2 import Cluster
from lab.agents import (
    DUMPS,
    SECONDS,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
)
from lab.control_planes import RunningControlPlane, running_control_plane

FAST = {"heartbeat_seconds": "10", "report_seconds": "0.5"}
SOURCE = ("--from", str(DUMPS / "member1.json"))


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path / "plane", **FAST) as running:
        yield running


async def ctl(plane: RunningControlPlane, *arguments: str) -> Result:
    """fedctl, in a thread: it blocks."""
    common = (
        *("--insecure", "--endpoint", str(plane.plane.endpoint)),
        *("--token-file", str(plane.plane.admin_token_file)),
    )
    return await asyncio.to_thread(CliRunner().invoke, fedctl, [*common, *arguments])


async def told(plane: RunningControlPlane, *arguments: str) -> str:
    result = await ctl(plane, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def is_of_epoch(epoch: int, cluster: Cluster) -> bool:
    return cluster.status.agent.report_epoch == epoch


def is_connected(cluster: Cluster) -> bool:
    return cluster.status.agent.connected


async def test_a_revoked_agent_ends_and_comes_back_with_another_token(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    arguments = ("run", *flags(plane, "member1", tmp_path), *SOURCE)
    token = (await join_token(plane, "member1")).token
    async with estimator(*arguments, "--join-token", token) as agent:
        await cluster_where(plane, "member1", has_reported)
        assert "cluster/member1 revoked, credentials ended: 1" in await told(
            plane, "revoke", "member1"
        )
        code, said = await agent.end()
        assert code == 1
        assert "was revoked" in said.splitlines()[-1]
    async with estimator(*arguments) as agent:
        assert (await agent.end())[0] == 1
    # The credential file is still there: the token is what counts then.
    token_file = tmp_path / "token"
    token_file.write_text((await join_token(plane, "member1")).token + "\n")
    async with estimator(*arguments, "--join-token-file", str(token_file)) as agent:
        await cluster_where(plane, "member1", is_connected)
        code, said = await agent.stop()
        assert code == 0
        assert "joining with the join token" in said
    async with estimator(*arguments):
        await cluster_where(plane, "member1", is_connected)


async def test_of_two_agents_of_one_cluster_the_later_stays(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    async with AsyncExitStack() as agents:
        running = []
        for place in ("one", "other"):
            (tmp_path / place).mkdir()
            token = (await join_token(plane, "member1")).token
            arguments = ("run", *flags(plane, "member1", tmp_path / place), *SOURCE)
            running.append(
                await agents.enter_async_context(estimator(*arguments, "--join-token", token))
            )
            if place == "one":
                first = await cluster_where(plane, "member1", has_reported)
        code, said = await running[0].end()
        assert code == 1
        assert "taken over" in said.splitlines()[-1]
        cluster = await cluster_where(
            plane,
            "member1",
            lambda each: each.status.agent.report_epoch > first.status.agent.report_epoch,
        )
        assert cluster.status.agent.connected
        assert (await running[1].stop())[0] == 0


async def test_a_name_goes_to_another_cluster_by_replace_only(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    token = (await join_token(plane, "member1")).token
    old = ("run", *flags(plane, "member1", tmp_path), *SOURCE)
    async with estimator(*old, "--join-token", token) as agent:
        await cluster_where(plane, "member1", has_reported)
        (tmp_path / "new").mkdir()
        new = (
            *("run", *flags(plane, "member1", tmp_path / "new")),
            *("--from", str(DUMPS / "member2.json")),
        )
        token = (await join_token(plane, "member1")).token
        async with estimator(*new, "--join-token", token) as refused:
            code, said = await refused.end()
            assert code == 1
            assert "ReplaceCluster" in said
        uid = said.split("this one, with '")[1].split("'")[0]
        assert uid in await told(plane, "replace", "member1", "--uid", uid, "--yes")
        code, said = await agent.end()
        assert code == 1
        assert "was replaced" in said.splitlines()[-1], said
    # The token of the refused try was not spent.
    async with estimator(*new, "--join-token", token):
        cluster = await cluster_where(plane, "member1", has_reported)
        assert cluster.metadata.uid == uid
    async with estimator(*old) as agent:
        assert (await agent.end())[0] == 1


async def test_a_restart_of_the_control_plane_loses_nobody(
    database_url: str, tmp_path: Path
) -> None:
    names = ("member1", "member2", "member3")
    async with AsyncExitStack() as agents:
        async with running_control_plane(database_url, tmp_path / "plane", **FAST) as first:
            running = []
            for name in names:
                token = (await join_token(first, name)).token
                arguments = ("run", *flags(first, name, tmp_path))
                source = ("--from", str(DUMPS / f"{name}.json"), "--join-token", token)
                running.append(await agents.enter_async_context(estimator(*arguments, *source)))
            for name in names:
                await cluster_where(first, name, has_reported)
            same_port = {"listen": str(first.plane.endpoint)}
        async with (
            running_control_plane(database_url, tmp_path / "plane", **FAST, **same_port) as second,
            asyncio.timeout(SECONDS),
        ):
            while True:
                answer = await second.admin.ask("ListClusters")
                found = {each.metadata.name: each for each in answer.clusters}
                # Nobody counts as lost at any moment, and what was known still is.
                assert [readiness(found[name]) for name in names] == ["True"] * 3
                assert all(has_reported(found[name]) for name in names)
                if all(is_connected(found[name]) for name in names):
                    break
                await asyncio.sleep(0.05)
        for agent in running:
            code, said = await agent.stop()
            assert code == 0
            assert "the control plane is stopping" in said


def readiness(cluster: Cluster) -> Any:
    return next(each.status for each in cluster.status.conditions if each.type == "Ready")


async def keep_epoch(
    plane: RunningControlPlane, tmp_path: Path, ahead_seconds: float
) -> tuple[Path, int]:
    """Let an agent join; its credential file, with an epoch so far ahead, and that epoch."""
    arguments = flags(plane, "member1", tmp_path)
    token = (await join_token(plane, "member1")).token
    async with estimator("join", *arguments, *SOURCE, "--join-token", token) as agent:
        assert (await agent.end())[0] == 0
    path = tmp_path / "member1.json"
    epoch = int(1000 * (time.time() + ahead_seconds))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"epoch": epoch}))
    return path, epoch


async def test_a_clock_that_went_back_does_not_keep_an_agent_out(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    arguments = ("run", *flags(plane, "member1", tmp_path), *SOURCE)
    # As far as an agent's clock may be ahead.
    path, ahead = await keep_epoch(plane, tmp_path, MAX_AHEAD_SECONDS - 10)
    for epoch in (ahead + 1, ahead + 2):
        async with estimator(*arguments):
            await cluster_where(plane, "member1", partial(is_of_epoch, epoch))
    # Nor when the file is lost and the agent joins again.
    path.unlink()
    token = (await join_token(plane, "member1")).token
    async with estimator(*arguments, "--join-token", token):
        await cluster_where(plane, "member1", partial(is_of_epoch, ahead + 3))


class BehindClock(SystemClock):
    """A clock that is ten minutes behind."""

    def now(self) -> float:
        return super().now() - 600.0


async def test_a_control_plane_with_a_wrong_clock_ends_no_agent(
    database_url: str,
    plane: RunningControlPlane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Agents begin with the first endpoint.
    monkeypatch.setattr("estimator.app.uniform", lambda _: 0.0)
    stopping = asyncio.Event()
    async with AsyncExitStack() as running:
        behind = await running.enter_async_context(
            running_control_plane(database_url, tmp_path / "plane", clock=BehindClock(), **FAST)
        )
        right_endpoint, wrong_endpoint = str(plane.plane.endpoint), str(behind.plane.endpoint)
        arguments = {
            "cluster": "member1",
            "endpoint": (wrong_endpoint, right_endpoint),
            "insecure": "true",
            "credential_file": str(tmp_path / "member1.json"),
            "from": SOURCE[1],
            "join_token": (await join_token(plane, "member1")).token,
        }
        loaded = OPTIONS.load(flags=arguments, environment={}, document={}, source="")
        working = asyncio.create_task(run(run_settings(loaded, tmp_path), stopping))
        await cluster_where(plane, "member1", has_reported)
        stopping.set()
        await working
    assert f"600 s ahead of the control plane's at {wrong_endpoint}" in caplog.text
    assert f"agrees with that at {right_endpoint}: the clock at {wrong_endpoint} is" in caplog.text


async def test_an_agent_that_was_ahead_comes_back_when_its_clock_is_right(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    arguments = ("run", *flags(plane, "member1", tmp_path), *SOURCE)
    # What a clock of next year left behind.
    path, ahead = await keep_epoch(plane, tmp_path, 365 * 86_400)
    async with estimator(*arguments) as agent:
        await cluster_where(plane, "member1", is_connected)
        code, said = await agent.stop()
        assert code == 0
        assert "clock is off" in said
    assert 0 < json.loads(path.read_text())["epoch"] < ahead


async def test_one_of_several_endpoints_is_enough(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    token = (await join_token(plane, "member1")).token
    arguments = ("run", *flags(plane, "member1", tmp_path), *SOURCE, "--endpoint", "127.0.0.1:1")
    async with estimator(*arguments, "--join-token", token):
        await cluster_where(plane, "member1", has_reported)


async def test_another_address_of_the_same_fleet_needs_no_other_credential(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    token = (await join_token(plane, "member1")).token
    arguments = flags(plane, "member1", tmp_path)
    async with estimator("join", *arguments, *SOURCE, "--join-token", token) as agent:
        assert (await agent.end())[0] == 0
    moved = [each.replace("127.0.0.1", "localhost") for each in arguments]
    assert moved != arguments
    async with estimator("run", *moved, *SOURCE):
        await cluster_where(plane, "member1", has_reported)


async def test_a_token_file_that_is_missing_is_named(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    missing = tmp_path / "none"
    arguments = ("run", *flags(plane, "member1", tmp_path), *SOURCE)
    async with estimator(*arguments, "--join-token-file", str(missing)) as agent:
        code, said = await agent.end()
    assert code == 1
    assert f"join token file {missing} cannot be read" in said
