"""How soon a busy event loop takes the calls that came, and what becomes of them at the end."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from grpc_health.v1 import health_pb2 as _health  # noqa: F401 - tells the pool of its methods

from federation.rpc import calls_ahead
from federation.rpc.calls_ahead import server_with_calls_ahead
from federation.rpc.served import OFTEN_CALLED
from lab.patience import PATIENCE_SECONDS, until

METHOD = "/test.Test/Call"
CALLS = 40
# Of one turn of a busy event loop.
TURN_SECONDS = 0.002

Behaviour = Callable[[bytes, Any], Coroutine[Any, Any, bytes]]


class Turns:
    """Makes each turn of the event loop last, and counts them."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._next = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        time.sleep(TURN_SECONDS)
        self.count += 1
        self._next = self._loop.call_soon(self._turn)

    def end(self) -> None:
        self._next.cancel()


@asynccontextmanager
async def calling(
    server: grpc.aio.Server, behaviour: Behaviour
) -> AsyncIterator[tuple[grpc.Channel, int]]:
    """A channel to it whose calls need nothing of this event loop, and its port."""
    service, name = METHOD.strip("/").split("/")
    handler: Any = grpc.unary_unary_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {name: handler})]
    )
    server.add_registered_method_handlers(service, {name: handler})
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        await asyncio.to_thread(grpc.channel_ready_future(channel).result, PATIENCE_SECONDS)
        yield channel, port


async def turns_of_all(server: grpc.aio.Server) -> int:
    """How many turns passed until the last of the calls was served."""
    served = 0
    all_served = asyncio.Event()

    async def behaviour(request: bytes, _: Any) -> bytes:
        nonlocal served
        served += 1
        if served == CALLS:
            all_served.set()
        return request

    async with calling(server, behaviour) as (channel, _):
        method: Any = channel.unary_unary(METHOD)
        answers = [method.future(str(number).encode()) for number in range(CALLS)]
        turns = Turns()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await all_served.wait()
        turns.end()
        told = await asyncio.to_thread(lambda: [each.result(PATIENCE_SECONDS) for each in answers])
        assert told == [str(number).encode() for number in range(CALLS)]
        await server.stop(None)
    return turns.count


def arrived_at(port: int) -> int:
    """How many calls have come to this port, whether or not an event loop took them."""
    core: Any = importlib.import_module("grpc._cython.cygrpc")
    arrived, last_id, is_last_page = 0, 0, False
    # A server gets its number when it is first listed, and other tests of this process have some.
    while not is_last_page:
        page = json.loads(core.channelz_get_servers(last_id + 1))
        server_ids = [int(server["ref"]["serverId"]) for server in page.get("server", ())]
        for server_id in server_ids:
            listed = json.loads(core.channelz_get_server_sockets(server_id, 0, 0))
            for reference in listed.get("socketRef", ()):
                arrived += arrived_on(core.channelz_get_socket(int(reference["socketId"])), port)
        last_id, is_last_page = max([last_id, *server_ids]), page.get("end", False)
    return arrived


def arrived_on(answer: str, port: int) -> int:
    """How many calls have come on a connection, if it is one to this port."""
    socket = json.loads(answer)["socket"]
    if socket["local"].get("tcpipAddress", {}).get("port") != port:
        return 0
    return int(socket["data"].get("streamsStarted", 0))


@pytest.mark.parametrize("often_called", [{METHOD}, ()])
async def test_a_busy_event_loop_takes_a_call_every_other_turn(
    often_called: Collection[str],
) -> None:
    """A busy machine only adds turns, in which nothing has come: the fewest count."""
    one_by_one = min([await turns_of_all(grpc.aio.server()) for _ in range(3)])

    async def ahead() -> int:
        return await turns_of_all(server_with_calls_ahead(often_called))

    await until(ahead, lambda turns: turns < 0.7 * one_by_one)


async def test_a_server_that_stops_waits_for_no_call_that_it_does_not_serve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def behaviour(request: bytes, _: Any) -> bytes:
        return request

    server = server_with_calls_ahead({METHOD}, options=(("grpc.enable_channelz", 1),))
    async with calling(server, behaviour) as (channel, port):
        method: Any = channel.unary_unary(METHOD)
        answers = [method.future(b"") for _ in range(CALLS)]
        deadline = time.monotonic() + PATIENCE_SECONDS
        while arrived_at(port) < CALLS:
            assert time.monotonic() < deadline
            time.sleep(TURN_SECONDS)  # noqa: ASYNC251 - the event loop takes none of them
        async with asyncio.timeout(PATIENCE_SECONDS):
            await server.stop(100 * PATIENCE_SECONDS)
        await asyncio.to_thread(lambda: [each.exception(PATIENCE_SECONDS) for each in answers])
    assert not caplog.records


async def test_a_grpcio_without_that_place_serves_as_it_does_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls_ahead, "_ASKING", ("there_is_no_such_method",))
    assert await turns_of_all(server_with_calls_ahead({METHOD})) > 0


@pytest.mark.parametrize("called", OFTEN_CALLED)
def test_methods_that_have_a_queue_each_are_there(called: str) -> None:
    name = called.removeprefix("/").replace("/", ".")
    assert descriptor_pool.Default().FindMethodByName(name).full_name == name
