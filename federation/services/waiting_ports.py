"""What use cases need from the store for bindings that wait for room.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from federation.model.placement import BindingName
from federation.model.waiting import Nomination, Wait, WaitState

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
