"""Watches that go on: resumed when the connection breaks, begun anew when too much was missed.

Must not remember objects: callers are told when to forget theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import grpc
import grpc.aio

from federation.client.failures import error_of
from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    Unauthenticated,
    Unavailable,
)
from federation.runtime.backoff import Backoff

RELIST: Final = "RELIST"
# Bookmarks come every 30 s: who hears nothing for three of them hears nobody.
SILENT_SECONDS: Final = 90.0
FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 15.0

E = TypeVar("E")


# Calls an rpc that watches, from a resource version on.
Open = Callable[[str], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMessage(Generic[E]):
    """Some events, bookmarks included. A later watch may start at ``resource_version``.

    ``relist``: forget everything, what is there now is told again; there are no events.
    """

    events: Sequence[E] = ()
    resource_version: str = ""
    relist: bool = False


async def watched(open_stream: Open, resource_version: str) -> AsyncGenerator[WatchMessage[Any]]:
    """Without end. Raises what cannot be helped by watching again, or fails at the first try."""
    backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS)
    version, is_heard = resource_version, False
    if not version:
        yield WatchMessage(relist=True)
    while True:
        is_let_in = False
        try:
            async with aclosing(responses(open_stream(version), SILENT_SECONDS)) as stream:
                async for response in stream:
                    is_heard = is_let_in = True
                    backoff.reset()
                    version = response.resource_version
                    yield WatchMessage(events=response.events, resource_version=version)
        except Conflict as error:
            if error.reason != RELIST:
                raise
            version = ""
        except InvalidRequest:
            # A version of a caller's is wrong; one that was told is of another release, or history.
            if version in ("", resource_version):
                raise
            version = ""
        except Unauthenticated:
            # Its token ended; there may be another one by now.
            if not is_let_in:
                raise
        except Unavailable:
            if not is_heard:
                raise
        await asyncio.sleep(backoff.next_seconds())
        if not version:
            yield WatchMessage(relist=True)


async def responses(call: Any, silent_seconds: float | None = None) -> AsyncGenerator[Any]:
    """Until the stream ends, or says nothing for so long. Raises FederationError."""
    try:
        while True:
            async with asyncio.timeout(silent_seconds):
                response = await call.read()
            if response is grpc.aio.EOF:
                return
            yield response
    except TimeoutError as error:
        raise Unavailable("nothing is heard of the control plane") from error
    except grpc.aio.AioRpcError as failure:
        raise _error_of(failure) from failure
    finally:
        call.cancel()


def _error_of(failure: grpc.aio.AioRpcError) -> FederationError:
    # A stream that the network broke in the middle may end in any of these.
    if failure.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN):
        return Unavailable(failure.details() or "the stream broke")
    return error_of(failure)
