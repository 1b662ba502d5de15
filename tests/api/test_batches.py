"""Batches over the wire: order, bad items, limits, and answers that would be too large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.operations import scheduling as batches
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profile, Profiles, Score
from federation.v1.resource_pb2 import Placement, ResourceBinding
from federation.v1.scheduling_pb2 import (
    OUTCOME_INVALID,
    OUTCOME_NO_FIT,
    OUTCOME_SCHEDULED,
)
from lab.control_planes import AgentStream, Plane, refused, running_control_plane
from tests.api.calls import binding, decided, scheduled, shares


async def batch(api: Plane, *bindings: ResourceBinding, atomic: bool = False) -> list[Any]:
    items = [{"binding": each} for each in bindings]
    return list((await api.ask("ScheduleBatch", items=items, atomic=atomic)).results)


async def test_a_full_answer_leaves_clusters_to_be_read(
    api: Plane, member1: AgentStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "FULL_BYTES", 0)
    everywhere = binding("everywhere")
    everywhere.spec.placement.CopyFrom(Placement())
    (result,) = await batch(api, everywhere)
    assert (result.clusters_omitted, list(result.decision.clusters)) == (True, [])
    assert result.decision.outcome == OUTCOME_SCHEDULED
    assert shares(await decided(api, result.decision.id)).keys() == {"member1"}


async def test_a_thousand_wrong_items_are_answered_at_once(api: Plane) -> None:
    wrong = binding("x" * 1500)
    for number in range(30):
        wrong.metadata.labels[f"{number}\0"] = "v" * 10
    results = await batch(api, *[wrong] * batches.MAX_ITEMS)
    assert len(results) == batches.MAX_ITEMS
    assert all(each.decision.outcome == OUTCOME_INVALID and each.violations for each in results)


def know_nothing(state: Any) -> Any:
    raise LookupError(f"nothing is known of {state.binding.name}")


def failing() -> Profile:
    score = Score(name="Flaky", run=know_nothing, weight=1)
    return Profile(name="flaky", filters=DEFAULT_PROFILE.filters, scores=(score,))


async def test_a_plugin_that_fails_is_named_and_harms_its_own_binding_only(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_control_plane(database_url, tmp_path, Profiles.of([failing()])) as api:
        flaky = binding("flaky", scheduler_name="flaky")
        good, bad = await batch(api, binding("good"), flaky)
        assert good.decision.outcome == OUTCOME_NO_FIT
        assert (bad.decision.outcome, bad.error_reason) == (OUTCOME_INVALID, "PLUGIN_FAILED")
        assert bad.decision.reason == (
            "The scheduler plugin Flaky failed: it raised LookupError: “nothing is known of flaky”."
        )
        (record,) = [each for each in caplog.records if each.msg == "scheduler plugin failed"]
        assert record.exc_info is not None
        assert record.exc_info[0] is LookupError
        refusal = await refused(scheduled(api, flaky))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert (refusal.reason, "Flaky" in refusal.message) == ("PLUGIN_FAILED", True)
        # So it is in a simulation, whose profiles are the server's.
        nowhere = {"metadata": {"name": "m1"}}
        refusal = await refused(api.ask("Simulate", clusters=[nowhere], bindings=[flaky]))
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "PLUGIN_FAILED",
        )
