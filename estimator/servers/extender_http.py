"""The extender's HTTP server: paths, limits, TLS, and errors as kube-scheduler takes them.

Must not judge. Any path whose last part is a verb is served, so that any urlPrefix works.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web import RequestPayloadError

from estimator.servers.extender import Extender
from estimator.servers.extender_wire import error_answer
from federation.model.errors import FederationError, PreconditionFailed, Unavailable
from federation.model.printable import printable
from federation.runtime.connections import Connections

CALLERS_FAULTS: Final = (HttpProcessingError, RequestPayloadError, ConnectionError)
PERIOD_SECONDS: Final = 10.0
LINES_A_PERIOD: Final = 20
SHOWN_CHARACTERS: Final = 200

# Names of 200,000 nodes, or 1,800 whole ones: beyond that kube-scheduler's five seconds are over.
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
MAX_CONCURRENT: Final = 8
READ_SECONDS: Final = 5.0
# Bodies on their way at once; a slow one must not take the place of an answer.
MAX_READS: Final = 32
# Whoever says nothing, or not the whole of a request's headers, keeps its connection no longer.
IDLE_SECONDS: Final = 30.0
HANDSHAKE_SECONDS: Final = 10.0
# A few kube-schedulers keep a few each.
MAX_CONNECTIONS: Final = 200
CONNECTIONS_PER_ADDRESS: Final = 50
# The verbs whose answer has a field for an error; the others can only fail as a whole.
ERROR_VERBS: Final = frozenset({"filter", "bind"})

logger = logging.getLogger(__name__)


class ExtenderServer:
    """Serves an extender on one port until stopped. Port 0 takes any; ``port`` says which."""

    def __init__(
        self, extender: Extender, *, host: str, port: int, tls: ssl.SSLContext | None
    ) -> None:
        self.host, self.port = host, port
        self._verbs: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "filter": extender.filter,
            "prioritize": extender.prioritize,
            "preempt": extender.preempt,
            "bind": extender.bind,
        }
        self._tls = tls
        self._slots = asyncio.Semaphore(MAX_CONCURRENT)
        self._reads = asyncio.Semaphore(MAX_READS)
        self._connections = Connections(per_address=CONNECTIONS_PER_ADDRESS, in_all=MAX_CONNECTIONS)
        self._listener: asyncio.Server | None = None
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_get("/healthz", _healthz)
        application.router.add_post("/{path:.*}", self._serve)
        self._log = HttpLog(logger, time.monotonic)
        self._runner = web.AppRunner(application, access_log=None, logger=self._log)

    async def start(self) -> None:
        """Raises Unavailable when the port cannot be had."""
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                self._conversation,
                self.host,
                self.port,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {self.host}:{self.port}: {error.strerror or error}"
            ) from error
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        await self._runner.cleanup()

    def _conversation(self) -> web.RequestHandler:
        return _Conversation(
            cast("web.Server", self._runner.server),
            self._connections,
            access_log=None,
            logger=self._log,
            # A compressed body would be read whole before anybody could say that it is too large.
            auto_decompress=False,
            keepalive_timeout=IDLE_SECONDS,
        )

    async def _serve(self, request: web.Request) -> web.Response:
        verb = request.path.rpartition("/")[2]
        answer = self._verbs.get(verb)
        if answer is None:
            names = ", ".join(self._verbs)
            return _json(error_answer(f"no such verb: use one of {names}"), status=404)
        try:
            async with self._reads:
                body = await _body(request)
            async with self._slots:
                return _json(await answer(body))
        except TimeoutError:
            return _json(error_answer("the body took too long to come"), status=408)
        except FederationError as error:
            self._log.refused(f"{verb}: {error.message}")
            status = 200 if verb in ERROR_VERBS else 400
            return _json(error_answer(error.message), status=status)


class _Conversation(web.RequestHandler):
    """One connection, counted while it is open."""

    __slots__ = ("_address", "_connection", "_open")

    def __init__(self, server: web.Server, connections: Connections, **options: Any) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **options)
        self._open = connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        self._connection = cast("asyncio.Transport", transport)
        self._open.opened(self._address, self._connection)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.closed(self._address, self._connection)
        super().connection_lost(exc)


def server_tls(certificate: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """A context for serving; with ``client_ca`` only its clients are heard.

    Raises PreconditionFailed when a file cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password="")
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError, ValueError) as error:
        raise PreconditionFailed(f"the extender's TLS files cannot be used: {error}") from error
    return context


def renewed_tls(newest: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Return a context for a port: each new connection gets the newest one's files.

    Whether clients must show a certificate stays as it is in the first one.
    """
    first = newest()
    # A session that goes on would pass over what a newer authority says of its client.
    first.options |= ssl.OP_NO_TICKET
    first.num_tickets = 0

    def take_newest(
        connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        current = newest()
        if current is not first:
            connection.context = current

    # OpenSSL asks before it chooses a certificate, also where a client names no server.
    first.sni_callback = take_newest
    return first


async def _body(request: web.Request) -> bytes:
    async with asyncio.timeout(READ_SECONDS):
        return await request.read()


async def _healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


class HttpLog(logging.LoggerAdapter[logging.Logger]):
    """A logger for aiohttp: of many callers' faults in a short time most are only counted."""

    def __init__(self, logger: logging.Logger, clock: Callable[[], float]) -> None:
        super().__init__(logger)
        self._clock = clock
        self._period_ends = 0.0
        self._lines = 0

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if not isinstance(error, CALLERS_FAULTS):
            super().log(level, msg, *args, **kwargs)
        elif not isinstance(error, ConnectionError):
            self.refused(f"no HTTP request: {error}")

    def refused(self, why: str) -> None:
        """A caller sent something that cannot be answered."""
        now = self._clock()
        if now >= self._period_ends:
            if self._lines > LINES_A_PERIOD:
                self.logger.warning("extender: %d more were refused", self._lines - LINES_A_PERIOD)
            self._period_ends, self._lines = now + PERIOD_SECONDS, 0
        self._lines += 1
        if self._lines <= LINES_A_PERIOD:
            self.logger.warning("extender: refused: %s", _shown(why))


def _shown(text: str) -> str:
    """On one line, whatever the caller wrote."""
    return printable(" ".join(text.split())[:SHOWN_CHARACTERS])
