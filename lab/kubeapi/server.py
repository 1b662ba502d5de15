"""The fake API server on a real socket, in a thread of its own, so that clients may block.

Must not know what is right to answer: ``handlers`` and ``watching`` do. HTTP/1.1, over TLS where it
is given a certificate.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from aiohttp import web

from lab.kubeapi.access import ANONYMOUS, OPEN_PATHS, User, forbidden, unauthorized
from lab.kubeapi.documents import write_kubeconfig
from lab.kubeapi.faults import (
    Action,
    Answer,
    Asked,
    Cut,
    Delay,
    Drop,
    Faults,
    First,
    Silence,
)
from lab.kubeapi.handlers import (
    Handlers,
    Received,
    Reply,
    Target,
    asked_of,
    check_accept,
    target_of,
)
from lab.kubeapi.listing import version_asked
from lab.kubeapi.resources import Document
from lab.kubeapi.state import Cluster
from lab.kubeapi.statuses import NO_SNIFFING, Refused
from lab.kubeapi.watching import (
    Pulse,
    events,
    opening,
    wait_for_version,
    watch_options,
)
from lab.kubeapi.writing import Writer
from lab.patience import PATIENCE_SECONDS

ADMIN_TOKEN: Final = "admin"
NO_SUCH_GROUP: Final = Reply(status=404, text="404 page not found\n", headers=NO_SNIFFING)
# Longer bodies are sent without saying how long they are.
KNOWN_LENGTH_BYTES: Final = 2048
WAIT_SECONDS: Final = PATIENCE_SECONDS
# Turns of the loop from an accepted connection to one that the server knows.
ACCEPTING_TURNS: Final = 5

_Result = TypeVar("_Result")


class _CutOff(Exception):
    """A fault ends the connection here."""


class KubeApiServer:
    """Serves a cluster. ``second`` is how long one of its seconds really lasts.

    ``tokens`` says who is who; some may come and go while it runs. Lines of watches are sent in
    fragments of ``fragment_bytes``, or whole.
    """

    def __init__(
        self, cluster: Cluster, *, second: float = 1.0, tls: ssl.SSLContext | None = None
    ) -> None:
        self.cluster = cluster
        self.writer = Writer(cluster)
        self.faults = Faults()
        self.tokens: dict[str, User] = {ADMIN_TOKEN: User(name="admin")}
        self.requests: list[Asked] = []
        self.fragment_bytes = 0
        self.port = 0
        self.second = second
        self._tls = tls
        self._handlers = Handlers(cluster, self.writer)
        self._asked = threading.Condition()
        self._pulses: dict[Pulse, Asked] = {}
        self._frozen: set[Pulse] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubeapi")
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._call(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_SECONDS)
        self._loop.close()

    @property
    def reviews(self) -> dict[str, Document]:
        """Tokens of service accounts: user and audiences of each."""
        return self._handlers.reviews

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen; again on the same port when it has listened before."""
        self._call(self._start())

    def stop(self) -> None:
        """Die as by SIGKILL: connections break wherever they are, the watch cache is lost."""
        self._call(self._stop())
        self.cluster.forget_window()

    def send_bookmarks(self) -> None:
        """Have every watch that allows bookmarks tell the version its cache has heard of."""
        for pulse in tuple(self._pulses):
            pulse.bookmark_wanted = True
            pulse.wake()

    def freeze_watches(self) -> None:
        """The watches open now say nothing more and do not end, whatever happens."""
        self._frozen |= self._pulses.keys()

    def end_watches(self) -> None:
        """End the watches open now, cleanly, as their timeouts would."""
        for pulse in tuple(self._pulses):
            pulse.is_ended = True
            pulse.wake()

    def say(self, line: bytes) -> None:
        """Send these bytes on every open watch, whatever they are."""
        for pulse in tuple(self._pulses):
            pulse.said.append(line)
            pulse.wake()

    def wait_for_watches(self, *resources: str) -> None:
        """Block until these are being watched from a version on."""

        def are_watched() -> bool:
            open_ = {
                asked.resource
                for asked in tuple(self._pulses.values())
                if "sendInitialEvents" not in asked.query
            }
            return open_.issuperset(resources)

        with self._asked:
            if not self._asked.wait_for(are_watched, WAIT_SECONDS):
                raise TimeoutError(f"not watched: {resources}; open: {self._pulses.values()}")

    def kubeconfig(self, path: Path, token: str = ADMIN_TOKEN) -> Path:
        """Write a kubeconfig for this server and return where it is."""
        return write_kubeconfig(path, self.url, token)

    def wait_for_request(
        self, wanted: Callable[[Asked], bool], *, after: int = 0, seconds: float = WAIT_SECONDS
    ) -> Asked:
        """Block until a request like this has come, skipping the first ``after`` of all."""

        def found() -> Asked | None:
            return next((asked for asked in self.requests[after:] if wanted(asked)), None)

        with self._asked:
            if not self._asked.wait_for(found, seconds):
                raise TimeoutError(f"no such request in {seconds} s; there were {self.requests}")
            asked = found()
        assert asked is not None
        return asked

    def _call(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_SECONDS)

    async def _start(self) -> None:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.0
        )
        await self._runner.setup()
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        await web.SockSite(self._runner, self._listening, ssl_context=self._tls).start()

    async def _stop(self) -> None:
        if self._runner is None:
            return
        server = self._runner.server
        assert server is not None
        assert self._listening is not None
        # Connections that are just being accepted must be known before the server closes.
        self._loop.remove_reader(self._listening)
        for _ in range(ACCEPTING_TURNS):
            await asyncio.sleep(0)
        for connection in server.connections:
            if connection.transport is not None:
                connection.transport.abort()
        await self._runner.cleanup()
        self._runner = None

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        user = self._user(request)
        try:
            if user is None:
                return _refusal(unauthorized(), known=False)
            target = target_of(request.path)
            asked = asked_of(request.method, request.path, dict(request.query), target)
            asked = replace(asked, user=user.name, at_seconds=time.monotonic())
            action = self._record(asked)
            if isinstance(action, Answer):
                return _instead(action)
            if isinstance(action, Drop):
                return _dropped(request)
            if isinstance(action, Silence) and asked.verb != "watch":
                await asyncio.Event().wait()
            if isinstance(action, Delay):
                await asyncio.sleep(action.seconds * self.second)
            if isinstance(action, First):
                action.act()
            _authorize(user, asked, target)
            check_accept(request.headers.get("Accept", ""))
            if asked.verb == "watch":
                return await self._watch(request, asked, target, action)
            await self._await_version(asked)
            received = Received(
                accept=request.headers.get("Accept", ""),
                content_type=request.headers.get("Content-Type", "").split(";")[0],
                body=await request.read(),
            )
            return await self._reply(request, self._handlers.answer(asked, target, received, user))
        except Refused as refused:
            return _refusal(refused)
        except web.HTTPNotFound:
            return await self._reply(
                request, Reply(status=404, text="404 page not found\n", headers=NO_SNIFFING)
            )

    def _user(self, request: web.Request) -> User | None:
        """None when the token is nobody's."""
        header = request.headers.get("Authorization")
        if header is None:
            return User(name=ANONYMOUS, rules=())
        return self.tokens.get(header.removeprefix("Bearer "))

    def _record(self, asked: Asked) -> Action | None:
        with self._asked:
            self.requests.append(asked)
            self._asked.notify_all()
        return self.faults.take(asked)

    async def _await_version(self, asked: Asked) -> None:
        if asked.verb != "list":
            return
        version = version_asked(asked.query)
        if version is not None and version > self.cluster.version:
            pulse = Pulse(self.second)
            status = await wait_for_version(self.cluster, version, pulse)
            if status is not None:
                raise Refused(status)

    async def _watch(
        self, request: web.Request, asked: Asked, target: Target, action: Action | None
    ) -> web.StreamResponse:
        assert target.resource is not None
        options = watch_options(target.resource, target.namespace, asked.query)
        pulse = Pulse(self.second)
        unsubscribe = self.cluster.subscribe(pulse.wake)
        with self._asked:
            self._pulses[pulse] = asked
            self._asked.notify_all()
        response = web.StreamResponse(headers=_headers("application/json"))
        response.enable_chunked_encoding()
        if isinstance(action, Silence):
            self._frozen.add(pulse)
        try:
            opened = await opening(self.cluster, target.resource, options, pulse)
            await response.prepare(request)
            stream = events(self.cluster, target.resource, options, opened, pulse)
            await self._write_stream(response, stream, pulse, action)
            await response.write_eof()
        except _CutOff:
            return _dropped(request)
        except ConnectionError:
            return response
        finally:
            unsubscribe()
            del self._pulses[pulse]
            self._frozen.discard(pulse)
        return response

    async def _write_stream(
        self,
        response: web.StreamResponse,
        stream: AsyncIterator[Document | bytes],
        pulse: Pulse,
        action: Action | None,
    ) -> None:
        sent = 0
        async for event in stream:
            if pulse in self._frozen:
                break
            if isinstance(event, bytes):
                await response.write(event)
                continue
            line = json.dumps(event, separators=(",", ":")).encode() + b"\n"
            if isinstance(action, Cut) and sent == action.whole_lines:
                await response.write(line[: len(line) // 2])
                raise _CutOff
            await self._write_fragments(response, line)
            sent += 1
        if pulse in self._frozen:
            await asyncio.Event().wait()

    async def _write_fragments(self, response: web.StreamResponse, line: bytes) -> None:
        size = self.fragment_bytes or len(line)
        for start in range(0, len(line), size):
            await response.write(line[start : start + size])

    async def _reply(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        if reply.document is None:
            headers = {**_headers("text/plain; charset=utf-8"), **reply.headers}
            return web.Response(status=reply.status, body=reply.text.encode(), headers=headers)
        body = json.dumps(reply.document, separators=(",", ":")).encode() + b"\n"
        headers = {**_headers("application/json"), **reply.headers}
        if len(body) <= KNOWN_LENGTH_BYTES:
            return web.Response(status=reply.status, body=body, headers=headers)
        response = web.StreamResponse(status=reply.status, headers=headers)
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(body)
        await response.write_eof()
        return response


def _refusal(refused: Refused, *, known: bool = True) -> web.Response:
    body = json.dumps(refused.status, separators=(",", ":")).encode() + b"\n"
    headers = {**_headers("application/json", known=known), **refused.headers}
    return web.Response(status=refused.code, body=body, headers=headers)


def _instead(answer: Answer) -> web.Response:
    headers = {**_headers(answer.content_type), **answer.headers}
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _authorize(user: User, asked: Asked, target: Target) -> None:
    if target.name in OPEN_PATHS:
        return
    if target.resource is None and user.name != ANONYMOUS:
        return
    if not user.may(asked):
        raise forbidden(user.name, asked)


def _headers(content_type: str, *, known: bool = True) -> dict[str, str]:
    headers = {
        "Audit-Id": str(uuid.uuid4()),
        "Cache-Control": "no-cache, private",
        "Content-Type": content_type,
    }
    if known:
        headers["X-Kubernetes-Pf-Flowschema-Uid"] = str(uuid.uuid4())
        headers["X-Kubernetes-Pf-Prioritylevel-Uid"] = str(uuid.uuid4())
    return headers


def _dropped(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def cluster_of_file(path: Path) -> Cluster:
    """A cluster from what ``kubectl get ... -A -o json`` printed."""
    documents: list[Document] = json.loads(path.read_bytes())["items"]
    return Cluster.of(documents)
