"""Batches over the wire: order, bad items, limits, and answers that would be too large."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.rpc import batches
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profile, Profiles, Score
from federation.v1.resource_pb2 import Placement, ResourceBinding
from federation.v1.scheduling_pb2 import (
    OUTCOME_INVALID,
    OUTCOME_NO_FIT,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    ScheduleBatchItem,
    ScheduleBatchRequest,
    ScheduleRequest,
)
from lab.control_planes import RunningControlPlane, refused, report, running_control_plane
from tests.unit.rpc.test_scheduling import binding, decided, got


async def batch(
    running: RunningControlPlane, bindings: Iterable[ResourceBinding], *, atomic: bool = False
) -> Any:
    items = [ScheduleBatchItem(binding=each) for each in bindings]
    return await running.admin.call(
        running.admin.scheduling.ScheduleBatch, ScheduleBatchRequest(items=items, atomic=atomic)
    )


def with_priority(name: str, priority: int) -> ResourceBinding:
    wanted = binding(name)
    wanted.spec.schedule_priority.priority = priority
    return wanted


async def test_answers_come_in_order_and_decisions_by_priority(
    running: RunningControlPlane,
) -> None:
    # Eight cores: two of them have room for their three.
    async with running.connected("member1", report=report(nodes=2)):
        wanted = [with_priority("low", 1), with_priority("high", 9), with_priority("middle", 5)]
        results = (await batch(running, wanted)).results
        assert [each.decision.name for each in results] == ["low", "high", "middle"]
        outcomes = [each.decision.outcome for each in results]
        assert outcomes == [OUTCOME_UNSCHEDULABLE, OUTCOME_SCHEDULED, OUTCOME_SCHEDULED]
        stored = await got(running, "low")
        assert stored.decision.id == results[0].decision.id


async def test_a_bad_item_is_answered_with_its_violations(running: RunningControlPlane) -> None:
    broken = binding("broken", replicas=2**31)
    broken.spec.placement.tie_break = "coin"
    strange = binding("strange", scheduler_name="nobody")
    unnamed = binding("")
    good, bad, other, nameless = (
        await batch(running, [binding("good"), broken, strange, unnamed])
    ).results
    assert good.decision.outcome == OUTCOME_NO_FIT
    assert bad.decision.outcome == OUTCOME_INVALID
    assert (bad.decision.id, list(bad.decision.clusters)) == ("", [])
    assert bad.error_reason == "INVALID_REQUEST"
    assert {each.field for each in bad.violations} == {"spec.replicas", "spec.placement.tieBreak"}
    assert other.violations[0].rule == "must be one of default-scheduler, not 'nobody'"
    assert nameless.violations[0].field == "metadata.name"
    assert (await got(running, "good")).binding.metadata.name == "good"
    assert (await refused(got(running, "broken"))).code is grpc.StatusCode.NOT_FOUND


async def test_of_an_atomic_batch_all_are_placed_or_none(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report(nodes=2)):
        wanted = [binding("a"), binding("b"), binding("c")]
        first, second, third = (await batch(running, wanted, atomic=True)).results
        assert third.decision.outcome == OUTCOME_UNSCHEDULABLE
        assert (third.error_reason, third.decision.id) == ("", "")
        for each, name in ((first, "a"), (second, "b")):
            assert each.decision.outcome == OUTCOME_UNSCHEDULABLE
            assert (each.error_reason, each.decision.name) == ("NOT_PLACED_TOGETHER", name)
            assert "items[2] (shop/c) of the same atomic batch" in each.decision.reason
            assert (await refused(got(running, name))).code is grpc.StatusCode.NOT_FOUND
        first, broken = (
            await batch(running, [binding("a"), binding("b", replicas=-1)], atomic=True)
        ).results
        assert broken.decision.outcome == OUTCOME_INVALID
        assert [each.field for each in broken.violations] == ["spec.replicas"]
        assert first.error_reason == "NOT_PLACED_TOGETHER"
        for each in (await batch(running, wanted[:2], atomic=True)).results:
            assert each.decision.outcome == OUTCOME_SCHEDULED
            stored = await got(running, each.decision.name)
            assert stored.decision.id == each.decision.id


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("count", [0, batches.MAX_ITEMS + 1])
async def test_a_batch_has_a_limit(
    running: RunningControlPlane, count: int, *, atomic: bool
) -> None:
    refusal = await refused(batch(running, [ResourceBinding()] * count, atomic=atomic))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refusal.violations == {"items": f"must be 1 to 1000, not {count}"}


async def test_a_full_answer_leaves_clusters_to_be_read(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "FULL_BYTES", 0)
    everywhere = binding("everywhere")
    everywhere.spec.placement.CopyFrom(Placement())
    async with running.connected("member1", report=report()):
        (result,) = (await batch(running, [everywhere])).results
        assert (result.clusters_omitted, list(result.decision.clusters)) == (True, [])
        assert result.decision.outcome == OUTCOME_SCHEDULED
        decision = await decided(running, result.decision.id)
        assert [each.name for each in decision.clusters] == ["member1"]


async def test_a_thousand_wrong_items_are_answered_at_once(running: RunningControlPlane) -> None:
    wrong = binding("x" * 1500)
    for number in range(30):
        wrong.metadata.labels[f"{number}\0"] = "v" * 10
    results = (await batch(running, [wrong] * batches.MAX_ITEMS)).results
    assert len(results) == batches.MAX_ITEMS
    assert all(each.decision.outcome == OUTCOME_INVALID for each in results)
    assert all(each.violations for each in results)


def know_nothing(state: Any) -> Any:
    raise LookupError(f"nothing is known of {state.binding.name}")


def failing() -> Profile:
    score = Score(name="Flaky", run=know_nothing, weight=1)
    return Profile(name="flaky", filters=DEFAULT_PROFILE.filters, scores=(score,))


async def test_a_plugin_that_fails_is_named_and_harms_its_own_binding_only(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiles = Profiles.of([failing()])
    async with running_control_plane(database_url, tmp_path, profiles) as running:
        flaky = binding("flaky", scheduler_name="flaky")
        good, bad = (await batch(running, [binding("good"), flaky])).results
        assert good.decision.outcome == OUTCOME_NO_FIT
        assert (bad.decision.outcome, bad.error_reason) == (OUTCOME_INVALID, "PLUGIN_FAILED")
        assert bad.decision.reason == (
            "The scheduler plugin Flaky failed: it raised LookupError: “nothing is known of flaky”."
        )
        (record,) = [each for each in caplog.records if each.msg == "scheduler plugin failed"]
        assert record.exc_info is not None
        assert record.exc_info[0] is LookupError
        alone = running.admin.call(
            running.admin.scheduling.Schedule, ScheduleRequest(binding=flaky)
        )
        refusal = await refused(alone)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "PLUGIN_FAILED",
        )
        assert "Flaky" in refusal.message
