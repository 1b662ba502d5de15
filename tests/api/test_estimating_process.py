"""The process that estimates: answers are right and in order, and no worse than without it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.services.workers import ASKED_AT_ONCE
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.patience import until
from tests.api.world import World, code_of

STANDING = "federation.services.workers"
WORTH = "federation.rpc.estimating.WORTH_CLUSTERS"
CORES = {"a": 6, "b": 3, "c": 3}


def shape(number: int) -> ReplicaRequirements:
    return ReplicaRequirements(resource_request={"cpu": f"{100 + number}m"})


def ask(world: World, number: int = 900) -> Any:
    return world.plane.ask("EstimateReplicas", shapes=[shape(number)])


async def replicas(world: World, *numbers: int) -> Sequence[list[int]]:
    answers = await asyncio.gather(*(ask(world, number) for number in numbers))
    return [list(each.replicas) for each in answers]


@pytest_asyncio.fixture(loop_scope="module")
async def process(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ready, and started again at once where it ends; small fleets are worth it."""
    monkeypatch.setattr(f"{STANDING}.AGAIN_SECONDS", 0.01)
    await world.clusters(**CORES)
    monkeypatch.setattr(WORTH, 1)
    estimating = world.plane.plane.parts.estimating
    assert estimating is not None
    # Nobody waits for it to start.
    assert await replicas(world, 900) == [[6, 3, 3]]
    await until_ready(world, estimating.process)
    return estimating.process


async def until_ready(world: World, process: Any, other_than: int | None = None) -> None:
    async def pid() -> int | None:
        await ask(world)
        return process.pid if process.is_ready else None

    await until(pid, lambda found: found not in (None, other_than))


async def test_an_answer_is_about_all_that_happened_before_and_ones_own(
    world: World, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.schedule("web", 4, only=["a"])
    before = sum(process.durations.counts)
    assert await replicas(world, 900) == [[2, 3, 3]]
    assert sum(process.durations.counts) == before + 1
    numbers = range(0, 800, 10)
    found = await replicas(world, *numbers)
    # Those who give up leave the answers in order, and a question that cannot be made harms none.
    lost = [asyncio.ensure_future(ask(world, number)) for number in range(20)]
    await asyncio.sleep(0)
    for each in lost:
        each.cancel()
    unknown = world.plane.ask("EstimateReplicas", shapes=[shape(1)], clusters=["gone"])
    assert await code_of(unknown) is grpc.StatusCode.INVALID_ARGUMENT
    assert await replicas(world, *numbers) == found
    monkeypatch.setattr(WORTH, 1_000)
    assert await replicas(world, *numbers) == found


@pytest.mark.expected_errors("process ended")
@pytest.mark.parametrize("how", ["killed", "hangs"])
async def test_one_that_ends_or_hangs_is_not_missed_and_another_is_told_everything(
    world: World, process: Any, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    pid = process.pid
    with monkeypatch.context() as patch:
        if how == "killed":
            os.kill(pid, signal.SIGKILL)
        else:
            patch.setattr(f"{STANDING}.MAX_ANSWER_SECONDS", 0.05)
            os.kill(pid, signal.SIGSTOP)
        assert await replicas(world, *[900] * 8) == [[6, 3, 3]] * 8
        await world.schedule("web", 4, only=["a"])
        assert await replicas(world, 900) == [[2, 3, 3]]
    await until_ready(world, process, other_than=pid)
    before = sum(process.durations.counts)
    assert await replicas(world, 900) == [[2, 3, 3]]
    assert sum(process.durations.counts) == before + 1


@pytest.mark.expected_errors("process ended")
async def test_a_program_that_does_not_start_is_as_none(
    world: World, process: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pid = process.pid
    with monkeypatch.context() as patch:
        patch.setattr(process, "_command", ("/there/is/no/such/program",))
        os.kill(pid, signal.SIGKILL)

        async def log() -> str:
            assert await replicas(world, 900) == [[6, 3, 3]]
            return caplog.text

        await until(log, lambda text: text.count("process ended") >= 2)
    await until_ready(world, process, other_than=pid)


async def test_too_many_are_told_so_and_a_burst_waits(
    world: World, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    most = 10
    monkeypatch.setattr(f"{STANDING}.MAX_QUESTIONS", most)
    monkeypatch.setattr(f"{STANDING}.MAX_ANSWER_SECONDS", 600.0)
    os.kill(process.pid, signal.SIGSTOP)
    asking = [asyncio.ensure_future(ask(world)) for _ in range(ASKED_AT_ONCE + most)]

    async def waiting() -> int:
        await world.queued()
        return int(process.waiting)

    await until(waiting, lambda count: count == most)
    refusal = await code_of(ask(world))
    assert refusal is grpc.StatusCode.RESOURCE_EXHAUSTED
    # Who would wait in vain is told, too.
    monkeypatch.setattr(f"{STANDING}.MAX_QUESTIONS", 1_000)
    with monkeypatch.context() as patch:
        patch.setattr(f"{STANDING}.PATIENCE_SECONDS", 0.0)
        assert await code_of(ask(world)) is refusal
    os.kill(process.pid, signal.SIGCONT)
    assert [list(each.replicas) for each in await asyncio.gather(*asking)] == [[6, 3, 3]] * len(
        asking
    )
