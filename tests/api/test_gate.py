"""Who is let in to which method, before what is read, and how much of it at once."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from federation.codec.rights import DECLARED
from federation.rpc.interceptors import OPEN_METHODS
from federation.rpc.limits import AGENT_STREAMS
from federation.rpc.served import SERVICES
from federation.rpc.strangers import PER_ADDRESS
from federation.v1 import peers_pb2
from lab.callers import unary_methods
from lab.control_planes import (
    SECONDS,
    Plane,
    Refusal,
    refusal_of,
    refused,
)
from lab.patience import until
from tests.api.calls import (
    AGENT_METHODS,
    GUARDED,
    LIMITS,
    PATHS,
    PEER_METHODS,
    VIEWER,
    code_of,
    header_of,
    made,
    raw,
)

LIST = "/federation.v1.Clusters/ListClusters"
ENROLL = "/federation.v1.Clusters/EnrollCluster"
ASK_AGENT = "/federation.v1.Peers/AskAgent"
UNAUTHENTICATED, DENIED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED
INVALID, EXHAUSTED = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_methods_that_are_treated_apart_exist() -> None:
    apart = OPEN_METHODS | AGENT_METHODS | PEER_METHODS
    ours = {path for path in apart if path.startswith("/federation.")}
    skewed = {path for path, row in DECLARED.items() if row.ignores_unknown_fields}
    assert ours == {ENROLL, "/federation.v1.Agents/Connect", ASK_AGENT} == skewed
    assert ours <= set(PATHS)


async def test_every_method_is_served(api: Plane) -> None:
    unary = {path for path, _, _ in unary_methods().values()}
    for path in unary & set(GUARDED):
        call = raw(api, path, b"", header_of(api.admin))
        assert await call.code() is not grpc.StatusCode.UNIMPLEMENTED, path
    refusal = await refused(raw(api, "/federation.v1.Clusters/Explode", b""))
    assert refusal.code is grpc.StatusCode.UNIMPLEMENTED


async def test_every_method_needs_a_credential(api: Plane) -> None:
    for path in [*GUARDED, *AGENT_METHODS, *PEER_METHODS]:
        # Whoever is refused learns nothing of how a request is read.
        for payload in (b"", b"\xff\xff\xff"):
            refusal = await refused(raw(api, path, payload))
            assert (refusal.code, refusal.reason) == (UNAUTHENTICATED, "UNAUTHENTICATED"), path


@pytest.mark.parametrize(
    "headers",
    [
        ["Bearer"],
        ["Bearer "],
        ["Basic dXNlcjpwYXNz"],
        ["Bearer ..."],
        ["Bearer 0123456789abcdef." + "0" * 43],
        ["Bearer " + "x" * 4000],
        ["Bearer " + "a.b" * 2000],
        ["{admin}", "{admin}"],
        ["{admin} {admin}"],
    ],
)
async def test_what_is_no_credential_of_ours_is_refused(api: Plane, headers: list[str]) -> None:
    said = [each.format(admin=header_of(api.admin)) for each in headers]
    assert (await refused(raw(api, GUARDED[0], b"", *said))).code is UNAUTHENTICATED


async def test_the_scheme_is_read_in_any_case(api: Plane) -> None:
    await raw(api, LIST, b"", header_of(api.admin).replace("Bearer", "bearer"))


async def test_an_agent_may_connect_and_nothing_else(api: Plane) -> None:
    agent = await api.enrolled("member1")
    for path in [*GUARDED, *PEER_METHODS]:
        # Before its request is read: it never arrives.
        refusal = await half_a_request(api, path, header_of(agent))
        assert refusal.code is DENIED, path
        assert "member1" in refusal.message
        assert path in refusal.message


async def test_the_admin_is_neither_an_agent_nor_a_control_plane(api: Plane) -> None:
    refusal = await refused(api.admin.agents.Connect(metadata=api.admin.metadata).read())
    assert refusal.code is DENIED
    for path in PEER_METHODS:
        assert (await refused(raw(api, path, b"", header_of(api.admin)))).code is DENIED, path


async def test_a_control_plane_may_ask_its_peers_and_nothing_else(api: Plane, other: Plane) -> None:
    peer = api.caller(other.plane.parts.replicas.bearer)
    for path in GUARDED:
        refusal = await refused(raw(api, path, b"", header_of(peer)))
        assert refusal.code is DENIED, path
        assert path in refusal.message
    assert (await refused(peer.agents.Connect(metadata=peer.metadata).read())).code is DENIED
    asked = peers_pb2.AskAgentRequest(cluster="member1").SerializeToString()
    refusal = await refused(raw(api, ASK_AGENT, asked, header_of(peer)))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_CONNECTED")
    async with api.connected("member1"):
        refusal = await refused(raw(api, ASK_AGENT, asked, header_of(peer)))
    assert (refusal.code, list(refusal.violations)) == (INVALID, ["question"])


async def half_a_request(api: Plane, path: str, *headers: str) -> Refusal:
    """How a call is refused whose request never arrives."""
    metadata = tuple(("authorization", header) for header in headers)
    call: Any = api.channel.stream_unary(path)(metadata=metadata, timeout=SECONDS)
    return await refused(call)


@pytest.mark.parametrize("headers", [[], ["Bearer 0123456789abcdef.secret"]])
async def test_a_refused_call_is_refused_before_its_request_is_read(
    api: Plane, headers: list[str]
) -> None:
    for path in GUARDED:
        assert (await half_a_request(api, path, *headers)).code is UNAUTHENTICATED, path


async def test_what_is_no_message_is_the_callers_fault(api: Plane) -> None:
    for path in [*GUARDED, ENROLL]:
        refusal = await refused(raw(api, path, b"\xff\xff\xff", header_of(api.admin)))
        assert (refusal.code, refusal.reason) == (INVALID, "UNDECODABLE"), path
    nothing: Any = api.channel.stream_unary(ENROLL)(iter(()), timeout=SECONDS)
    refusal = await refused(nothing)
    assert (refusal.code, refusal.reason) == (INVALID, "UNDECODABLE")


async def test_requests_beyond_the_limit_are_refused_and_the_limit_is_named(api: Plane) -> None:
    assert len(set(LIMITS.values())) > 1
    for path, limit in LIMITS.items():
        refusal = await refused(raw(api, path, bytes(limit + 1), header_of(api.admin)))
        assert refusal.code is EXHAUSTED, path
        assert str(limit) in refusal.message, path


async def test_health_is_open_and_speaks_for_every_service(fresh: Plane) -> None:
    stub: Any = health_pb2_grpc.HealthStub(fresh.channel)
    asked = health_pb2.HealthCheckRequest
    for service in ("", *SERVICES):
        answer = await stub.Check(asked(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
    refusal = await refused(stub.Check(asked(service="federation.v1.Nothing")))
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    assert "federation.v1.Nothing" in refusal.message
    # Who watches sees the end coming.
    watch = stub.Watch(asked(service=SERVICES[0]))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    stopping = asyncio.create_task(fresh.plane.stop())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    watch.cancel()
    await stopping


async def test_reflection_needs_a_credential_and_lists_every_service(api: Plane) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(api.channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        # Nothing is sent: a call that is refused while it sends ends with an error of the client.
        await stub.ServerReflectionInfo(iter([])).read()
    assert refusal_of(caught.value).code is UNAUTHENTICATED
    call = stub.ServerReflectionInfo(iter([question]), metadata=api.admin.metadata)
    listed = {each.name for each in (await call.read()).list_services_response.service}
    assert set(SERVICES) < listed


async def test_who_is_known_is_served_whatever_strangers_do(fresh: Plane) -> None:
    await fresh.ask("ListClusters")
    wrong = [
        raw(fresh, GUARDED[0], b"", f"Bearer id{number}.secret")
        for number in range(PER_ADDRESS.mistakes + 50)
    ]
    codes = {each.code for each in await asyncio.gather(*map(refused, wrong))}
    assert codes == {UNAUTHENTICATED, EXHAUSTED}
    await fresh.ask("ListClusters")


async def test_an_agent_has_few_streams_at_once(api: Plane) -> None:
    agent = await api.enrolled("member1")
    calls = [agent.agents.Connect(metadata=agent.metadata) for _ in range(AGENT_STREAMS.count + 1)]
    ended = [asyncio.create_task(refused(call.read())) for call in calls]
    # Nobody has said hello: those that were let in wait for it.
    done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result().code for task in done] == [EXHAUSTED]
    for call in calls:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    ("limit", "number"),
    # Of all calls one caller has half of those that others leave free.
    [("calls_of_a_connection", 3), ("calls", 6)],
)
async def test_callers_have_so_many_calls_at_once(
    api: Plane, monkeypatch: pytest.MonkeyPatch, limit: str, number: int
) -> None:
    most = 3
    other, _ = await made(api, VIEWER)
    monkeypatch.setattr(api.plane.parts.gate.shares.by_name[limit], "limit", number)

    calls = [api.admin.watch("WatchClusters") for _ in range(most)]
    for call in calls:
        assert await call.read() is not grpc.aio.EOF
    refusal = await refused(api.admin.watch("WatchClusters").read())
    assert refusal.code is EXHAUSTED
    assert str(most) in refusal.message
    if limit == "calls":
        await other.ask("ListClusters")
    for call in calls:
        call.cancel()
    # Those that ended leave their places; that they did is heard of soon.
    codes = (grpc.StatusCode.OK, EXHAUSTED)
    await until(lambda: code_of(api.admin.ask("ListClusters")), lambda code: codes.index(code) == 0)
