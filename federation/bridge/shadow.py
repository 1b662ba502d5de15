"""Decides what karmada-scheduler decides, compares, and writes nothing: to Karmada or anywhere.

Must not decide on anything but Karmada's own clusters as they were when it decided. Snapshots of
them are shared, and few are kept: one may be as large as the fleet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from federation.bridge.agreement import (
    ESTIMATES,
    NONE,
    TIES,
    TOO_LARGE,
    Agreement,
    Cause,
    Comparison,
    Disagreement,
    Occasion,
    as_karmada_options,
    difference_of,
    is_same,
    same_ties,
    targets_of,
    usual_options,
)
from federation.bridge.clusters import cluster_message
from federation.bridge.decisions import binding_message
from federation.bridge.objects import KarmadaBinding, KarmadaCluster
from federation.client import Client
from federation.codec.clusters import cluster_from_message
from federation.model.errors import FederationError, InvalidRequest
from federation.model.grades import DEFAULT_MODEL
from federation.v1 import resource_pb2, scheduling_pb2, simulation_pb2

# So many bindings at once, where what one takes is nothing new to the next.
MAX_TOGETHER: Final = 100
# Decisions that wait to be compared; when there are more, the oldest are passed over.
MAX_WAITING: Final = 10_000
# A request may have 4 MiB; the options and the framing take a little.
MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024 - 64 * 1024
# A message takes so much around its own bytes.
FRAME_BYTES: Final = 8
# Of one answer, which has a row for each binding and cluster; it may have 4 MiB, too.
MAX_ROWS: Final = 20_000
MAX_SNAPSHOTS: Final = 16
# While decisions wait, snapshots are taken no more often.
SNAPSHOT_SECONDS: Final = 1.0

# Clusters in bytes: as messages they would take a multiple.
ShadowFleet: TypeAlias = tuple[bytes, ...]
BindingMessage: TypeAlias = resource_pb2.ResourceBinding

Waiting = TypeVar("Waiting")

logger = logging.getLogger(__name__)


class _Decision(NamedTuple):
    """A decision of karmada-scheduler: the binding that it decided, and with its clusters."""

    asking: KarmadaBinding
    decided: KarmadaBinding


class Shadow:
    """Follows one scheduler's bindings. Belongs to one event loop."""

    def __init__(self, client: Client, *, scheduler: str, as_karmada: bool) -> None:
        self.agreement = Agreement()
        self.unknown_fields: Counter[str] = Counter()
        self.listed = asyncio.Event()
        self._client = client
        self._scheduler = scheduler
        self._as_karmada = as_karmada
        self._clusters: dict[str, bytes] = {}
        self._snapshot: ShadowFleet | None = None
        self._bindings: dict[str, KarmadaBinding] = {}
        self._standing: list[KarmadaBinding] = []
        self._unlisted = {"clusters", "bindings", "cluster bindings"}
        self._waiting: Backlog[_Decision] = Backlog(MAX_WAITING, time.monotonic)
        self._woken = asyncio.Event()

    def replace_clusters(self, clusters: Iterable[KarmadaCluster]) -> None:
        self._clusters.clear()
        self._snapshot = None
        for cluster in clusters:
            self.put_cluster(cluster)
        self._arrived("clusters")

    def put_cluster(self, cluster: KarmadaCluster) -> None:
        self.remove_cluster(cluster)
        if cluster.is_deleting:
            return
        try:
            self._clusters[cluster.name] = small(cluster_message(cluster, self.unknown_fields))
        except InvalidRequest as error:
            logger.warning("cluster %s is left out: %s", cluster.name, error.message)

    def remove_cluster(self, cluster: KarmadaCluster) -> None:
        self._clusters.pop(cluster.name, None)
        self._snapshot = None

    def _current_snapshot(self) -> ShadowFleet:
        """The clusters as they are now; one tuple as long as they are the same."""
        if self._snapshot is None:
            self._snapshot = tuple(self._clusters.values())
        return self._snapshot

    def replace_bindings(self, bindings: Iterable[KarmadaBinding], kind: str) -> None:
        for binding in bindings:
            self.put_binding(binding)
        self._arrived(kind)

    def put_binding(self, binding: KarmadaBinding) -> None:
        """Compare it where karmada-scheduler has placed it anew since it was seen last."""
        older = self._bindings.get(binding.key)
        self._bindings[binding.key] = binding
        if older is None and self._unlisted:
            return
        prior = older.targets if older is not None and older.uid == binding.uid else {}
        if binding.is_for(self._scheduler) and binding.targets and binding.targets != prior:
            applied = older.applied_placement if older is not None and prior else None
            asking = replace(_running(binding, prior), applied_placement=applied)
            self._waiting.add(_Decision(asking, binding), self._current_snapshot)
            self.agreement.passed_over = self._waiting.passed_over
            self._woken.set()

    def remove_binding(self, binding: KarmadaBinding) -> None:
        self._bindings.pop(binding.key, None)

    def _arrived(self, kind: str) -> None:
        self._unlisted.discard(kind)
        if not self._unlisted and not self.listed.is_set():
            # Placements that are seen from now on are new.
            self._standing = [
                binding
                for binding in self._bindings.values()
                if binding.is_for(self._scheduler) and binding.targets and not binding.is_deleting
            ]
            self.listed.set()

    async def compare_standing(self) -> None:
        """Compare the bindings that were placed when everything was listed, in parts.

        Raises what a call raises.
        """
        placed, self._standing = self._standing, []
        snapshot = self._current_snapshot()
        for start in range(0, len(placed), MAX_TOGETHER):
            bindings = placed[start : start + MAX_TOGETHER]
            decisions = [_Decision(binding, binding) for binding in bindings]
            self.agreement.add(await self._compare(decisions, snapshot, Occasion.STANDING))
        for line in self.agreement.summary_lines():
            logger.info("%s", line)

    async def compare_decided(self) -> None:
        """Compare new decisions as they are seen, until cancelled."""
        while True:
            while not self._waiting:
                self._woken.clear()
                await self._woken.wait()
            decision, snapshot = self._waiting.take()
            try:
                comparisons = await self._compare([decision], snapshot, Occasion.DECIDED)
            except FederationError as error:
                key = decision.decided.key
                logger.warning("binding %s is not compared: %s", key, error.message)
                continue
            self.agreement.add(comparisons)
            for comparison in comparisons:
                if not comparison.agrees:
                    logger.info("%s: %s", comparison.binding, comparison.difference.why)

    async def _compare(
        self, decisions: Sequence[_Decision], snapshot: ShadowFleet, occasion: Occasion
    ) -> list[Comparison]:
        options = as_karmada_options() if self._as_karmada else usual_options()
        comparisons: list[Comparison] = []
        sound: list[tuple[KarmadaBinding, BindingMessage]] = []
        for asking, decided in decisions:
            try:
                sound.append((decided, self._message(asking)))
            except InvalidRequest as error:
                wrong = Disagreement(Cause.INVALID, error.message)
                comparisons.append(_comparison(decided, occasion, None, wrong))
        answers = await self._simulated(snapshot, [message for _, message in sound], options)
        for (decided, message), decision in zip(sound, answers, strict=True):
            if decision is None:
                comparisons.append(_comparison(decided, occasion, None, TOO_LARGE))
                continue
            ours = targets_of(decision)
            difference = NONE
            if not is_same(decided, ours):
                difference = await self._difference(decided, message, snapshot, decision)
            comparisons.append(_comparison(decided, occasion, ours, difference))
        return comparisons

    async def _simulated(
        self,
        snapshot: ShadowFleet,
        bindings: Sequence[BindingMessage],
        options: simulation_pb2.SimulationOptions,
    ) -> list[scheduling_pb2.Decision | None]:
        """Return the decisions, in as many calls as it takes; None where one call is too small."""
        if not bindings:
            return []
        clusters = await asyncio.to_thread(clusters_for, snapshot, bindings)
        clusters_bytes = sum(cluster.ByteSize() + FRAME_BYTES for cluster in clusters)
        sizes = [binding.ByteSize() + FRAME_BYTES for binding in bindings]
        decisions: list[scheduling_pb2.Decision | None] = [None] * len(bindings)
        for start, end in parts(sizes, len(clusters), clusters_bytes):
            part = bindings[start:end]
            decisions[start:end] = await self._client.simulate(clusters, part, options=options)
        return decisions

    async def _difference(
        self,
        decided: KarmadaBinding,
        message: BindingMessage,
        snapshot: ShadowFleet,
        decision: scheduling_pb2.Decision,
    ) -> Disagreement:
        """Return the first of Karmada's ways that gives the same decision, else our reason."""
        if not self._as_karmada:
            for options, cause in ((same_ties(), TIES), (as_karmada_options(), ESTIMATES)):
                (answer,) = await self._simulated(snapshot, [message], options)
                if answer is not None and is_same(decided, targets_of(answer)):
                    return cause
        return difference_of(decided, decision)

    def _message(self, binding: KarmadaBinding) -> BindingMessage:
        return binding_message(
            binding, scheduler=self._scheduler, as_karmada=False, unknown=self.unknown_fields
        )


def _running(binding: KarmadaBinding, prior: dict[str, int]) -> KarmadaBinding:
    """The binding as it was when it was decided: in its earlier clusters."""
    clusters = [{"name": name, "replicas": replicas} for name, replicas in prior.items()]
    return replace(binding, spec={**binding.spec, "clusters": clusters})


def _comparison(
    decided: KarmadaBinding,
    occasion: Occasion,
    ours: dict[str, int] | None,
    difference: Disagreement,
) -> Comparison:
    return Comparison(
        binding=decided.key,
        occasion=occasion,
        karmada=decided.targets,
        fedsched=ours,
        difference=difference,
    )


def small(cluster: resource_pb2.Cluster) -> bytes:
    """Return a cluster without fields that no decision reads: all clusters travel in each call."""
    for enablement in cluster.status.api_enablements:
        for resource in enablement.resources:
            resource.ClearField("name")
    if cluster.spec.resource_models and cluster_from_message(cluster).model == DEFAULT_MODEL:
        # Karmada gives it to every cluster, and fedsched takes it for granted.
        cluster.spec.ClearField("resource_models")
    return cluster.SerializeToString()


def clusters_for(
    snapshot: ShadowFleet, bindings: Iterable[BindingMessage]
) -> list[resource_pb2.Cluster]:
    """Return the clusters, with those APIs that decisions about these bindings need."""
    kinds = {
        (binding.spec.resource.api_version, binding.spec.resource.kind) for binding in bindings
    }
    return [_with_apis(resource_pb2.Cluster.FromString(content), kinds) for content in snapshot]


def _with_apis(cluster: resource_pb2.Cluster, kinds: set[tuple[str, str]]) -> resource_pb2.Cluster:
    served = [
        (enablement.group_version, resource.kind)
        for enablement in cluster.status.api_enablements
        for resource in enablement.resources
    ]
    # A cluster that serves none of them keeps one: without any it would serve all.
    needed = [api for api in served if api in kinds] or served[:1]
    cluster.status.ClearField("api_enablements")
    for group_version, kind in needed:
        cluster.status.api_enablements.add(group_version=group_version).resources.add(kind=kind)
    return cluster


def parts(sizes: list[int], clusters: int, clusters_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield positions of bindings of these sizes that go with all clusters into one call.

    Nothing is yielded where the clusters alone are too large.
    """
    free_bytes = MAX_REQUEST_BYTES - clusters_bytes
    max_count = max(1, MAX_ROWS // max(clusters, 1))
    start, size = 0, 0
    for position, binding_bytes in enumerate(sizes):
        if binding_bytes > free_bytes:
            return
        is_full = size + binding_bytes > free_bytes or position - start >= max_count
        if position > start and is_full:
            yield start, position
            start, size = position, 0
        size += binding_bytes
    if sizes:
        yield start, len(sizes)


class _Entry(NamedTuple, Generic[Waiting]):
    waiting: Waiting
    snapshot: ShadowFleet


class Backlog(Generic[Waiting]):
    """Decisions that wait to be compared, oldest first; the oldest are passed over beyond a bound.

    At most ``MAX_SNAPSHOTS`` snapshots are kept for them, and ``max_waiting`` decisions.
    """

    def __init__(self, max_waiting: int, clock: Callable[[], float]) -> None:
        self.passed_over = 0
        self._max_waiting = max_waiting
        self._clock = clock
        self._entries: deque[_Entry[Waiting]] = deque()
        self._snapshots = 0
        self._taken_at = 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, waiting: Waiting, snapshot_of_now: Callable[[], ShadowFleet]) -> None:
        """Keep a decision with the clusters of its time, to the second while others wait."""
        now = self._clock()
        if self._entries and now - self._taken_at < SNAPSHOT_SECONDS:
            snapshot = self._entries[-1].snapshot
        else:
            snapshot, self._taken_at = snapshot_of_now(), now
        if not self._entries or snapshot is not self._entries[-1].snapshot:
            self._snapshots += 1
        self._entries.append(_Entry(waiting, snapshot))
        while self._snapshots > MAX_SNAPSHOTS or len(self._entries) > self._max_waiting:
            self.take()
            self.passed_over += 1

    def take(self) -> tuple[Waiting, ShadowFleet]:
        """Take the oldest. Raises IndexError where none waits."""
        entry = self._entries.popleft()
        if not self._entries or self._entries[0].snapshot is not entry.snapshot:
            self._snapshots -= 1
        return entry.waiting, entry.snapshot
