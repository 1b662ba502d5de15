"""``fedctl get -w`` as people run it: rows of what is there, and an end by interrupting it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lab.control_planes import RunningControlPlane
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import binding, scheduled
from tests.unit.cli.calling import flags_for, run

# Whoever runs the tests in the background ignores interrupts, and so would a child of theirs.
HEEDING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from federation.cli.__main__ import fedctl
fedctl()
"""


@asynccontextmanager
async def watching(running: RunningControlPlane, *arguments: str) -> AsyncIterator[Process]:
    command = (sys.executable, "-c", HEEDING, *flags_for(running), "get", *arguments, "-w")
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_SECONDS):
        told = (await process.stdout.readline()).decode()
    assert told, "it ended"
    return told


@pytest.mark.usefixtures("member1")
async def test_bindings_and_clusters_are_followed(running: RunningControlPlane) -> None:
    await scheduled(running, binding("cart"))
    async with watching(running, "bindings", "-n", "shop") as process:
        heading = (await line(process)).split()
        row = dict(zip(heading, (await line(process)).split(), strict=True))
        assert (row["NAME"], row["CLUSTERS"], row["WAITS"]) == ("cart", "member1=3", "-")
        assert row["CERTIFICATE"] in ("strict", "exact", "careful", "planned")
        await scheduled(running, binding("other", replicas=1))
        row = dict(zip(heading, (await line(process)).split(), strict=True))
        assert (row["NAME"], row["CLUSTERS"]) == ("other", "member1=1")
    async with watching(running, "bindings", "shop/cart", "-o", "json") as process:
        event = json.loads(await line(process))
        assert event["object"]["metadata"]["name"] == "cart"
        assert event["certificates"].keys() == {"member1"}
        assert event["decisionId"]
    async with watching(running, "clusters", "-o", "json") as process:
        event = json.loads(await line(process))
        assert event["object"]["metadata"]["name"] == "member1"


async def test_the_old_verb_says_its_new_form(running: RunningControlPlane) -> None:
    refused = await run(running, "watch", "clusters", "-o", "json")
    assert refused.exit_code == 2
    assert "fedctl get clusters -o json --watch" in refused.stderr
