"""What callers who have not proved who they are may cost: calls at once, and mistakes a second.

Must not know credentials: who calls with one that is known is never counted here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from urllib.parse import unquote

from federation.model.errors import DeadlineMissed, LimitExceeded, Unauthenticated
from federation.runtime.backoff import uniform
from federation.services.pace import Pace

MAX_ADDRESSES = 10_000
# Megabytes that are read for nothing cost as much as so many looks for a credential.
TOO_MUCH = 25
# Of requests that all are small; gRPC would read megabytes.
READ_SECONDS = 5.0
# One customer has many addresses of version 6: those of one network count as one.
NETWORK_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Of all addresses together, or of one.

    ``reads`` are requests on their way at once. ``mistakes`` are wrong credentials: so many at
    once, and then so many a second.
    """

    calls: int
    reads: int
    mistakes: int
    mistakes_per_second: float


IN_ALL = CallLimits(calls=1_000, reads=16, mistakes=1_000, mistakes_per_second=200.0)
PER_ADDRESS = CallLimits(calls=250, reads=4, mistakes=100, mistakes_per_second=20.0)


class Allowance:
    """How many calls are under way, and how many mistakes may still be made."""

    def __init__(self, limits: CallLimits, now: float) -> None:
        self.calls = 0
        self.reads = asyncio.Semaphore(limits.reads)
        self._limits = limits
        self._mistakes = Pace(
            at_once=limits.mistakes, per_second=limits.mistakes_per_second, now=now
        )

    @property
    def is_busy(self) -> bool:
        return self.calls >= self._limits.calls

    def may_err_at(self, now: float) -> bool:
        return self._mistakes.left_at(now) > 0.0

    def err(self, mistakes: int, now: float) -> None:
        """Calls at once can make more mistakes than are allowed: then fewer are later."""
        self._mistakes.spend(mistakes, now)


class Place:
    """That of one call among those of its address, and of all."""

    def __init__(
        self, address: str, of_address: Allowance, of_all: Allowance, clock: Callable[[], float]
    ) -> None:
        self.address = address
        self._both = (of_address, of_all)
        self._clock = clock

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Raises LimitExceeded."""
        if any(each.is_busy for each in self._both):
            raise LimitExceeded(f"too many calls at once from {self.address}; try again later")
        for each in self._both:
            each.calls += 1
        try:
            yield
        finally:
            for each in self._both:
                each.calls -= 1

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        """While the call's request is on its way. Raises DeadlineMissed for one that is slow."""
        of_address, of_all = self._both
        async with of_address.reads, of_all.reads:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    yield
            except TimeoutError:
                self.err(TOO_MUCH)
                raise DeadlineMissed("the request took too long to arrive") from None

    def may_err(self) -> bool:
        now = self._clock()
        return all(each.may_err_at(now) for each in self._both)

    def err(self, mistakes: int) -> None:
        now = self._clock()
        for each in self._both:
            each.err(mistakes, now)


class Strangers:
    """Bounds in all and per address. Belongs to one event loop.

    Who has made too many mistakes waits for about ``pause_seconds`` before anything is done for the
    next call: asking again at once costs the one who asks. Those who wait go on one by one:
    ``jitter`` draws from 0 up to its argument, as many at once would keep all others waiting.
    """

    def __init__(
        self,
        *,
        in_all: CallLimits = IN_ALL,
        per_address: CallLimits = PER_ADDRESS,
        pause_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[float], float] = uniform,
    ) -> None:
        self._per_address = per_address
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._jitter = jitter
        self._all = Allowance(in_all, clock())
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()

    @asynccontextmanager
    async def call(
        self, peer: str, turn: AbstractAsyncContextManager[object] | None = None
    ) -> AsyncGenerator[Place]:
        """While a call is served, in its ``turn``; one that ends as Unauthenticated was a mistake.

        One that sent more than it may, or too slowly, was ``TOO_MUCH`` of them. Raises
        LimitExceeded.
        """
        address = address_of(peer)
        place = Place(address, self._allowance(address), self._all, self._clock)
        with place.taken():
            if not place.may_err():
                await asyncio.sleep(self._pause_seconds / 2 + self._jitter(self._pause_seconds))
            async with turn or nullcontext():
                # Others of its address may have erred while it waited.
                if not place.may_err():
                    text = f"too many wrong credentials from {address}; try again later"
                    raise LimitExceeded(text)
                try:
                    yield place
                except Unauthenticated:
                    place.err(1)
                    raise
                except LimitExceeded:
                    place.err(TOO_MUCH)
                    raise

    def _allowance(self, address: str) -> Allowance:
        """Of an address; of those not heard for longest, as many are forgotten as are too many."""
        found = self._allowances.setdefault(address, Allowance(self._per_address, self._clock()))
        self._allowances.move_to_end(address)
        if len(self._allowances) > MAX_ADDRESSES:
            self._allowances.popitem(last=False)
        return found


def host_of(peer: str) -> str:
    """What gRPC calls a peer, without its port: ``ipv4:10.0.0.1:4711``, ``ipv6:%5B::1%5D:4711``."""
    kind, _, place = unquote(peer).partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return peer
    return place.rpartition(":")[0].strip("[]").partition("%")[0]


def address_of(peer: str) -> str:
    """What calls of a peer are counted under: its address, or the network it is of."""
    host = host_of(peer)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    mapped = address.ipv4_mapped
    return str(mapped or ipaddress.ip_network((address, NETWORK_BITS), strict=False))
