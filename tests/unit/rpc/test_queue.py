"""The queue over the wire: who waits, in which order, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1.resource_pb2 import Gang, SchedulePriority
from federation.v1.scheduling_pb2 import (
    OUTCOME_UNSCHEDULABLE,
    WAIT_STATE_GATED,
    WAIT_STATE_UNSCHEDULABLE,
    GetBindingRequest,
    ListQueueRequest,
    RescheduleBindingRequest,
    ScheduleRequest,
    SuspendBindingRequest,
    WatchBindingsRequest,
)
from lab.control_planes import (
    AT_ANY_TIME,
    RunningControlPlane,
    refused,
    report,
    running_control_plane,
)
from lab.patience import PATIENCE_SECONDS
from tests.unit.rpc.test_scheduling import binding, scheduled


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with (
        running_control_plane(database_url, tmp_path) as found,
        found.connected("member1", report=report()),
    ):
        yield found


async def waiting(running: RunningControlPlane, name: str, priority: int = 0) -> Any:
    """A binding for which there is no room."""
    wanted = binding(name, replicas=1000, schedule_priority=SchedulePriority(priority=priority))
    answer = await scheduled(running, wanted)
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert answer.queued
    return answer


async def listed(running: RunningControlPlane, **fields: Any) -> Any:
    method = running.admin.scheduling.ListQueue
    return await running.admin.call(method, ListQueueRequest(**fields))


async def test_the_queue_is_paged_in_the_order_in_which_it_is_tried(
    running: RunningControlPlane,
) -> None:
    for name, priority in (("one", 0), ("two", 0), ("urgent", 9), ("three", 0)):
        await waiting(running, name, priority)
    names, token, versions = [], "", set()
    while True:
        page = await listed(running, page_size=2, page_token=token)
        names += [each.name for each in page.bindings]
        versions.add(page.resource_version)
        token = page.next_page_token
        if not token:
            break
    assert names == ["urgent", "one", "two", "three"]
    assert len(versions) == 1
    (urgent,) = (await listed(running, priority=9)).bindings
    assert (urgent.namespace, urgent.priority, urgent.wait.position) == ("shop", 9, 1)
    assert not (await listed(running, namespace="elsewhere")).bindings


async def test_a_binding_tells_how_it_waits(running: RunningControlPlane) -> None:
    answer = await waiting(running, "web")
    found = await running.admin.call(
        running.admin.scheduling.GetBinding, GetBindingRequest(namespace="shop", name="web")
    )
    wait = found.wait
    # What it asks for is new: the queue may have tried it once more by now.
    assert (wait.state, wait.position) == (WAIT_STATE_UNSCHEDULABLE, 1)
    assert wait.attempts in (1, 2)
    assert (wait.remainder, wait.short_of) == (1000, "cpu in 1 cluster")
    assert wait.HasField("since")
    assert not wait.HasField("next_try")
    assert not wait.HasField("overtaken_since")
    (queued,) = (await listed(running)).bindings
    wait.attempts = queued.wait.attempts
    assert queued.wait == wait
    assert queued.decision_id == answer.decision.id


async def test_a_preview_that_is_committed_waits_as_it_was_to(running: RunningControlPlane) -> None:
    await scheduled(running, binding("placed", replicas=1))
    for name, wait in (("web", True), ("placed", False)):
        wanted = binding(name, replicas=1000)
        preview = await scheduled(running, wanted, preview=True, wait=wait)
        request = ScheduleRequest(preview_token=preview.preview_token)
        for _ in range(2):
            answer = await running.admin.call(running.admin.scheduling.Schedule, request)
            assert answer.queued is wait
    assert [each.name for each in (await listed(running)).bindings] == ["web"]


def token(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"priority": 2**31}, "priority"),
        ({"priority": -(2**31) - 1}, "priority"),
        ({"page_size": 1001}, "pageSize"),
        ({"page_token": "nonsense"}, "pageToken"),
        ({"page_token": token("1-1", "x", "1.0", "", "")}, "pageToken"),
        ({"page_token": token("1-1", "1", "nan", "", "")}, "pageToken"),
        ({"page_token": token("1-1", "1", "1e300", "", "")}, "pageToken"),
        ({"page_token": token("1-1", str(2**40), "1.0", "", "")}, "pageToken"),
        ({"page_token": token("1-1", "1" * 5000, "1.0", "", "")}, "pageToken"),
        ({"namespace": "a\0b"}, "namespace"),
    ],
)
async def test_what_cannot_be_listed_is_refused(
    running: RunningControlPlane, fields: dict[str, Any], field: str
) -> None:
    refusal = await refused(listed(running, **fields))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert field in refusal.violations


async def test_a_watch_tells_how_bindings_wait(running: RunningControlPlane) -> None:
    await waiting(running, "web")
    await suspend(running, "web")
    stub = running.admin.scheduling
    call = stub.WatchBindings(WatchBindingsRequest(), metadata=running.admin.metadata)
    try:
        event = (await call.read()).events[0]
        assert event.binding.metadata.name == "web"
        assert (event.wait.state, event.wait.gate) == (WAIT_STATE_GATED, "suspended")
        await suspend(running, "web", resume=True)
        while event.wait.state != WAIT_STATE_UNSCHEDULABLE:
            events = (await asyncio.wait_for(call.read(), PATIENCE_SECONDS)).events
            event = events[0] if events[0].HasField("binding") else event
    finally:
        call.cancel()


async def suspend(running: RunningControlPlane, name: str, *, resume: bool = False) -> Any:
    request = SuspendBindingRequest(namespace="shop", name=name, resume=resume)
    return await running.admin.call(running.admin.scheduling.SuspendBinding, request)


async def test_a_binding_is_suspended_resumed_and_rescheduled(running: RunningControlPlane) -> None:
    await waiting(running, "web")
    answer = await suspend(running, "web")
    assert (answer.wait.state, answer.wait.gate) == (WAIT_STATE_GATED, "suspended")
    refusal = await refused(scheduled(running, binding("web", replicas=1)))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "SUSPENDED",
    )
    answer = await suspend(running, "web", resume=True)
    assert answer.wait.state == WAIT_STATE_UNSCHEDULABLE
    refusal = await refused(suspend(running, "web", resume=True))
    assert refusal.reason == "NOT_SUSPENDED"
    refusal = await refused(suspend(running, "nobody"))
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    assert "shop/nobody" in refusal.message
    method = running.admin.scheduling.RescheduleBinding
    request = RescheduleBindingRequest(namespace="shop", name="web")
    again = await running.admin.call(method, request)
    assert again.queued
    assert again.decision.outcome == OUTCOME_UNSCHEDULABLE
    for call in (suspend(running, ""), running.admin.call(method, RescheduleBindingRequest())):
        assert "name" in (await refused(call)).violations


@pytest.mark.parametrize("priority", [2**31, -(2**31) - 1])
async def test_a_priority_beyond_32_bits_is_refused_by_name_and_nothing_is_written(
    running: RunningControlPlane, priority: int
) -> None:
    refusal = await refused(waiting(running, "web", priority))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == {"spec.schedulePriority.priority"}
    assert not (await listed(running)).bindings
    get = GetBindingRequest(namespace="shop", name="web")
    refusal = await refused(running.admin.call(running.admin.scheduling.GetBinding, get))
    assert refusal.code is grpc.StatusCode.NOT_FOUND


async def test_what_waits_is_placed_as_soon_as_a_report_shows_room(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("member1", report=report(nodes=1)) as stream,
    ):
        answer = await scheduled(running, binding("web", replicas=8))
        assert answer.queued
        await stream.say(report=report(sequence=2, nodes=2))
        # The acknowledgement of the report may come before it, or after.
        while (told := await stream.next()).WhichOneof("message") != "place_request":
            assert told.WhichOneof("message") in AT_ANY_TIME | {"ack"}
        order = told.place_request
        assert (order.binding, order.shares[0].replicas) == ("shop/web", 8)
        found = await running.admin.call(
            running.admin.scheduling.GetBinding, GetBindingRequest(namespace="shop", name="web")
        )
        assert not found.HasField("wait")
        assert [(each.name, each.replicas) for each in found.binding.spec.clusters] == [
            ("member1", 8)
        ]
        assert found.decision.id == order.decision_id
        assert not (await listed(running)).bindings


async def test_a_gang_waits_at_one_place_and_wrong_ones_are_refused(
    running: RunningControlPlane,
) -> None:
    gang = Gang(name="train", size=2, timeout_seconds=3600)
    first = await scheduled(running, binding("one", replicas=1, gang=gang))
    assert first.queued
    (row,) = (await listed(running)).bindings
    assert (row.wait.gang, row.wait.gate) == ("train", "1 of 2 members of gang train is here")
    assert row.wait.times_out.seconds == row.wait.since.seconds + 3600
    assert not row.wait.timed_out
    for wrong, field in (
        (Gang(name="train", size=0), "spec.gang.size"),
        (Gang(name="train", size=3), "spec.gang.size"),
        (Gang(size=2), "spec.gang.name"),
        (Gang(name="train", size=2, timeout_seconds=0), "spec.gang.timeoutSeconds"),
    ):
        refusal = await refused(scheduled(running, binding("two", gang=wrong)))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert list(refusal.violations) == [field]
    assert len((await listed(running)).bindings) == 1
    await scheduled(running, binding("two", replicas=1000, gang=gang))
    page = await listed(running, page_size=1)
    rest = await listed(running, page_token=page.next_page_token)
    rows = [*page.bindings, *rest.bindings]
    assert [(each.name, each.wait.position) for each in rows] == [("one", 1), ("two", 1)]
    request = GetBindingRequest(namespace="shop", name="two")
    view = await running.admin.call(running.admin.scheduling.GetBinding, request)
    assert (view.wait.position, view.binding.spec.gang) == (1, gang)
    # Room for one, which is what the other one needs less of.
    answer = await scheduled(running, binding("two", replicas=1, gang=gang))
    assert not answer.queued
    assert not (await listed(running)).bindings
