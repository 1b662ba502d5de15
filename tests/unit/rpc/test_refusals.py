"""Every refusal and every change that failed is in the audit, as a record or in a count."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from federation.model.errors import Unavailable
from federation.rpc.decoding import BIG_METHODS, MAX_REQUEST_BYTES
from federation.services.access.audit import PacedRefusals
from federation.v1 import access_pb2, clusters_pb2, scheduling_pb2
from lab.control_planes import RunningControlPlane, refused
from tests.unit.rpc.test_access import access, in_namespace, made, scheduled
from tests.unit.rpc.test_audit import CHANGES, listed
from tests.unit.rpc.test_gate import admin_header, raw

SCHEDULE = "/federation.v1.Scheduling/Schedule"
LIST = "/federation.v1.Clusters/ListClusters"
EXHAUSTED, INVALID = "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT"
# Deeper than protobuf reads: each is field 1 of the one around it.
NESTED = b"\x0a\x02" * 5_000
UNREADABLE = {
    "garbage": (b"\xff\xff\xff", INVALID),
    "nested": (NESTED, INVALID),
    "of a newer release": (b"\xfa\x7f\x01x", INVALID),
    "too large": (bytes(BIG_METHODS[SCHEDULE] + 1), EXHAUSTED),
    # The caller is told RESOURCE_EXHAUSTED by gRPC itself.
    "larger than gRPC takes": (bytes(MAX_REQUEST_BYTES + 1), INVALID),
}


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_change_whose_request_cannot_be_read_is_recorded(
    running: RunningControlPlane, what: str
) -> None:
    payload, result = UNREADABLE[what]
    await refused(raw(running, SCHEDULE, payload, await admin_header(running)))
    (record,) = await listed(running)
    assert (record.actor, record.address) == ("admin", "127.0.0.1")
    assert (record.method, record.result) == ("Scheduling/Schedule", result)
    assert (list(record.objects), record.request_sha256) == ([], "")
    assert record.reason


async def test_so_it_is_of_every_method_that_changes_something(
    running: RunningControlPlane,
) -> None:
    for path in CHANGES:
        await refused(raw(running, path, b"\xff\xff\xff", await admin_header(running)))
    records = await listed(running)
    assert {record.result for record in records} == {INVALID}
    methods = sorted(record.method for record in records)
    assert methods == [path.removeprefix("/federation.v1.") for path in CHANGES]


async def test_a_change_whose_request_never_arrives_is_recorded(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.plane.parts.gate, "_deadline_seconds", 0.5)
    metadata = (("authorization", await admin_header(running)),)
    await refused(running.channel.stream_unary(SCHEDULE)(metadata=metadata))
    (record,) = await listed(running)
    assert (record.actor, record.result) == ("admin", "DEADLINE_EXCEEDED")


async def test_reads_and_previews_that_fail_are_no_refusals(running: RunningControlPlane) -> None:
    await refused(raw(running, LIST, b"\xff\xff\xff", await admin_header(running)))
    nothing = scheduling_pb2.ScheduleRequest(preview=True)
    await refused(running.admin.call(running.admin.scheduling.Schedule, nothing))
    assert await listed(running) == []


@pytest.fixture
async def few(running: RunningControlPlane) -> int:
    """So many refusals are recorded of those that come in any number, and no more later."""
    most = 20
    trail = running.plane.parts.trail
    trail._sparse = PacedRefusals(at_once=most, per_second=0.0, now=0.0)
    return most


async def test_a_flood_of_wrong_credentials_is_told_of_whole(
    running: RunningControlPlane, few: int
) -> None:
    """Also those that were refused because they were too many."""
    count = 200
    calls = [raw(running, LIST, b"", f"Bearer id{number}.secret") for number in range(count)]
    codes = {each.code for each in await asyncio.gather(*map(refused, calls))}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    await running.plane.parts.trail.finish()
    records = await listed(running)
    assert len(records) == few + 1
    assert sum(1 + record.unrecorded for record in records) == count
    assert {record.actor for record in records} == {"somebody unknown"}


async def test_calls_beyond_a_limit_of_their_token_are_told_of(
    running: RunningControlPlane, few: int
) -> None:
    caller, token_id = await made(running, access_pb2.ROLE_SCHEDULER, calls_per_second=1)
    calls = [scheduled(caller, in_namespace("shop")) for _ in range(3 * few)]
    ended = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [each for each in ended if isinstance(each, grpc.aio.AioRpcError)]
    beyond = [each for each in refusals if each.code() is grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert len(beyond) > few + 1
    await running.plane.parts.trail.finish()
    records = await listed(running, credential_id=token_id)
    told = [record for record in records if record.result == EXHAUSTED]
    assert len(told) == few + 1
    assert sum(1 + record.unrecorded for record in told) == len(beyond)
    assert {(record.actor, record.method) for record in told} == {
        (f"token test ({token_id})", "Scheduling/Schedule")
    }
    assert "may make 1 calls a second" in told[0].reason


async def test_a_flood_of_strangers_hides_no_refusal_of_who_is_known(
    running: RunningControlPlane, few: int
) -> None:
    for number in range(few + 5):
        await refused(raw(running, LIST, b"", f"Bearer id{number}.secret"))
    viewer, token_id = await made(running, access_pb2.ROLE_VIEWER)
    await refused(scheduled(viewer, in_namespace("shop")))
    (record,) = await listed(running, credential_id=token_id)
    assert (record.result, record.unrecorded) == ("PERMISSION_DENIED", 0)


async def test_who_proved_to_have_a_join_token_is_no_stranger(
    running: RunningControlPlane, few: int
) -> None:
    await running.enrolled("member1", uid="uid")
    for number in range(few + 5):
        await refused(raw(running, LIST, b"", f"Bearer id{number}.secret"))
    request = clusters_pb2.CreateJoinTokenRequest(cluster="member1")
    token = (await running.admin.call(running.admin.clusters.CreateJoinToken, request)).token
    join = clusters_pb2.EnrollClusterRequest(cluster="member1", cluster_uid="other", token=token)
    await refused(running.admin.call(running.admin.clusters.EnrollCluster, join))
    (record,) = await listed(running, credential_id=token.partition(".")[0])
    assert (record.result, record.unrecorded) == ("ALREADY_EXISTS", 0)


async def test_a_change_by_who_cannot_be_looked_up_is_recorded_and_a_read_is_not(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise Unavailable

    monkeypatch.setattr(running.plane.parts.identity, "identify", away)
    for path in (LIST, SCHEDULE):
        refusal = await refused(raw(running, path, b"", "Bearer 0123456789abcdef.secret"))
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
    monkeypatch.undo()
    (record,) = await listed(running)
    assert (record.method, record.result) == ("Scheduling/Schedule", "UNAVAILABLE")


async def test_the_rest_of_a_count_is_written_at_a_stop(
    running: RunningControlPlane, few: int
) -> None:
    for number in range(few + 3):
        await refused(raw(running, LIST, b"", f"Bearer id{number}.secret"))
    assert len(await listed(running)) == few
    await running.plane._leave_peers()
    assert (await listed_directly(running))[0].unrecorded == 2


async def listed_directly(running: RunningControlPlane) -> list[access_pb2.AuditRecord]:
    answer = await access(running.admin, "ListAudit", access_pb2.ListAuditRequest())
    return list(answer.records)
