"""The extender over HTTP: what hostile, old and impatient callers get, and that it goes on."""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
from aiohttp.http_exceptions import BadHttpMessage

from estimator.cluster.assumptions import UNSHOWN_SECONDS
from estimator.cluster.claims import Claim
from estimator.extender import server as module
from estimator.extender.extender import Extender
from estimator.extender.server import (
    LINES_A_PERIOD,
    MAX_BODY_BYTES,
    PERIOD_SECONDS,
    ExtenderServer,
    HttpLog,
)
from estimator.nodes import PodState
from estimator.sight import PROOF_SECONDS, TOLERATED_SECONDS, Loss, Sight
from estimator.watched_cluster import WatchedCluster
from federation.model.errors import Unavailable
from lab.extenders import RecordingBinding, extender_of, pod, two_nodes
from lab.patience import PATIENCE_SECONDS

POD = {
    "metadata": {"name": "p", "namespace": "d", "uid": "p-uid"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
}
FULL = "n0"

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


async def served(extender: Extender, tls: ssl.SSLContext | None = None) -> ExtenderServer:
    server = ExtenderServer(extender, host="127.0.0.1", port=0, tls=tls)
    await server.start()
    return server


@pytest.fixture
def cluster() -> WatchedCluster:
    return two_nodes(pod("busy", FULL, cpu=4000), pod("p"))


@pytest.fixture
def binding() -> RecordingBinding:
    return RecordingBinding()


@pytest.fixture
async def server(
    cluster: WatchedCluster, binding: RecordingBinding
) -> AsyncIterator[ExtenderServer]:
    server = await served(extender_of(cluster, binding))
    yield server
    await server.stop()


async def post(server: ExtenderServer, verb: str, body: Any) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session:
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        url = f"http://127.0.0.1:{server.port}/{verb}"
        async with session.post(url, **sent) as response:
            return response.status, await response.json(content_type=None)


def asking(name: str, cpu: str) -> dict[str, Any]:
    """A pod of namespace d as kube-scheduler sends it."""
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    metadata = {"name": name, "namespace": "d", "uid": f"{name}-uid"}
    return {"metadata": metadata, "spec": {"containers": containers}}


async def is_well(server: ExtenderServer) -> bool:
    status, answer = await post(server, "filter", {"Pod": POD, "NodeNames": ["n1"]})
    return status == 200 and answer["NodeNames"] == ["n1"]


@pytest.mark.parametrize(
    "body",
    [
        {"Pod": POD, "Nodes": None, "NodeNames": ["n0", "n1"]},
        {"pod": POD, "nodes": None, "nodenames": ["n0", "n1"]},
        {"POD": POD, "NODENAMES": ["n0", "n1"], "somethingNew": 1},
    ],
)
async def test_keys_may_be_in_any_case(server: ExtenderServer, body: dict[str, Any]) -> None:
    assert await post(server, "scheduler/v2/filter", body) == (
        200,
        {
            "NodeNames": ["n1"],
            "FailedNodes": {"n0": "short of cpu"},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        },
    )


async def test_nodes_nobody_knows_fail_and_score_nothing(server: ExtenderServer) -> None:
    body = {"Pod": POD, "NodeNames": ["elsewhere", "n1"]}
    _, filtered = await post(server, "filter", body)
    assert filtered["NodeNames"] == ["n1"]
    assert filtered["FailedNodes"] == {"elsewhere": "the agent does not know this node"}
    _, points = await post(server, "prioritize", body)
    assert points[0] == {"Host": "elsewhere", "Score": 0}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b'{"NodeNames": ["n1"]}',
        b'{"Pod": 3, "NodeNames": ["n1"]}',
        b'{"Pod": {"metadata": {"name": "p"}}, "NodeNames": "n1"}',
        b'{"Pod": {"metadata": {}, "spec": {"overhead": {"cpu": "much"}}}, "NodeNames": ["n1"]}',
        b'{"Pod": ' + b"[" * 100_000,
        b"\xff\xfe",
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_wrong_body_is_an_error_the_caller_understands(
    server: ExtenderServer, body: bytes
) -> None:
    status, answer = await post(server, "filter", body)
    assert status == 200
    assert answer["Error"]
    assert set(answer) == {"Error"}
    status, answer = await post(server, "prioritize", body)
    assert status == 400
    assert answer["Error"]
    assert await is_well(server)


POST = b"POST /filter HTTP/1.1\r\nHost: x\r\n"
NO_REQUESTS = {
    "another protocol": b"\x16\x03\x01\x02\x00\x01\xff\xfe\r\n\r\n",
    "no method": b"G\xffT / HTTP/1.1\r\n\r\n",
    "no version": b"GET / HTTP/9.9\r\n\r\n",
    "no target": b"GET http://[::1/x HTTP/1.1\r\nHost: x\r\n\r\n",
    "after a good one": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n\x1b[2Jno\r\n\r\n",
    "a line without end": b"a" * 200_000,
    "a large header": POST + b"X-A: " + b"a" * 20_000 + b"\r\n\r\n",
    "many headers": POST + b"X-A: b\r\n" * 5_000 + b"\r\n",
    "no header": POST + b"X-A\xff: \x00b\r\n\r\n",
    "no length": POST + b"Content-Length: abc\r\n\r\n",
    "two lengths": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "no chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


async def sent(server: ExtenderServer, content: bytes) -> bytes:
    """What comes back for these bytes until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(content)
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("content", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
async def test_what_is_no_request_is_one_line(
    server: ExtenderServer, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = await sent(server, content)
    assert b" 400 Bad Request\r\n" in answers
    refused = [record for record in caplog.records if "refused" in record.getMessage()]
    assert len(refused) == 1
    assert refused[0].getMessage().isprintable()
    assert not any(record.exc_info for record in caplog.records)
    assert await is_well(server)


async def test_half_a_request_is_not_worth_a_line(
    server: ExtenderServer, caplog: pytest.LogCaptureFixture
) -> None:
    for half in (b"POST /filter HT", POST + b"X", POST + b"Content-Length: 100\r\n\r\nabc"):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(half)
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
    assert await is_well(server)
    assert caplog.records == []


async def test_compressed_body_is_not_unpacked(server: ExtenderServer) -> None:
    body = gzip.compress(b" " * (3 * MAX_BODY_BYTES))
    head = b"Connection: close\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    answer = await sent(server, POST + head + body)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"not what an extender is sent" in answer


async def test_many_that_are_no_requests_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = HttpLog(logging.getLogger("tests"), lambda: now)
    for _ in range(LINES_A_PERIOD + 380):
        log.error("Error handling request", exc_info=BadHttpMessage("no"))
    assert len(caplog.records) == LINES_A_PERIOD
    now = PERIOD_SECONDS
    log.refused("filter: body: is required")
    told = [record.getMessage() for record in caplog.records[LINES_A_PERIOD:]]
    assert told == [
        "extender: 380 more were refused",
        "extender: refused: filter: body: is required",
    ]


async def test_our_own_fault_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    log = HttpLog(logging.getLogger("tests"), lambda: 0.0)
    log.error("Error handling request from %s", "me", exc_info=KeyError("ours"))
    (record,) = caplog.records
    assert record.exc_info is not None


async def held(server: ExtenderServer, said: bytes) -> tuple[Reader, Writer]:
    """A connection on which a request begins and never ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def ended(reader: Reader) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        with suppress(ConnectionResetError):
            await reader.read()


@pytest.mark.parametrize(
    "said", [b"", b"POST /filter HT", POST, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nPOST /fil"]
)
async def test_a_connection_without_a_whole_request_does_not_last(
    server: ExtenderServer, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    reader, writer = await held(server, said)
    await ended(reader)
    writer.close()


async def test_held_connections_keep_nobody_out(server: ExtenderServer) -> None:
    connections = [await held(server, POST) for _ in range(module.CONNECTIONS_PER_ADDRESS + 5)]
    assert await is_well(server)
    # The oldest had to go.
    await ended(connections[0][0])
    for _, writer in connections:
        writer.close()


async def test_slow_bodies_keep_nobody_from_being_answered(
    server: ExtenderServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_SECONDS", 2 * PATIENCE_SECONDS)
    slow = POST + b"Content-Length: 100\r\n\r\n{"
    connections = [await held(server, slow) for _ in range(2 * module.MAX_CONCURRENT)]
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await is_well(server)
    for _, writer in connections:
        writer.close()


async def test_body_that_is_too_large_is_refused(server: ExtenderServer) -> None:
    body = io.BytesIO(b" " * (3 * MAX_BODY_BYTES))
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{server.port}/filter"
        async with session.post(url, data=body) as response:
            assert response.status == 413
    assert await is_well(server)


async def test_unknown_verb_and_method(server: ExtenderServer) -> None:
    status, answer = await post(server, "evict", {})
    assert status == 404
    assert "filter, prioritize, preempt, bind" in answer["Error"]
    async with aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{server.port}/filter") as response:
            assert response.status == 405
        async with session.get(f"http://127.0.0.1:{server.port}/healthz") as response:
            assert response.status == 200


async def test_many_callers_at_once(server: ExtenderServer) -> None:
    assert all(await asyncio.gather(*(is_well(server) for _ in range(40))))


async def test_binding_counts_at_once(
    server: ExtenderServer, cluster: WatchedCluster, binding: RecordingBinding
) -> None:
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "p-uid", "Node": "n1"}
    assert await post(server, "bind", order) == (200, {"Error": ""})
    assert binding.bound == [("d", "p", "p-uid", "n1")]
    assert cluster.cache.snapshot().requested_n("pods").tolist() == [1, 1]


async def test_binding_to_a_node_that_is_not_there(
    server: ExtenderServer, binding: RecordingBinding
) -> None:
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "p-uid", "Node": "n7"}
    _, answer = await post(server, "bind", order)
    assert "does not know this node" in answer["Error"]
    assert binding.bound == []


async def test_binding_that_the_api_server_refuses(
    server: ExtenderServer, cluster: WatchedCluster, binding: RecordingBinding
) -> None:
    binding.taken.add("p-uid")
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "p-uid", "Node": "n1"}
    assert await post(server, "bind", order) == (
        200,
        {"Error": 'pod p is already assigned to node "n1"'},
    )
    assert cluster.cache.snapshot().requested_n("pods").tolist() == [1, 0]


async def test_binding_that_is_not_offered(cluster: WatchedCluster) -> None:
    server = await served(extender_of(cluster, binding=None))
    order = {"PodName": "p", "PodNamespace": "d", "PodUID": "p-uid", "Node": "n1"}
    assert await post(server, "bind", order) == (200, {"Error": "binding is off"})
    await server.stop()


async def test_cluster_without_nodes_is_no_reason_to_reject_all(
    cluster: WatchedCluster,
) -> None:
    cluster.cache.replace_nodes([])
    server = await served(extender_of(cluster))
    _, answer = await post(server, "filter", {"Pod": POD, "NodeNames": ["n0"]})
    assert answer == {"Error": "the agent knows no nodes yet"}
    await server.stop()


async def test_blind_agent_says_so_instead_of_judging() -> None:
    now = 0.0
    sight = Sight(lambda: now)
    cluster = two_nodes(pod("p"), sight=sight)
    server = await served(extender_of(cluster))
    sight.lose("pods", Loss(since=0.0, why="connection refused"))
    now = TOLERATED_SECONDS - 1
    assert await is_well(server)
    now = TOLERATED_SECONDS
    _, answer = await post(server, "filter", {"Pod": POD, "NodeNames": ["n1"]})
    assert answer == {
        "Error": "the agent has not seen its cluster for 5 s: pods: connection refused"
    }
    status, _ = await post(server, "prioritize", {"Pod": POD, "NodeNames": ["n1"]})
    assert status == 400
    sight.find("pods")
    now += PROOF_SECONDS
    assert await is_well(server)
    await server.stop()


async def test_a_pod_counts_where_it_was_let_until_it_is_seen(
    server: ExtenderServer, cluster: WatchedCluster
) -> None:
    """A claim of others leaves two of four cores; the first pod may be on its way there."""
    claim = Claim(node="n1", replicas=1, request={"cpu": 2000}, nonzero={})
    cluster.claims.hold("shop/web", [claim], now=0.0)
    asked = {name: {"Pod": asking(name, "1500m"), "NodeNames": ["n1"]} for name in ("p", "q")}
    _, answer = await post(server, "filter", asked["p"])
    assert answer["NodeNames"] == ["n1"]
    _, answer = await post(server, "filter", asked["q"])
    assert "let on them just now" in answer["Error"]
    _, answer = await post(server, "filter", {**asked["q"], "NodeNames": ["n0", "n1"]})
    assert "let on them just now" in answer["Error"]
    cluster.cache.put_pod(pod("p", "n0", cpu=1500))
    _, answer = await post(server, "filter", asked["q"])
    assert answer["NodeNames"] == ["n1"]


@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "never seen"])
async def test_a_pod_that_was_deleted_before_its_call_came_takes_nothing(
    cluster: WatchedCluster, is_seen: bool
) -> None:
    """kube-scheduler asks about a pod that another has deleted meanwhile."""
    now = 0.0
    extender = extender_of(cluster, clock=lambda: now)
    server = await served(extender)
    claim = Claim(node="n1", replicas=1, request={"cpu": 500}, nonzero={})
    cluster.claims.hold("shop/web", [claim], now=0.0)
    asked = {name: {"Pod": asking(name, "3"), "NodeNames": ["n1"]} for name in ("r", "q")}
    if is_seen:
        cluster.cache.put_pod(pod("r"))
        cluster.cache.remove_pod("r-uid")
    _, answer = await post(server, "filter", asked["r"])
    assert answer["NodeNames"] == ["n1"]
    if not is_seen:
        _, answer = await post(server, "filter", asked["q"])
        assert "let on them just now" in answer["Error"]
        now += UNSHOWN_SECONDS
    _, answer = await post(server, "filter", asked["q"])
    assert answer["NodeNames"] == ["n1"]
    await server.stop()


@pytest.mark.parametrize(("priority", "kept"), [(9, []), (10, []), (11, ["n1"])])
async def test_room_of_a_nominated_pod_is_open_to_higher_priorities_alone(
    server: ExtenderServer, cluster: WatchedCluster, priority: int, kept: list[str]
) -> None:
    nominated = pod("urgent", cpu=3000)._replace(nominated_node="n1", priority=10)
    cluster.cache.put_pod(nominated)
    question = {"Pod": asking("r", "2"), "NodeNames": ["n1"]}
    question["Pod"]["spec"]["priority"] = priority
    _, answer = await post(server, "filter", question)
    assert answer["NodeNames"] == kept
    own = {"Pod": asking("urgent", "3"), "NodeNames": ["n1"]}
    own["Pod"]["spec"]["priority"] = 10
    if not kept:
        _, answer = await post(server, "filter", own)
        assert answer["NodeNames"] == ["n1"]


async def test_a_pod_that_has_ended_before_its_call_came_takes_nothing(
    server: ExtenderServer, cluster: WatchedCluster
) -> None:
    cluster.cache.put_pod(pod("r")._replace(state=PodState.SUCCEEDED))
    await post(server, "filter", {"Pod": asking("r", "3"), "NodeNames": ["n1"]})
    assert len(cluster.assumed) == 0


async def test_port_that_is_taken(server: ExtenderServer, cluster: WatchedCluster) -> None:
    second = ExtenderServer(extender_of(cluster), host="127.0.0.1", port=server.port, tls=None)
    with pytest.raises(Unavailable, match="cannot listen on"):
        await second.start()
    await second.stop()
