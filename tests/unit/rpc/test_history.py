"""Decisions are listed over the wire, by what they decided about, where, when and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.history.changes import WhatIfChange
from federation.history.replays import ReplayEnd, replayed_frame
from federation.history.trace_files import TraceFile
from federation.history.windows import played, windows_of
from federation.rpc import pages
from federation.scheduler.plugins.profile import DEFAULT_PROFILES
from federation.services import history
from federation.v1.resource_pb2 import Gang
from federation.v1.scheduling_pb2 import (
    OUTCOME_INVALID,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    Decision,
    DeleteBindingRequest,
    ExportTraceRequest,
    ListDecisionsRequest,
    ReplayDecisionRequest,
    ReplayDecisionResponse,
)
from lab.control_planes import RunningControlPlane, refused, report
from lab.databases import connect
from tests.unit.rpc.test_scheduling import binding, scheduled


async def listed(running: RunningControlPlane, **fields: Any) -> list[Decision]:
    admin, decisions = running.admin, []
    request = ListDecisionsRequest(**fields)
    while True:
        page = await admin.call(admin.scheduling.ListDecisions, request)
        decisions += page.decisions
        if not page.next_page_token:
            return decisions
        request.page_token = page.next_page_token


def names(decisions: list[Decision]) -> list[str]:
    return [each.name for each in decisions]


async def test_decisions_are_listed(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running.connected("member1", report=report()):
        first = (await scheduled(running, binding("a", replicas=2))).decision
        second = (await scheduled(running, binding("a", replicas=3))).decision
        await scheduled(running, binding("b", replicas=1000))
    everything = await listed(running)
    assert names(everything) == ["b", "a", "a"]
    assert everything[1].id == second.id
    assert everything[1].triggers == ["replicas changed"]
    assert everything[2].triggers == first.triggers == ["the binding is new"]
    assert [(each.name, each.replicas) for each in everything[2].clusters] == [("member1", 2)]
    assert not any(each.HasField("trace") or each.promises for each in everything)
    assert await listed(running, page_size=1) == everything
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", 1)
    assert await listed(running) == everything
    assert names(await listed(running, namespace="shop", name="a")) == ["a", "a"]
    assert names(await listed(running, name="a")) == []
    assert names(await listed(running, namespace="elsewhere")) == []
    assert names(await listed(running, cluster="member1", page_size=1)) == ["a", "a"]
    assert names(await listed(running, outcomes=[OUTCOME_UNSCHEDULABLE])) == ["b"]
    both = [OUTCOME_UNSCHEDULABLE, OUTCOME_SCHEDULED]
    assert names(await listed(running, outcomes=both)) == ["b", "a", "a"]
    at = second.create_time
    assert names(await listed(running, since=at)) == ["b", "a"]
    assert names(await listed(running, until=at)) == ["a"]
    last = Timestamp(seconds=253_402_300_799, nanos=999_999_999)
    assert names(await listed(running, since=last)) == []
    assert names(await listed(running, since=Timestamp(seconds=-62_135_596_800), until=last)) == [
        *("b", "a", "a")
    ]


BAD = {
    "namespace": {"namespace": "\x00"},
    "cluster": {"cluster": "No Name"},
    "outcomes[0]": {"outcomes": [OUTCOME_INVALID]},
    "outcomes[1]": {"outcomes": [OUTCOME_SCHEDULED, 99]},
    "since": {"since": Timestamp(seconds=2**60)},
    "until": {"until": Timestamp(nanos=-1)},
    "pageSize": {"page_size": 1001},
}


@pytest.mark.parametrize("field", BAD)
async def test_a_bad_request_is_named(running: RunningControlPlane, field: str) -> None:
    refusal = await refused(listed(running, **BAD[field]))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert list(refusal.violations) == [field]


@pytest.mark.parametrize(
    "token",
    [
        "x",
        pages.page_token(("1.0", "a")),
        pages.page_token(("1000", "no id")),
        pages.page_token(("-1", "0" * 32)),
        pages.page_token(("9" * 19, "0" * 32)),
        pages.page_token(("1000", "0" * 32, "more")),
    ],
)
async def test_a_token_of_nobody(running: RunningControlPlane, token: str) -> None:
    refusal = await refused(listed(running, page_token=token))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert list(refusal.violations) == ["pageToken"]


async def replayed(running: RunningControlPlane, decision_id: str) -> ReplayDecisionResponse:
    admin = running.admin
    answer: ReplayDecisionResponse = await admin.call(
        admin.scheduling.ReplayDecision, ReplayDecisionRequest(id=decision_id)
    )
    return answer


async def exported(running: RunningControlPlane, path: Path, **fields: Any) -> TraceFile:
    """A trace file as a client that knows nothing of its format writes it."""
    admin, request, content = running.admin, ExportTraceRequest(**fields), b""
    while True:
        piece = await admin.call(admin.scheduling.ExportTrace, request)
        content += piece.content
        if not piece.next_page_token:
            path.write_bytes(content)  # noqa: ASYNC240 - a small file of the test's own
            return TraceFile.opened(path)
        request.page_token = piece.next_page_token


async def assert_exported(
    running: RunningControlPlane,
    decisions: list[Decision],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them are in a file, whatever its pieces, and replay equal from it alone."""
    path = tmp_path / "decisions.trace"
    for most_bytes in (history.TRACES_AT_ONCE, 1):
        monkeypatch.setattr(history, "TRACES_AT_ONCE", most_bytes)
        trace = await exported(running, path)
        kept = [each for chunk in trace.chunks() for each in chunk.decisions]
        assert [each.id for each in kept] == [each.id for each in reversed(decisions)]
        for frame in trace.frames:
            replay = replayed_frame(trace, DEFAULT_PROFILES, frame)
            assert replay.ends == {ReplayEnd.EQUAL: frame.decisions}, replay
        assert as_it_was(trace) == len(decisions)
    assert len(trace.frames) == len(decisions)
    since = decisions[4].create_time
    trace = await exported(running, path, since=since, until=decisions[1].create_time)
    assert trace.decisions == 3
    assert trace.header.since == pytest.approx(since.ToNanoseconds() / 1e9)
    assert (await exported(running, path, until=Timestamp(seconds=1))).decisions == 0


def as_it_was(trace: TraceFile) -> int:
    """With nothing changed the same comes out, decision by decision: how many."""
    (window,) = windows_of(trace, 0)
    came = played(trace, WhatIfChange(), DEFAULT_PROFILES, window)
    assert (came.different, came.skipped, came.retried) == (0, 0, 0), came
    return came.decisions


async def test_an_export_that_makes_no_sense(running: RunningControlPlane, tmp_path: Path) -> None:
    for field, fields in (
        ("since", {"since": Timestamp(seconds=2**60)}),
        ("until", {"until": Timestamp(nanos=-1)}),
        ("pageToken", {"page_token": "x"}),
    ):
        refusal = await refused(exported(running, tmp_path / "no.trace", **fields))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
        assert list(refusal.violations) == [field]


async def test_every_decision_replays_equal_and_shares_what_it_was_made_on(
    running: RunningControlPlane,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running.connected("member1", report=report()):
        for replicas in (2, 3, 1000, 4):
            await scheduled(running, binding("a", replicas=replicas))
        # Twice as many do not fit into one cluster: nothing is placed, and says what is scarce.
        nowhere = binding("b", replicas=1000)
        nowhere.spec.placement.replica_scheduling.replica_scheduling_type = "Duplicated"
        await scheduled(running, nowhere)
        shown = await scheduled(running, binding("c", replicas=1), preview=True)
        await scheduled(running, None, preview_token=shown.preview_token)
        elsewhere = binding("d")
        elsewhere.spec.placement.cluster_affinity.cluster_names.append("gone")
        await scheduled(running, elsewhere)
        # One of a gang waits for the other, and then is not placed because that one is not.
        for name, replicas in (("one", 1), ("two", 1000)):
            gang = Gang(name="pair", size=2)
            await scheduled(running, binding(name, replicas=replicas, gang=gang))
    decisions = await listed(running)
    assert len(decisions) == 10
    assert [each.reason.split(";")[0] for each in decisions if each.name == "one"] == [
        "two of gang pair was not placed",
        "1 of 2 members of gang pair is here",
    ]
    assert any("there is no room for the shares" in each.reason for each in decisions)
    await assert_exported(running, decisions, tmp_path, monkeypatch)
    for decision in decisions:
        replay = await replayed(running, decision.id)
        assert replay.equal, (decision, replay)
        assert replay.stored_sha256 == replay.replayed_sha256
        assert replay.outcome == decision.outcome
        assert list(replay.clusters) == list(decision.clusters)
        assert replay.stored_revision == replay.replayed_revision == decision.algorithm_revision
    connection = await connect(database_url)
    # The profile, the fleet, and its clusters.
    assert await connection.fetchval("SELECT count(*) FROM decision_input") == 3
    changing = "UPDATE decision SET remainder = remainder + 1 WHERE id = $1"
    await connection.execute(changing, decisions[0].id)
    changed = await replayed(running, decisions[0].id)
    assert not changed.equal
    assert changed.first_difference.path == "remainder"
    await connection.execute("DELETE FROM decision_input")
    refusal = await refused(replayed(running, decisions[0].id))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "INPUTS_FORGOTTEN",
    )
    await connection.close()


async def test_what_cannot_be_replayed(running: RunningControlPlane) -> None:
    for decision_id, code in (
        ("", grpc.StatusCode.INVALID_ARGUMENT),
        ("\x00", grpc.StatusCode.INVALID_ARGUMENT),
        ("nobody", grpc.StatusCode.NOT_FOUND),
        ("0" * 32, grpc.StatusCode.NOT_FOUND),
    ):
        assert (await refused(replayed(running, decision_id))).code is code


async def test_who_takes_room_from_others_replays_and_a_loss_does_not(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    async with running.connected("member1", report=report()):
        full = (await scheduled(running, binding("low", replicas=16))).decision
        assert full.outcome == OUTCOME_SCHEDULED
        urgent = binding("urgent", replicas=4, preemption_policy="PreemptLowerPriority")
        urgent.spec.schedule_priority.priority = 10
        await scheduled(running, urgent)
    (taken, *_) = await listed(running, name="urgent", namespace="shop")
    assert taken.outcome == OUTCOME_SCHEDULED
    assert (await replayed(running, taken.id)).equal
    about_low = await listed(running, name="low", namespace="shop")
    (lost,) = [each for each in about_low if "preempted by shop/urgent" in each.reason]
    refusal = await refused(replayed(running, lost.id))
    assert (refusal.code, refusal.reason) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "INPUTS_NOT_KEPT",
    )
    gone = DeleteBindingRequest(namespace="shop", name="low")
    await running.admin.call(running.admin.scheduling.DeleteBinding, gone)
    await scheduled(running, binding("later"))
    trace = await exported(running, tmp_path / "losses.trace")
    assert as_it_was(trace) == len(await listed(running)) >= 4
    deleted = [each.name for chunk in trace.chunks() for each in chunk.deletions]
    assert deleted == ["low"]
