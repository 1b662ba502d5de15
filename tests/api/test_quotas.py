"""Namespace quotas: nobody passes one, however many ask at once, and who waits is let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest_asyncio

from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, OUTCOME_UNSCHEDULABLE
from lab.control_planes import Caller, Plane, refused, report
from lab.patience import until
from tests.api.calls import OPERATOR, SCHEDULER, in_namespace, made, paged, scheduled


@pytest_asyncio.fixture(loop_scope="module")
async def fleet(api: Plane) -> AsyncIterator[Plane]:
    async with api.connected("eu-1", report=report(nodes=50)):
        yield api


async def set_quota(caller: Any, namespace: str, **fields: Any) -> None:
    await caller.ask("SetQuota", quota={"namespace": namespace, **fields})


async def quota_of(api: Plane, namespace: str = "shop") -> Any:
    quotas = {each.namespace: each for each in (await api.ask("ListQuotas")).quotas}
    return quotas.get(namespace)


async def queued(api: Plane) -> list[Any]:
    return list((await api.ask("ListQueue")).bindings)


async def until_used(api: Plane, replicas: int, waiting: int) -> None:
    async def now() -> tuple[int, int]:
        used = (await quota_of(api)).used_replicas
        assert used <= replicas
        return used, len(await queued(api))

    await until(now, lambda found: found == (replicas, waiting))


async def test_concurrent_callers_cannot_pass_a_quota_together(fleet: Plane, other: Plane) -> None:
    callers = [fleet.admin, Caller(other.channel, None)]
    callers[1].metadata = callers[0].metadata
    bank = in_namespace("bank")
    await until(
        lambda: scheduled(callers[1], bank, preview=True),
        lambda shown: shown.decision.outcome == OUTCOME_SCHEDULED,
    )
    await set_quota(fleet, "shop", replicas=10, resources={"cpu": "1000"})
    names = [f"cart-{number}" for number in range(40)]
    wanted = [in_namespace("shop", name, 1) for name in names]
    wanted += [in_namespace("bank", f"b{number}", 1) for number in (0, 1)]
    answers = await asyncio.gather(
        *(scheduled(callers[number % 2], each) for number, each in enumerate(wanted))
    )
    outcomes = [answer.decision.outcome for answer in answers]
    assert outcomes[-2:] == [OUTCOME_SCHEDULED] * 2
    assert outcomes[:-2].count(OUTCOME_SCHEDULED) == 10
    held_up = [each for each in answers if each.decision.outcome == OUTCOME_UNSCHEDULABLE]
    assert len(held_up) == 30
    assert all(answer.queued for answer in held_up)
    why = "short of quota of namespace shop: replicas 11 of 10"
    assert {answer.decision.reason for answer in held_up} == {why}
    assert {each.wait.short_of for each in await queued(fleet)} == {why.removeprefix("short of ")}
    shop = await quota_of(fleet)
    assert (shop.used_replicas, shop.replicas, dict(shop.resources)) == (10, 10, {"cpu": "1000"})

    # What leaves lets the next one in, and a higher quota more.
    placed = [names[number] for number in range(40) if outcomes[number] == OUTCOME_SCHEDULED]
    await fleet.ask("DeleteBinding", namespace="shop", name=placed[0])
    await until_used(fleet, 10, waiting=29)
    await set_quota(callers[1], "shop", replicas=25)
    await until_used(fleet, 25, waiting=14)
    # One that is lower takes nothing away, and lets nothing grow; what shrinks may.
    await set_quota(fleet, "shop", replicas=5)
    grown = await scheduled(fleet, in_namespace("shop", placed[1], 2), wait=False)
    assert grown.decision.outcome == OUTCOME_UNSCHEDULABLE
    reason = "short of quota of namespace shop: replicas 26 of 5"
    assert grown.decision.reason.startswith(reason)
    await scheduled(fleet, in_namespace("shop", placed[1], 1))
    await set_quota(fleet, "shop")
    assert await quota_of(fleet) is None
    await until(lambda: queued(fleet), lambda rows: not rows)


async def test_a_quota_counts_resources_previews_and_batches(fleet: Plane) -> None:
    shown = await scheduled(fleet, in_namespace("shop", "shown", 3), preview=True)
    assert shown.decision.outcome == OUTCOME_SCHEDULED
    await set_quota(fleet, "shop", resources={"cpu": "1"})
    late = await refused(fleet.ask("Schedule", preview_token=shown.preview_token))
    assert "others took of the quota of its namespace" in late.message
    items = [{"binding": in_namespace("shop", f"item-{number}", 1)} for number in range(2)]
    answer = await fleet.ask("ScheduleBatch", items=items, atomic=True)
    assert not any(each.decision.outcome == OUTCOME_SCHEDULED for each in answer.results)
    assert "quota of namespace shop: cpu" in str(answer)
    assert (await quota_of(fleet)).used_resources["cpu"] == "0"
    answer = await fleet.ask("ScheduleBatch", items=items[:1], atomic=True)
    assert answer.results[0].decision.outcome == OUTCOME_SCHEDULED
    assert (await quota_of(fleet)).used_resources["cpu"] == "1"


async def test_who_may_set_and_see_a_quota(api: Plane) -> None:
    for role in (SCHEDULER, OPERATOR):
        caller, _ = await made(api, role)
        refusal = await refused(set_quota(caller, "shop", replicas=1))
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
    await set_quota(api, "bank", replicas=1)
    # Refusals are recorded a moment after they are told.
    newest = (await api.ask("ListAudit", page_size=10)).records
    assert ("Access/SetQuota", ["bank"]) in [(one.method, list(one.objects)) for one in newest]
    for number in range(3):
        await set_quota(api, f"shop-{number}", replicas=number)
    caller, _ = await made(api, SCHEDULER, namespaces=["shop-*"])
    rows = await paged(caller, "ListQuotas", "quotas", 2)
    assert [each.namespace for each in rows] == ["shop-0", "shop-1", "shop-2"]
