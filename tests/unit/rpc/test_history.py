"""Decisions are listed over the wire, by what they decided about, where, when and how."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from federation.rpc import pages
from federation.v1.scheduling_pb2 import (
    OUTCOME_INVALID,
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    Decision,
    ListDecisionsRequest,
)
from tests.control_planes import RunningControlPlane, refused, report
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
