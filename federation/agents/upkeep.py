"""Looking after open streams: credentials renewed or ended, streams ended of age, a new pace told.

Must not listen to agents: each stream's conversation does.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from contextlib import suppress

from federation.agents.conversation import Conversations
from federation.agents.messages import goodbye, reconnect
from federation.agents.session import Session
from federation.agents.sessions import LEAST_SPREAD_SECONDS, Sessions
from federation.model.errors import NotFound, Unauthenticated, Unavailable
from federation.services.journal import Change, ClusterChanged
from federation.services.members.join import Renewal
from federation.services.members.reports import Reporting
from federation.services.ports import Clock
from federation.services.troubles import Trouble

# A credential that the agent did not store is replaced by another after this time.
OFFER_SECONDS = 3600.0
# Every so often at once: a fleet that is due together does not hold up the streams.
RENEWALS_PER_ROUND = 50
# What is wanted soon waits for more of its kind: one round sees to all.
COLLECT_SECONDS = 0.1
# A pace is told anew when it is off by more than this part.
TOLERATED_PACE = 0.25
# Of the greatest age, where a stream's own lies: those that came together do not leave together.
YOUNGEST = 0.8

logger = logging.getLogger(__name__)


class Upkeep:
    """Rounds over the open streams. ``max_age_seconds`` 0: streams may grow as old as they like."""

    def __init__(
        self,
        sessions: Sessions,
        conversations: Conversations,
        reporting: Reporting,
        renewal: Renewal,
        clock: Clock,
        *,
        max_age_seconds: float,
    ) -> None:
        self._sessions = sessions
        self._conversations = conversations
        self._reporting = reporting
        self._renewal = renewal
        self._clock = clock
        self._max_age_seconds = max_age_seconds
        self._wanted = asyncio.Event()

    def follow(self, change: Change) -> None:
        """Look soon when a cluster changed: its agent may have lost its credential."""
        if isinstance(change, ClusterChanged) and self._sessions.is_connected(change.cluster):
            self._wanted.set()

    async def keep_up(self, interval_seconds: float) -> None:
        """Round after round until cancelled."""
        trouble = Trouble(logger, "streams not looked after")
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_seconds):
                    await self._wanted.wait()
                await asyncio.sleep(COLLECT_SECONDS)
            self._wanted.clear()
            try:
                await self.look()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; without rounds every agent is locked out one day
                trouble.met(error)

    async def look(self) -> None:
        """One round. Raises Unavailable."""
        self.end_the_old()
        self._tell_the_pace()
        held = {session.credential_id: session for session in self._sessions.all()}
        if not held:
            return
        ages = await self._renewal.ages(list(held))
        due = []
        for credential_id, session in held.items():
            if session.credential_id != credential_id:
                continue  # It got another one meanwhile.
            age_seconds = ages.get(credential_id)
            if age_seconds is None:
                error = Unauthenticated(
                    f"The credential of cluster {session.cluster!r} was revoked or has expired."
                )
                session.end(error, farewell=goodbye(error))
            elif self._is_due(session, age_seconds):
                due.append(session)
        for session in due[:RENEWALS_PER_ROUND]:
            await self._renew(session)

    def end_the_old(self) -> None:
        if not self._max_age_seconds:
            return
        now = self._clock.now()
        for session in self._sessions.all():
            if now - session.opened_at >= self._greatest_age_seconds(session):
                error = Unavailable("the stream is of age; dial again")
                session.end(error, farewell=reconnect(error, LEAST_SPREAD_SECONDS))

    def _greatest_age_seconds(self, session: Session) -> float:
        named = f"{session.cluster} {session.opened_at}".encode()
        part = YOUNGEST + (1 - YOUNGEST) * zlib.crc32(named) / 2**32
        return part * self._max_age_seconds

    def _tell_the_pace(self) -> None:
        wanted = self._reporting.heartbeat_seconds
        for session in self._sessions.all():
            if abs(wanted - session.heartbeat_seconds) > TOLERATED_PACE * session.heartbeat_seconds:
                self._conversations.welcome_again(session.cluster)

    def _is_due(self, session: Session, age_seconds: float) -> bool:
        offered = session.offered
        if offered is not None and self._clock.now() - offered.at < OFFER_SECONDS:
            return False
        return self._renewal.is_due(session.credential_id, age_seconds)

    async def _renew(self, session: Session) -> None:
        try:
            issued = await self._renewal.renew(session.cluster, session.credential_id)
        except (NotFound, Unauthenticated) as error:
            session.end(error, farewell=goodbye(error))
            return
        session.offer(issued, self._clock.now())
