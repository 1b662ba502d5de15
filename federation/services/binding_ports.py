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
    says how it waits for room, None where it does not.
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
    """Bindings by (namespace, name), where they exist; whether room may be kept for some that wait,
    and whether one of the namespaces has a quota. ``unread`` are those that only a newer release
    can read, with the error that says so.
    """

    known: Mapping[tuple[str, str], StoredBinding]
    room_is_kept: bool
    has_quotas: bool
    unread: Mapping[tuple[str, str], FederationError] = NO_ERRORS


class BindingStanding(StrEnum):
    """How a binding stands: some of it has a place, it waits for room, or it has no place. Who has
    a place may wait for more.
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
        """Where the other bindings of its workload affinity groups are."""
        ...

    async def lock_groups(self, bindings: Sequence[Binding]) -> None:
        """Until the end of the transaction nobody else locks their workload affinity groups, nor
        their gangs.
        """
        ...

    async def of_gang(self, namespace: str, gang: str) -> Sequence[StoredBinding]:
        """By ascending name."""
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
        """The names alone, as ``page`` otherwise."""
        ...

    async def delete(self, binding_id: int) -> None: ...

    async def touch(self, binding_id: int) -> None:
        """Another resource version: who decides about it reads it again."""
        ...

    async def find(
        self, keys: Collection[tuple[str, str]], unread: set[BindingName] | None = None
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Those of the (namespace, name) that exist. Raises NewerBody for one that only a newer
        release can read; where ``unread`` is given, that is added to it instead.
        """
        ...

    async def to_decide(self, keys: Collection[tuple[str, str]]) -> BindingsToDecide:
        """The bindings, and what else is to be read for decisions about all of them."""
        ...

    async def lock_all(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """``find``, held until the end of the transaction, taken in ascending order of the keys."""
        ...

    async def waiting(self, after: int, limit: int) -> Sequence[StoredBinding]:
        """Those that wait, by ascending id, from behind ``after`` on."""
        ...

    async def preemptible(
        self, keys: Collection[tuple[str, str]], below: int, limit: int
    ) -> Mapping[tuple[str, str], StoredBinding]:
        """Of the (namespace, name) those of a lower priority that may be preempted, the least
        urgent first.
        """
        ...

    async def earmarked(self, limit: int, nominated: int = 0) -> Sequence[StoredBinding]:
        """Those that room is kept for, and that may be tried; who came first is first. So many that
        were overtaken, and so many for whom others leave, those whose time ends last.
        """
        ...

    async def first_waiting(self, scheduler_names: Collection[str]) -> Sequence[StoredBinding]:
        """Of those that wait and may be tried, the first of each scheduler name."""
        ...

    async def holding(self, cluster: str, limit: int) -> Sequence[tuple[str, str]]:
        """(namespace, name) of the first bindings, by name, with replicas in a cluster."""
        ...


# Nobody writes to it.
NOT_ORDERED: Final[Mapping[int, float | None]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """A binding that is to wait from now on, or goes on waiting after it was tried once more.

    One that ``is_changed`` asks for something else than it was overtaken or ``nominated`` for; else
    None leaves that as it was.
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
        """How it waits that did not before."""
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
    """How many wait in one state, for how many of them room is kept, and for how long the one that
    came first has waited.
    """

    bindings: int = 0
    earmarked: int = 0
    oldest_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GangWait:
    """How those of a gang wait that have no place yet: as the first one of them does, ``entry``,
    since the one that came first. With a ``gate`` they are not tried.
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
    """A gang: how many members it is to have, how many of them are here, how many have a place.

    Of those that wait: since when (Unix seconds), until when, and what for.
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
    """A place in the order of the queue; ``since`` in Unix seconds, or what a plugin has put in its
    place. ``entry`` is the first member
    of the gang that it waits with, "" where it is of none.
    """

    priority: int
    since: float
    namespace: str
    name: str
    entry: str = ""


class Waits(Protocol):
    """Bindings that wait. One that is deleted waits no more."""

    async def put(self, waits: Sequence[NewWait]) -> None:
        """Who waits already keeps its place, and was tried once more."""
        ...

    async def gate(self, wait: NewWait) -> None:
        """It is not tried from now on; ``wait.gate`` says what it waits for. Who waits already
        keeps its place.
        """
        ...

    async def put_together(self, wait: GangWait) -> None:
        """They wait together from now on; each has a row."""
        ...

    async def open(self, binding_id: int) -> None:
        """It may be tried again."""
        ...

    async def remove(self, binding_ids: Collection[int]) -> None:
        """They wait no more."""
        ...

    async def note(
        self,
        refused: Mapping[int, str],
        failed: Mapping[int, float],
        overtaken: Mapping[int, str],
        earmarked: Collection[int] = (),
        ordered: Mapping[int, float | None] = NOT_ORDERED,
    ) -> None:
        """By the ids of bindings: who was refused once more, and for lack of what; who failed, and
        after how many seconds it is tried again; who was overtaken for the first time, and by whom;
        for whom room is kept from now on; by which instant (Unix seconds, None: since when it
        waits) it stands in the order.

        Of who waits no more, or is gated, nothing is noted.
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
        """In the order in which they are tried; of one namespace unless it is empty.

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
        """By ascending (namespace, name): of those that wait, and of those that have their places;
        otherwise as ``page``.
        """
        ...

    async def tallies(self) -> Mapping[WaitState, WaitTally]:
        """What waits, by state; a state without any may be left out."""
        ...

    async def position(self, place: QueuePlace) -> int:
        """Among all that wait and are not gated, from 1."""
        ...
