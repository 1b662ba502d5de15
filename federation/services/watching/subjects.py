"""Objects to watch: bindings as they are in the store, and clusters as they are in memory.

Must not know watchers, nor how events travel: a function of the caller writes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from federation.model.placement import Binding, BindingName
from federation.model.reservations import PromiseCertificate, Reservation, Share
from federation.model.waiting import Wait
from federation.services.binding_ports import StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import BindingChanged, Change, ClusterChanged, ReportAdvanced
from federation.services.ports import Store
from federation.services.values import ClusterView

# This many are read, or written, in less than 5 ms of the event loop.
EVENTS_AT_ONCE = 50

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingEvent:
    """A binding as it is now, with the newest decision about it; no ``binding``: it was deleted.

    ``certificates`` of its shares are by cluster; ``wait`` is None when it does not wait.
    """

    namespace: str
    name: str
    uid: str = ""
    decision_id: str = ""
    binding: Binding | None = None
    certificates: Mapping[str, PromiseCertificate] = field(default_factory=dict)
    wait: Wait | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEvent:
    """A cluster as it is now; no ``view``: it was deleted."""

    name: str
    view: ClusterView | None = None


class BindingSubject(Generic[E]):
    """Bindings as a subject of watches; a scope is a namespace."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        write: Callable[[BindingEvent], E],
        size: Callable[[E], int],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._write = write
        self._size = size

    def key_of(self, change: Change) -> BindingName | None:
        return (change.namespace, change.name) if isinstance(change, BindingChanged) else None

    def concerns(self, key: BindingName, scope: str) -> bool:
        return scope in ("", key[0])

    async def keys(
        self, scope: str, after: BindingName | None, limit: int
    ) -> Sequence[BindingName]:
        async with self._store.reading() as read:
            return await read.bindings.names(scope, after, limit)

    def size(self, event: E) -> int:
        return self._size(event)

    def is_current(self) -> bool:
        """Return True, because the store has all committed changes."""
        return True

    async def events(self, changed: Mapping[BindingName, Change | None]) -> Mapping[BindingName, E]:
        stored: dict[BindingName, StoredBinding] = {}
        async with self._store.reading() as read:
            for keys in batched(changed, EVENTS_AT_ONCE):
                stored.update(await read.bindings.find(keys))
        events: dict[BindingName, BindingEvent] = {}
        for key, change in changed.items():
            namespace, name = key
            if (row := stored.get(key)) is not None:
                events[key] = BindingEvent(
                    namespace=namespace,
                    name=name,
                    uid=row.binding.uid,
                    decision_id=row.decision_id,
                    binding=row.binding,
                    certificates=self._certificates(row.binding.key, change),
                    wait=row.wait,
                )
            elif isinstance(change, BindingChanged):
                events[key] = BindingEvent(namespace=namespace, name=name, uid=change.uid)
        return await _written(events, self._write)

    def _certificates(self, key: str, change: Change | None) -> Mapping[str, PromiseCertificate]:
        """Return certificates by the ledgers, and by the change, which may not be applied yet."""
        shares: dict[str, Sequence[Share | Reservation]] = {
            cluster: self._fleet.ledger(cluster).newest(key)
            for cluster in self._fleet.holdings(key)
            if self._fleet.has(cluster)
        }
        if isinstance(change, BindingChanged):
            shares |= {
                name: cluster_shares.shares for name, cluster_shares in change.clusters.items()
            }
        return {name: parts[0].certificate for name, parts in sorted(shares.items()) if parts}


class ClusterSubject(Generic[E]):
    """Clusters as a subject of watches; there is one scope.

    Changes that are applied after the journal was read come by ``FleetOwner.observe``.
    """

    def __init__(
        self,
        fleet: FleetOwner,
        write: Callable[[ClusterEvent], E],
        size: Callable[[E], int],
    ) -> None:
        self._fleet = fleet
        self._write = write
        self._size = size

    def key_of(self, change: Change) -> str | None:
        return change.cluster if isinstance(change, ClusterChanged | ReportAdvanced) else None

    def concerns(self, key: str, scope: str) -> bool:  # noqa: ARG002 - as the protocol has it
        return True

    async def keys(self, scope: str, after: str | None, limit: int) -> Sequence[str]:  # noqa: ARG002 - as above
        return self._fleet.snapshot.names_after(after or "", limit)

    def size(self, event: E) -> int:
        return self._size(event)

    def is_current(self) -> bool:
        """Whether no report waits for earlier changes."""
        return not self._fleet.behind()

    async def events(self, changed: Mapping[str, Change | None]) -> Mapping[str, E]:
        events = {
            name: ClusterEvent(name=name, view=self._fleet.view(name) if exists else None)
            for name, exists in ((name, self._fleet.has(name)) for name in changed)
            if exists or changed[name] is not None
        }
        return await _written(events, self._write)


K = TypeVar("K")
V = TypeVar("V")


async def _written(events: Mapping[K, V], write: Callable[[V], E]) -> Mapping[K, E]:
    """Write events once for all watchers."""
    written: dict[K, E] = {}
    for keys in batched(events, EVENTS_AT_ONCE):
        written.update((key, write(events[key])) for key in keys)
        await asyncio.sleep(0)
    return written


def batched(keys: Iterable[K], size: int) -> Iterator[tuple[K, ...]]:
    """Yield keys in batches of ``size``."""
    rest = iter(keys)
    while batch := tuple(islice(rest, size)):
        yield batch
