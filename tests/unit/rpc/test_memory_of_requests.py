"""A request is forgotten with its answer, not at some later look of the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import queue
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest

from federation.model.errors import InvalidRequest
from federation.rpc import large_requests
from federation.rpc.decoding import SMALL_REQUEST_BYTES
from federation.rpc.guards import Guard, release_frames
from federation.rpc.interceptors import OPEN_METHODS, Gate
from federation.rpc.large_requests import LARGE_BYTES
from federation.services.members.identity import Identity
from federation.services.threads import Threads
from federation.v1.clusters_pb2 import EnrollClusterRequest
from lab.patience import PATIENCE_SECONDS, until

# A method that needs no credential, so that nobody has to be asked.
PATH = next(path for path in sorted(OPEN_METHODS) if path.endswith("EnrollCluster"))
WORK = Threads("work of a test", workers=1, most_waiting=1)


class Request:
    """What a message is read into; all that is asked of one, for the audit too."""

    DESCRIPTOR = EnrollClusterRequest.DESCRIPTOR
    cluster = "member1"

    def ByteSize(self) -> int:  # noqa: N802 - as messages have it
        return 0

    def SerializeToString(self, *, deterministic: bool) -> bytes:  # noqa: N802 - as above
        return b""


@pytest.fixture
def requests() -> Iterator[weakref.WeakSet[Request]]:
    """Those that are still known, while no garbage is collected."""
    gc.collect()
    gc.disable()
    yield weakref.WeakSet()
    gc.enable()


class Handlers(grpc.GenericRpcHandler):
    """One method, which answers with its request or refuses it."""

    def __init__(self, requests: weakref.WeakSet[Request], *, refuse: bool) -> None:
        self._requests = requests
        self._refuse = refuse

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.unary_unary_rpc_method_handler(self.answer, self.read)

    def read(self, _: bytes) -> Request:
        request = Request()
        self._requests.add(request)
        return request

    async def answer(self, request: Request, _: object) -> bytes:
        return await WORK.run(self.work, request)

    def work(self, request: Request) -> bytes:
        if self._refuse:
            raise InvalidRequest.of("field", "is wrong")
        return type(request).__name__.encode()


async def serving(handlers: Handlers) -> AsyncIterator[grpc.aio.Channel]:
    unused: Any = None
    server = grpc.aio.server(interceptors=[Gate(Identity(unused, unused))])
    server.add_generic_rpc_handlers([handlers])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    await server.stop(None)


@pytest.mark.parametrize("refuse", [True, False])
async def test_requests_are_forgotten_with_their_answers(
    requests: weakref.WeakSet[Request], *, refuse: bool
) -> None:
    async for channel in serving(Handlers(requests, refuse=refuse)):
        for _ in range(10):
            call: Any = channel.unary_unary(PATH)(b"", timeout=PATIENCE_SECONDS)
            if refuse:
                assert (await call.code()) is grpc.StatusCode.INVALID_ARGUMENT
            else:
                assert (await call) == b"Request"
        # The server ends a call a moment after its caller has heard the answer.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if len(requests) <= 1:
                    break
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("size_bytes", [LARGE_BYTES + 1, SMALL_REQUEST_BYTES + 1])
async def test_what_large_requests_were_received_in_is_given_back(
    requests: weakref.WeakSet[Request], monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """Once for all that came, those that are refused by their size as well."""
    given_back = queue.SimpleQueue[None]()
    monkeypatch.setattr(large_requests, "give_back_now", lambda: given_back.put(None))
    async for channel in serving(Handlers(requests, refuse=True)):
        for size in (1, size_bytes, size_bytes):
            call: Any = channel.unary_unary(PATH)(bytes(size), timeout=PATIENCE_SECONDS)
            assert (await call.code()) is not grpc.StatusCode.OK
        await asyncio.to_thread(given_back.get, timeout=PATIENCE_SECONDS)
    assert given_back.empty()


@pytest.mark.parametrize("refuse", ["the credential", "the request"])
async def test_refused_calls_leave_nothing(requests: weakref.WeakSet[Request], refuse: str) -> None:
    """A cycle that is in use while the collector looks is spared for ever, so none is made."""
    path, code = PATH, grpc.StatusCode.INVALID_ARGUMENT
    if refuse == "the credential":
        path, code = "/federation.v1.Clusters/ListClusters", grpc.StatusCode.UNAUTHENTICATED
    async for channel in serving(Handlers(requests, refuse=True)):
        for _ in range(20):
            call: Any = channel.unary_unary(path)(
                b"", timeout=PATIENCE_SECONDS, metadata=(("authorization", "Bearer wrong"),)
            )
            assert (await call.code()) is code
        # What one call is served with; its error, status and frames hang on it.
        await until(_calls_known, lambda known: known == 0)


async def test_who_handed_an_error_on_goes_on_working() -> None:
    """What decides for many tells one of them of an error, and still has the others to serve."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    told = asyncio.Event()

    async def serve() -> str:
        try:
            raise InvalidRequest.of("field", "is wrong")
        except InvalidRequest as error:
            answer.set_exception(error)
        await told.wait()
        return "served the others"

    serving_others = asyncio.create_task(serve())
    with pytest.raises(InvalidRequest) as refused:
        await answer
    release_frames(refused.value)
    told.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await serving_others == "served the others"


async def _calls_known() -> int:
    await asyncio.sleep(0.01)
    return sum(isinstance(known, Guard) for known in gc.get_objects())
