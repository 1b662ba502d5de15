"""The bindings of a simulation that have a place, by key and by affinity group.

Changes can be undone, the last one first. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from federation.model.placement import Binding, groups_of
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
    """The bindings with a place."""

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


def _groups_of(binding: Binding) -> Iterator[_Group]:
    for which, group in enumerate(groups_of(binding)):
        if group:
            yield binding.namespace, which, group
