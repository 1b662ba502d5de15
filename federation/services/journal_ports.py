"""What use cases need from the store for promises: the journal, reservations, keys, duties, peers.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from federation.model.printable import printable
from federation.model.shapes import Shape
from federation.services.journal import (
    NO_NONCES,
    NO_VERSIONS,
    NONE_KNOWN,
    Bookmark,
    Change,
    Entry,
    LedgerVersion,
    Position,
    StoredReservations,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Pods of a Job that succeeded: they count as echoed for good."""

    binding: str
    cluster: str
    component: str
    shape: Shape
    finished: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Where a binding holds something, ascending; ``has_expired``: its lease has run out."""

    clusters: tuple[str, ...] = ()
    has_expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionLimits:
    """How many replicas may be preempted within any minute: in all, and of one namespace; and for
    how many ``seconds`` the room of those that have to leave is kept.
    """

    replicas: int
    in_namespace: int
    seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRequest:
    """A request that was answered under its idempotency key: ``body_hash`` is its SHA-256."""

    body_hash: bytes
    answer: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPresence:
    """Which replica of the control plane heard a cluster's agent, and when (the store's Unix time).

    ``replica`` is empty once the stream ended, at ``heard_at``. ``confirmed_sequence`` is the
    report that the agent said to be still its picture when it was heard last, 0: none.
    ``blind_reason`` is empty where the agent saw its cluster then; else it had not for
    ``blind_seconds``.
    """

    cluster: str
    replica: str
    epoch: int
    heard_at: float
    clock_offset_seconds: float = 0.0
    confirmed_sequence: int = 0
    blind_seconds: float = 0.0
    blind_reason: str = ""
    blind_message: str = ""
    skipped_objects: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the database went through, by a random id.

    ``is_moved``: this is another database than the one that it went on in, or of another server,
    or of one that did not lead then: the newest may not have reached it.
    """

    id: str
    is_moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A running control plane and where its peers dial it."""

    id: str
    endpoint: str


class OpenTransaction(NamedTuple):
    """A transaction that has an id and has not ended; ``pid`` 0: a prepared one. ``seconds`` is how
    old it is, None where the server does not show that to our role.
    """

    pid: int
    database: str
    user: str
    application: str
    seconds: float | None

    @property
    def text(self) -> str:
        """For people."""
        who = f"server process {self.pid}" if self.pid else "no process"
        age = "" if self.seconds is None else f", open for {self.seconds:.0f} s"
        names = f"database {self.database!r}, user {self.user!r}, {self.application!r}"
        return f"{who} ({printable(names)}){age}"

    @property
    def remedy(self) -> str:
        """How it is ended."""
        if not self.pid:
            return "COMMIT PREPARED or ROLLBACK PREPARED it."
        return f"End it: SELECT pg_terminate_backend({self.pid})."


class Journal(Protocol):
    """Cluster ledgers' versions, and what changed them, in the order it was committed."""

    async def lock(self, clusters: Sequence[str]) -> Mapping[str, LedgerVersion]:
        """The ledger versions of clusters, held until the end of the transaction.

        Taken in the order of the clusters' ids, so that two callers never wait for each other.
        Clusters that do not exist are left out.
        """
        ...

    async def advance(
        self, versions: Mapping[str, int], nonces: Mapping[str, int] = NO_NONCES
    ) -> None:
        """New ledger versions of clusters that are locked; ``nonces`` change their histories."""
        ...

    async def append(
        self,
        changes: Sequence[Change],
        versions: Mapping[str, int] = NO_VERSIONS,
        nonces: Mapping[str, int] = NO_NONCES,
    ) -> Sequence[int]:
        """Appends, and wakes up who waits for it (once) when the transaction commits. ``versions``
        and ``nonces`` as ``advance`` takes them.

        The ids of the entries, in the order of the changes.
        """
        ...

    async def read(
        self, after: Position, limit: int, known: Mapping[int, Change] = NONE_KNOWN
    ) -> Sequence[Entry]:
        """What follows, oldest first, as far as nothing can come before it any more.

        Fewer than ``limit`` are all that there are now. What is ``known`` by entry id is not
        decoded again.
        """
        ...

    async def read_ahead(
        self, after: Position, limit: int, known: Mapping[int, Change] = NONE_KNOWN
    ) -> Sequence[Change]:
        """What is committed and not before ``after``, in no promised order across clusters.

        Of one cluster that this transaction has locked nothing is missing, unless there are
        ``limit`` of them: then the newest may be left out.
        """
        ...

    async def position(self) -> Position:
        """Reading from here on misses nothing that later statements do not see."""
        ...

    async def oldest(self) -> Position:
        """Reading from anywhere before this may miss what was pruned."""
        ...

    async def oldest_running(self) -> int | None:
        """The id of the oldest transaction of the server that may still commit, before which
        reading ends; None where none runs.
        """
        ...

    async def holder_of(self, xid: int) -> OpenTransaction | None:
        """Who has this transaction open, None where it has ended."""
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forgets old entries; how many."""
        ...


class Reservations(Protocol):
    """What every binding holds."""

    async def all(self) -> Sequence[StoredReservations]: ...

    async def in_clusters(self, clusters: Collection[str]) -> Sequence[StoredReservations]:
        """Those of bindings that hold something in one of the clusters, as a whole.

        Looks at all there are: ask once for many.
        """
        ...

    async def of(self, namespace: str, name: str) -> StoredReservations | None: ...

    async def holdings(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Holding]:
        """Of bindings by (namespace, name), those that hold something."""
        ...

    async def put(
        self, rows: Sequence[StoredReservations], lease_seconds: Mapping[str, int | None]
    ) -> None:
        """Replaces rows as a whole; one without reservations is deleted.

        ``lease_seconds`` starts leases by binding key anew, from the store's now, or ends them
        (None); the leases of rows that are not in there stay as they are.
        """
        ...

    async def leave(self, cluster: str) -> None:
        """Nothing is held in that cluster any more."""
        ...

    async def finish(self, finished: Sequence[Finished]) -> None:
        """Raises how many pods of reservations have succeeded; it never falls."""
        ...

    async def renew(self, key: str, seconds: int) -> float | None:
        """The lease's new end, in Unix seconds; None when there is no lease or it has run out."""
        ...

    async def expired(self, limit: int) -> Sequence[tuple[str, str]]:
        """(namespace, name) of bindings whose leases have run out, longest first."""
        ...

    async def has_expired(self, namespace: str, name: str) -> bool:
        """Whether the binding's lease has run out."""
        ...


class Preemptions(Protocol):
    """How many replicas were preempted within the last minute, by namespace."""

    async def spent(self) -> Mapping[str, int]: ...

    async def add(self, replicas: Mapping[str, int]) -> Mapping[str, int]:
        """``spent`` with these, which are kept; until the transaction ends nobody else adds any."""
        ...


class Requests(Protocol):
    """Answers kept under idempotency keys for a day."""

    async def add(
        self, caller: str, key: str, body_hash: bytes, answer: bytes
    ) -> KnownRequest | None:
        """Keeps an answer; the one that is known instead, if there is one.

        Waits for another transaction that is adding the same key.
        """
        ...

    async def get(self, caller: str, key: str) -> KnownRequest | None: ...

    async def prune(self, limit: int) -> int:
        """Forgets those older than a day; how many."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DutyFailure:
    """A duty that fails: `since` in Unix seconds of the database's clock."""

    duty: str
    since: float
    why: str


class StoredDuties(Protocol):
    """Background work that one replica does at a time."""

    async def hold(
        self, duties: Collection[str], replica: str, seconds: float
    ) -> Mapping[str, int]:
        """Takes or keeps duties; the fencing tokens of those that no other replica holds.

        A token grows with every change of holder.
        """
        ...

    async def check(self, duty: str, token: int) -> bool:
        """Whether the token is the newest; until the transaction ends nobody can take the duty."""
        ...

    async def leave(self, duty: str, replica: str) -> None: ...

    async def record_failure(self, duty: str, token: int, why: str) -> None:
        """Record why the duty fails, or with an empty reason that it succeeds, for its holder."""
        ...

    async def failures(self) -> Sequence[DutyFailure]:
        """Return the duties whose last round failed, by name."""
        ...


class StoredPresences(Protocol):
    """Who heard which agent last."""

    async def put(self, presences: Sequence[StoredPresence]) -> None:
        """``heard_at`` is ignored: it is the store's now. An older epoch changes nothing."""
        ...

    async def leave(self, clusters: Collection[str], replica: str) -> None:
        """The streams of clusters that this replica served ended, now."""
        ...

    async def all(self, heard_since: float = 0.0) -> Sequence[StoredPresence]:
        """Those that were put or left since then, by the store's Unix time."""
        ...

    async def unheard_seconds(self) -> Mapping[str, float]:
        """Of each cluster with a report, how long ago its agent was heard last, or reported."""
        ...


class StoredReplicas(Protocol):
    """The control planes that run now."""

    async def put(self, replica: Replica) -> None:
        """A control plane runs and is dialled there."""
        ...

    async def all(self, heard_within_seconds: float) -> Sequence[Replica]: ...

    async def remove(self, replica_id: str) -> None: ...


class Histories(Protocol):
    """Which history the database has. Raises Unavailable where it has none: it was emptied."""

    @property
    def known_to(self) -> set[object]:
        """Who has checked the history on this connection: its database is not put back while it
        lasts.
        """
        ...

    async def check(self) -> None:
        """It has one."""
        ...

    async def get(self) -> History: ...

    async def lock(self) -> History:
        """Nobody else begins another one until the transaction ends."""
        ...

    async def ensure(self) -> None:
        """An empty database begins its first history."""
        ...

    async def settle(self) -> None:
        """The history goes on in this database."""
        ...

    async def forget(self, nonce: int) -> str:
        """Begins another history, and answers its id: no report counts any more, nor does the
        journal; versions of ledgers go on far from those of the one before.
        """
        ...

    async def bookmark(self, position: Position) -> Bookmark | None:
        """The last entry of the journal before a position, None where there is none."""
        ...

    async def holds(self, bookmark: Bookmark) -> bool:
        """Whether the journal has that entry, or had it until it was pruned."""
        ...


class ChangeSignal(Protocol):
    """Wakes up when something was appended to the journal by anybody."""

    async def wait(self, timeout_seconds: float) -> None:
        """Returns at the next append since the last return, or after the time."""
        ...
