"""The audit: every change with who made it, in its transaction; every refusal; nothing secret."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.codec.rights import DECLARED
from federation.model.errors import Unavailable
from federation.rpc.decoding import MAX_REQUEST_BYTES
from federation.services.access.audit import PacedRefusals
from lab.control_planes import Plane, refused, report
from tests.api.calls import (
    CHANGES,
    OPERATOR,
    SCHEDULER,
    VIEWER,
    audit_of,
    binding,
    header_of,
    in_namespace,
    made,
    paged,
    raw,
    scheduled,
)

SCHEDULE, LIST = "/federation.v1.Scheduling/Schedule", "/federation.v1.Clusters/ListClusters"
EXHAUSTED, INVALID = "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"
CHANGING = [path.removeprefix("/federation.v1.") for path in CHANGES]


class Audit:
    """What is recorded from now on."""

    def __init__(self, api: Plane) -> None:
        self.plane, self._before = api, 0

    async def begin(self) -> None:
        newest = await audit_of(self.plane, page_size=1)
        self._before = newest[0].id if newest else 0

    async def records(self, **fields: Any) -> list[Any]:
        """The newest first."""
        return [each for each in await audit_of(self.plane, **fields) if each.id > self._before]


@pytest_asyncio.fixture(loop_scope="module")
async def audit(api: Plane) -> Audit:
    begun = Audit(api)
    await begun.begin()
    return begun


async def test_every_method_that_changes_something_is_recorded(api: Plane, audit: Audit) -> None:
    """As done or as refused; which it is with a request that says nothing does not matter."""
    for path in CHANGES:
        assert await raw(api, path, b"", header_of(api.admin)).code() is not grpc.StatusCode.OK
    assert {record.method for record in await audit.records()} == set(CHANGING)


async def test_decisions_are_recorded_in_their_own_transaction(api: Plane) -> None:
    caller, token_id = await made(api, SCHEDULER)
    async with api.connected("member1", report=report()):
        await scheduled(caller, in_namespace("audited", "single"))
        many = [f"many-{number}" for number in range(3)]
        items = [{"binding": in_namespace("audited", name)} for name in many]
        await caller.ask("ScheduleBatch", items=items)
        await caller.ask("DeleteBinding", namespace="audited", name="single")
    rows = await api.sql(
        "SELECT audit.method, decision.name FROM decision JOIN audit "
        "ON audit.xmin = decision.xmin "
        "AND decision.namespace || '/' || decision.name = ANY(audit.objects) "
        "WHERE namespace = 'audited'"
    )
    batch = [("Scheduling/ScheduleBatch", name) for name in many]
    assert sorted(map(tuple, rows)) == [("Scheduling/Schedule", "single"), *batch]
    records = await audit_of(api, credential_id=token_id)
    assert records[0].method == "Scheduling/DeleteBinding"
    assert {record.actor for record in records} == {f"token test ({token_id})"}
    assert {(record.address, record.result) for record in records} == {("127.0.0.1", "OK")}
    assert all(len(record.request_sha256) == 64 for record in records)


async def test_refusals_are_recorded_with_who_came_and_why(api: Plane, audit: Audit) -> None:
    viewer, token_id = await made(api, VIEWER, namespaces=["shop"])
    some, some_id = await made(api, OPERATOR, clusters=["eu-*"])
    wrong = api.caller(f"{token_id}.wrong")
    await refused(scheduled(viewer, binding()))
    await refused(wrong.ask("ListClusters"))
    await refused(some.ask("CordonCluster", name="us-1", cordoned=True))
    await refused(some.ask("GetCluster", name="eu-7"))
    assert [
        (record.actor, record.method, list(record.objects), record.result)
        for record in await audit.records()
        if record.result != "OK"
    ] == [
        (f"token test ({some_id})", "Clusters/CordonCluster", ["us-1"], "NOT_FOUND"),
        ("somebody unknown", "Clusters/ListClusters", [], "UNAUTHENTICATED"),
        (f"token test ({token_id})", "Scheduling/Schedule", [], "PERMISSION_DENIED"),
    ]
    by_id = await audit_of(api, credential_id=token_id)
    assert {record.result for record in by_id} == {"UNAUTHENTICATED", "PERMISSION_DENIED"}
    assert "has the role viewer" in next(r for r in by_id if r.actor != "somebody unknown").reason


async def test_who_joins_is_named_by_the_join_token(api: Plane, audit: Audit) -> None:
    """Once it is known to be theirs: with a wrong secret anybody could name any token."""
    token = (await api.ask("CreateJoinToken", cluster="member1")).token
    token_id = token.partition(".")[0]
    join = {"cluster": "member1", "cluster_uid": "uid"}
    anybody = api.caller(None)
    await refused(anybody.ask("EnrollCluster", token=f"{token_id}.wrong", **join))
    await anybody.ask("EnrollCluster", token=token, **join)
    assert {
        (each.actor, each.credential_id, each.result)
        for each in await audit.records()
        if each.method == "Clusters/EnrollCluster"
    } == {
        (f"join token ({token_id})", token_id, "OK"),
        ("somebody unknown", "", "UNAUTHENTICATED"),
    }


async def test_no_secret_is_in_it(api: Plane, audit: Audit) -> None:
    """Not that of a caller, nor what a request or an answer carries."""
    secrets = [(await api.ask("CreateToken", name="ci", role=VIEWER)).secret]
    agent = await api.enrolled("member1")
    secrets += [header_of(each) for each in (agent, api.admin)]
    secrets.append("tok-0123456789abcdef.notvalidatall")
    await refused(api.caller(secrets[-1]).ask("ListClusters"))
    assert len(await audit.records()) == 4
    everything = str(await api.sql("SELECT * FROM audit"))
    assert "EnrollCluster" in everything
    for secret in secrets:
        assert secret.partition(".")[2] not in everything


async def test_pages_and_times(api: Plane, audit: Audit) -> None:
    for number in range(5):
        await made(api, VIEWER, namespaces=[f"n{number}"])
    everything = await audit.records()
    # Meanwhile they may be sealed.
    ids = [record.id for record in everything]
    assert ids == sorted(ids, reverse=True)
    pages = await paged(api, "ListAudit", "records", 2)
    assert [record.id for record in pages][: len(ids)] == ids
    third = everything[2].time
    assert [record.id for record in await audit.records(since=third)] == ids[:3]
    assert [record.id for record in await audit.records(until=third)] == ids[3:]


# Deeper than protobuf reads: each is field 1 of the one around it.
NESTED = b"\x0a\x02" * 5_000
UNREADABLE = {
    "garbage": (b"\xff\xff\xff", INVALID),
    "nested": (NESTED, INVALID),
    "of a newer release": (b"\xfa\x7f\x01x", INVALID),
    "too large": (bytes(DECLARED[SCHEDULE].max_request_bytes + 1), EXHAUSTED),
    # The caller is told RESOURCE_EXHAUSTED by gRPC itself.
    "larger than gRPC takes": (bytes(MAX_REQUEST_BYTES + 1), INVALID),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_change_whose_request_cannot_be_read_is_recorded(
    api: Plane, audit: Audit, what: str
) -> None:
    payload, result = UNREADABLE[what]
    await refused(raw(api, SCHEDULE, payload, header_of(api.admin)))
    (record,) = await audit.records()
    assert (record.actor, record.address) == ("admin", "127.0.0.1")
    assert (record.method, record.result) == ("Scheduling/Schedule", result)
    assert (list(record.objects), record.request_sha256) == ([], "")
    assert record.reason


async def test_so_it_is_of_every_method_that_changes_something(api: Plane, audit: Audit) -> None:
    for path in CHANGES:
        await refused(raw(api, path, b"\xff\xff\xff", header_of(api.admin)))
    records = await audit.records()
    assert {record.result for record in records} == {INVALID}
    assert sorted(record.method for record in records) == CHANGING


async def test_a_change_whose_request_never_arrives_is_recorded(
    api: Plane, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.plane.parts.gate, "deadline_seconds", 0.5)
    await refused(api.channel.stream_unary(SCHEDULE)(metadata=api.admin.metadata))
    (record,) = await audit.records()
    assert (record.actor, record.result) == ("admin", "DEADLINE_EXCEEDED")


async def test_reads_and_previews_that_fail_are_no_refusals(api: Plane, audit: Audit) -> None:
    await refused(raw(api, LIST, b"\xff\xff\xff", header_of(api.admin)))
    await refused(api.ask("Schedule", preview=True))
    assert await audit.records() == []


async def test_who_writes_waits_for_what_is_being_written(api: Plane, audit: Audit) -> None:
    """So that nothing is lost where the last refusals are written at a stop."""
    trail = api.plane.parts.trail
    await refused(raw(api, SCHEDULE, b"\xff\xff\xff", header_of(api.admin)))
    first, second = asyncio.create_task(trail.write()), asyncio.create_task(trail.write())
    await second
    assert first.done()
    (record,) = await audit.records()
    assert record.method == "Scheduling/Schedule"


FEW = 20


@pytest.fixture
def few(fresh: Plane) -> Plane:
    """Records that many of refusals that come in any number, and no more later."""
    trail = fresh.plane.parts.trail
    trail._sparse = PacedRefusals(at_once=FEW, per_second=0.0, now=0.0)
    return fresh


async def err(api: Plane, times: int) -> set[grpc.StatusCode]:
    """As strangers: with which codes they end."""
    calls = [raw(api, LIST, b"", f"Bearer id{number}.secret") for number in range(times)]
    return {each.code for each in await asyncio.gather(*map(refused, calls))}


async def test_a_flood_of_wrong_credentials_is_told_of_whole(few: Plane) -> None:
    """Also those that were refused because they were too many."""
    count = 200
    codes = await err(few, count)
    assert codes == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    await few.plane.parts.trail.finish()
    records = await audit_of(few)
    assert len(records) == FEW + 1
    assert sum(1 + record.unrecorded for record in records) == count
    assert {record.actor for record in records} == {"somebody unknown"}


async def test_calls_beyond_a_limit_of_their_token_are_told_of(few: Plane) -> None:
    caller, token_id = await made(few, SCHEDULER, calls_per_second=1)
    calls = [scheduled(caller, in_namespace("shop")) for _ in range(3 * FEW)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [each for each in ended if isinstance(each, grpc.aio.AioRpcError)]
    beyond = [each for each in refusals if each.code() is grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert len(beyond) > FEW + 1
    await few.plane.parts.trail.finish()
    records = await audit_of(few, credential_id=token_id)
    told = [record for record in records if record.result == EXHAUSTED]
    assert len(told) == FEW + 1
    assert sum(1 + record.unrecorded for record in told) == len(beyond)
    assert {(record.actor, record.method) for record in told} == {
        (f"token test ({token_id})", "Scheduling/Schedule")
    }
    assert "may make 1 calls a second" in told[0].reason


async def test_a_flood_of_strangers_hides_no_refusal_of_who_is_known(few: Plane) -> None:
    await few.enrolled("member1", uid="uid")
    await err(few, FEW + 5)
    viewer, token_id = await made(few, VIEWER)
    await refused(scheduled(viewer, in_namespace("shop")))
    (record,) = await audit_of(few, credential_id=token_id)
    assert (record.result, record.unrecorded) == ("PERMISSION_DENIED", 0)
    # Who proved to have a join token is no stranger either.
    token = (await few.ask("CreateJoinToken", cluster="member1")).token
    join = {"cluster": "member1", "cluster_uid": "other", "token": token}
    await refused(few.ask("EnrollCluster", **join))
    (record,) = await audit_of(few, credential_id=token.partition(".")[0])
    assert (record.result, record.unrecorded) == ("ALREADY_EXISTS", 0)


async def test_the_rest_of_a_count_is_written_at_a_stop(few: Plane) -> None:
    await err(few, FEW + 3)
    assert len(await audit_of(few)) == FEW
    await few.plane.stop()
    ((unrecorded,),) = await few.sql("SELECT sum(unrecorded) FROM audit")
    assert unrecorded == 2


async def test_a_change_by_who_cannot_be_looked_up_is_recorded_and_a_read_is_not(
    api: Plane, audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable

    with monkeypatch.context() as patch:
        patch.setattr(api.plane.parts.identity, "identify", away)
        for path in (LIST, SCHEDULE):
            refusal = await refused(raw(api, path, b"", "Bearer 0123456789abcdef.secret"))
            assert refusal.code is grpc.StatusCode.UNAVAILABLE
    (record,) = await audit.records()
    assert (record.method, record.result) == ("Scheduling/Schedule", "UNAVAILABLE")
