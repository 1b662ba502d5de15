"""Requests of many bytes: decoded one at a time, with time for everybody else in between.

Must not know what a request says. A small one never waits behind a large one of another connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from federation.model.errors import LimitExceeded
from federation.runtime.allocator import give_back_now
from federation.services.pace import Shares
from federation.services.threads import DECODING, GIVING_BACK

# Less is decoded and read in less than 5 ms.
LARGE_BYTES = 32 * 1024
# What more would send stays with its sender, whatever its size turns out to be.
READS_PER_CONNECTION = 8
# Each may hold 4 MiB meanwhile.
MAX_WAITING = 64
# What is decoded or checked keeps the interpreter, in any thread: for so many times as long nothing
# large is decoded then.
REST = 9.0
# What gRPC takes to receive it, decrypted, outside the interpreter.
SECONDS_PER_BYTE = 5e-9
# What large requests were received in is free again by then, in pieces between other blocks.
GIVE_BACK_SECONDS = 1.0

_is_large: ContextVar[bool] = ContextVar("is_large", default=False)


def is_large_request() -> bool:
    """Whether the request of the call that is being served takes long to read."""
    return _is_large.get()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecoded:
    """Stands in for a large request until it is its turn; then it is checked in a thread.

    ``received_bytes``: of these the ``payload`` is left out where they are too many.
    """

    payload: bytes
    received_bytes: int
    decode: Callable[[bytes], Any]
    check: Callable[[Any], Any] | None = None


class _Taken:
    """How long one request has kept a core or the interpreter, in whichever thread."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def by(self, step: Callable[[Any], Any], given: Any) -> Any:
        begun = time.thread_time()
        try:
            return step(given)
        finally:
            self.seconds += time.thread_time() - begun


class LargeRequests:
    """Belongs to one event loop."""

    def __init__(self, *, rest: float = REST, give_back_seconds: float = GIVE_BACK_SECONDS) -> None:
        self._rest = rest
        self._give_back_seconds = give_back_seconds
        self._has_come = False
        self._giving_back: asyncio.Task[None] | None = None
        self.shares = Shares(MAX_WAITING, "large requests")
        self._free = asyncio.Semaphore(1)
        self._reads: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def reading(self, connection: str) -> AbstractAsyncContextManager[None]:
        """Return what a request is read within, from its way here until it is decoded."""
        reads = self._reads.get(connection)
        if reads is None:
            reads = self._reads[connection] = asyncio.Semaphore(READS_PER_CONNECTION)
        return reads

    def came(self) -> None:
        """A large one did, or one that may have been: soon the system is given back what it was
        received in, which is more than its bytes.
        """
        self._has_come = True
        if self._giving_back is None:
            self._giving_back = asyncio.create_task(self._give_back())

    async def _give_back(self) -> None:
        while self._has_come:
            self._has_come = False
            await asyncio.sleep(self._give_back_seconds)
            with suppress(LimitExceeded):
                await GIVING_BACK.run(give_back_now)
        self._giving_back = None

    async def decoded(self, request: Undecoded, actor: str) -> Any:
        """Decode a request when its turn comes. Raises LimitExceeded if too many wait already."""
        self.came()
        self.shares.take(actor)
        try:
            await self._free.acquire()
        finally:
            self.shares.give_back(actor)
        taken = _Taken(seconds=request.received_bytes * SECONDS_PER_BYTE)
        try:
            _is_large.set(True)
            message = taken.by(request.decode, request.payload)
            if request.check is None:
                return message
            return await DECODING.run(taken.by, request.check, message)
        finally:
            pause = self._rest * taken.seconds
            asyncio.get_running_loop().call_later(pause, self._free.release)
