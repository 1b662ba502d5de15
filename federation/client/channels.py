"""Connections to several control planes as one: whoever goes away, the next one is asked.

A call is sent again only where it was not sent at all, or can be repeated without harm. Must not
know what is called.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio

from federation.client.targets import Target
from federation.codec.timestamps import SERVER_TIME_KEY
from federation.runtime.backoff import Backoff

# How long one of several may take to be connected to, before the next one is tried.
CONNECT_SECONDS: Final = 3.0
FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
# How gRPC's core begins what it says where it had no connection to send a call over.
_NOT_SENT: Final = "failed to connect to all addresses"
# Changes nothing, whatever it is asked.
_READS: Final = re.compile(r"/(Get|List|Estimate|Export|Replay|Score|Simulate|WhoAmI)[A-Za-z]*$")
# What a request of a call that changes something says where that can be repeated.
_REPEATABLE: Final = ("idempotency_key", "preview_token", "preview")


class Channels:
    """As ``grpc.aio.Channel`` for the stubs: calls with one answer, and calls with a stream."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._channels = [channel_to(target, endpoint) for endpoint in target.endpoints]
        # Those whose calls may be under way still.
        self._retired: list[grpc.aio.Channel] = []
        self._asked = 0
        # How far the clock of the control plane that answered last is ahead of the clock here;
        # None: it has not said.
        self.server_ahead_seconds: float | None = None

    @property
    def asked(self) -> str:
        """The endpoint that is asked next."""
        return self._target.endpoints[self._asked]

    def renew(self, target: Target) -> None:
        """Make calls over new connections from now on, where the target has other certificates."""
        before, self._target = self._target, target
        if before.connection != target.connection:
            self._retired += self._channels
            self._channels = [channel_to(target, endpoint) for endpoint in target.endpoints]
            self._asked = 0

    async def close(self) -> None:
        """Calls under way end with an error."""
        for channel in (*self._channels, *self._retired):
            await channel.close()

    def _of_each(self, made: Callable[[grpc.aio.Channel], Any]) -> Callable[[int], Any]:
        """A method of each connection, by position, as long as these are the connections."""
        channels, methods = self._channels, [made(each) for each in self._channels]

        def at(position: int) -> Any:
            nonlocal channels, methods
            if channels is not self._channels:
                channels, methods = self._channels, [made(each) for each in self._channels]
            return methods[position]

        return at

    def unary_unary(self, method: str, *serializers: Any, **named: Any) -> Callable[..., Any]:
        """A method with one answer, as the stubs make it."""
        calls = self._of_each(lambda each: each.unary_unary(method, *serializers, **named))

        async def call(request: Any, *, timeout: float, metadata: Any) -> Any:  # noqa: ASYNC109 - the library's name
            harmless = bool(_READS.search(method)) or _can_be_repeated(request)

            async def ask(at: int, left: float) -> Any:
                asked = calls(at)(request, timeout=left, metadata=metadata)
                answer = await asked
                self._compare_clocks(await asked.trailing_metadata())
                return answer

            return await self._answered(ask, time.monotonic() + timeout, harmless=harmless)

        return call

    def _compare_clocks(self, trailing: Iterable[tuple[str, Any]] | None) -> None:
        said = dict(trailing or ()).get(SERVER_TIME_KEY, "")
        try:
            server_seconds = float(said)
        except ValueError:
            return
        if math.isfinite(server_seconds):
            self.server_ahead_seconds = server_seconds - time.time()

    def unary_stream(
        self, method: str, *serializers: Any, **named: Any
    ) -> Callable[..., AnsweredStream]:
        """A method with a stream of answers, as the stubs make it."""
        calls = self._of_each(lambda each: each.unary_stream(method, *serializers, **named))

        def call(request: Any, *, metadata: Any) -> AnsweredStream:
            return AnsweredStream(self, lambda at: calls(at)(request, metadata=metadata))

        return call

    async def connected(self, deadline: float) -> int:
        """Which one is asked: the one that was, if it can be reached, else the next that can."""
        count = len(self._channels)
        if count == 1:
            return 0
        for at in range(self._asked, self._asked + count):
            seconds = min(CONNECT_SECONDS, max(0.0, deadline - time.monotonic()))
            if await _is_reached(self._channels[at % count], seconds):
                self._asked = at % count
                break
        return self._asked

    def left(self, at: int) -> None:
        """It failed: the next one is asked from now on."""
        if self._asked == at:
            self._asked = (at + 1) % len(self._channels)

    async def _answered(
        self, call: Callable[[int, float], Awaitable[Any]], deadline: float, *, harmless: bool
    ) -> Any:
        backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS)
        others = len(self._channels) - 1
        tries_left = others + self._target.retries if harmless else 0
        not_sent_left = others
        while True:
            at = await self.connected(deadline)
            try:
                return await call(at, max(0.0, deadline - time.monotonic()))
            except grpc.aio.AioRpcError as failure:
                if failure.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                self.left(at)
                if not tries_left and not_sent_left and was_never_sent(failure):
                    not_sent_left -= 1
                    continue
                # Each of the others is tried at once, and then all of them with pauses.
                pause = 0.0 if tries_left > self._target.retries else backoff.next_seconds()
                if not tries_left or time.monotonic() + pause > deadline:
                    raise
                tries_left -= 1
            await asyncio.sleep(pause)


class AnsweredStream:
    """A call with a stream of answers, made when the first one is asked for."""

    def __init__(self, channels: Channels, opened: Callable[[int], Any]) -> None:
        self._channels = channels
        self._opened = opened
        self._at = 0
        self._call: Any = None

    async def read(self) -> Any:
        """The next answer, or grpc.aio.EOF."""
        if self._call is None:
            self._at = await self._channels.connected(time.monotonic() + CONNECT_SECONDS)
            self._call = self._opened(self._at)
        try:
            return await self._call.read()
        except grpc.aio.AioRpcError:
            self._channels.left(self._at)
            raise

    def cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()


def _can_be_repeated(request: Any) -> bool:
    return any(getattr(request, name, None) for name in _REPEATABLE)


def was_never_sent(failure: grpc.aio.AioRpcError) -> bool:
    """Whether the connection had gone before the call went out: nobody has heard of it."""
    return (failure.details() or "").startswith(_NOT_SENT)


async def _is_reached(channel: grpc.aio.Channel, seconds: float) -> bool:
    """Whether there is a connection, or one comes about in time."""
    try:
        async with asyncio.timeout(seconds):
            state = channel.get_state(try_to_connect=True)
            while state is not grpc.ChannelConnectivity.READY:
                if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                    return False
                await channel.wait_for_state_change(state)
                state = channel.get_state(try_to_connect=True)
    except TimeoutError:
        return False
    return True


def channel_to(target: Target, endpoint: str = "") -> grpc.aio.Channel:
    """A connection to one of them, the first where none is named, without the caller's token."""
    endpoint = endpoint or target.endpoints[0]
    if target.plaintext:
        return grpc.aio.insecure_channel(endpoint)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=target.ca_pem,
        private_key=target.key_pem,
        certificate_chain=target.cert_pem,
    )
    return grpc.aio.secure_channel(endpoint, credentials)
