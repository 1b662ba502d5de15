"""The client for code without an event loop: the same methods, run on one private loop thread.

Must not repeat the methods: ``call`` takes whatever the asynchronous client offers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Self, TypeVar

from federation.client.api import Client
from federation.client.targets import Target

T = TypeVar("T")


class BlockingClient:
    """``with BlockingClient(target) as client: client.call(lambda api: api.list_clusters())``."""

    def __init__(self, target: Target) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fedsched", daemon=True)
        self._thread.start()
        self._client = self._run(self._open(target))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: Callable[[Client], Awaitable[T]]) -> T:
        """Runs one call of the asynchronous client and waits for its answer."""
        return self._run(self._call(method))

    def iterate(self, method: Callable[[Client], AsyncGenerator[T]]) -> Iterator[T]:
        """What a watch of the asynchronous client yields, one after the other."""
        watch = method(self._client)
        running: list[asyncio.Task[T]] = []
        try:
            while True:
                self._run(_start(watch, running))
                try:
                    yield self._run(running[0])
                except StopAsyncIteration:
                    return
        finally:
            # Whoever waits for the next one may have been interrupted, at any point.
            self._run(_end(watch, running))

    @property
    def server_ahead_seconds(self) -> float | None:
        """As that of the asynchronous client."""
        return self._client.server_ahead_seconds

    def close(self) -> None:
        """Closes the connection and ends the thread."""
        self._run(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Awaitable[T]) -> T:
        async def finish() -> T:
            return await work

        return asyncio.run_coroutine_threadsafe(finish(), self._loop).result()

    async def _call(self, method: Callable[[Client], Awaitable[T]]) -> T:
        return await method(self._client)

    @staticmethod
    async def _open(target: Target) -> Client:
        # grpc.aio binds a channel to the loop that is running when it is made.
        return Client(target)


async def _start(watch: AsyncGenerator[T], running: list[asyncio.Task[T]]) -> None:
    """Ask for the next one; ``running`` then has the task that waits for it."""

    async def upcoming() -> T:
        return await anext(watch)

    running[:] = [asyncio.create_task(upcoming())]


async def _end(watch: AsyncGenerator[T], running: list[asyncio.Task[T]]) -> None:
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    await watch.aclose()
