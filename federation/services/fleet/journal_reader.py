"""The journal's reader: applies to the fleet in memory what any control plane committed.

Must not miss a change, whatever happens to the store, and must not write. Belongs to the fleet's
event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from federation.history.bodies import NewerBody
from federation.model.errors import FederationError, Unavailable
from federation.runtime.backoff import Backoff
from federation.services.fleet.current_snapshot import MAX_MOVED_AT_ONCE
from federation.services.fleet.held_back import HeldBack, JournalHold
from federation.services.fleet.histories import WENT_BACK, Continuity
from federation.services.fleet.journal_memory import Appending, DepartedClusters, OwnEntries
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterChanged,
    Entry,
    LedgerVersion,
    Position,
    ReportAdvanced,
    UnknownChange,
)
from federation.services.journal_ports import ChangeSignal
from federation.services.ports import Store, Transaction
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble, tell

# The longest pause between two reads while the connection that signals changes is down.
POLL_SECONDS = 1.0
ENTRIES_AT_ONCE = 500
# Entries read under row locks. Beyond that, reading the ledgers as a whole is cheaper.
MAX_ENTRIES_AHEAD = 2000
# A version that is missing for so long does not come any more: its ledger is read again.
OUT_OF_ORDER_SECONDS = 1.0
# After a longer pause the next entries may have been pruned. Entries are kept far longer.
AWAY_SECONDS = 60.0
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.25, 15.0

logger = logging.getLogger(__name__)


class JournalObserver(Protocol):
    """A listener to entries of the journal, called before another task sees ``position``."""

    def changed(self, change: Change) -> None:
        """Note the next change, which was applied unless a ledger lacks an earlier version."""
        ...

    def lost(self) -> None:
        """Note that entries were skipped: they were pruned, and the fleet was read anew."""
        ...


class Following:
    """A reader that keeps one fleet up with the journal: at each signal, and every second."""

    def __init__(self, store: Store, fleet: FleetOwner, signal: ChangeSignal | None = None) -> None:
        self._store = store
        self._fleet = fleet
        self._signal = signal
        self._behind_since: dict[str, float] = {}
        self._read_at = -math.inf
        self._whole_at = time.monotonic()
        self._observers: list[JournalObserver] = []
        self._own = OwnEntries()
        self._departed = DepartedClusters()
        self._hold = JournalHold()
        self._continuity = Continuity(store)
        self._tell_anew: list[Callable[[], None]] = []
        self._why_unread: str | None = None
        self._unknown = Trouble(
            logger,
            "changes of an unknown kind or version are passed over: "
            "is another control plane newer?",
            level=logging.ERROR,
            again_seconds=TOLD_AGAIN_SECONDS,
        )

    @property
    def position(self) -> Position:
        """The place in the journal up to which everything was read and passed to observers."""
        return self._fleet.position

    @property
    def history(self) -> str:
        """The id of the database's history to which ``position`` belongs."""
        return self._continuity.history

    @property
    def why_not_ready(self) -> str | None:
        """The reason why the fleet in memory may differ from the store; None if it does not."""
        if self._continuity.why_broken:
            return WENT_BACK
        return self._why_unread or (self.held_back.message if self.held_back else None)

    @property
    def held_back(self) -> HeldBack | None:
        """The transaction that keeps the journal from being read to its end, if there is one."""
        return self._hold.held

    @property
    def held_seconds(self) -> float:
        """Seconds since a transaction began to keep the journal from being read to its end."""
        return self._hold.seconds

    @property
    def age_seconds(self) -> float:
        """Seconds since the journal was read to its end."""
        return max(time.monotonic() - self._whole_at, self.held_seconds)

    def observe(self, observer: JournalObserver) -> None:
        """Call ``observer`` for every entry that is read from now on."""
        self._observers.append(observer)

    def observe_anew(self, observer: Callable[[], None]) -> None:
        """Call ``observer`` each time another history begins: no report counts any more then."""
        self._tell_anew.append(observer)

    def appending(self) -> AbstractContextManager[Appending]:
        """Enclose a transaction and the applying of its changes to the fleet after the commit.

        The entries that it announces are not applied a second time when they are read.
        """
        return self._own.appending()

    async def load(self, *, grace_until: float) -> None:
        """Read the whole fleet from the store, as ``FleetOwner.load`` does."""
        await self._continuity.begin()
        await self._fleet.load(grace_until=grace_until)

    async def run(self) -> None:
        """Follow the journal until cancelled."""
        backoff = Backoff(first_seconds=MIN_PAUSE_SECONDS, cap_seconds=MAX_PAUSE_SECONDS)
        trouble = Trouble(logger, "the journal cannot be read")
        while True:
            try:
                await self.follow()
            except Exception as error:  # noqa: BLE001 - told; else the fleet would never change again
                self._why_unread = str(error) if isinstance(error, NewerBody) else None
                trouble.met(error)
                await asyncio.sleep(backoff.next_seconds())
            else:
                trouble.over()
                self._why_unread = None
                backoff.reset()
                await self._wait()

    async def _wait(self) -> None:
        if self._signal is None:
            await asyncio.sleep(POLL_SECONDS)
        else:
            await self._signal.wait(POLL_SECONDS)

    async def follow(self) -> None:
        """Apply all entries that can be read now. Raises Unavailable."""
        if self._continuity.why_broken:
            begun = await self._continuity.mend()
            await self._read_everything(anew=True)
            self._continuity.mended(begun)
            tell(self._tell_anew)
        while await self._read_some():
            pass
        await self._close_gaps()
        async with self._store.reading() as read:
            await self._hold.look(read)
        self._whole_at = time.monotonic()

    def believe(self, why: str) -> bool:
        """Return whether to trust an agent whose report shows that the database went back."""
        return self._continuity.believe(why)

    async def check(self, read: Transaction) -> None:
        """Raise Unavailable when the store is in an earlier state than the fleet in memory."""
        await self._continuity.check(read, self._fleet.position)

    async def catch_up(self, tx: Transaction, versions: Mapping[str, LedgerVersion]) -> None:
        """Bring ledgers to the versions at which the transaction has locked them.

        Read clusters that are new to the fleet. Raises Unavailable when the store is in an earlier
        state than the fleet in memory: nothing may be promised then.
        """
        await self._read_new(tx, {n: at for n, at in versions.items() if not self._fleet.has(n)})
        if differing := self._differing(versions):
            ahead = await tx.journal.read_ahead(
                self._fleet.position, MAX_ENTRIES_AHEAD, self._own.changes
            )
            recreated = {
                change.cluster
                for change in ahead
                if isinstance(change, ClusterChanged) and change.deleted
            }
            is_complete = len(ahead) < MAX_ENTRIES_AHEAD and not any(
                isinstance(change, UnknownChange) for change in ahead
            )
            await self._take(tx, ahead)
            differing = self._differing(versions)
            for name in differing:
                # Versions only grow, and a change that made a version is never undone.
                is_lost = versions[name].version <= self._fleet.version(name).version
                if is_lost and is_complete and name not in recreated:
                    self._refuse_lost_version(name)
        if differing:
            await self._read_again(tx, {name: versions[name] for name in differing})

    async def read_unknown(self, names: Iterable[str]) -> None:
        """Bring clusters into the fleet that the store has and the journal has not shown here yet.

        After that a name without a cluster in the fleet is of a cluster that left. Raises
        Unavailable.
        """
        unknown = {name for name in names if not self._fleet.has(name)}
        if not unknown:
            return
        async with self._store.reading() as read:
            stored = await read.clusters.find(unknown)
        if stored:
            async with self._store.transaction() as tx:
                await self.catch_up(tx, await tx.journal.lock(sorted(stored)))

    async def _read_new(self, tx: Transaction, versions: Mapping[str, LedgerVersion]) -> None:
        """Read clusters that are new to the fleet; their ledgers are locked."""
        if not versions:
            return
        for name, stored in (await tx.clusters.find(versions.keys())).items():
            self._fleet.put_cluster(stored.cluster)
            self._fleet.put_facts(name, stored.facts)
        await self._read_again(tx, {n: at for n, at in versions.items() if self._fleet.has(n)})

    def _refuse_lost_version(self, name: str) -> None:
        """Raise Unavailable because the store has lost a version of a cluster's ledger."""
        version = self._fleet.version(name).version
        self._continuity.broke(f"version {version} of the ledger of {name} is another one, or gone")
        raise Unavailable(WENT_BACK)

    def _differing(self, versions: Mapping[str, LedgerVersion]) -> list[str]:
        """Return the clusters of the fleet whose ledgers have other versions than these."""
        return [
            name
            for name, version in versions.items()
            if self._fleet.has(name) and self._fleet.version(name) != version
        ]

    async def _read_some(self) -> bool:
        """Read and apply the next entries; return whether there may be further ones."""
        position = self._fleet.position
        async with self._store.reading() as read:
            entries = await read.journal.read(position, ENTRIES_AT_ONCE, self._own.changes)
            is_readable = self._is_readable(entries)
            await self.check(read)
            if self._was_away() and await read.journal.oldest() > position:
                logger.warning("what was to be read of the journal is gone: reading everything")
                await self._read_everything()
                return True
            if not is_readable:
                await self._read_everything()
                return False
            self._read_at = asyncio.get_running_loop().time()
            if not entries:
                return False
            await self._own.arrived(entry.position for entry in entries)
            new = [entry.change for entry in entries if entry.position not in self._own.changes]
            of_clusters = [change for change in new if isinstance(change, ClusterChanged)]
            await self._read_clusters(read, of_clusters)
            await self._take(read, new)
        for name in sorted({change.cluster for change in of_clusters if change.deleted}):
            await self._read_anew(name)
        for name in sorted(self._unknown_in(entries)):
            await self._read_anew(name)
        for change in new:
            if not change.makes_versions:
                self._fleet.apply(change)
        self._own.forget(entry.position for entry in entries)
        self._fleet.position = entries[-1].position
        for entry in entries:
            tell([observer.changed for observer in self._observers], entry.change)
        return len(entries) == ENTRIES_AT_ONCE

    def _unknown_in(self, entries: Iterable[Entry]) -> set[str]:
        """Return names in entries that no cluster of the fleet has, unless it left afterwards."""
        return {
            name
            for position, change in entries
            for name in change.ledgers
            if not self._fleet.has(name) and not self._departed.left_after(name, position)
        }

    async def _read_everything(self, *, anew: bool = False) -> None:
        await self._fleet.reload(anew=anew)
        # The read may have begun before these changes were committed.
        self._own.forget_all()
        tell([observer.lost for observer in self._observers])

    def _was_away(self) -> bool:
        """Return whether the last read is so long ago that entries may have been pruned since."""
        return asyncio.get_running_loop().time() - self._read_at > AWAY_SECONDS

    async def _read_clusters(self, read: Transaction, changes: Sequence[ClusterChanged]) -> None:
        """Read the specs and the agents' facts of changed clusters, as they are now."""
        names = {change.cluster for change in changes}
        if not names:
            return
        for count, stored in enumerate((await read.clusters.find(names)).values(), start=1):
            self._fleet.put_cluster(stored.cluster)
            self._fleet.put_facts(stored.cluster.name, stored.facts)
            if count % MAX_MOVED_AT_ONCE == 0:
                # The next reader of the snapshot would hold up the event loop for all of them.
                _ = self._fleet.snapshot
                await asyncio.sleep(0)

    async def _take(self, read: Transaction, changes: Iterable[Change]) -> None:
        """Apply the changes that make versions of ledgers, with the bodies of new reports."""
        changes = [change for change in _without_departed(changes) if change.makes_versions]
        reported = {
            change.cluster
            for change in changes
            if isinstance(change, ReportAdvanced) and self._is_newer(change)
        }
        reports = await read.reports.get(reported) if reported else {}
        # Other control planes received these reports, so nobody has packed them in this process.
        await self._fleet.pack_ahead((name, stored.report) for name, stored in reports.items())
        for change in changes:
            # A cluster that is deleted during this await has left the fleet.
            if (
                isinstance(change, ReportAdvanced)
                and change.cluster in reports
                and self._fleet.has(change.cluster)
            ):
                report, received_at, _ = reports[change.cluster]
                if (report.epoch, report.sequence) == (change.epoch, change.sequence):
                    self._fleet.put_report(
                        change.cluster, report, received_at, change.version, change.nonce
                    )
            self._fleet.apply(change)

    def _is_newer(self, advanced: ReportAdvanced) -> bool:
        name = advanced.cluster
        return self._fleet.has(name) and self._fleet.ledger(name).version < advanced.version

    async def _close_gaps(self) -> None:
        """Read the ledgers again that have lacked a version for ``OUT_OF_ORDER_SECONDS``."""
        now = asyncio.get_running_loop().time()
        behind = self._fleet.behind()
        self._behind_since = {name: self._behind_since.get(name, now) for name in behind}
        waiting = [n for n in behind if now - self._behind_since[n] >= OUT_OF_ORDER_SECONDS]
        if waiting:
            async with self._store.transaction() as tx:
                await self.catch_up(tx, await tx.journal.lock(sorted(waiting)))

    async def _read_anew(self, name: str) -> None:
        """Remove a deleted cluster, or read another one that has got its name since."""
        async with self._store.transaction() as tx:
            # Read first: a cluster that joins after the lock has a later entry, and is read then.
            position = await tx.journal.position()
            stored = await tx.clusters.lock(name)
            if stored is None:
                self._departed.note(name, position)
                self._fleet.remove(name)
                return
            # Its version may be lower than that of an older cluster of this name, which has left.
            self._fleet.put_cluster(stored.cluster, is_locked=True)
            self._fleet.put_facts(name, stored.facts)
            await self._read_again(tx, await tx.journal.lock([name]))

    def _is_readable(self, entries: Sequence[Entry]) -> bool:
        """Return False if a change of a known kind has a newer version than this release reads.

        The caller reads the tables instead. Unknown kinds are passed over; ledgers that lack their
        versions are read again later.
        """
        unknown = [entry.change for entry in entries if isinstance(entry.change, UnknownChange)]
        for change in unknown:
            version = f" of version {change.version}" if change.version else ""
            self._unknown.met(FederationError(f"kind {change.kind}{version}"))
        return not any(change.version for change in unknown)

    async def _read_again(self, tx: Transaction, versions: Mapping[str, LedgerVersion]) -> None:
        """Replace reservations and reports of clusters by the stored ones; ledgers are locked."""
        rows = await tx.reservations.in_clusters(versions.keys())
        reports = await tx.reports.get(versions.keys())
        self._fleet.restore(versions, rows, reports)
        for name, at in versions.items():
            fields = {"cluster": name, "version": at.version}
            logger.info("ledger read again", extra={"fields": fields})


def _without_departed(changes: Iterable[Change]) -> list[Change]:
    """Return changes in order, without their parts about clusters that a later change deletes.

    Otherwise a newer cluster of that name would take the versions of the deleted one for its own.
    """
    departed: set[str] = set()
    remaining: list[Change] = []
    for change in reversed([*changes]):
        match change:
            case ReportAdvanced() if change.cluster in departed:
                continue
            case BindingChanged() if not departed.isdisjoint(change.clusters):
                present = {n: at for n, at in change.clusters.items() if n not in departed}
                remaining.append(replace(change, clusters=present))
                continue
            case ClusterChanged(deleted=True):
                departed.add(change.cluster)
        remaining.append(change)
    return remaining[::-1]
