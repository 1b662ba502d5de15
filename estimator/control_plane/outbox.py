"""What waits to be sent on a stream, bounded: one report, one heartbeat, some replies.

Must not lose the newest of anything. Belongs to one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from federation.v1.agents_pb2 import ConnectRequest

MAX_REPLIES: Final = 128


class Outbox:
    """Replies go first because somebody waits for them; a newer report replaces an unsent one."""

    def __init__(self) -> None:
        # An overflowing deque drops its oldest reply: that question's time is up first.
        self._replies: deque[ConnectRequest] = deque(maxlen=MAX_REPLIES)
        self._report: ConnectRequest | None = None
        self._heartbeat: ConnectRequest | None = None
        self._closed = False
        self._changed = asyncio.Event()

    def put_reply(self, message: ConnectRequest) -> None:
        self._replies.append(message)
        self._changed.set()

    def put_report(self, message: ConnectRequest) -> None:
        self._report = message
        self._changed.set()

    def put_heartbeat(self, message: ConnectRequest) -> None:
        """Sent after a waiting report, which it may name."""
        self._heartbeat = message
        self._changed.set()

    def close(self) -> None:
        """What waits is still handed out, and then nothing more."""
        self._closed = True
        self._changed.set()

    async def take(self) -> ConnectRequest | None:
        """The next message to send, None when there will be none."""
        while True:
            if self._replies:
                return self._replies.popleft()
            if self._report is not None:
                message, self._report = self._report, None
                return message
            if self._heartbeat is not None:
                message, self._heartbeat = self._heartbeat, None
                return message
            if self._closed:
                return None
            self._changed.clear()
            await self._changed.wait()
