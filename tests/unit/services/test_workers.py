"""Processes that answer questions: one that is starting is not ended because somebody gave up."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.services.workers import WorkerLimits, Workers
from lab.patience import PATIENCE_SECONDS

# Reads where files are, says who it is, starts once it may, and answers with who it is.
PROGRAM = """
import os, pathlib, struct, sys, time
into, out = sys.stdin.buffer, sys.stdout.buffer
def read():
    header = into.read(8)
    if not header: os._exit(0)
    return into.read(struct.unpack("!Q", header)[0])
folder = pathlib.Path(read().decode())
(folder / f"{os.getpid()}.pid").touch()
while not (folder / "go").exists(): time.sleep(0.01)
out.write(bytes([2])); out.flush()
while True:
    read()
    who = str(os.getpid()).encode()
    out.write(bytes([1]) + struct.pack("!B?Q", 0, False, len(who)) + who); out.flush()
"""


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    command = (sys.executable, "-c", PROGRAM)
    made = Workers("test", command, lambda: str(tmp_path).encode(), WorkerLimits(count=1))
    yield made
    await made.close()


def started(folder: Path) -> list[str]:
    return [each.stem for each in folder.glob("*.pid")]


async def until_started(folder: Path) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not started(folder):  # noqa: ASYNC110 - another process tells
            await asyncio.sleep(0.01)


async def test_one_that_is_starting_is_left_to_the_next_question(
    workers: Workers, tmp_path: Path
) -> None:
    for _ in range(3):
        asking = asyncio.create_task(workers.ask(b"abandoned"))
        await until_started(tmp_path)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    (tmp_path / "go").touch()
    answer = await workers.ask(b"who?")
    assert [answer.body.decode()] == started(tmp_path)


async def test_they_share_the_session_and_ignore_who_interrupts_it(
    workers: Workers, tmp_path: Path
) -> None:
    """In a session of their own they would have as much of the processor as all of ours."""
    (tmp_path / "go").touch()
    pid = int((await workers.ask(b"who?")).body)
    assert os.getsid(pid) == os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
