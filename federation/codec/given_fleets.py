"""Clusters and bindings that somebody gives whole, in a request or in files, each under its path.

Must not need what decides: whoever only asks how much fits would wait for all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from federation.codec import ranges
from federation.codec.bindings import binding_from_message
from federation.codec.clusters import cluster_state_from_message
from federation.codec.violations import Violations
from federation.model.cluster import ClusterState
from federation.model.errors import InvalidRequest
from federation.model.placement import Binding, TieBreak
from federation.v1 import resource_pb2


def read_clusters(
    messages: Iterable[tuple[str, resource_pb2.Cluster]], now: float, found: Violations
) -> list[ClusterState]:
    """Clusters with their status, each under its path; a name given twice is noted."""
    states: dict[str, ClusterState] = {}
    for path, message in messages:
        try:
            state = cluster_state_from_message(message, now, path)
        except InvalidRequest as error:
            found.extend(error.violations)
            continue
        if state.cluster.name in states:
            found.add(f"{path}.metadata.name", f"{state.cluster.name!r} is there already")
        states[state.cluster.name] = state
    return list(states.values())


def read_bindings(
    messages: Iterable[tuple[str, resource_pb2.ResourceBinding]],
    ties: TieBreak | None,
    found: Violations,
) -> list[Binding]:
    """Bindings, each once; ``ties`` holds where a placement names no order among equals."""
    bindings: dict[str, Binding] = {}
    for path, message in messages:
        spec = message.spec
        if ties is not None and spec.HasField("placement") and not spec.placement.tie_break:
            spec.placement.tie_break = ties.value
        try:
            binding = binding_from_message(message, path)
        except InvalidRequest as error:
            found.extend(error.violations)
            continue
        if binding.key in bindings:
            found.add(f"{path}.metadata.name", f"{binding.key!r} is there already")
        bindings[binding.key] = binding
    return list(bindings.values())


def check_available(
    stated: Mapping[str, int], names: Iterable[str], path: str, found: Violations
) -> None:
    """Finds what is wrong with replicas that a caller states as available by cluster name."""
    known = set(names)
    for name, replicas in stated.items():
        ranges.replicas(replicas, f"{path}[{name}]", found)
        if name not in known:
            found.add(f"{path}[{name}]", "names no cluster that is given")
