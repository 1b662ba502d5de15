"""``fedctl watch`` as people run it: a line for what is there, and an end by interrupting it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lab.control_planes import RunningControlPlane, report, running_control_plane
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import binding, scheduled

SECONDS = PATIENCE_SECONDS
# Whoever runs the tests in the background ignores interrupts, and so would a child of theirs.
HEEDING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from federation.cli.__main__ import fedctl
fedctl()
"""


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


@asynccontextmanager
async def watching(running: RunningControlPlane, *arguments: str) -> AsyncIterator[Process]:
    plane = running.plane
    token = ("--token-file", str(plane.admin_token_file))
    flags = ("--insecure", "--endpoint", str(plane.endpoint), *token)
    command = (sys.executable, "-c", HEEDING, *flags, "watch", *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        told = (await process.stdout.readline()).decode()
    assert told, "it ended"
    return told


async def test_bindings_are_followed(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        await scheduled(running, binding("cart"))
        async with watching(running, "bindings", "-n", "shop") as process:
            assert (await line(process)).startswith("UPDATED  shop/cart  replicas 3  ")
            await scheduled(running, binding("other", replicas=1))
            told = await line(process)
            # What is there may be told once more.
            while "shop/other" not in told:
                told = await line(process)
            assert "clusters member1=1" in told


async def test_clusters_are_followed_as_documents(running: RunningControlPlane) -> None:
    async with (
        running.connected("member1", report=report()),
        watching(running, "clusters", "-o", "json") as process,
    ):
        event = json.loads(await line(process))
        assert event["cluster"]["metadata"]["name"] == "member1"
