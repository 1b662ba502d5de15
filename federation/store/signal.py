"""Wakes up who waits for the journal, here and in other control planes, on its own connection.

Must not be relied on: what is told while the connection is away is lost, so readers also poll.
Must not notify inside the transactions that append: PostgreSQL lets only one transaction that
notifies commit at a time.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import asyncpg

from federation.runtime.backoff import Backoff
from federation.services.troubles import Trouble
from federation.store.engine import (
    CONNECT_SECONDS,
    CONNECTION_ERRORS,
    application_name,
    driver_target,
)
from federation.store.lost_peers import notice_lost_server

CHANNEL = "fedsched_journal"
# Appends within this time are announced to other control planes together.
COALESCED_SECONDS = 0.005

FIRST_PAUSE_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 15.0

logger = logging.getLogger(__name__)


class JournalSignal:
    """Implements ``journal_ports.ChangeSignal``. Listens from the first wait until ``close``."""

    def __init__(self, url: str, part: str = "") -> None:
        target, options = driver_target(url)
        _, arguments = target.get_dialect()().create_connect_args(target)
        self._arguments = {
            **arguments,
            **options,
            "timeout": CONNECT_SECONDS,
            "server_settings": {"application_name": application_name(part)},
        }
        self._told = asyncio.Event()
        self._unannounced = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None

    def announce(self) -> None:
        """Something was appended and is committed. Wakes this process at once, others soon."""
        self._told.set()
        self._unannounced.set()

    async def wait(self, timeout_seconds: float) -> None:
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name="journal-signal")
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._told.wait()
        self._told.clear()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
            self._listening = None

    async def _listen(self) -> None:
        backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS)
        trouble = Trouble(logger, "changes are not listened for")
        while True:
            try:
                connection = await asyncpg.connect(**self._arguments)
                backoff.reset()
                await self._heed(connection)
            except (*CONNECTION_ERRORS, TimeoutError) as error:
                logger.debug("cannot listen for changes", extra={"reason": str(error)})
            except Exception as error:  # noqa: BLE001 - told; others' changes would be heard of late
                trouble.met(error)
            await asyncio.sleep(backoff.next_seconds())

    async def _heed(self, connection: asyncpg.Connection) -> None:
        """Tell and be told of appends until the connection ends."""
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        announcing: asyncio.Task[None] | None = None

        def hear(_: object, sender: int, *_rest: object) -> None:
            # Our own appends woke this process already.
            if sender != connection.get_server_pid():
                self._told.set()

        try:
            with suppress(*CONNECTION_ERRORS):
                await notice_lost_server(connection)
                await connection.add_listener(CHANNEL, hear)
                # What was appended before we listened was not told.
                self._told.set()
                announcing = asyncio.create_task(self._announce_to_others(connection))
                await ended.wait()
        finally:
            if announcing is not None:
                announcing.cancel()
                await asyncio.gather(announcing, return_exceptions=True)
            connection.terminate()

    async def _announce_to_others(self, connection: asyncpg.Connection) -> None:
        """Until cancelled. A connection that is lost meanwhile ends ``_heed`` as well."""
        with suppress(*CONNECTION_ERRORS, TimeoutError):
            while True:
                await self._unannounced.wait()
                await asyncio.sleep(COALESCED_SECONDS)
                self._unannounced.clear()
                await connection.execute(
                    "SELECT /* fedsched:signal.announce */ pg_notify($1, '')", CHANNEL
                )
