"""The bindings of a simulation: those that have a place, and all of virtual time.

They are looked up by key, by affinity group and by cluster. Must not decide anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from federation.model.placement import Binding, BindingName, groups_of
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision
from federation.scheduler.state import NO_CONTEXT, BindingContext
from federation.scheduler.triggers import is_answered

# A namespace, whether its members share clusters (0) or must not (1), and the group's name.
_Group: TypeAlias = tuple[str, int, str]


class PlacedPeer(NamedTuple):
    """A binding, the newest decision that placed it, and the clusters where it ran when it came."""

    binding: Binding
    decision: Decision
    ran: frozenset[str]


class PlacedBindings:
    """The bindings with a place. Changes can be undone, the last one first."""

    def __init__(self) -> None:
        self._peers: dict[str, PlacedPeer] = {}
        self._groups: dict[_Group, dict[str, None]] = {}
        # The former values of what changed since the first open savepoint.
        self._former: list[tuple[str, PlacedPeer | None]] = []
        self._savepoints = 0

    def __iter__(self) -> Iterator[PlacedPeer]:
        return iter(self._peers.values())

    def get(self, key: str) -> PlacedPeer | None:
        """Return a binding that has a place, None where it has none."""
        return self._peers.get(key)

    def put(self, peer: PlacedPeer) -> None:
        """Add or replace a binding."""
        self._note(peer.binding.key)
        self._set(peer.binding.key, peer)

    def remove(self, key: str) -> None:
        """Remove a binding, if it has a place."""
        self._note(key)
        self._set(key, None)

    @contextmanager
    def savepoint(self) -> Iterator[int]:
        """Yield a savepoint for ``undo``, which serves as long as the block lasts."""
        self._savepoints += 1
        try:
            yield len(self._former)
        finally:
            self._savepoints -= 1
            if not self._savepoints:
                self._former.clear()

    def undo(self, savepoint: int) -> None:
        """Undo all changes since a savepoint."""
        while len(self._former) > savepoint:
            self._set(*self._former.pop())

    def count_at(self, places: Mapping[str, Iterable[str]]) -> None:
        """Let bindings count as if they were in the clusters of these names, by key."""
        for key, names in places.items():
            peer = self._peers.get(key)
            if peer is not None:
                clusters = tuple(TargetCluster(name=name, replicas=0) for name in sorted(names))
                self.put(peer._replace(decision=replace(peer.decision, clusters=clusters)))

    def context_of(self, binding: Binding) -> BindingContext:
        """Return where the other bindings of the same groups are, and whether it may stay."""
        group, anti_group = groups_of(binding)
        if not (group or anti_group or binding.clusters):
            return NO_CONTEXT
        return BindingContext(
            affinity_peers=tuple(self._places(binding, 0, group)),
            anti_affinity_peers=tuple(self._places(binding, 1, anti_group)),
            observed_affinity=binding.observed_affinity,
            is_settled=is_answered(binding),
        )

    def _places(self, binding: Binding, which: int, group: str) -> Iterator[frozenset[str]]:
        for key in self._groups.get((binding.namespace, which, group), ()):
            clusters = self._peers[key].decision.clusters
            if key != binding.key and clusters:
                yield frozenset(target.name for target in clusters)

    def _note(self, key: str) -> None:
        if self._savepoints:
            self._former.append((key, self._peers.get(key)))

    def _set(self, key: str, peer: PlacedPeer | None) -> None:
        former = self._peers.get(key)
        if former is not None and peer is None:
            del self._peers[key]
            for group in _groups_of(former.binding):
                del self._groups[group][key]
        elif peer is not None:
            self._peers[key] = peer
            for group in _groups_of(peer.binding):
                self._groups.setdefault(group, {})[key] = None


class LocatedBindings(Mapping[BindingName, Binding]):
    """Bindings as they are now, in the order of their arrival. ``replicas`` counts all of them."""

    def __init__(self) -> None:
        self._bindings: dict[BindingName, Binding] = {}
        self._ran: dict[BindingName, Mapping[str, int]] = {}
        self._numbers: dict[BindingName, int] = {}
        self._by_cluster: dict[str, set[BindingName]] = {}
        self._evicted: set[BindingName] = set()
        self.replicas = 0

    def __getitem__(self, key: BindingName) -> Binding:
        return self._bindings[key]

    def __iter__(self) -> Iterator[BindingName]:
        return iter(self._bindings)

    def __len__(self) -> int:
        return len(self._bindings)

    def add(self, binding: Binding) -> BindingName:
        """Add a binding that arrives; return its name."""
        key = binding.namespace, binding.name
        self._ran[key] = {target.name: target.replicas for target in binding.clusters}
        self._numbers[key] = len(self._numbers)
        self.put(binding)
        return key

    def put(self, binding: Binding) -> None:
        """Replace a binding by how it is now."""
        key = binding.namespace, binding.name
        self._withdraw(key)
        self._bindings[key] = binding
        for target in binding.clusters:
            self._by_cluster.setdefault(target.name, set()).add(key)
            self.replicas += target.replicas
        if binding.eviction_tasks:
            self._evicted.add(key)

    def remove(self, key: BindingName) -> None:
        """Remove a binding that is deleted."""
        self._withdraw(key)
        del self._bindings[key], self._ran[key]

    def located_in(self, clusters: Collection[str]) -> list[Binding]:
        """Return the bindings with shares in one of these clusters, in any order."""
        keys = set[BindingName]().union(*(self._by_cluster.get(name, ()) for name in clusters))
        return [self._bindings[key] for key in keys]

    def evicted(self) -> list[tuple[BindingName, Binding]]:
        """Return the bindings that are being evicted, in the order of their arrival."""
        keys = sorted(self._evicted, key=self._numbers.__getitem__)
        return [(key, self._bindings[key]) for key in keys]

    def held(self, binding: Binding) -> dict[str, int]:
        """Return the replicas that take capacity, by cluster: all but those that ran as it came.

        Replicas that are being evicted take it until their tasks end.
        """
        ran = self._ran[binding.namespace, binding.name]
        replicas = Counter[str]()
        for target in binding.clusters:
            replicas[target.name] += target.replicas
        for task in binding.eviction_tasks:
            replicas[task.from_cluster] += task.replicas
        return {name: count - ran.get(name, 0) for name, count in replicas.items()}

    def _withdraw(self, key: BindingName) -> None:
        former = self._bindings.get(key)
        if former is not None:
            for target in former.clusters:
                self._by_cluster[target.name].discard(key)
                self.replicas -= target.replicas
            self._evicted.discard(key)


def _groups_of(binding: Binding) -> Iterator[_Group]:
    for which, group in enumerate(groups_of(binding)):
        if group:
            yield binding.namespace, which, group
