from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from federation.model.access import Role
from federation.model.errors import DeadlineMissed
from federation.parts import SystemClock
from federation.rpc import interceptors
from federation.rpc.agents import AgentsServicer
from federation.rpc.calls import ROUNDED_UP_SECONDS, refuse_late
from federation.rpc.clusters import ClustersServicer
from federation.rpc.decoding import BIG_METHODS, SKEWED_METHODS, SMALL_REQUEST_BYTES
from federation.rpc.estimates import EstimatesServicer
from federation.rpc.guards import Guard
from federation.rpc.interceptors import OPEN_METHODS, STREAMS_PER_AGENT, Gate
from federation.rpc.large_requests import LargeRequests
from federation.rpc.measures import CallMeasures
from federation.rpc.peers import PeersServicer
from federation.rpc.permissions import Audience, methods_for
from federation.rpc.scheduling import SchedulingServicer
from federation.rpc.served import SERVICES
from federation.rpc.simulation import SimulationServicer
from federation.rpc.strangers import PER_ADDRESS, CallLimits, Strangers
from federation.services.members.identity import Identity
from federation.services.members.replicas import Replicas
from federation.store.postgres import PostgresStore
from federation.v1 import (
    agents_pb2,
    clusters_pb2,
    estimates_pb2,
    peers_pb2,
    scheduling_pb2,
    simulation_pb2,
)
from lab.control_planes import SECONDS, Refusal, RunningControlPlane, refusal_of, refused
from lab.patience import PATIENCE_SECONDS
from tests.stores import engine, store

__all__ = ["engine", "store"]

SERVICERS = {
    clusters_pb2: ClustersServicer,
    agents_pb2: AgentsServicer,
    estimates_pb2: EstimatesServicer,
    scheduling_pb2: SchedulingServicer,
    simulation_pb2: SimulationServicer,
    peers_pb2: PeersServicer,
}
METHODS = [
    (service, method, servicer)
    for module, servicer in SERVICERS.items()
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
PATHS = [f"/{service.full_name}/{method.name}" for service, method, _ in METHODS]
AGENT_METHODS, PEER_METHODS = methods_for(Audience.AGENTS), methods_for(Audience.PEERS)
BIG = "/federation.v1.Scheduling/Schedule"
GUARDED = sorted(set(PATHS) - OPEN_METHODS - AGENT_METHODS - PEER_METHODS)


@pytest.mark.parametrize(("service", "method", "servicer"), METHODS, ids=PATHS)
def test_every_rpc_has_a_method_of_its_own(service: Any, method: Any, servicer: type) -> None:
    assert service.full_name in SERVICES
    assert method.name in vars(servicer)


def test_the_methods_that_are_treated_apart_exist() -> None:
    apart = OPEN_METHODS | AGENT_METHODS | PEER_METHODS
    ours = {path for path in apart if path.startswith("/federation.")}
    assert ours == {
        "/federation.v1.Clusters/EnrollCluster",
        "/federation.v1.Agents/Connect",
        "/federation.v1.Peers/AskAgent",
    }
    assert ours <= set(PATHS)
    assert ours == SKEWED_METHODS


def raw(running: RunningControlPlane, path: str, payload: bytes, *headers: str) -> Any:
    """The call of a unary method with these bytes and these authorization headers."""
    metadata = tuple(("authorization", header) for header in headers)
    return running.channel.unary_unary(path)(payload, metadata=metadata, timeout=PATIENCE_SECONDS)


async def admin_header(running: RunningControlPlane) -> str:
    return str(running.admin.metadata[0][1])


async def test_every_method_needs_a_credential(running: RunningControlPlane) -> None:
    for path in [*GUARDED, *AGENT_METHODS, *PEER_METHODS]:
        refusal = await refused(raw(running, path, b""))
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED, path
        assert refusal.reason == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    "headers",
    [
        ["Bearer"],
        ["Bearer "],
        ["Basic dXNlcjpwYXNz"],
        ["Bearer wrong"],
        ["Bearer 0123456789abcdef.secret"],
        ["Bearer " + "x" * 4000],
    ],
)
async def test_what_is_no_credential_of_ours_is_refused(
    running: RunningControlPlane, headers: list[str]
) -> None:
    refusal = await refused(raw(running, GUARDED[0], b"", *headers))
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED


async def test_two_credentials_are_none(running: RunningControlPlane) -> None:
    header = await admin_header(running)
    refusal = await refused(raw(running, GUARDED[0], b"", header, header))
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED


async def test_the_scheme_is_read_in_any_case(running: RunningControlPlane) -> None:
    header = (await admin_header(running)).replace("Bearer", "bearer")
    await raw(running, "/federation.v1.Clusters/ListClusters", b"", header)


async def test_an_agent_may_connect_and_nothing_else(running: RunningControlPlane) -> None:
    agent = await running.enrolled("member1")
    for path in [*GUARDED, *PEER_METHODS]:
        refusal = await refused(raw(running, path, b"", str(agent.metadata[0][1])))
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED, path
        assert "member1" in refusal.message
        assert path in refusal.message


async def test_the_admin_is_no_agent(running: RunningControlPlane) -> None:
    refusal = await refused(running.admin.agents.Connect(metadata=running.admin.metadata).read())
    assert refusal.code is grpc.StatusCode.PERMISSION_DENIED


async def test_the_admin_is_no_control_plane(running: RunningControlPlane) -> None:
    for path in PEER_METHODS:
        refusal = await refused(raw(running, path, b"", await admin_header(running)))
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED, path


async def test_a_control_plane_may_ask_its_peers_and_nothing_else(
    running: RunningControlPlane, store: PostgresStore
) -> None:
    replicas = Replicas(store, SystemClock(), "another")
    await replicas.keep_credential()
    header = f"Bearer {replicas.bearer}"
    for path in GUARDED:
        refusal = await refused(raw(running, path, b"", header))
        assert refusal.code is grpc.StatusCode.PERMISSION_DENIED, path
        assert path in refusal.message
    connect = running.caller(replicas.bearer)
    refusal = await refused(connect.agents.Connect(metadata=connect.metadata).read())
    assert refusal.code is grpc.StatusCode.PERMISSION_DENIED
    asked = peers_pb2.AskAgentRequest(cluster="member1").SerializeToString()
    refusal = await refused(raw(running, "/federation.v1.Peers/AskAgent", asked, header))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.UNAVAILABLE, "NOT_CONNECTED")
    async with running.connected("member1"):
        refusal = await refused(raw(running, "/federation.v1.Peers/AskAgent", asked, header))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert list(refusal.violations) == ["question"]


async def test_bytes_that_are_no_message_are_the_callers_fault(
    running: RunningControlPlane,
) -> None:
    header = await admin_header(running)
    for path in [*GUARDED, "/federation.v1.Clusters/EnrollCluster"]:
        refusal = await refused(raw(running, path, b"\xff\xff\xff", header))
        assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT, path
        assert refusal.reason == "UNDECODABLE", path


async def test_a_stranger_learns_nothing_about_how_a_request_is_read(
    running: RunningControlPlane,
) -> None:
    refusal = await refused(raw(running, GUARDED[0], b"\xff\xff\xff"))
    assert refusal.code is grpc.StatusCode.UNAUTHENTICATED


async def test_requests_beyond_the_limit_are_refused_and_the_limit_is_named(
    running: RunningControlPlane,
) -> None:
    header = await admin_header(running)
    limits = {path: BIG_METHODS.get(path, SMALL_REQUEST_BYTES) for path in GUARDED}
    limits |= dict.fromkeys(OPEN_METHODS, SMALL_REQUEST_BYTES)
    assert set(limits.values()) > {SMALL_REQUEST_BYTES}
    for path, limit in limits.items():
        refusal = await refused(raw(running, path, bytes(limit + 1), header))
        assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED, path
        assert str(limit) in refusal.message, path


@pytest.mark.parametrize("left", [-1.0, 0.0, ROUNDED_UP_SECONDS])
def test_a_deadline_that_has_passed_is_one_also_when_it_is_rounded_up(left: float) -> None:
    with pytest.raises(DeadlineMissed):
        refuse_late(left)


@pytest.mark.parametrize("left", [None, 2 * ROUNDED_UP_SECONDS])
def test_who_can_still_hear_the_answer_is_served(left: float | None) -> None:
    refuse_late(left)


async def test_unknown_methods_are_unimplemented(running: RunningControlPlane) -> None:
    refusal = await refused(raw(running, "/federation.v1.Clusters/Explode", b""))
    assert refusal.code is grpc.StatusCode.UNIMPLEMENTED


async def test_health_is_open_and_speaks_for_every_service(running: RunningControlPlane) -> None:
    stub: Any = health_pb2_grpc.HealthStub(running.channel)
    for service in ("", *SERVICES):
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING, service


async def test_health_of_a_service_that_is_not_there_is_not_found(
    running: RunningControlPlane,
) -> None:
    stub: Any = health_pb2_grpc.HealthStub(running.channel)
    question = health_pb2.HealthCheckRequest(service="federation.v1.Nothing")
    refusal = await refused(stub.Check(question))
    assert refusal.code is grpc.StatusCode.NOT_FOUND
    assert "federation.v1.Nothing" in refusal.message


async def test_watchers_of_health_see_the_end_coming(running: RunningControlPlane) -> None:
    stub: Any = health_pb2_grpc.HealthStub(running.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICES[0]))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    stopping = asyncio.create_task(running.plane.stop())
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    watch.cancel()
    await stopping


async def test_reflection_needs_a_credential_and_lists_every_service(
    running: RunningControlPlane,
) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(running.channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ServerReflectionInfo(iter([question])).read()
    assert refusal_of(caught.value).code is grpc.StatusCode.UNAUTHENTICATED
    call = stub.ServerReflectionInfo(iter([question]), metadata=running.admin.metadata)
    listed = {each.name for each in (await call.read()).list_services_response.service}
    assert set(SERVICES) < listed


class Nobody:
    """An identity for methods that need none."""


@asynccontextmanager
async def behind(gate: Gate, service: str, method: str, behaviour: Any) -> AsyncIterator[Any]:
    """A unary method behind a gate of its own, ready to be called."""
    server = grpc.aio.server(interceptors=[gate])
    handlers = {method: grpc.unary_unary_rpc_method_handler(behaviour)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_unary(f"/{service}/{method}")
    finally:
        await server.stop(None)


async def served(behaviour: Any, *, deadline_seconds: float) -> Any:
    """One open method, called without a deadline."""
    nobody: Any = Nobody()
    gate = Gate(nobody, deadline_seconds=deadline_seconds)
    async with behind(gate, "grpc.health.v1.Health", "Check", behaviour) as call:
        return await call(b"")


async def test_a_call_without_a_deadline_gets_one() -> None:
    async def never(_: bytes, __: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    refusal = await refused(served(never, deadline_seconds=0.05))
    assert refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED


class TooLate:
    """The context of a call whose deadline passed on the way."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def time_remaining(self) -> float:
        return 0.0

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"

    def code(self) -> grpc.StatusCode:
        code: grpc.StatusCode = self.said["code"]
        return code

    def set_trailing_metadata(self, metadata: object) -> None:
        self.said["metadata"] = metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.said["code"] = code

    def set_details(self, details: str) -> None:
        self.said["details"] = details


async def test_nothing_is_done_for_a_call_whose_deadline_has_passed() -> None:
    async def asked(_: bytes, __: object) -> bytes:
        pytest.fail("nobody would hear of it")

    handler: Any = grpc.unary_unary_rpc_method_handler(asked)
    guard: Any = Guard(
        handler=handler,
        method="/s/M",
        deadline_seconds=PATIENCE_SECONDS,
        entered=lambda _: pytest.fail("it is too late to come in"),
        admit=lambda _: pytest.fail("it is no stream"),
        revocation=lambda: pytest.fail("it is no stream"),
        refused=lambda *_, **__: None,
        measures=CallMeasures(),
        large=LargeRequests(),
        clock=lambda: 0.0,
    )
    context = TooLate()
    assert await guard.guarded().stream_unary(iter(()), context) is None
    assert context.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("error", [RuntimeError("secret detail"), TimeoutError("secret detail")])
async def test_what_nobody_expected_is_logged_under_an_id_and_not_told(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def broken(_: bytes, __: object) -> bytes:
        raise error

    refusal = await refused(served(broken, deadline_seconds=PATIENCE_SECONDS))
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert "secret" not in refusal.message
    (record,) = [each for each in caplog.records if each.message == "unexpected error"]
    fields = vars(record)["fields"]
    assert fields["error_id"] in refusal.message
    assert record.exc_info


async def half_a_request(running: RunningControlPlane, path: str, *headers: str) -> Refusal:
    """How a call is refused whose request never arrives."""
    metadata = tuple(("authorization", header) for header in headers)
    call: Any = running.channel.stream_unary(path)(metadata=metadata, timeout=SECONDS)
    return await refused(call)


@pytest.mark.parametrize("headers", [[], ["Bearer 0123456789abcdef.secret"]])
async def test_a_refused_call_is_refused_before_its_request_is_read(
    running: RunningControlPlane, headers: list[str]
) -> None:
    for path in GUARDED:
        refusal = await half_a_request(running, path, *headers)
        assert refusal.code is grpc.StatusCode.UNAUTHENTICATED, path


async def test_an_agent_is_refused_before_its_request_is_read(
    running: RunningControlPlane,
) -> None:
    agent = await running.enrolled("member1")
    refusal = await half_a_request(running, GUARDED[0], str(agent.metadata[0][1]))
    assert refusal.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_call_without_any_request_is_the_callers_fault(
    running: RunningControlPlane,
) -> None:
    call: Any = running.channel.stream_unary("/federation.v1.Clusters/EnrollCluster")
    refusal = await refused(call(iter(()), timeout=SECONDS))
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "UNDECODABLE")


def test_the_methods_that_take_much_exist() -> None:
    assert set(PATHS) >= BIG_METHODS.keys() - {"/federation.v1.Scoring/ScoreNodes"}


class CountingStore:
    """A store that counts how often it is read."""

    def __init__(self, store: PostgresStore) -> None:
        self.reads = 0
        self._store = store

    def reading(self) -> Any:
        self.reads += 1
        return self._store.reading()


async def test_a_flood_of_wrong_credentials_is_not_looked_up(store: PostgresStore) -> None:
    counting: Any = CountingStore(store)
    mistakes = 5
    few = CallLimits(calls=100, reads=1, mistakes=mistakes, mistakes_per_second=0.0)
    gate = Gate(
        Identity(counting, SystemClock()),
        strangers=partial(Strangers, in_all=few, per_address=few, pause_seconds=0.0),
    )
    codes = [await refused_code(gate, f"Bearer id{number}.secret") for number in range(20)]
    assert codes.count(grpc.StatusCode.UNAUTHENTICATED) == mistakes
    assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == len(codes) - mistakes
    assert counting.reads == mistakes


async def refused_code(gate: Gate, header: str) -> grpc.StatusCode:
    async def never(_: bytes, __: object) -> bytes:
        return pytest.fail("nobody is to be served")

    async with behind(gate, "federation.v1.Scheduling", "Schedule", never) as call:
        return (await refused(call(b"", metadata=(("authorization", header),)))).code


async def test_who_is_known_is_served_whatever_strangers_do(
    running: RunningControlPlane,
) -> None:
    listed = partial(raw, running, "/federation.v1.Clusters/ListClusters", b"")
    await listed(await admin_header(running))
    wrong = [
        raw(running, GUARDED[0], b"", f"Bearer id{number}.secret")
        for number in range(PER_ADDRESS.mistakes + 50)
    ]
    ended = await asyncio.gather(*map(refused, wrong))
    assert grpc.StatusCode.UNAUTHENTICATED in {each.code for each in ended}
    await listed(await admin_header(running))


async def test_an_agent_has_few_streams_at_once(running: RunningControlPlane) -> None:
    agent = await running.enrolled("member1")
    calls = [agent.agents.Connect(metadata=agent.metadata) for _ in range(STREAMS_PER_AGENT + 1)]
    ended = [asyncio.create_task(refused(call.read())) for call in calls]
    # Nobody has said hello: those that were let in wait for it.
    done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result().code for task in done] == [grpc.StatusCode.RESOURCE_EXHAUSTED]
    for call in calls:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    ("limit", "number"),
    # Of all calls one caller has half of those that others leave free.
    [("CALLS_PER_CONNECTION", 3), ("CALLS_IN_ALL", 7)],
)
async def test_callers_have_so_many_calls_at_once(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch, limit: str, number: int
) -> None:
    most = 3
    monkeypatch.setattr(interceptors, limit, number)
    other = running.caller(await running.token(Role.VIEWER))
    watch = running.admin.clusters.WatchClusters

    def begin() -> Any:
        return watch(clusters_pb2.WatchClustersRequest(), metadata=running.admin.metadata)

    calls = [begin() for _ in range(most)]
    for call in calls:
        assert await call.read() is not grpc.aio.EOF
    refusal = await refused(begin().read())
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(most) in refusal.message
    if limit == "CALLS_IN_ALL":
        await other.call(other.clusters.ListClusters, clusters_pb2.ListClustersRequest())
    for call in calls:
        call.cancel()
    # Those that ended leave their places; that they did is heard of soon.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (code := await code_of_a_list(running)) is not grpc.StatusCode.OK:
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def code_of_a_list(running: RunningControlPlane) -> grpc.StatusCode:
    request = clusters_pb2.ListClustersRequest()
    call = running.admin.clusters.ListClusters(request, metadata=running.admin.metadata)
    code: grpc.StatusCode = await call.code()
    return code
