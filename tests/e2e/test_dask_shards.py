"""What-if on a real Dask scheduler with workers that are processes: the same for any number."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest

from federation.history.dask_shards import own_release, worked_out_by_dask
from federation.history.shards import worked_out
from federation.history.trace_files import TraceFile
from federation.model.errors import Unavailable
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.simulation.changes import WhatIfChange
from federation.simulation.what_if_runs import carried, played, played_carried, windows_of
from lab.patience import PATIENCE_SECONDS, until
from lab.traces import BEGAN, Storm, fleet_of, requests, traced, write_trace

ROOT = Path(__file__).resolve().parents[2]
CORDONED = WhatIfChange(cordoned=frozenset({"member003"}))
# Its workers are gone for good once a second passes without any.
SOON = 1.0

Start = Callable[[], subprocess.Popen[bytes]]


class _Scheduler(msgspec.Struct):
    address: str


class Dask:
    """A scheduler, and as many workers as were started. Must be stopped."""

    def __init__(self, folder: Path) -> None:
        self._told = folder / "scheduler.json"
        self._stack = ExitStack()
        self._folder = folder
        self._count = 0
        own = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
        self._start("scheduler", *own)

    async def address(self) -> str:
        async def told() -> bytes:
            return self._told.read_bytes() if self._told.exists() else b""

        content = await until(told, lambda content: content.endswith(b"}"))
        return msgspec.json.decode(content, type=_Scheduler).address

    def work(self) -> subprocess.Popen[bytes]:
        own = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--host", "127.0.0.1")
        return self._start("worker", *own)

    def stop(self) -> None:
        self._stack.close()

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        self._count += 1
        log = self._stack.enter_context((self._folder / f"{kind}-{self._count}.log").open("wb"))
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
        started = subprocess.Popen(
            [*command, "--scheduler-file", str(self._told)], cwd=ROOT, stdout=log, stderr=log
        )
        self._stack.callback(started.wait, PATIENCE_SECONDS)
        self._stack.callback(started.kill)
        return started


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    made = Dask(tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceFile:
    fleet = fleet_of(12)
    storm = Storm(fleet, {each.name: 30 for each in fleet})
    verdicts = [storm.asked(each, BEGAN + 30 * n) for n, each in enumerate(requests(120, 1))]
    path = tmp_path_factory.mktemp("storm") / "storm.trace"
    return TraceFile.opened(write_trace(path, *traced(verdicts), in_chunk=25))


async def test_one_two_and_eight_workers_come_to_the_same_as_processes_here(
    dask: Dask, trace: TraceFile
) -> None:
    windows = windows_of(trace, 600)
    assert len(windows) > 4
    work = partial(played, trace, CORDONED, DEFAULT_PROFILES)
    expected = [*worked_out(work, windows, 1)]
    address, there = await dask.address(), 0
    for count in (1, 2, 8):
        for _ in range(count - there):
            dask.work()
        there = count
        on_others = partial(played_carried, CORDONED, DEFAULT_PROFILES)
        pieces = (carried(trace, each) for each in windows)
        assert [*worked_out_by_dask(on_others, pieces, address)] == expected, count


async def test_where_all_workers_end_the_wait_has_an_end(dask: Dask) -> None:
    worker, address = dask.work(), await dask.address()
    # It has come by then: beside a busy machine that takes longer than we wait for another one.
    assert [*worked_out_by_dask(str, [1], address)] == ["1"]
    with pytest.raises(Unavailable, match=r"No Dask worker was there|were ended by their work"):
        [*worked_out_by_dask(os._exit, [1, 1], address, patience_seconds=SOON)]
    assert worker.wait(PATIENCE_SECONDS) is not None


async def test_where_no_worker_or_no_scheduler_is_there_that_is_said(dask: Dask) -> None:
    address = await dask.address()
    with pytest.raises(Unavailable, match="start some, and try again"):
        [*worked_out_by_dask(str, [1], address, patience_seconds=SOON)]
    dask.stop()
    with pytest.raises(Unavailable, match="No Dask scheduler answers"):
        [*worked_out_by_dask(str, [1], address, patience_seconds=SOON)]


async def test_what_the_work_raises_is_raised_here(dask: Dask) -> None:
    dask.work()
    with pytest.raises(ValueError, match="invalid literal"):
        [*worked_out_by_dask(int, ["1", "no number"], await dask.address())]


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(Unavailable, match="No Dask scheduler answers at tcp://nowhere"):
        [*worked_out_by_dask(int, ["1"], "tcp://nowhere.invalid:1", patience_seconds=SOON)]
    assert own_release()
