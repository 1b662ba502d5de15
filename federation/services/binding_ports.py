"""The store of bindings, and of their waits, as use cases need it.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from federation.model.errors import FederationError
from federation.model.placement import Binding, BindingName
from federation.model.waiting import Nomination, Wait, WaitState

NO_ERRORS: Final[Mapping[BindingName, FederationError]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBinding:
    """A binding as committed and the id of its newest decision (empty before the first).

    ``observed_affinity`` names the group of cluster affinities its placement came from. ``wait``
    says how it waits for room, None if it does not.
    """

    id: int
    binding: Binding
    decision_id: str = ""
    observed_affinity: str = ""
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """The clusters of each other binding in the same workload (anti-)affinity group."""

    affinity: tuple[frozenset[str], ...] = ()
    anti_affinity: tuple[frozenset[str], ...] = ()


class BindingsToDecide(NamedTuple):
    """The existing bindings of a batch by (namespace, name).

    ``room_is_kept``: room may be kept for waiting bindings; ``has_quotas``: one of the namespaces
    has a quota. ``unread`` are the errors of bindings that only a newer release can read.
    """

    known: Mapping[tuple[str, str], StoredBinding]
    room_is_kept: bool
    has_quotas: bool
    unread: Mapping[tuple[str, str], FederationError] = NO_ERRORS


class BindingStanding(StrEnum):
    """PLACED: some replicas are placed, and others may wait. WAITING: replicas wait for room.

    NOWHERE: no replica is placed.
    """

    PLACED = "placed"
    WAITING = "waiting"
    NOWHERE = "nowhere"


class Bindings(Protocol):
    """Bindings and where they run.

    What only a newer release can read raises NewerBody. ``waiting``, ``preemptible``, ``earmarked``
    and ``first_waiting`` leave such bindings out, and log an error.
    """

    async def get(self, namespace: str, name: str) -> StoredBinding | None: ...

    async def peers(self, binding: Binding) -> Peers:
        """Return the clusters of the other bindings of its workload affinity groups."""
        ...

    async def lock_groups(self, bindings: Sequence[Binding]) -> None:
        """Lock their workload affinity groups and gangs until the end of the transaction."""
        ...

    async def of_gang(self, namespace: str, gang: str) -> Sequence[StoredBinding]:
        """Return the members of a gang by ascending name."""
        ...

    async def lock(self, namespace: str, name: str) -> StoredBinding | None:
        """The binding, held until the end of the transaction."""
        ...

    async def page(
        self,
        namespace: str,
        after: tuple[str, str] | None,
        limit: int,
        *,
        among: Collection[str] = (),
        part: str = "",
        standing: BindingStanding | None = None,
    ) -> Sequence[Binding]:
        """By ascending (namespace, name), of one namespace unless it is empty.

        ``among`` are patterns of namespaces, as in ``Scope``: only of these; none: of all. Only
        those whose name has this ``part``, and that stand so, where that is said.
        """
        ...

    async def names(
        self, namespace: str, after: BindingName | None, limit: int
    ) -> Sequence[BindingName]:
        """Return names alone, as ``page`` otherwise."""
        ...

    async def delete(self, binding_id: int) -> None: ...

    async def touch(self, binding_id: int) -> None:
        """Change the resource version, so that a decision under way reads it again."""
        ...

    async def find(
        self, keys: Collection[tuple[str, str]], unread: set[BindingName] | None = None
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Return the existing bindings of these names.

        Raises NewerBody for one that only a newer release can read; with ``unread`` its name is
        added there instead.
        """
        ...

    async def to_decide(self, keys: Collection[tuple[str, str]]) -> BindingsToDecide:
        """Read bindings, and the rest that decisions about them need."""
        ...

    async def lock_all(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Find bindings and lock them in ascending order until the end of the transaction."""
        ...

    async def waiting(self, after: int, limit: int) -> Sequence[StoredBinding]:
        """Return waiting bindings by ascending id, behind ``after``."""
        ...

    async def preemptible(
        self, keys: Collection[tuple[str, str]], below: int, limit: int
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Return bindings of these names and a lower priority that may be preempted.

        The least urgent come first.
        """
        ...

    async def earmarked(self, limit: int, nominated: int = 0) -> Sequence[StoredBinding]:
        """Return bindings that room is kept for and that may be tried, the oldest first.

        At most ``limit`` of them were overtaken, and ``nominated`` wait for others to leave; of
        these the last to end come.
        """
        ...

    async def first_waiting(self, scheduler_names: Collection[str]) -> Sequence[StoredBinding]:
        """Return the first waiting binding of each scheduler name that may be tried."""
        ...

    async def holding(self, cluster: str, limit: int) -> Sequence[BindingName]:
        """Return the oldest bindings with replicas in a cluster, by name."""
        ...

    async def in_cluster(self, cluster: str) -> Sequence[BindingName]:
        """Return all bindings whose placements name a cluster, by name."""
        ...


# An empty mapping, which is never changed.
NOT_ORDERED: Final[Mapping[int, float | None]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """A binding that waits from now on, or goes on waiting after another try.

    ``is_changed``: its request is not the one that it was overtaken or ``nominated`` for. Else a
    ``nominated`` of None leaves its nomination as it was.
    """

    binding_id: int
    namespace: str
    name: str
    priority: int
    remainder: int
    short_of: str
    state: WaitState = WaitState.UNSCHEDULABLE
    gate: str = ""
    nominated: Nomination | None = None
    is_changed: bool = False

    def begun(self, since: float) -> Wait:
        """Return the wait of a binding that did not wait before."""
        return Wait(
            state=self.state,
            since=since,
            attempts=1,
            remainder=self.remainder,
            short_of=self.short_of,
            gate=self.gate,
            nominated=self.nominated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitTally:
    """Counts of bindings that wait in one state, of earmarks for them, and the longest wait."""

    bindings: int = 0
    earmarked: int = 0
    oldest_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangWait:
    """The wait of the members of a gang that are not placed: as one, by their first, ``entry``.

    They wait since the first came. With a ``gate`` they are not tried.
    """

    binding_ids: Sequence[int]
    gang: str
    entry: str
    priority: int
    gate: str = ""
    short_of: str = ""
    timeout_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedBinding:
    """A binding that waits. ``position`` is its place among all that wait, 0 for a gated one."""

    namespace: str
    name: str
    uid: str
    priority: int
    wait: Wait
    position: int
    decision_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSummary:
    """A gang: its size, and how many members exist and are placed.

    Of waiting members: since when (Unix seconds), until when, and what for.
    """

    namespace: str
    name: str
    size: int
    members: int
    placed: int
    replicas: int
    priority: int
    waiting_since: float | None = None
    times_out: float | None = None
    has_timed_out: bool = False
    waits_for: str = ""


class QueuePlace(NamedTuple):
    """A place in the order of the queue; ``since`` in Unix seconds, or a plugin's replacement.

    ``entry`` is the first member of the gang that it waits with, "" without a gang.
    """

    priority: int
    since: float
    namespace: str
    name: str
    entry: str = ""


class Waits(Protocol):
    """The waits of bindings, which end when these are deleted."""

    async def put(self, waits: Sequence[NewWait]) -> None:
        """Let bindings wait; one that waits already keeps its place, and was tried again."""
        ...

    async def gate(self, wait: NewWait) -> None:
        """Let a binding wait without tries; ``wait.gate`` says why. Its place stays the same."""
        ...

    async def put_together(self, wait: GangWait) -> None:
        """Let members of a gang wait as one; each has a row."""
        ...

    async def open(self, binding_id: int) -> None:
        """Let a gated binding be tried again."""
        ...

    async def remove(self, binding_ids: Collection[int]) -> None:
        """End waits."""
        ...

    async def note(
        self,
        refused: Mapping[int, str],
        failed: Mapping[int, float],
        overtaken: Mapping[int, str],
        earmarked: Collection[int] = (),
        ordered: Mapping[int, float | None] = NOT_ORDERED,
    ) -> None:
        """Note results of tries by the ids of bindings that wait and are not gated.

        ``refused``: what they lack. ``failed``: seconds to the next try. ``overtaken``: the first
        binding that overtook them. ``earmarked``: room is kept from now on. ``ordered``: the
        instant (Unix seconds) of their place in the order, None: since when they wait.
        """
        ...

    async def page(
        self,
        namespace: str,
        priority: int | None,
        after: QueuePlace | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> Sequence[QueuedBinding]:
        """Return waiting bindings in the order of the queue, of one namespace unless it is empty.

        ``among`` are patterns of namespaces, as in ``Scope``: only of these; none: of all.
        """
        ...

    async def gangs(
        self,
        namespace: str,
        after: BindingName | None,
        limit: int,
        *,
        among: Collection[str] = (),
    ) -> Sequence[GangSummary]:
        """Return waiting and placed gangs by ascending (namespace, name), otherwise as ``page``."""
        ...

    async def tallies(self) -> Mapping[WaitState, WaitTally]:
        """Count waits by state; a state without any may be missing."""
        ...

    async def position(self, place: QueuePlace) -> int:
        """Return a position among all that wait and are not gated, from 1."""
        ...
