"""Karmada's clusters as they were when something was decided, small enough for one call.

Must not decide anything. Pictures are shared, and few are kept: each may be as large as the fleet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from federation.codec.clusters import cluster_from_message
from federation.model.grades import DEFAULT_MODEL
from federation.v1 import resource_pb2

# A request may have 4 MiB; the options and the framing take a little.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024 - 64 * 1024
# Of one answer, which has a row for each binding and cluster; it may have 4 MiB, too.
MAX_ROWS: Final = 20_000
MAX_PICTURES: Final = 16
# While decisions wait, clusters are looked at no more often.
PICTURE_SECONDS: Final = 1.0

# Clusters in bytes: as messages they would take a multiple.
ShadowFleet: TypeAlias = tuple[bytes, ...]

Waiting = TypeVar("Waiting")


def small(cluster: resource_pb2.Cluster) -> bytes:
    """A cluster without what no decision reads: all clusters travel with each question."""
    for enablement in cluster.status.api_enablements:
        for resource in enablement.resources:
            resource.ClearField("name")
    if cluster.spec.resource_models and cluster_from_message(cluster).model == DEFAULT_MODEL:
        # Karmada gives it to every cluster, and fedsched takes it for granted.
        cluster.spec.ClearField("resource_models")
    return cluster.SerializeToString()


def clusters_for(
    picture: ShadowFleet, bindings: Iterable[resource_pb2.ResourceBinding]
) -> list[resource_pb2.Cluster]:
    """The clusters, with those APIs that decisions about these bindings ask for."""
    kinds = {(each.spec.resource.api_version, each.spec.resource.kind) for each in bindings}
    return [_with_apis(resource_pb2.Cluster.FromString(each), kinds) for each in picture]


def _with_apis(cluster: resource_pb2.Cluster, kinds: set[tuple[str, str]]) -> resource_pb2.Cluster:
    served = [
        (enablement.group_version, resource.kind)
        for enablement in cluster.status.api_enablements
        for resource in enablement.resources
    ]
    # Of a cluster that serves none of them one has to be left: without any it would serve all.
    kept = [each for each in served if each in kinds] or served[:1]
    cluster.status.ClearField("api_enablements")
    for group_version, kind in kept:
        cluster.status.api_enablements.add(group_version=group_version).resources.add(kind=kind)
    return cluster


def parts(sizes: list[int], clusters: int, clusters_bytes: int) -> Iterator[tuple[int, int]]:
    """Positions from and to of bindings of these sizes that go with all clusters into one call.

    None where the clusters alone are too large.
    """
    room = MAX_REQUEST_BYTES - clusters_bytes
    count = max(1, MAX_ROWS // max(clusters, 1))
    start, size = 0, 0
    for position, binding_bytes in enumerate(sizes):
        if binding_bytes > room:
            return
        if position > start and (size + binding_bytes > room or position - start >= count):
            yield start, position
            start, size = position, 0
        size += binding_bytes
    if sizes:
        yield start, len(sizes)


class _Entry(NamedTuple, Generic[Waiting]):
    waiting: Waiting
    picture: ShadowFleet


class Backlog(Generic[Waiting]):
    """Decisions that wait to be compared, oldest first; the oldest are passed over beyond a bound.

    At most ``MAX_PICTURES`` pictures are kept for them, and ``max_waiting`` decisions.
    """

    def __init__(self, max_waiting: int, clock: Callable[[], float]) -> None:
        self.passed_over = 0
        self._max_waiting = max_waiting
        self._clock = clock
        self._entries: deque[_Entry[Waiting]] = deque()
        self._pictures = 0
        self._taken_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, waiting: Waiting, picture: Callable[[], ShadowFleet]) -> None:
        """Keep a decision with the clusters of its time, to the second while others wait."""
        now = self._clock()
        if self._entries and now - self._taken_at < PICTURE_SECONDS:
            taken = self._entries[-1].picture
        else:
            taken, self._taken_at = picture(), now
        if not self._entries or taken is not self._entries[-1].picture:
            self._pictures += 1
        self._entries.append(_Entry(waiting, taken))
        while self._pictures > MAX_PICTURES or len(self._entries) > self._max_waiting:
            self.take()
            self.passed_over += 1

    def take(self) -> tuple[Waiting, ShadowFleet]:
        """The oldest. Raises IndexError where none waits."""
        entry = self._entries.popleft()
        if not self._entries or self._entries[0].picture is not entry.picture:
            self._pictures -= 1
        return entry.waiting, entry.picture
