"""What use cases need from the store for bindings.

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
from federation.model.waiting import Wait

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
