"""The store of promises as use cases need it: journal, reservations, keys, duties and peers.

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
    START,
    Bookmark,
    Change,
    Entry,
    JournalBounds,
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
    """The clusters where a binding holds something; ``has_expired``: its lease has run out."""

    clusters: tuple[str, ...] = ()
    has_expired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionLimits:
    """Limits of preemption: replicas within any minute in all, and of one namespace.

    The room of replicas that have to leave is kept for ``seconds``.
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
    """The control plane that heard a cluster's agent, and when (the store's Unix time).

    ``replica`` is empty once the stream ended, at ``heard_at``. ``confirmed_sequence`` is the
    report that the agent confirmed when it was heard last, 0: none. ``blind_reason`` is empty if
    the agent saw its cluster then; else it had not for ``blind_seconds``.
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
    """The history of the database, by a random id.

    ``is_moved``: this is another database or server than the one of the history, or one that did
    not lead then. The newest changes may not have reached it.
    """

    id: str
    is_moved: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A running control plane and where its peers dial it."""

    id: str
    endpoint: str


class OpenTransaction(NamedTuple):
    """A transaction that may append to the journal and is still open; ``pid`` 0: a prepared one.

    ``seconds`` is its age, None if the server does not show that to our role.
    """

    pid: int
    database: str
    user: str
    application: str
    seconds: float | None

    @property
    def text(self) -> str:
        """A description for people."""
        who = f"server process {self.pid}" if self.pid else "no process"
        age = "" if self.seconds is None else f", open for {self.seconds:.0f} s"
        names = f"database {self.database!r}, user {self.user!r}, {self.application!r}"
        return f"{who} ({printable(names)}){age}"

    @property
    def remedy(self) -> str:
        """A statement that ends it."""
        if not self.pid:
            return "COMMIT PREPARED or ROLLBACK PREPARED it."
        return f"End it: SELECT pg_terminate_backend({self.pid})."


class Journal(Protocol):
    """Cluster ledgers' versions, and what changed them, in the order it was committed."""

    async def lock(self, clusters: Sequence[str]) -> Mapping[str, LedgerVersion]:
        """Lock the ledger versions of clusters until the end of the transaction.

        Taken in the order of the clusters' ids, so that two callers never wait for each other.
        Clusters that do not exist are left out.
        """
        ...

    async def advance(
        self, versions: Mapping[str, int], nonces: Mapping[str, int] = NO_NONCES
    ) -> None:
        """Write new ledger versions of locked clusters; ``nonces`` change their histories."""
        ...

    async def append(
        self,
        changes: Sequence[Change],
        versions: Mapping[str, int] = NO_VERSIONS,
        nonces: Mapping[str, int] = NO_NONCES,
    ) -> Sequence[int]:
        """Append changes, and wake up readers (once) when the transaction commits.

        ``versions`` and ``nonces`` are as in ``advance``. Return the ids of the entries, in the
        order of the changes.
        """
        ...

    async def read(
        self,
        after: Position,
        limit: int,
        cached: Mapping[int, Change] = NONE_KNOWN,
        settled: Position = START,
    ) -> Sequence[Entry]:
        """Return the next entries in their order, up to the first that may still be committed.

        Fewer than ``limit`` are all that there are now. Entries that are ``cached`` by id are not
        decoded again. Entries up to ``settled`` were read before, and are read whoever writes.
        """
        ...

    async def read_ahead(
        self, after: Position, limit: int, cached: Mapping[int, Change] = NONE_KNOWN
    ) -> Sequence[Change]:
        """Return committed changes from ``after`` on, in no fixed order across clusters.

        Of a cluster that this transaction has locked nothing is missing, unless there are
        ``limit`` changes: then the newest may be left out.
        """
        ...

    async def position(self) -> Position:
        """Return the position from which on reading misses no later change."""
        ...

    async def bounds(self) -> JournalBounds:
        """Return the position, and that of the newest entry, which may not be committed yet."""
        ...

    async def oldest(self) -> Position:
        """Return the oldest position from which on nothing was pruned."""
        ...

    async def holder_of(self, position: Position) -> OpenTransaction | None:
        """Return the transaction that keeps the journal from being read further, None: none."""
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forget old entries; return how many."""
        ...


class Reservations(Protocol):
    """The reservations of every binding."""

    async def all(self) -> Sequence[StoredReservations]: ...

    async def in_clusters(self, clusters: Collection[str]) -> Sequence[StoredReservations]:
        """Return all reservations of bindings that hold something in one of the clusters.

        Looks at all there are: ask once for many.
        """
        ...

    async def of(self, namespace: str, name: str) -> StoredReservations | None: ...

    async def holdings(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Holding]:
        """Return the holdings of bindings by (namespace, name), without empty ones."""
        ...

    async def put(
        self, rows: Sequence[StoredReservations], lease_seconds: Mapping[str, int | None]
    ) -> None:
        """Replace rows as a whole; one without reservations is deleted.

        ``lease_seconds`` by binding key starts leases anew, from the store's now, or ends them
        (None); other leases stay as they are.
        """
        ...

    async def leave(self, cluster: str) -> None:
        """Remove all reservations in a cluster."""
        ...

    async def finish(self, finished: Sequence[Finished]) -> None:
        """Raise the counts of pods that have succeeded, which never fall."""
        ...

    async def renew(self, key: str, seconds: int) -> float | None:
        """Return the lease's new end, in Unix seconds; None without a running lease."""
        ...

    async def expired(self, limit: int) -> Sequence[tuple[str, str]]:
        """Return bindings whose leases have run out, the longest first."""
        ...

    async def has_expired(self, namespace: str, name: str) -> bool:
        """Whether the binding's lease has run out."""
        ...


class Preemptions(Protocol):
    """Counts of replicas preempted within the last minute, by namespace."""

    async def spent(self) -> Mapping[str, int]: ...

    async def add(self, replicas: Mapping[str, int]) -> Mapping[str, int]:
        """Store these too and return ``spent``, locked until the transaction ends."""
        ...


class Requests(Protocol):
    """Answers kept under idempotency keys for a day."""

    async def add(
        self, caller: str, key: str, body_hash: bytes, answer: bytes
    ) -> KnownRequest | None:
        """Store an answer, or return the stored one of this key.

        Waits for another transaction that is adding the same key.
        """
        ...

    async def get(self, caller: str, key: str) -> KnownRequest | None: ...

    async def prune(self, limit: int) -> int:
        """Forget answers older than a day; return how many."""
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
        """Take or keep duties; return the fencing tokens of those that no other replica holds.

        A token grows with every change of holder.
        """
        ...

    async def check(self, duty: str, token: int) -> bool:
        """Whether the token is the newest; the duty is locked until the transaction ends."""
        ...

    async def leave(self, duty: str, replica: str) -> None: ...

    async def record_failure(self, duty: str, token: int, why: str) -> None:
        """Record why the duty fails, or with an empty reason that it succeeds, for its holder."""
        ...

    async def failures(self) -> Sequence[DutyFailure]:
        """Return the duties whose last round failed, by name."""
        ...


class StoredPresences(Protocol):
    """The control planes that heard agents last."""

    async def put(self, presences: Sequence[StoredPresence]) -> None:
        """Store presences as of now, without ``heard_at``. An older epoch changes nothing."""
        ...

    async def leave(self, clusters: Collection[str], replica: str) -> None:
        """End the streams of clusters that this replica served, as of now."""
        ...

    async def all(self, heard_since: float = 0.0) -> Sequence[StoredPresence]:
        """Return presences that were put or left since then, by the store's Unix time."""
        ...

    async def unheard_seconds(self) -> Mapping[str, float]:
        """Return for clusters with a report how long ago their agents were heard, or reported."""
        ...


class StoredReplicas(Protocol):
    """The control planes that run now."""

    async def put(self, replica: Replica) -> None:
        """Note that a control plane runs, and its endpoint."""
        ...

    async def all(self, heard_within_seconds: float) -> Sequence[Replica]: ...

    async def remove(self, replica_id: str) -> None: ...


class Histories(Protocol):
    """The history of the database. Raises Unavailable if it has none, because it was emptied."""

    @property
    def known_to(self) -> set[object]:
        """Readers that have checked the history on this connection, which stays the same."""
        ...

    async def check(self) -> None:
        """Check that there is a history."""
        ...

    async def get(self) -> History: ...

    async def lock(self) -> History:
        """Lock the history until the transaction ends."""
        ...

    async def ensure(self) -> None:
        """Begin the first history of an empty database."""
        ...

    async def settle(self) -> None:
        """Go on with the history in this database."""
        ...

    async def forget(self, nonce: int) -> str:
        """Begin another history, and return its id.

        No report and no journal entry counts any more. Ledger versions go on far from the old
        ones.
        """
        ...

    async def bookmark(self, position: Position) -> Bookmark | None:
        """Return the last entry of the journal before a position, if there is one."""
        ...

    async def holds(self, bookmark: Bookmark) -> bool:
        """Whether the journal has that entry, or had it until it was pruned."""
        ...


class ChangeSignal(Protocol):
    """A signal of appends to the journal by any control plane."""

    async def wait(self, timeout_seconds: float) -> None:
        """Return at the next append since the last return, or after the time."""
        ...
