"""What is logged when agents cannot be asked for nodes, or their answers not stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federation.model.errors import Unavailable
from federation.rpc import placing
from federation.rpc.placing import NodePlacing
from lab.services import WEB


class NoPlans:
    """Plans that never can be stored."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def place(self, *_: object) -> None:
        raise self._error


class Record:
    """A decision's, of which only the id counts."""

    id = "decision"


@pytest.mark.parametrize("error", [Unavailable("away"), RuntimeError("a fault")])
async def test_many_decisions_with_one_cause_are_logged_once(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    plans: Any = NoPlans(error)
    record: Any = Record()
    nodes = NodePlacing(plans)
    answers = await asyncio.gather(*(nodes.start(record, WEB, 1.0) for _ in range(5)))
    assert answers == [record] * 5
    assert caplog.messages == ["node placement not stored"]


async def test_too_many_at_once_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(placing, "MAX_RUNNING", 0)
    plans: Any = NoPlans(Unavailable("away"))
    record: Any = Record()
    nodes = NodePlacing(plans)
    for _ in range(3):
        assert await nodes.start(record, WEB, 1.0) is record
    assert caplog.messages == ["too many decisions wait for agents"]


class AwayAgents:
    """Plans of agents that are away, and how long they are waited for."""

    def __init__(self) -> None:
        self.waited = list[float]()
        self.is_back = asyncio.Event()

    async def place(self, record: Record, *_: object) -> Record:
        return record

    def awaits_agents(self, _: Record) -> bool:
        return True

    async def place_once_back(self, _: Record, __: object, return_seconds: float) -> None:
        self.waited.append(return_seconds)
        await self.is_back.wait()


async def test_agents_that_are_away_hold_up_neither_an_answer_nor_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placing, "MAX_AWAITED", 1)
    plans: Any = AwayAgents()
    record: Any = Record()
    nodes = NodePlacing(plans)
    assert [await nodes.start(record, WEB, 1.0) for _ in range(2)] == [record] * 2
    await nodes.settle(1e9)
    await asyncio.sleep(0)
    assert plans.waited == [placing.RETURN_SECONDS, 0.0], "of too many none is waited for"
    plans.is_back.set()
