"""Calls that gRPC is asked for ahead, several of each method, so that a busy event loop takes all.

Must not change how a call is served; without the parts of grpcio that it needs nothing changes.

By itself grpcio asks for one call of each method, and needs five turns of the event loop before it
asks for the next: where a turn takes 1.6 ms that is 120 calls a second, and all others wait where
nobody sees them. It also waits for all methods at once, and begins anew with each call: with the 57
of this API that was a tenth of what a decision cost. So the methods that are called most have a
queue each, and all others share one.
"""

from __future__ import annotations

import asyncio
import importlib
from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from typing import Any, Final

import grpc

# One more is taken every other turn, so that three would do.
AHEAD: Final = 4
_ASKING: Final = ("_make_request_call_future", "shutdown")


def server_with_calls_ahead(often_called: Collection[str], **options: Any) -> grpc.aio.Server:
    """``grpc.aio.server``, given the same; methods have a queue each if they are called often."""
    core: Any = importlib.import_module("grpc._cython.cygrpc")
    plain = getattr(core, "AioServer", None)
    if plain is None or not all(hasattr(plain, each) for each in _ASKING):
        return grpc.aio.server(**options)
    core.AioServer = _asking_ahead(plain, frozenset(often_called))
    try:
        return grpc.aio.server(**options)
    finally:
        core.AioServer = plain


def _asking_ahead(plain: Any, often_called: frozenset[str]) -> type[Any]:
    class AsksAhead(plain):  # type: ignore[misc]  # known at run time alone
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self._ahead: defaultdict[bytes | None, deque[asyncio.Task[Any]]] = defaultdict(deque)

        def add_registered_method_handlers(self, handlers: Mapping[str, Any]) -> None:
            # A method that is not registered is found by its name among the generic handlers.
            super().add_registered_method_handlers(
                {name: handler for name, handler in handlers.items() if name in often_called}
            )

        def _make_request_call_future(self, method: bytes | None) -> asyncio.Task[Any]:
            """The next call of a method, None: of those that were not registered."""
            ahead = self._ahead[method]
            while len(ahead) < AHEAD:
                asked: asyncio.Task[Any] = super()._make_request_call_future(method)
                asked.add_done_callback(_look)
                ahead.append(asked)
            return ahead.popleft()

        async def shutdown(self, grace: float | None) -> None:
            # What nobody will serve any more ends now: gRPC would wait for it.
            self._ahead.clear()
            await super().shutdown(grace)

    return AsksAhead


def _look(asked: asyncio.Task[Any]) -> None:
    """A server that stops has no call for them: nobody else will look why."""
    if not asked.cancelled():
        asked.exception()
