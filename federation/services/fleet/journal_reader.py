"""Following the journal: what any control plane committed, applied to the fleet in memory.

Must not miss anything, whatever happens to the store meanwhile; nor write. Belongs to the fleet's
event loop.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Final, Protocol

from federation.history.bodies import NewerBody
from federation.model.errors import FederationError, Unavailable
from federation.runtime.backoff import Backoff
from federation.services.fleet.held_back import HeldBack, JournalHold
from federation.services.fleet.histories import WENT_BACK, Continuity
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

# Who is not woken up, as the connection that wakes is away, looks by itself.
POLL_SECONDS = 1.0
ENTRIES_AT_ONCE = 500
# Reading more, while locks are held, costs more than reading the ledgers concerned as a whole.
MOST_AHEAD = 2000
# Changes of one cluster may come in another order than they were made, by a moment.
OUT_OF_ORDER_SECONDS = 1.0
# Far less than entries are kept for.
AWAY_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.25, 15.0
# Far more than are on their way at once; nobody takes them while the journal cannot be read.
REMEMBERED = 10_000
# An entry that can be read is committed: the answer that says so is on its way, or lost.
LONGEST_WAIT_SECONDS = 1.0
# A forgotten name costs one look into the store when an old entry names it.
MAX_DEPARTED_CLUSTERS: Final = 10_000

logger = logging.getLogger(__name__)


class JournalObserver(Protocol):
    """Told of the journal as it is read, without a wait between the telling and ``position``."""

    def changed(self, change: Change) -> None:
        """The next one, in order; applied, unless its turn in a ledger is still to come."""
        ...

    def lost(self) -> None:
        """What would be next was pruned: the fleet was read anew instead."""
        ...


class Appending:
    """The entries of one transaction until their changes are applied."""

    def __init__(self, changes: dict[int, Change]) -> None:
        self.ids: frozenset[int] = frozenset()
        self.applied = asyncio.Event()
        self._changes = changes

    def announce(self, ids: Sequence[int], changes: Sequence[Change]) -> None:
        """Before the commit: nobody reads them earlier."""
        self.ids = frozenset(ids)
        self._changes.update(zip(ids, changes, strict=True))
        while len(self._changes) > REMEMBERED:
            del self._changes[next(iter(self._changes))]


class OwnEntries:
    """Changes by the ids of their entries, until these were read."""

    def __init__(self) -> None:
        self.changes: dict[int, Change] = {}
        self._appending: set[Appending] = set()

    @contextmanager
    def appending(self) -> Iterator[Appending]:
        """For a transaction that announces what it appends, and the applying of it after the
        commit. When that raises, whether it was committed is not known.
        """
        appending = Appending(self.changes)
        self._appending.add(appending)
        try:
            yield appending
        except BaseException:
            self.forget(appending.ids)
            raise
        finally:
            self._appending.discard(appending)
            appending.applied.set()

    async def arrived(self, ids: Iterable[int]) -> None:
        """Entries with these ids can be read: wait until those in ``changes`` are applied."""
        read = frozenset(ids)
        for appending in [each for each in self._appending if each.ids & read]:
            try:
                async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                    await appending.applied.wait()
            except TimeoutError:
                self.forget(appending.ids)

    def forget(self, ids: Iterable[int]) -> None:
        for each in ids:
            self.changes.pop(each, None)

    def forget_all(self) -> None:
        self.changes.clear()


class DepartedClusters:
    """Names that no cluster had when the store was asked, for entries that are older than that."""

    def __init__(self) -> None:
        self._positions: dict[str, Position] = {}

    def note(self, name: str, position: Position) -> None:
        """Remember that every entry before ``position`` about this name is of a cluster that left.

        Forget the name that was noted first where there are too many.
        """
        self._positions.pop(name, None)
        self._positions[name] = position
        if len(self._positions) > MAX_DEPARTED_CLUSTERS:
            del self._positions[next(iter(self._positions))]

    def left_after(self, name: str, position: Position) -> bool:
        """Whether the cluster that an entry at this place names is known to have left since."""
        departure = self._positions.get(name)
        return departure is not None and position < departure


class Following:
    """Keeps one fleet up with the journal. Without a ``signal`` it looks every second only."""

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
        """Everything before it was read, and observers were told of it."""
        return self._fleet.position

    @property
    def history(self) -> str:
        """The id of the history that ``position`` is a place of."""
        return self._continuity.history

    @property
    def why_not_ready(self) -> str | None:
        """None when what is known is what the store says."""
        if self._continuity.why_broken:
            return WENT_BACK
        return self._why_unread or (self.held_back.message if self.held_back else None)

    @property
    def held_back(self) -> HeldBack | None:
        """What keeps the journal from being read to its end, None where nothing does."""
        return self._hold.held

    @property
    def held_seconds(self) -> float:
        """For how long something has kept the journal from being read to its end."""
        return self._hold.seconds

    @property
    def age_seconds(self) -> float:
        """How long ago the journal was read to its end."""
        return max(time.monotonic() - self._whole_at, self.held_seconds)

    def observe(self, observer: JournalObserver) -> None:
        """From now on tell ``observer`` of everything that is read."""
        self._observers.append(observer)

    def observe_anew(self, observer: Callable[[], None]) -> None:
        """From now on tell ``observer`` when no report counts any more."""
        self._tell_anew.append(observer)

    def appending(self) -> AbstractContextManager[Appending]:
        """For a transaction that announces what it appends, and the applying of it to the fleet
        after the commit: then that is not applied once more when it is read.
        """
        return self._own.appending()

    async def load(self, *, grace_until: float) -> None:
        """Take over what the store holds: as ``FleetOwner.load``, which says more."""
        await self._continuity.begin()
        await self._fleet.load(grace_until=grace_until)

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(first_seconds=FIRST_PAUSE_SECONDS, cap_seconds=LONGEST_PAUSE_SECONDS)
        trouble = Trouble(logger, "the journal cannot be read")
        while True:
            try:
                await self.follow()
            except Exception as error:  # noqa: BLE001 - told; the fleet would be one of the past for ever
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
        """Apply what can be read now. Raises Unavailable."""
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
        """Whether an agent is believed that knows what the store does not: then it went back."""
        return self._continuity.believe(why)

    async def check(self, read: Transaction) -> None:
        """Raises Unavailable when the store is in an earlier state than what is known."""
        await self._continuity.check(read, self._fleet.position)

    async def catch_up(self, tx: Transaction, versions: Mapping[str, LedgerVersion]) -> None:
        """Bring clusters' ledgers to these versions, at which the transaction holds them.

        Read clusters that are new to the fleet. Raises Unavailable when the store is in an earlier
        state than what is known: nothing may be promised on that.
        """
        await self._read_new(tx, {n: at for n, at in versions.items() if not self._fleet.has(n)})
        if off := self._off(versions):
            ahead = await tx.journal.read_ahead(self._fleet.position, MOST_AHEAD, self._own.changes)
            made_anew = {
                each.cluster for each in ahead if isinstance(each, ClusterChanged) and each.deleted
            }
            is_whole = len(ahead) < MOST_AHEAD and not any(
                isinstance(each, UnknownChange) for each in ahead
            )
            await self._take(tx, ahead)
            off = self._off(versions)
            for name in off:
                # A ledger only grows, and what made a version is never undone.
                is_lost = versions[name].version <= self._fleet.version(name).version
                if is_lost and is_whole and name not in made_anew:
                    self._go_back(name)
        if off:
            await self._read_again(tx, {name: versions[name] for name in off})

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
        """Clusters that are new to the fleet. The ledgers are locked."""
        if not versions:
            return
        for name, stored in (await tx.clusters.find(versions.keys())).items():
            self._fleet.put_cluster(stored.cluster)
            self._fleet.put_facts(name, stored.facts)
        await self._read_again(tx, {n: at for n, at in versions.items() if self._fleet.has(n)})

    def _go_back(self, name: str) -> None:
        """Its ledger here is of what is not in the store any more."""
        version = self._fleet.version(name).version
        self._continuity.broke(f"version {version} of the ledger of {name} is another one, or gone")
        raise Unavailable(WENT_BACK)

    def _off(self, versions: Mapping[str, LedgerVersion]) -> list[str]:
        return [
            name
            for name, version in versions.items()
            if self._fleet.has(name) and self._fleet.version(name) != version
        ]

    async def _read_some(self) -> bool:
        """Whether there may be more to read."""
        before = self._fleet.position
        async with self._store.reading() as read:
            entries = await read.journal.read(before, ENTRIES_AT_ONCE, self._own.changes)
            is_readable = self._is_readable(entries)
            await self.check(read)
            if self._was_away() and await read.journal.oldest() > before:
                logger.warning("what was to be read of the journal is gone: reading everything")
                await self._read_everything()
                return True
            if not is_readable:
                await self._read_everything()
                return False
            self._read_at = asyncio.get_running_loop().time()
            if not entries:
                return False
            await self._own.arrived(entry.position.id for entry in entries)
            news = [each.change for each in entries if each.position.id not in self._own.changes]
            clusters = [each for each in news if isinstance(each, ClusterChanged)]
            await self._read_clusters(read, clusters)
            await self._take(read, news)
        for name in sorted({each.cluster for each in clusters if each.deleted}):
            await self._read_anew(name)
        for name in sorted(self._unknown_in(entries)):
            await self._read_anew(name)
        for change in news:
            if not change.makes_versions:
                self._fleet.apply(change)
        self._own.forget(entry.position.id for entry in entries)
        self._fleet.position = entries[-1].position
        for entry in entries:
            tell([each.changed for each in self._observers], entry.change)
        return len(entries) == ENTRIES_AT_ONCE

    def _unknown_in(self, entries: Iterable[Entry]) -> set[str]:
        """Names of clusters that are not in the fleet, but for those that left after the entry."""
        return {
            name
            for position, change in entries
            for name in change.ledgers
            if not self._fleet.has(name) and not self._departed.left_after(name, position)
        }

    async def _read_everything(self, *, anew: bool = False) -> None:
        await self._fleet.reload(anew=anew)
        # It may have been read as it was before them.
        self._own.forget_all()
        tell([each.lost for each in self._observers])

    def _was_away(self) -> bool:
        """Whether what was to be read next may have been pruned since the last look."""
        return asyncio.get_running_loop().time() - self._read_at > AWAY_SECONDS

    async def _read_clusters(self, read: Transaction, changes: Sequence[ClusterChanged]) -> None:
        """What people and agents say of clusters now."""
        names = {each.cluster for each in changes}
        if not names:
            return
        for stored in (await read.clusters.find(names)).values():
            self._fleet.put_cluster(stored.cluster)
            self._fleet.put_facts(stored.cluster.name, stored.facts)

    async def _take(self, read: Transaction, changes: Iterable[Change]) -> None:
        """Apply those that make versions of ledgers, with the reports that they tell of."""
        changes = [change for change in _without_departed(changes) if change.makes_versions]
        newer = {
            each.cluster
            for each in changes
            if isinstance(each, ReportAdvanced) and self._is_news(each)
        }
        reports = await read.reports.get(newer) if newer else {}
        # Peers serve their agents: what is outstanding there is packed in a thread.
        await self._fleet.pack_ahead((name, report) for name, (report, _) in reports.items())
        for each in changes:
            # One that is deleted here meanwhile has left the fleet.
            if (
                isinstance(each, ReportAdvanced)
                and each.cluster in reports
                and self._fleet.has(each.cluster)
            ):
                report, received_at = reports[each.cluster]
                if (report.epoch, report.sequence) == (each.epoch, each.sequence):
                    self._fleet.put_report(
                        each.cluster, report, received_at, each.version, each.nonce
                    )
            self._fleet.apply(each)

    def _is_news(self, advanced: ReportAdvanced) -> bool:
        name = advanced.cluster
        return self._fleet.has(name) and self._fleet.ledger(name).version < advanced.version

    async def _close_gaps(self) -> None:
        """Read what is missing of clusters whose changes have waited for one that does not come."""
        now = asyncio.get_running_loop().time()
        behind = self._fleet.behind()
        self._behind_since = {name: self._behind_since.get(name, now) for name in behind}
        waiting = [n for n in behind if now - self._behind_since[n] >= OUT_OF_ORDER_SECONDS]
        if waiting:
            async with self._store.transaction() as tx:
                await self.catch_up(tx, await tx.journal.lock(sorted(waiting)))

    async def _read_anew(self, name: str) -> None:
        """A cluster that was deleted, or another one that has got its name since."""
        async with self._store.transaction() as tx:
            # Before the look: a cluster that joins after the look has a later entry, and is read.
            position = await tx.journal.position()
            stored = await tx.clusters.lock(name)
            if stored is None:
                self._departed.note(name, position)
                self._fleet.remove(name)
                return
            # Its version is lower than the known one where an older cluster of this name has left.
            self._fleet.put_cluster(stored.cluster, is_locked=True)
            self._fleet.put_facts(name, stored.facts)
            await self._read_again(tx, await tx.journal.lock([name]))

    def _is_readable(self, entries: Sequence[Entry]) -> bool:
        """False where a change of a known kind is of a newer version.

        What it says is in the tables. Kinds that are unknown are passed over; what they make of
        ledgers is read again when it is missed.
        """
        unknown = [each.change for each in entries if isinstance(each.change, UnknownChange)]
        for change in unknown:
            version = f" of version {change.version}" if change.version else ""
            self._unknown.met(FederationError(f"kind {change.kind}{version}"))
        return not any(change.version for change in unknown)

    async def _read_again(self, tx: Transaction, versions: Mapping[str, LedgerVersion]) -> None:
        """Promises and reports of clusters, in place of what was known. The ledgers are locked."""
        rows = await tx.reservations.in_clusters(versions.keys())
        reports = await tx.reports.get(versions.keys())
        self._fleet.restore(versions, rows, reports)
        for name, at in versions.items():
            fields = {"cluster": name, "version": at.version}
            logger.info("ledger read again", extra={"fields": fields})


def _without_departed(changes: Iterable[Change]) -> list[Change]:
    """Changes in order, without what they say of clusters that a later one deletes.

    A cluster that has got such a name since would take their versions for its own.
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
