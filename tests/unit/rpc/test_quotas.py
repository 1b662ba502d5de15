"""Namespace quotas: nobody passes one, however many ask at once, and who waits is let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.v1 import access_pb2, scheduling_pb2
from lab.control_planes import (
    SECONDS,
    Caller,
    RunningControlPlane,
    refused,
    report,
    running_control_plane,
)
from tests.unit.rpc.test_access import OPERATOR, SCHEDULER, access, in_namespace, made, scheduled

SCHEDULED, UNSCHEDULABLE = (
    scheduling_pb2.OUTCOME_SCHEDULED,
    scheduling_pb2.OUTCOME_UNSCHEDULABLE,
)


@pytest.fixture
async def planes(
    database_url: str, tmp_path: Path
) -> AsyncIterator[tuple[RunningControlPlane, RunningControlPlane]]:
    async with (
        running_control_plane(database_url, tmp_path) as first,
        running_control_plane(database_url, tmp_path) as second,
        first.connected("eu-1", report=report(nodes=50)),
    ):
        yield first, second


async def set_quota(caller: Caller, namespace: str, **fields: Any) -> Any:
    quota = access_pb2.Quota(namespace=namespace, **fields)
    return (await access(caller, "SetQuota", access_pb2.SetQuotaRequest(quota=quota))).quota


async def quotas(caller: Caller) -> dict[str, Any]:
    answer = await access(caller, "ListQuotas", access_pb2.ListQuotasRequest())
    return {each.namespace: each for each in answer.quotas}


async def queue(caller: Caller) -> Any:
    asked = scheduling_pb2.ListQueueRequest()
    return (await caller.call(caller.scheduling.ListQueue, asked)).bindings


async def until_seen(caller: Caller) -> None:
    """Until its control plane knows the cluster as the other one does."""
    async with asyncio.timeout(SECONDS):
        while True:
            shown = await scheduled(caller, in_namespace("bank"), preview=True)
            if shown.decision.outcome == SCHEDULED:
                return
            await asyncio.sleep(0.05)


async def until_used(caller: Caller, replicas: int, waiting: int) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            used = (await quotas(caller))["shop"].used_replicas
            assert used <= replicas
            if used == replicas and len(await queue(caller)) == waiting:
                return
            await asyncio.sleep(0.05)


async def test_concurrent_callers_cannot_pass_a_quota_together(
    planes: tuple[RunningControlPlane, RunningControlPlane],
) -> None:
    first, second = planes
    admin = first.admin
    callers = [admin, second.caller(str(admin.metadata[0][1]).removeprefix("Bearer "))]
    await until_seen(callers[1])
    await set_quota(admin, "shop", replicas=10, resources={"cpu": "1000"})
    names = [f"cart-{number}" for number in range(40)]
    answers = await asyncio.gather(
        *(
            scheduled(callers[number % 2], in_namespace("shop", name, 1))
            for number, name in enumerate(names)
        ),
        *(
            scheduled(callers[number % 2], in_namespace("bank", f"b{number}", 1))
            for number in (0, 1)
        ),
    )
    outcomes = [answer.decision.outcome for answer in answers]
    assert outcomes[-2:] == [SCHEDULED, SCHEDULED]
    assert sorted(outcomes[:-2]) == sorted([SCHEDULED] * 10 + [UNSCHEDULABLE] * 30)
    held_up = [answer for answer in answers if answer.decision.outcome == UNSCHEDULABLE]
    assert {answer.queued for answer in held_up} == {True}
    why = "short of quota of namespace shop: replicas 11 of 10"
    assert {answer.decision.reason for answer in held_up} == {why}
    assert {each.wait.short_of for each in await queue(admin)} == {why.removeprefix("short of ")}
    shop = (await quotas(admin))["shop"]
    assert (shop.used_replicas, shop.replicas, dict(shop.resources)) == (10, 10, {"cpu": "1000"})

    # What leaves lets the next one in, and a higher quota more.
    placed = [names[number] for number in range(40) if outcomes[number] == SCHEDULED]
    await admin.call(
        admin.scheduling.DeleteBinding,
        scheduling_pb2.DeleteBindingRequest(namespace="shop", name=placed[0]),
    )
    await until_used(admin, 10, waiting=29)
    await set_quota(callers[1], "shop", replicas=25)
    await until_used(admin, 25, waiting=14)
    # One that is lower takes nothing away, and lets nothing grow; what shrinks may.
    await set_quota(admin, "shop", replicas=5)
    grown = await refused_growth(admin, placed[1])
    assert grown.startswith("short of quota of namespace shop: replicas 26 of 5")
    await set_quota(admin, "shop")
    assert await quotas(admin) == {}
    async with asyncio.timeout(SECONDS):
        while True:
            if not await queue(admin):
                break
            await asyncio.sleep(0.05)


async def refused_growth(admin: Caller, name: str) -> str:
    """Why one that was placed may not have another replica."""
    answer = await scheduled(admin, in_namespace("shop", name, 2), wait=False)
    assert answer.decision.outcome == UNSCHEDULABLE
    await scheduled(admin, in_namespace("shop", name, 1))
    return str(answer.decision.reason)


async def test_a_quota_counts_resources_previews_and_batches(
    planes: tuple[RunningControlPlane, RunningControlPlane],
) -> None:
    first, _ = planes
    admin = first.admin
    shown = await scheduled(admin, in_namespace("shop", "shown", 3), preview=True)
    assert shown.decision.outcome == SCHEDULED
    asked = in_namespace("shop", "x").spec.replica_requirements.resource_request["cpu"]
    await set_quota(admin, "shop", resources={"cpu": asked})
    request = scheduling_pb2.ScheduleRequest(preview_token=shown.preview_token)
    late = await refused(admin.call(admin.scheduling.Schedule, request))
    assert "others took of the quota of its namespace" in late.message
    items = [
        scheduling_pb2.ScheduleBatchItem(binding=in_namespace("shop", f"item-{number}", 1))
        for number in range(2)
    ]
    batch = scheduling_pb2.ScheduleBatchRequest(items=items, atomic=True)
    answer = await admin.call(admin.scheduling.ScheduleBatch, batch)
    assert not any(each.decision.outcome == SCHEDULED for each in answer.results)
    assert "quota of namespace shop: cpu" in str(answer)
    assert (await quotas(admin))["shop"].used_resources["cpu"] == "0"
    batch.items.pop()
    answer = await admin.call(admin.scheduling.ScheduleBatch, batch)
    assert answer.results[0].decision.outcome == SCHEDULED
    assert (await quotas(admin))["shop"].used_resources["cpu"] == asked


async def test_who_may_set_and_see_a_quota(
    planes: tuple[RunningControlPlane, RunningControlPlane],
) -> None:
    first, _ = planes
    for role in (SCHEDULER, OPERATOR):
        caller, _ = await made(first, role)
        refusal = await refused(set_quota(caller, "shop", replicas=1))
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
    await set_quota(first.admin, "shop", replicas=1)
    asked = access_pb2.ListAuditRequest()
    newest = (await access(first.admin, "ListAudit", asked)).records[0]
    assert (newest.method, list(newest.objects)) == ("Access/SetQuota", ["shop"])
    await set_quota(first.admin, "shop")
    for number in range(3):
        await set_quota(first.admin, f"shop-{number}", replicas=number)
    await set_quota(first.admin, "bank", replicas=1)
    caller, _ = await made(first, SCHEDULER, namespaces=["shop-*"])
    asked = access_pb2.ListQuotasRequest(page_size=2)
    page = await access(caller, "ListQuotas", asked)
    asked.page_token = page.next_page_token
    rest = await access(caller, "ListQuotas", asked)
    seen = [each.namespace for each in (*page.quotas, *rest.quotas)]
    assert (seen, rest.next_page_token) == (["shop-0", "shop-1", "shop-2"], "")
    wrong = await refused(
        set_quota(first.admin, "Shop", replicas=-1, resources={"cpu": "-1", "a b": "1"})
    )
    assert wrong.code is grpc.StatusCode.INVALID_ARGUMENT
    assert {"quota.namespace", "quota.replicas"} <= wrong.violations.keys()
    assert any(field.startswith("quota.resources") for field in wrong.violations)
