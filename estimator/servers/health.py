"""Liveness and readiness over plain HTTP, for the kubelet, and metrics where there are some.

Must not show secrets: anybody who reaches the port may ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

REQUEST_SECONDS: Final = 5.0
REQUEST_BYTES: Final = 8_192
# A new connection takes the place of the oldest: who asks at once is answered.
MAX_CONNECTIONS: Final = 64


class HealthServer:
    """Answers /livez while the loop runs, by ``is_alive``, /readyz by ``is_ready``, and /metrics
    with the page that ``metrics`` makes, and its type.
    """

    def __init__(
        self,
        is_alive: Callable[[], bool],
        is_ready: Callable[[], bool],
        metrics: Callable[[], tuple[bytes, str]] | None = None,
    ) -> None:
        self._is_alive = is_alive
        self._is_ready = is_ready
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is chosen when 0 is given. Raises OSError."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES)
        chosen: int = self._server.sockets[0].getsockname()[1]
        return chosen

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
        except (
            TimeoutError,
            ConnectionError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        match head.split(b" ", 2)[:2]:
            case [b"GET", b"/livez"]:
                status = _status(is_well=self._is_alive())
            case [b"GET", b"/readyz"]:
                status = _status(is_well=self._is_ready())
            case [b"GET", b"/metrics"] if self._metrics is not None:
                return _reply(HTTPStatus.OK, *self._metrics())
            case _:
                status = HTTPStatus.NOT_FOUND
        return _reply(status, f"{status.phrase.lower()}\n".encode("ascii"), "text/plain")


def _reply(status: HTTPStatus, body: bytes, content_type: str) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _status(*, is_well: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
