"""Liveness and readiness of an agent over plain HTTP, for the kubelet.

Must not tell anything else: whoever reaches the port may ask.
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
    """Answers /livez while the loop runs, by ``is_alive``, and /readyz by ``is_ready``."""

    def __init__(self, is_alive: Callable[[], bool], is_ready: Callable[[], bool]) -> None:
        self._is_alive = is_alive
        self._is_ready = is_ready
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
            case _:
                status = HTTPStatus.NOT_FOUND
        body = status.phrase.lower() + "\n"
        return (
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
        ).encode("ascii")


def _status(*, is_well: bool) -> HTTPStatus:
    return HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
