"""Suspend, resume, reschedule: what people say of one binding of the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.access import EVERYTHING
from federation.model.errors import NotFound, PreconditionFailed
from federation.model.waiting import WaitState
from federation.scheduler.decision import Outcome
from federation.services.fleet.registry import FleetOwner
from federation.services.members.reports import Reporting
from federation.services.waiting.steering import Queueing
from federation.store.postgres import PostgresStore
from lab.services import WEB, Deciders, apply, make_report, shares
from tests.unit.services.conftest import only, rows

LARGE = replace(WEB, name="large", uid="", replicas=1000)


@pytest.fixture
def queueing(store: PostgresStore, fleet: FleetOwner, deciders: Deciders) -> Queueing:
    return Queueing(store, fleet, deciders.pipeline)


async def test_what_is_suspended_is_gated_and_cannot_be_decided(
    queueing: Queueing, deciders: Deciders, engine: AsyncEngine
) -> None:
    refused = await apply(deciders.scheduling, LARGE)
    wait = await queueing.suspend("shop", "large")
    assert (wait.state, wait.gate, wait.attempts) == (WaitState.GATED, "suspended", 1)
    assert wait.remainder == 1000
    for _ in range(2):
        with pytest.raises(PreconditionFailed, match="resume it first"):
            await apply(deciders.scheduling, replace(LARGE, replicas=1))
        with pytest.raises(PreconditionFailed, match="resume it first"):
            await queueing.reschedule("shop", "large")
        # Suspended twice it is once.
        assert await queueing.suspend("shop", "large") == wait
    assert await rows(engine, "decision") == 1
    resumed = await queueing.resume("shop", "large")
    assert resumed is not None
    assert resumed == replace(wait, state=WaitState.UNSCHEDULABLE, gate="")
    view = await deciders.scheduling.get_binding("shop", "large")
    assert view.record is not None
    assert view.record.id == refused.record.id
    assert not (await apply(deciders.scheduling, replace(LARGE, replicas=1))).queued


async def test_what_runs_stays_where_it_is_while_it_is_suspended(
    queueing: Queueing, deciders: Deciders
) -> None:
    placed = await apply(deciders.scheduling, WEB)
    await queueing.suspend("shop", "web")
    view = await deciders.scheduling.get_binding("shop", "web")
    assert view.binding.clusters == placed.record.decision.clusters
    assert view.wait is not None
    assert (view.wait.state, view.position) == (WaitState.GATED, 0)
    # It waited for nothing before.
    assert await queueing.resume("shop", "web") is None
    assert (await deciders.scheduling.get_binding("shop", "web")).wait is None


async def test_a_preview_of_what_was_suspended_since_is_not_committed(
    queueing: Queueing, deciders: Deciders
) -> None:
    await apply(deciders.scheduling, WEB)
    smaller = replace(WEB, replicas=2)
    preview = await deciders.previews.preview(smaller, adopt=False, wait=True)
    await queueing.suspend("shop", "web")
    with pytest.raises(PreconditionFailed, match="suspended meanwhile"):
        await deciders.previews.commit(preview.token, None, EVERYTHING)


async def test_a_suspended_binding_can_be_deleted(queueing: Queueing, deciders: Deciders) -> None:
    await apply(deciders.scheduling, LARGE)
    await queueing.suspend("shop", "large")
    await deciders.scheduling.delete_binding("shop", "large")
    with pytest.raises(NotFound):
        await queueing.resume("shop", "large")


async def test_what_is_rescheduled_is_divided_anew_as_it_is_stored(
    queueing: Queueing, deciders: Deciders, reporting: Reporting
) -> None:
    elsewhere = replace(only("b", 3), name="elsewhere", uid="")
    await apply(deciders.scheduling, elsewhere)
    placed = await apply(deciders.scheduling, replace(WEB, replicas=8))
    assert shares(placed.record.decision.clusters)["a"] > 4
    await deciders.scheduling.delete_binding("shop", "elsewhere")
    await reporting.accept("b", make_report(7, cpu_millis=60_000))
    moved = await queueing.reschedule("shop", "web", "uid-web")
    assert moved.record.decision.outcome is Outcome.SCHEDULED
    assert shares(moved.record.decision.clusters)["b"] > 4
    assert moved.binding is not None
    assert (moved.binding.replicas, moved.binding.fresh) == (8, False)


@pytest.mark.parametrize("act", ["suspend", "resume", "reschedule"])
async def test_who_leaves_out_the_kind_is_told_which_binding_may_be_meant(
    queueing: Queueing, deciders: Deciders, act: str
) -> None:
    await apply(deciders.scheduling, replace(WEB, name="web-deployment"))
    with pytest.raises(NotFound, match=r"'shop/web'\. Is it 'shop/web-deployment'\?"):
        await getattr(queueing, act)("shop", "web")


@pytest.mark.parametrize("act", ["suspend", "resume", "reschedule"])
async def test_what_is_not_there_or_is_another_is_refused(
    queueing: Queueing, deciders: Deciders, engine: AsyncEngine, act: str
) -> None:
    method = getattr(queueing, act)
    with pytest.raises(NotFound, match="There is no binding 'shop/nobody'"):
        await method("shop", "nobody")
    await apply(deciders.scheduling, WEB)
    with pytest.raises(PreconditionFailed, match="uid-web"):
        await method("shop", "web", "another")
    if act == "resume":
        with pytest.raises(PreconditionFailed, match="is not suspended"):
            await method("shop", "web")
    assert await rows(engine, "waiting") == 0
    assert await rows(engine, "decision") == 1
