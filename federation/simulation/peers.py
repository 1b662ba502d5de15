"""The surroundings of a binding in a simulation: its peers, and whether it is settled.

Pure. Must not decide anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from federation.model.placement import Binding, groups_of
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Decision
from federation.scheduler.state import NO_CONTEXT, BindingContext
from federation.scheduler.triggers import is_answered


class PlacedPeer(NamedTuple):
    """A binding, the newest decision that placed it, and the clusters where it ran when it came."""

    binding: Binding
    decision: Decision
    ran: frozenset[str]


def context_of(binding: Binding, placed: Collection[PlacedPeer]) -> BindingContext:
    """Return where the earlier bindings of the same groups went, and whether it may stay."""
    group, anti_group = groups_of(binding)
    if not (group or anti_group or binding.clusters):
        return NO_CONTEXT
    peers = [peer for peer in placed if peer.binding.key != binding.key]
    return BindingContext(
        affinity_peers=tuple(_places(binding, peers, group, 0)),
        anti_affinity_peers=tuple(_places(binding, peers, anti_group, 1)),
        observed_affinity=binding.observed_affinity,
        is_settled=is_answered(binding),
    )


def counting_at(
    placed: Mapping[str, PlacedPeer], places: Mapping[str, Iterable[str]]
) -> dict[str, PlacedPeer]:
    """Return those that are placed as if they were in the clusters of these names, by key."""
    return {
        key: was._replace(decision=replace(was.decision, clusters=_nothing_in(names)))
        for key, names in places.items()
        if (was := placed.get(key)) is not None
    }


def _nothing_in(names: Iterable[str]) -> tuple[TargetCluster, ...]:
    return tuple(TargetCluster(name=name, replicas=0) for name in sorted(names))


def _places(
    binding: Binding, peers: Iterable[PlacedPeer], group: str, position: int
) -> Iterable[frozenset[str]]:
    for other, decision, _ in peers:
        is_peer = group and groups_of(other)[position] == group
        if is_peer and other.namespace == binding.namespace and decision.clusters:
            yield frozenset(target.name for target in decision.clusters)
