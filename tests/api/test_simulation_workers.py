"""Simulations are priced, bounded, off the event loop, and end with their callers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.rpc import simulation
from federation.rpc.simulation_worker import KEPT_BYTES
from federation.scheduler.plugins.filters import Refusals
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Filter, Profile, Profiles
from federation.scheduler.state import CycleState
from federation.v1.resource_pb2 import Cluster, Taint
from federation.v1.simulation_pb2 import SimulateRequest
from lab import patience
from lab.control_planes import (
    SECONDS,
    Plane,
    Refusal,
    refused,
    running_control_plane,
)
from lab.patience import PATIENCE_SECONDS
from lab.processes import family
from tests.api.test_simulation import request, simulated, workload

# In the environment of processes: the file that says which one of them works for ever.
MARK = "SIMULATES_FOR_EVER"


def endless(_: CycleState) -> Refusals:
    Path(os.environ[MARK]).write_text(str(os.getpid()))
    while True:
        pass


def greedy(_: CycleState) -> Refusals:
    taken = []
    while True:
        taken.append(bytearray(1 << 20))


def local() -> Profile:
    return profile("local", lambda _: ())


def profile(name: str, run: Any) -> Profile:
    filters = (*DEFAULT_PROFILE.filters, Filter(name=name, run=run))
    return Profile(name=name, filters=filters, scores=DEFAULT_PROFILE.scores)


PROFILES = Profiles.of([profile("endless", endless), profile("greedy", greedy)])


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Says which process works for ever, once one does."""
    monkeypatch.setenv(MARK, str(tmp_path / "endless"))
    return tmp_path / "endless"


@pytest_asyncio.fixture(loop_scope="module")
async def api(database_url: str, tmp_path: Path, mark: Path) -> AsyncIterator[Plane]:
    flags = {"simulation_memory_mebibytes": "512", "simulation_steps": "1000"}
    async with running_control_plane(database_url, tmp_path, PROFILES, **flags) as running:
        yield running


def decided_by(scheduler: str) -> SimulateRequest:
    return request(workload("a", 1, schedulerName=scheduler))


def workers() -> set[int]:
    """The processes that simulate for this one."""
    found = set()
    for pid in family(os.getpid()):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"federation.rpc.simulation_worker" in command:
            found.add(pid)
    return found


async def until(holds: Callable[[], bool]) -> None:
    """What simulates gives way to others: beside many it takes a while to start."""

    async def held() -> bool:
        return await asyncio.to_thread(holds)

    await patience.until(held, bool)


async def until_gone(pid: int) -> None:
    await until(lambda: pid not in workers())


async def until_working(
    api: Plane, mark: Path, seconds: float = PATIENCE_SECONDS
) -> tuple[Any, int]:
    """Return a call that simulates for ever, and the process that does.

    Where the machine stands still a call may end before that: then another one is made.
    """

    def working() -> int:
        return int(mark.read_text() or 0) if mark.exists() else 0

    while True:
        call: Any = api.admin.simulation.Simulate(
            decided_by("endless"), timeout=seconds, metadata=api.admin.metadata
        )
        await until(partial(has_begun_or_ended, call, working))
        if process := working():
            return call, process


def has_begun_or_ended(call: Any, working: Callable[[], int]) -> bool:
    return bool(call.done()) or working() > 0


async def test_what_a_caller_gives_up_ends_and_the_next_one_is_served(
    api: Plane, mark: Path
) -> None:
    # A process that is only starting is kept.
    assert await simulated(api, request(workload("a", 1)))
    call, abandoned = await until_working(api, mark)
    call.cancel()
    await until_gone(abandoned)
    (decision,) = await simulated(api, request(workload("a", 1)))
    assert decision.clusters


async def test_it_ends_with_its_deadline(api: Plane, mark: Path) -> None:
    # A process that is only starting is kept.
    assert await simulated(api, request(workload("a", 1)))
    call, abandoned = await until_working(api, mark, seconds=5.0)
    assert (await refused(call)).code is grpc.StatusCode.DEADLINE_EXCEEDED
    await until_gone(abandoned)


async def test_more_memory_than_agreed_ends_it(api: Plane) -> None:
    refusal = await refused(simulated(api, decided_by("greedy")))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "more memory" in refusal.message
    assert await simulated(api, request(workload("a", 1)))


async def test_a_process_that_was_killed_is_not_missed(api: Plane) -> None:
    assert await simulated(api, request(workload("a", 1)))
    running = workers()
    assert running
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    for pid in running:
        await until_gone(pid)
    assert await simulated(api, request(workload("a", 1)))


async def test_a_big_control_plane_keeps_its_processes(api: Plane) -> None:
    """What a process has in memory is its own, not that of the one that started it."""
    weight = bytearray(b"x") * KEPT_BYTES
    assert await simulated(api, request(workload("a", 1)))
    running = workers()
    assert running
    for _ in range(3):
        assert await simulated(api, request(workload("a", 1)))
    assert workers() == running
    assert len(weight) == KEPT_BYTES


async def test_processes_end_with_the_control_plane(database_url: str, tmp_path: Path) -> None:
    async with running_control_plane(database_url, tmp_path) as running:
        assert await simulated(running, request(workload("a", 1)))
        assert workers()
    assert not workers()


async def test_too_many_at_once_are_refused(api: Plane) -> None:
    simulate, metadata = api.admin.simulation.Simulate, api.admin.metadata
    calls = [simulate(decided_by("endless"), metadata=metadata) for _ in range(10)]
    refusals = asyncio.as_completed([refused(call) for call in calls])
    first: Refusal = await next(refusals)
    assert first.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "5 simulations and replays" in first.message
    for call in calls:
        call.cancel()


async def test_work_is_priced_before_it_starts(api: Plane) -> None:
    tainted = request(workload("a", 1), workload("b", 1))
    tainted.clusters[0].spec.taints.extend(
        Taint(key=f"k{number}", effect="NoSchedule") for number in range(600)
    )
    refusal = await refused(simulated(api, tainted))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert list(refusal.violations) == ["bindings[1]"]
    assert "1000 steps" in refusal.violations["bindings[1]"]


async def test_bytes_that_are_no_request_are_refused(api: Plane) -> None:
    method = api.channel.unary_unary("/federation.v1.Simulation/Simulate")
    refusal = await refused(method(b"\xff", timeout=SECONDS, metadata=api.admin.metadata))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNDECODABLE")


async def test_a_plugin_that_no_other_process_can_find_is_told(
    database_url: str, tmp_path: Path
) -> None:
    profiles = Profiles.of([local()])
    async with running_control_plane(database_url, tmp_path, profiles) as running:
        refusal = await refused(simulated(running, SimulateRequest(clusters=[Cluster()])))
        assert refusal.reason == "PLUGIN_NOT_SENDABLE"


async def test_one_that_is_starting_is_left_to_the_next_caller(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes stay in the session, and are no part of the group that is interrupted."""
    may_start = tmp_path / "may-start"
    waiting = (
        "import pathlib, time\n"
        f"while not pathlib.Path({str(may_start)!r}).exists():\n    time.sleep(0.01)"
    )
    *python, start = simulation.PROGRAM
    monkeypatch.setattr(simulation, "PROGRAM", (*python, f"{waiting}\n{start}"))
    async with running_control_plane(database_url, tmp_path / "plane") as running:
        asking = asyncio.create_task(simulated(running, request(workload("a", 1))))
        await until(lambda: bool(workers()))
        (started,) = workers()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        may_start.touch()
        assert await simulated(running, request(workload("a", 1)))
        assert started in workers()
        assert os.getsid(started) == os.getsid(0)
        assert os.getpgid(started) != os.getpgid(0)
