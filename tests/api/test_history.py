"""Decisions are listed over the wire, by what they decided about, where, when and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.history.replays import ReplayEnd, replayed_frame
from federation.history.trace_files import TraceFile
from federation.rpc import pages
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.services import history
from federation.simulation.changes import WhatIfChange
from federation.simulation.what_if_runs import played, windows_of
from federation.v1.resource_pb2 import Gang
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    Decision,
    ReplayDecisionResponse,
)
from lab.control_planes import Plane, refused, report
from tests.api.calls import binding, paged, scheduled


async def listed(api: Plane, **fields: Any) -> list[Decision]:
    return await paged(api, "ListDecisions", "decisions", fields.pop("page_size", 500), **fields)


def names(decisions: list[Decision]) -> list[str]:
    return [each.name for each in decisions]


async def test_decisions_are_listed(fresh: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    async with fresh.connected("member1", report=report()):
        first = (await scheduled(fresh, binding("a", replicas=2))).decision
        second = (await scheduled(fresh, binding("a", replicas=3))).decision
        await scheduled(fresh, binding("b", replicas=1000))
    everything = await listed(fresh)
    assert names(everything) == ["b", "a", "a"]
    assert everything[1].id == second.id
    assert everything[1].triggers == ["replicas changed"]
    assert everything[2].triggers == first.triggers == ["the binding is new"]
    assert [(each.name, each.replicas) for each in everything[2].clusters] == [("member1", 2)]
    assert not any(each.HasField("trace") or each.promises for each in everything)
    assert await listed(fresh, page_size=1) == everything
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1)
    assert await listed(fresh) == everything
    assert names(await listed(fresh, namespace="shop", name="a")) == ["a", "a"]
    assert names(await listed(fresh, name="a")) == []
    assert names(await listed(fresh, namespace="elsewhere")) == []
    assert names(await listed(fresh, cluster="member1", page_size=1)) == ["a", "a"]
    assert names(await listed(fresh, outcomes=[OUTCOME_UNSCHEDULABLE])) == ["b"]
    both = [OUTCOME_UNSCHEDULABLE, OUTCOME_SCHEDULED]
    assert names(await listed(fresh, outcomes=both)) == ["b", "a", "a"]
    at = second.create_time
    assert names(await listed(fresh, since=at)) == ["b", "a"]
    assert names(await listed(fresh, until=at)) == ["a"]
    last = Timestamp(seconds=253_402_300_799, nanos=999_999_999)
    assert names(await listed(fresh, since=last)) == []
    assert names(await listed(fresh, since=Timestamp(seconds=-62_135_596_800), until=last)) == [
        *("b", "a", "a")
    ]


async def replayed(api: Plane, decision_id: str) -> ReplayDecisionResponse:
    answer: ReplayDecisionResponse = await api.ask("ReplayDecision", id=decision_id)
    return answer


async def exported(api: Plane, path: Path, **fields: Any) -> TraceFile:
    """A trace file as a client that knows nothing of its format writes it."""
    content, token = b"", ""
    while not content or token:
        piece = await api.ask("ExportTrace", page_token=token, **fields)
        content += piece.content
        token = piece.next_page_token
    path.write_bytes(content)  # noqa: ASYNC240 - a small file of the test's own
    return TraceFile.opened(path)


async def assert_exported(
    api: Plane,
    decisions: list[Decision],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them are in a file, whatever its pieces, and replay equal from it alone."""
    path = tmp_path / "decisions.trace"
    for most_bytes in (history.TRACES_AT_ONCE, 1):
        monkeypatch.setattr(history, "TRACES_AT_ONCE", most_bytes)
        trace = await exported(api, path)
        kept = [each for chunk in trace.chunks() for each in chunk.decisions]
        assert [each.id for each in kept] == [each.id for each in reversed(decisions)]
        for frame in trace.frames:
            replay = replayed_frame(trace, DEFAULT_PROFILES, frame)
            assert replay.ends == {ReplayEnd.EQUAL: frame.decisions}, replay
        assert as_it_was(trace) == len(decisions)
    assert len(trace.frames) == len(decisions)
    since = decisions[4].create_time
    trace = await exported(api, path, since=since, until=decisions[1].create_time)
    assert trace.decisions == 3
    assert trace.header.since == pytest.approx(since.ToNanoseconds() / 1e9)
    assert (await exported(api, path, until=Timestamp(seconds=1))).decisions == 0


def as_it_was(trace: TraceFile) -> int:
    """With nothing changed the same comes out, decision by decision: how many."""
    (window,) = windows_of(trace, 0)
    came = played(trace, WhatIfChange(), DEFAULT_PROFILES, window)
    assert (came.different, came.skipped, came.retried) == (0, 0, 0), came
    return came.decisions


async def test_every_decision_replays_equal_and_shares_what_it_was_made_on(
    fresh: Plane,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fresh.connected("member1", report=report()):
        for replicas in (2, 3, 1000, 4):
            await scheduled(fresh, binding("a", replicas=replicas))
        # Twice as many do not fit into one cluster: nothing is placed, and says what is scarce.
        nowhere = binding("b", replicas=1000)
        nowhere.spec.placement.replica_scheduling.replica_scheduling_type = "Duplicated"
        await scheduled(fresh, nowhere)
        shown = await scheduled(fresh, binding("c", replicas=1), preview=True)
        await scheduled(fresh, None, preview_token=shown.preview_token)
        elsewhere = binding("d")
        elsewhere.spec.placement.cluster_affinity.cluster_names.append("gone")
        await scheduled(fresh, elsewhere)
        # One of a gang waits for the other, and then is not placed because that one is not.
        for name, replicas in (("one", 1), ("two", 1000)):
            gang = Gang(name="pair", size=2)
            await scheduled(fresh, binding(name, replicas=replicas, gang=gang))
    decisions = await listed(fresh)
    assert len(decisions) == 10
    assert [each.reason.split(";")[0] for each in decisions if each.name == "one"] == [
        "two of gang pair was not placed",
        "1 of 2 members of gang pair is here",
    ]
    assert any("there is no room for the shares" in each.reason for each in decisions)
    await assert_exported(fresh, decisions, tmp_path, monkeypatch)
    for decision in decisions:
        replay = await replayed(fresh, decision.id)
        assert replay.equal, (decision, replay)
        assert replay.stored_sha256 == replay.replayed_sha256
        assert replay.outcome == decision.outcome
        assert list(replay.clusters) == list(decision.clusters)
        assert replay.stored_revision == replay.replayed_revision == decision.algorithm_revision
    # The profile, the fleet, and its clusters.
    ((inputs,),) = await fresh.sql("SELECT count(*) FROM decision_input")
    assert inputs == 3
    changing = "UPDATE decision SET remainder = remainder + 1 WHERE id = $1"
    await fresh.sql(changing, decisions[0].id)
    changed = await replayed(fresh, decisions[0].id)
    assert not changed.equal
    assert changed.first_difference.path == "remainder"
    await fresh.sql("DELETE FROM decision_input")
    refusal = await refused(replayed(fresh, decisions[0].id))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "INPUTS_FORGOTTEN",
    )


async def test_who_takes_room_from_others_replays_and_a_loss_does_not(
    fresh: Plane, tmp_path: Path
) -> None:
    async with fresh.connected("member1", report=report()):
        full = (await scheduled(fresh, binding("low", replicas=16))).decision
        assert full.outcome == OUTCOME_SCHEDULED
        urgent = binding("urgent", replicas=4, preemption_policy="PreemptLowerPriority")
        urgent.spec.schedule_priority.priority = 10
        await scheduled(fresh, urgent)
    (taken, *_) = await listed(fresh, name="urgent", namespace="shop")
    assert taken.outcome == OUTCOME_SCHEDULED
    assert (await replayed(fresh, taken.id)).equal
    about_low = await listed(fresh, name="low", namespace="shop")
    (lost,) = [each for each in about_low if "preempted by shop/urgent" in each.reason]
    refusal = await refused(replayed(fresh, lost.id))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "INPUTS_NOT_KEPT",
    )
    await fresh.ask("DeleteBinding", namespace="shop", name="low")
    await scheduled(fresh, binding("later"))
    trace = await exported(fresh, tmp_path / "losses.trace")
    assert as_it_was(trace) == len(await listed(fresh)) >= 4
    deleted = [each.name for chunk in trace.chunks() for each in chunk.deletions]
    assert deleted == ["low"]
