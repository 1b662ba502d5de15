"""The queue over the wire: who waits, in which order, and how."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federation.v1.resource_pb2 import SchedulePriority
from federation.v1.scheduling_pb2 import (
    OUTCOME_UNSCHEDULABLE,
    WAIT_STATE_GATED,
    WAIT_STATE_UNSCHEDULABLE,
)
from lab.control_planes import AT_ANY_TIME, AgentStream, Plane, report
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import binding, got, paged, scheduled, shares

pytestmark = pytest.mark.usefixtures("member1")


async def waiting(api: Plane, name: str, priority: int = 0) -> Any:
    """A binding for which there is no room."""
    wanted = binding(name, replicas=1000, schedule_priority=SchedulePriority(priority=priority))
    answer = await scheduled(api, wanted)
    assert (answer.decision.outcome, answer.queued) == (OUTCOME_UNSCHEDULABLE, True)
    return answer


async def queued(api: Plane, **fields: Any) -> list[Any]:
    return list((await api.ask("ListQueue", **fields)).bindings)


async def suspend(api: Plane, name: str, *, resume: bool = False) -> Any:
    return await api.ask("SuspendBinding", namespace="shop", name=name, resume=resume)


async def test_the_queue_is_paged_in_the_order_in_which_it_is_tried(api: Plane) -> None:
    for name, priority in (("one", 0), ("two", 0), ("urgent", 9), ("three", 0)):
        await waiting(api, name, priority)
    rows = await paged(api, "ListQueue", "bindings", 2)
    assert [each.name for each in rows] == ["urgent", "one", "two", "three"]
    (urgent,) = await queued(api, priority=9)
    assert (urgent.namespace, urgent.priority, urgent.wait.position) == ("shop", 9, 1)
    assert not await queued(api, namespace="elsewhere")


async def test_a_binding_tells_how_it_waits(api: Plane) -> None:
    answer = await waiting(api, "web")
    wait = (await got(api, "web")).wait
    # What it asks for is new: the queue may have tried it once more by now.
    assert (wait.state, wait.position) == (WAIT_STATE_UNSCHEDULABLE, 1)
    assert wait.attempts in (1, 2)
    assert (wait.remainder, wait.short_of) == (1000, "cpu in 1 cluster")
    told = [field for field in ("since", "next_try", "overtaken_since") if wait.HasField(field)]
    assert told == ["since"]
    (row,) = await queued(api)
    wait.attempts = row.wait.attempts
    assert (row.wait, row.decision_id) == (wait, answer.decision.id)
    again = await api.ask("RescheduleBinding", namespace="shop", name="web")
    assert (again.queued, again.decision.outcome) == (True, OUTCOME_UNSCHEDULABLE)


async def test_a_preview_that_is_committed_waits_as_it_was_to(api: Plane) -> None:
    await scheduled(api, binding("placed", replicas=1))
    for name, wait in (("web", True), ("placed", False)):
        preview = await scheduled(api, binding(name, replicas=1000), preview=True, wait=wait)
        for _ in range(2):
            answer = await api.ask("Schedule", preview_token=preview.preview_token)
            assert answer.queued is wait
    assert [each.name for each in await queued(api)] == ["web"]


async def test_a_watch_tells_how_bindings_wait(api: Plane) -> None:
    await waiting(api, "web")
    await suspend(api, "web")
    call = api.admin.watch("WatchBindings")
    event = (await call.read()).events[0]
    assert event.binding.metadata.name == "web"
    assert (event.wait.state, event.wait.gate) == (WAIT_STATE_GATED, "suspended")
    await suspend(api, "web", resume=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while event.wait.state != WAIT_STATE_UNSCHEDULABLE:
            events = (await call.read()).events
            event = events[0] if events[0].HasField("binding") else event
    call.cancel()


async def test_what_waits_is_placed_as_soon_as_a_report_shows_room(
    api: Plane, member1: AgentStream
) -> None:
    assert (await scheduled(api, binding("web", replicas=18))).queued
    await member1.say(report=report(sequence=2, nodes=5))
    # The acknowledgement of the report may come before it, or after.
    while (told := await member1.next()).WhichOneof("message") != "place_request":
        assert told.WhichOneof("message") in AT_ANY_TIME | {"ack"}
    order = told.place_request
    assert (order.binding, order.shares[0].replicas) == ("shop/web", 18)
    found = await got(api, "web")
    assert not found.HasField("wait")
    assert shares(found.binding.spec) == {"member1": 18}
    assert found.decision.id == order.decision_id
    assert not await queued(api)
