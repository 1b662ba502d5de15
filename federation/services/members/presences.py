"""The control planes that hear agents, shared by all of them: written, read, and followed.

Must not compare clocks: an agent counts as heard by a peer when the peer's row changes. Must not
call an agent silent while rows cannot be read, nor keep agents while rows cannot be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from federation.model.cluster import AGENT_AWAITED, Blindness
from federation.model.errors import Conflict, FederationError, Unavailable
from federation.services.agent_values import AgentPresence
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import Change, ReportAdvanced
from federation.services.journal_ports import Replica, StoredPresence
from federation.services.members.event_loop_lag import shift_deadlines
from federation.services.members.replicas import Replicas
from federation.services.members.reports import Reporting, same_or_new
from federation.services.ports import Store, Timer
from federation.services.troubles import Trouble

MIN_ROUND_SECONDS, MAX_ROUND_SECONDS = 1.0, 5.0
# Thousands of rows are followed in parts of this size, between other work of the loop.
ROWS_AT_ONCE = 250
# A peer's row is dated by the begin of its transaction, and seen at its end.
COMMITTED_SECONDS = 10.0
# A control plane that cannot write rows for this time sends its agents to peers, or sooner: after
# half of the time until they would be lost. A database that fails over takes less.
CUT_OFF_SECONDS = 60.0

logger = logging.getLogger(__name__)

# Tries of one round, if clusters are deleted while it writes.
MAX_TRIES: Final = 3


class HeldStreams(Protocol):
    """The open streams of this process."""

    def epochs(self) -> Mapping[str, int]:
        """The session of each cluster whose agent is connected here."""
        ...

    def ended(self) -> Mapping[str, int]:
        """The last session of each cluster whose stream ended here and was not forgotten since."""
        ...

    def forget(self, ended: Mapping[str, int]) -> None:
        """Forget ended sessions that were written."""
        ...

    def dismiss(self, cluster: str, error: FederationError) -> None:
        """End the stream of a cluster's agent for good, telling it why, if there is one."""
        ...

    def drop(self, cluster: str, error: FederationError) -> None:
        """End the stream of a cluster's agent, which has another one already."""
        ...

    def send_away(self, error: Unavailable) -> None:
        """End all streams; their agents dial again."""
        ...


class LastHeard(NamedTuple):
    """A stream of ours as last written: its session, and when it was heard, our time."""

    epoch: int
    heard_at: float


class Presences:
    """Rounds of writing and reading presences. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        streams: HeldStreams,
        replicas: Replicas,
        reporting: Reporting,
        clock: Timer,
        *,
        lost_seconds: float,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._streams = streams
        self._replicas = replicas
        self._reporting = reporting
        self._clock = clock
        self._cut_off_seconds = min(CUT_OFF_SECONDS, lost_seconds / 2)
        self._written: dict[str, LastHeard] = {}
        self._seen: dict[str, StoredPresence] = {}
        self._since = 0.0
        self._has_begun = False
        self._could_read_at = clock.now()
        # When a round last ended, after which all agents that peers heard were known.
        self.shared_at = self._could_read_at

    @property
    def round_seconds(self) -> float:
        """The time of a round: a third of a heartbeat, within limits."""
        third = self._reporting.heartbeat_seconds / 3
        return min(max(third, MIN_ROUND_SECONDS), MAX_ROUND_SECONDS)

    @property
    def silence_seconds(self) -> float:
        """The time without a message after which an agent is silent."""
        return self._reporting.silence_seconds

    @property
    def replica_id(self) -> str:
        return self._replicas.id

    def holder(self, cluster: str) -> Replica | None:
        """Return the peer that serves a cluster's agent, if known."""
        row = self._seen.get(cluster)
        return self._replicas.peer(row.replica) if row else None

    def note_report(self, change: Change) -> None:
        """Count a report as a message of its agent.

        The report of a cluster that has just joined at a peer comes before the peer's row.
        """
        if not isinstance(change, ReportAdvanced):
            return
        presence = self._fleet.presence(change.cluster)
        if presence is not None and presence.is_awaited:
            presence = replace(presence, blindness=None)
            self._fleet.put_presence(change.cluster, presence)
        if presence is not None and not presence.silent_after:
            later = self._clock.now() + self._reporting.silence_seconds
            self._fleet.put_presence(change.cluster, replace(presence, silent_after=later))

    def is_left_alone(self, cluster: str) -> bool:
        """Whether the control plane that served a cluster's agent last is gone."""
        presence = self._fleet.presence(cluster)
        peer = presence.peer if presence else ""
        return bool(peer) and self._replicas.peer(peer) is None

    async def keep_sharing(self) -> None:
        """Do rounds until cancelled."""
        trouble = Trouble(logger, "presences not shared")
        while True:
            await self._clock.sleep(self.round_seconds)
            try:
                await self.share_or_shift()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; without rounds every cluster of a peer goes stale
                trouble.met(error)

    async def share_or_shift(self) -> None:
        """Do a round; while rows cannot be read, no cluster that only peers hear goes stale."""
        sharing = asyncio.create_task(self.share())
        try:
            while not sharing.done():
                await asyncio.wait({sharing}, timeout=self.round_seconds)
                if not sharing.done() or sharing.exception() is not None:
                    self._shift_deadlines()
                    self._send_away()
            await sharing
        finally:
            sharing.cancel()

    def _shift_deadlines(self) -> None:
        since, self._could_read_at = self._could_read_at, self._clock.now()
        held = self._streams.epochs()
        unheld = [name for name in self._fleet.snapshot.names if name not in held]
        shift_deadlines(self._fleet, unheld, self._could_read_at - since, since)

    def _send_away(self) -> None:
        """Send our agents to peers, which would call them lost without our rows."""
        silent_seconds = self._clock.now() - self.shared_at
        held = self._streams.epochs()
        if silent_seconds < self._cut_off_seconds or not (held and self._replicas.endpoints):
            return
        fields = {"agents": len(held), "seconds": round(silent_seconds)}
        logger.warning("no database: agents are sent away", extra={"fields": fields})
        self._streams.send_away(
            Unavailable("this control plane is cut off from its database; dial another one")
        )

    async def share(self) -> None:
        """Do a round. Raises Unavailable."""
        await self._replicas.keep_credential()
        gone = self._streams.ended()
        news = await self._news({**gone, **self._streams.epochs()})
        ended = self._ended(news)
        peers_changed, rows, unheard = await self._exchange(news, ended)
        self._written.update(news)
        self._streams.forget(gone)
        for cluster in ended:
            self._written.pop(cluster, None)
        self._could_read_at = self.shared_at = self._clock.now()
        self._await(unheard)
        await self._take(rows)
        if peers_changed:
            await self._follow_all([*self._seen.values()], heard=frozenset())

    async def _exchange(
        self, news: Mapping[str, LastHeard], ended: Sequence[str]
    ) -> tuple[bool, Sequence[StoredPresence], Mapping[str, float]]:
        """Write our news, and read the rows of others.

        Return whether peers changed, the rows, and at the start of the process how long agents were
        unheard. A cluster that is deleted meanwhile must not keep others from being written.
        """
        tries_left = MAX_TRIES
        while True:
            try:
                async with self._store.transaction() as tx:
                    if news:
                        put = [self._row(name, news[name]) for name in sorted(news)]
                        await tx.presences.put(put)
                    if ended:
                        await tx.presences.leave(ended, self._replicas.id)
                    peers_changed = await self._replicas.meet(tx)
                    rows = await tx.presences.all(self._since)
                    unheard = {} if self._has_begun else await tx.presences.unheard_seconds()
            except Conflict:
                tries_left -= 1
                if not tries_left:
                    raise
            else:
                return peers_changed, rows, unheard

    async def _news(self, sessions: Mapping[str, int]) -> dict[str, LastHeard]:
        """Return the sessions whose agents were heard here since they were last written."""
        news = {}
        all_sessions = [*sessions.items()]
        for start in range(0, len(all_sessions), ROWS_AT_ONCE):
            for cluster, epoch in all_sessions[start : start + ROWS_AT_ONCE]:
                presence = self._fleet.presence(cluster)
                if presence is None or presence.last_heartbeat_at is None or presence.peer:
                    continue
                heard = LastHeard(epoch, presence.last_heartbeat_at)
                if heard != self._written.get(cluster):
                    news[cluster] = heard
            await asyncio.sleep(0)
        return news

    def _ended(self, news: Collection[str]) -> list[str]:
        held = self._streams.epochs()
        return sorted(cluster for cluster in {*self._written, *news} if cluster not in held)

    def _row(self, cluster: str, heard: LastHeard) -> StoredPresence:
        presence = self._fleet.presence(cluster) or AgentPresence()
        blindness = presence.blindness
        return StoredPresence(
            cluster=cluster,
            replica=self._replicas.id,
            epoch=heard.epoch,
            heard_at=0.0,
            clock_offset_seconds=presence.clock_offset_seconds,
            confirmed_sequence=presence.confirmed_sequence,
            blind_seconds=self._clock.now() - blindness.since if blindness else 0.0,
            blind_reason=blindness.reason if blindness else "",
            blind_message=blindness.message if blindness else "",
            skipped_objects=presence.skipped_objects,
        )

    async def _take(self, rows: Sequence[StoredPresence]) -> None:
        """Follow new rows. One that the store lost is still the newest known."""
        changed = [row for row in rows if row != self._seen.get(row.cluster)]
        # Rows that a start finds may be of any age.
        heard = frozenset(row.cluster for row in changed) if self._has_begun else frozenset[str]()
        self._seen.update((row.cluster, row) for row in changed)
        self._has_begun = True
        # Without rows everything is read next, because the store's clock may have gone back.
        newest = max((row.heard_at for row in rows), default=0.0)
        self._since = newest - COMMITTED_SECONDS if rows else 0.0
        if len(self._seen) > self._fleet.size:
            for gone in [name for name in self._seen if not self._fleet.has(name)]:
                del self._seen[gone]
        await self._follow_all(changed, heard)

    def _await(self, unheard_seconds: Mapping[str, float]) -> None:
        """Await agents at the start of the process that were unheard for too long.

        They have to confirm first that the stored reports are still theirs, because the database
        may be a restored one.
        """
        for name, seconds in unheard_seconds.items():
            if seconds > self._reporting.silence_seconds and self._fleet.has(name):
                presence = self._fleet.known(name).presence
                awaiting = self._awaiting(seconds)
                self._fleet.put_presence(name, replace(presence, blindness=awaiting))

    def _awaiting(self, seconds: float) -> Blindness:
        return Blindness(
            since=self._clock.now() - seconds,
            reason=AGENT_AWAITED,
            message="No control plane has heard the agent since: what was promised later may be "
            "unknown, as after a restore. Its next report shows it.",
        )

    async def _follow_all(self, rows: Sequence[StoredPresence], heard: Collection[str]) -> None:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            held = self._streams.epochs()
            for row in rows[start : start + ROWS_AT_ONCE]:
                if row.replica != self._replicas.id and self._fleet.has(row.cluster):
                    is_heard = row.cluster in heard
                    self._follow(row, held.get(row.cluster), is_heard=is_heard)
            await asyncio.sleep(0)

    def _follow(self, row: StoredPresence, held_epoch: int | None, *, is_heard: bool) -> None:
        presence = self._fleet.known(row.cluster).presence
        if held_epoch is not None and not self._yields(row, held_epoch, is_heard=is_heard):
            return
        if row.epoch < presence.epoch:
            return
        followed = replace(
            presence,
            connected=self._replicas.peer(row.replica) is not None,
            epoch=row.epoch,
            peer=row.replica or presence.peer,
            blindness=self._blindness(row, presence, is_heard=is_heard),
            skipped_objects=row.skipped_objects,
        )
        # A new session that has ended was heard when it began, just now.
        if is_heard and (row.replica or row.epoch > presence.epoch):
            now = self._clock.now()
            followed = replace(
                followed,
                last_heartbeat_at=now,
                # It was written a round late at most, and is read a round late at most.
                silent_after=now + self._reporting.silence_seconds + 2 * self.round_seconds,
                clock_offset_seconds=row.clock_offset_seconds,
                confirmed_sequence=row.confirmed_sequence,
            )
            self._confirm(row, followed.blindness)
        if followed != presence:
            self._fleet.put_presence(row.cluster, followed)

    def _blindness(
        self, row: StoredPresence, presence: AgentPresence, *, is_heard: bool
    ) -> Blindness | None:
        """Return the blindness of a row, dated by our clock, or by the old date if the same."""
        last = presence.blindness
        if row.blind_reason == AGENT_AWAITED:
            # Only a peer that has just started has to await the agent.
            return last
        if not row.blind_reason:
            return last if presence.is_awaited and not is_heard else None
        if last is not None and not is_heard:
            return last
        new = Blindness(
            since=self._clock.now() - row.blind_seconds,
            reason=row.blind_reason,
            message=row.blind_message,
        )
        return same_or_new(last, new)

    def _confirm(self, row: StoredPresence, blindness: Blindness | None) -> None:
        """Let the report that the agent confirmed be as old here as at the peer."""
        report = self._fleet.known(row.cluster).state.report
        if report and (report.epoch, report.sequence) == (row.epoch, row.confirmed_sequence):
            as_of = blindness.since if blindness else self._clock.now()
            by_agent = max(report.snapshot_time, as_of + row.clock_offset_seconds)
            later = replace(report, snapshot_time=by_agent)
            self._fleet.confirm_report(row.cluster, later, as_of)

    def _yields(self, row: StoredPresence, held_epoch: int, *, is_heard: bool) -> bool:
        """Whether our stream of the cluster ended because the peer's is the newer."""
        cluster = row.cluster
        if row.epoch > held_epoch:
            reason = f"another stream (epoch {row.epoch}) has taken over cluster {cluster}"
            self._streams.dismiss(cluster, Conflict(reason, reason="TAKEN_OVER"))
            return True
        if row.epoch < held_epoch or not row.replica or not is_heard:
            return False
        heard_at = self._fleet.known(cluster).presence.last_heartbeat_at or 0.0
        if self._clock.now() - heard_at <= 2 * self.round_seconds:
            return False
        self._streams.drop(cluster, Unavailable("the agent is connected to another control plane"))
        return True
