"""What finds too little room waits, in whole or in part."""

from __future__ import annotations

from dataclasses import replace

from federation.model.waiting import WaitState
from federation.scheduler.decision import Outcome
from federation.services.scheduling.bindings import Scheduling
from lab.services import WEB, apply, decided, shares


async def test_what_finds_no_room_waits_until_it_has_some(scheduling: Scheduling) -> None:
    refused = await apply(scheduling, replace(WEB, replicas=1000))
    assert refused.queued
    view = await scheduling.get_binding("shop", "web")
    assert view.wait is not None
    assert (view.wait.state, view.wait.attempts, view.position) == (WaitState.UNSCHEDULABLE, 1, 1)
    assert view.wait.remainder == 1000
    assert "cpu" in view.wait.short_of
    assert "short of" not in view.wait.short_of
    assert (await apply(scheduling, WEB)).queued is False
    view = await scheduling.get_binding("shop", "web")
    assert (view.wait, view.position) == (None, 0)


async def test_what_is_left_of_a_partial_placement_waits(scheduling: Scheduling) -> None:
    partial = replace(WEB, replicas=1000, placement=replace(WEB.placement, partial=True))
    placed = await apply(scheduling, partial)
    assert placed.record.decision.outcome is Outcome.PARTIAL
    assert placed.queued
    view = await scheduling.get_binding("shop", "web")
    assert view.wait is not None
    assert view.wait.remainder == placed.record.decision.remainder


async def test_a_placed_binding_that_finds_no_room_to_grow_waits_where_it_is(
    scheduling: Scheduling,
) -> None:
    placed = await apply(scheduling, WEB)
    grown = await apply(scheduling, replace(WEB, replicas=1000))
    assert grown.queued
    view = await scheduling.get_binding("shop", "web")
    assert view.wait is not None
    assert shares(view.binding.clusters) == decided(placed)
