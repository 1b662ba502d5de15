"""The audit: every change with who made it, in its transaction; every refusal; nothing secret."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.rpc.permissions import PERMISSIONS
from federation.services.access import audit as audit_module
from federation.v1 import access_pb2, clusters_pb2, scheduling_pb2
from lab.control_planes import Caller, RunningControlPlane, refused, report
from lab.patience import until
from tests.stores import engine
from tests.unit.cli.test_reservations import run
from tests.unit.rpc.test_access import access, in_namespace, made, scheduled
from tests.unit.rpc.test_gate import admin_header, raw
from tests.unit.rpc.test_scheduling import binding

__all__ = ["engine"]

CHANGES = sorted(path for path, row in PERMISSIONS.items() if row.changes)


async def listed(running: RunningControlPlane, **fields: Any) -> list[Any]:
    await running.plane.parts.trail.write()
    request = access_pb2.ListAuditRequest(**fields)
    return list((await access(running.admin, "ListAudit", request)).records)


async def test_every_method_that_changes_something_is_recorded(
    running: RunningControlPlane,
) -> None:
    """As done or as refused; which it is with a request that says nothing does not matter."""
    for path in CHANGES:
        await refused(answered(raw(running, path, b"", await admin_header(running))))
    methods = {record.method for record in await listed(running)}
    assert methods == {path.removeprefix("/federation.v1.") for path in CHANGES}


async def answered(call: Any) -> None:
    """Raises what a call was refused with; else that it was not."""
    raise AssertionError(f"{await call!r} although nothing was said")


async def test_decisions_are_recorded_in_their_own_transaction(
    running: RunningControlPlane, engine: AsyncEngine
) -> None:
    caller, token_id = await made(running, access_pb2.ROLE_SCHEDULER)
    async with running.connected("member1", report=report()):
        await scheduled(caller, in_namespace("shop", "single"))
        items = [
            scheduling_pb2.ScheduleBatchItem(binding=in_namespace("shop", f"many-{number}"))
            for number in range(3)
        ]
        await caller.call(
            caller.scheduling.ScheduleBatch, scheduling_pb2.ScheduleBatchRequest(items=items)
        )
        await caller.call(
            caller.scheduling.DeleteBinding,
            scheduling_pb2.DeleteBindingRequest(namespace="shop", name="single"),
        )
    async with engine.connect() as connection:
        rows = await connection.execute(
            text(
                "SELECT audit.method, decision.name FROM decision JOIN audit "
                "ON audit.xmin = decision.xmin "
                "AND decision.namespace || '/' || decision.name = ANY(audit.objects)"
            )
        )
        together = sorted(map(tuple, rows.all()))
    names = [f"many-{number}" for number in range(3)]
    assert together == [
        ("Scheduling/Schedule", "single"),
        *(("Scheduling/ScheduleBatch", name) for name in names),
    ]
    records = await listed(running, credential_id=token_id)
    assert records[0].method == "Scheduling/DeleteBinding"
    assert {record.actor for record in records} == {f"token test ({token_id})"}
    assert {record.address for record in records} == {"127.0.0.1"}
    assert {record.result for record in records} == {"OK"}
    assert all(len(record.request_sha256) == 64 for record in records)


async def test_refusals_are_recorded_with_who_came_and_why(running: RunningControlPlane) -> None:
    viewer, token_id = await made(running, access_pb2.ROLE_VIEWER, namespaces=["shop"])
    some, some_id = await made(running, access_pb2.ROLE_OPERATOR, clusters=["eu-*"])
    wrong = running.caller(f"{token_id}.wrong")
    await refused(scheduled(viewer, binding()))
    await refused(wrong.call(wrong.clusters.ListClusters, clusters_pb2.ListClustersRequest()))
    hidden = clusters_pb2.CordonClusterRequest(name="us-1", cordoned=True)
    await refused(some.call(some.clusters.CordonCluster, hidden))
    missing = clusters_pb2.GetClusterRequest(name="eu-7")
    await refused(some.call(some.clusters.GetCluster, missing))
    records = await listed(running)
    said = [
        (record.actor, record.method, list(record.objects), record.result)
        for record in records
        if record.result != "OK"
    ]
    assert said == [
        (f"token test ({some_id})", "Clusters/CordonCluster", ["us-1"], "NOT_FOUND"),
        ("somebody unknown", "Clusters/ListClusters", [], "UNAUTHENTICATED"),
        (f"token test ({token_id})", "Scheduling/Schedule", [], "PERMISSION_DENIED"),
    ]
    by_id = await listed(running, credential_id=token_id)
    assert {record.result for record in by_id} == {"UNAUTHENTICATED", "PERMISSION_DENIED"}
    assert "has the role viewer" in next(r for r in by_id if r.actor != "somebody unknown").reason


async def test_refusals_that_come_too_fast_are_counted(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = audit_module.AuditTrail(running.plane.parts.store, clock=lambda: 0.0)
    monkeypatch.setattr(running.plane.parts, "trail", trail)
    refusal = audit_module.AuditRecord(actor="somebody unknown", method="Some/Thing")
    for _ in range(audit_module.REFUSALS_AT_ONCE + 7):
        trail.refused(refusal, sparingly=False)
    assert len(await listed(running)) == audit_module.REFUSALS_AT_ONCE
    trail._clock = lambda: 1.0
    trail.refused(refusal, sparingly=False)
    assert (await listed(running))[0].unrecorded == 7


async def test_who_writes_waits_for_what_is_being_written(running: RunningControlPlane) -> None:
    """So that nothing is lost where the last refusals are written at a stop."""
    trail = audit_module.AuditTrail(running.plane.parts.store)
    refusal = audit_module.AuditRecord(actor="somebody unknown", method="Some/Thing")
    trail.refused(refusal, sparingly=True)
    first, second = asyncio.create_task(trail.write()), asyncio.create_task(trail.write())
    await second
    assert first.done()
    assert [record.method for record in await listed(running)] == ["Some/Thing"]


async def test_who_joins_is_named_by_the_join_token(running: RunningControlPlane) -> None:
    """Once it is known to be theirs: with a wrong secret anybody could name any token."""
    request = clusters_pb2.CreateJoinTokenRequest(cluster="member1")
    token = (await running.admin.call(running.admin.clusters.CreateJoinToken, request)).token
    join = clusters_pb2.EnrollClusterRequest(cluster="member1", cluster_uid="uid")
    anybody, token_id = running.caller(None), token.partition(".")[0]
    join.token = f"{token_id}.wrong"
    await refused(anybody.call(anybody.clusters.EnrollCluster, join))
    join.token = token
    await anybody.call(anybody.clusters.EnrollCluster, join)
    records = await listed(running)
    wrong, joined = sorted(
        (each for each in records if each.method == "Clusters/EnrollCluster"),
        key=lambda each: each.result == "OK",
    )
    assert (joined.actor, joined.credential_id) == (f"join token ({token_id})", token_id)
    assert (wrong.actor, wrong.credential_id) == ("somebody unknown", "")
    assert (wrong.result, joined.result) == ("UNAUTHENTICATED", "OK")


async def test_no_secret_is_in_it(running: RunningControlPlane, engine: AsyncEngine) -> None:
    """Not that of a caller, nor what a request or an answer carries."""
    request = access_pb2.CreateTokenRequest(name="ci", role=access_pb2.ROLE_VIEWER)
    secrets = [(await access(running.admin, "CreateToken", request)).secret]
    agent = await running.enrolled("member1")
    secrets += [str(each.metadata[0][1]) for each in (agent, running.admin)]
    secrets.append("tok-0123456789abcdef.notvalidatall")
    stranger = running.caller(secrets[-1])
    await refused(stranger.call(stranger.clusters.ListClusters, clusters_pb2.ListClustersRequest()))
    assert len(await listed(running)) == 4
    async with engine.connect() as connection:
        everything = str((await connection.execute(text("SELECT * FROM audit"))).all())
    assert "EnrollCluster" in everything
    for secret in secrets:
        assert secret.partition(".")[2] not in everything


async def test_pages_and_times(running: RunningControlPlane) -> None:
    for number in range(5):
        await made(running, access_pb2.ROLE_VIEWER, namespaces=[f"n{number}"])
    everything = await listed(running)
    # Meanwhile they may be sealed.
    ids = [record.id for record in everything]
    assert ids == sorted(ids, reverse=True)
    pages, token = list[int](), ""
    while not pages or token:
        page = await access(
            running.admin,
            "ListAudit",
            access_pb2.ListAuditRequest(page_size=2, page_token=token),
        )
        pages += [record.id for record in page.records]
        token = page.next_page_token
    assert pages == ids
    third = everything[2].time
    assert [record.id for record in await listed(running, since=third)] == ids[:3]
    assert [record.id for record in await listed(running, until=third)] == ids[3:]
    wrong = access_pb2.ListAuditRequest(page_token="WyJhIiwgImIiXQ==")
    refusal = await refused(access(running.admin, "ListAudit", wrong))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT


async def sealed_chain(caller: Caller, count: int) -> Any:
    def ask() -> Any:
        return access(caller, "GetAuditChain", access_pb2.GetAuditChainRequest())

    return await until(ask, lambda chain: chain.head.seal >= count)


async def test_a_record_that_is_altered_or_removed_is_found(
    running: RunningControlPlane, engine: AsyncEngine, tmp_path: Path
) -> None:
    for _ in range(4):
        await made(running, access_pb2.ROLE_VIEWER)
    chain = await sealed_chain(running.admin, 4)
    assert [record.seal for record in chain.records] == [1, 2, 3, 4]

    async def verified() -> Any:
        return await run(running, "audit", "verify")

    async def after(statement: str) -> str:
        async with engine.begin() as connection:
            await connection.execute(text(statement))
        result = await verified()
        assert result.exit_code == 1
        return str(result.output)

    good = await verified()
    assert good.exit_code == 0, good.output
    assert "4 records are as they were sealed, from seal 1 on." in good.stdout
    assert f"seal 4 hash {chain.head.hash.hex()}" in good.stdout
    listed_by_cli = await run(running, "audit", "list", "--since", "24h")
    assert "Access/CreateToken" in listed_by_cli.stdout

    altered = "UPDATE audit SET actor = 'somebody else' WHERE seal = 2"
    assert "the record with seal 2 (id 2) is not what was sealed" in await after(altered)
    assert "2 is missing" in await after("DELETE FROM audit WHERE seal = 2")
    assert "it ends at seal 0, and its head is 4" in await after("DELETE FROM audit")
