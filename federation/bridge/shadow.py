"""Decides what karmada-scheduler decides, compares, and writes nothing: to Karmada or anywhere.

Must not decide on anything but Karmada's own clusters as they were when it decided.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

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
    summary_lines,
    targets_of,
    usual_options,
)
from federation.bridge.clusters import cluster_message
from federation.bridge.karmada import KarmadaBinding, KarmadaCluster
from federation.bridge.pictures import Backlog, ShadowFleet, clusters_for, parts, small
from federation.bridge.requests import request_of
from federation.client import Client
from federation.model.errors import FederationError, InvalidRequest
from federation.v1 import resource_pb2, scheduling_pb2, simulation_pb2

# So many at once, where what one takes is nothing new to the next.
TOGETHER: Final = 100
# Decisions that wait to be compared; when there are more, the oldest are passed over.
MAX_WAITING: Final = 10_000

# What a message takes around its own bytes.
FRAME_BYTES: Final = 8

logger = logging.getLogger(__name__)


class _Seen(NamedTuple):
    """A decision of karmada-scheduler's: what was asked, and where it was put."""

    asked: KarmadaBinding
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
        self._clusters: dict[str, KarmadaCluster] = {}
        self._small: dict[str, bytes] = {}
        self._picture: ShadowFleet | None = None
        self._bindings: dict[str, KarmadaBinding] = {}
        self._standing: list[KarmadaBinding] = []
        self._unlisted = {"clusters", "bindings", "cluster bindings"}
        self._waiting: Backlog[_Seen] = Backlog(MAX_WAITING, time.monotonic)
        self._woken = asyncio.Event()

    def replace_clusters(self, clusters: Iterable[KarmadaCluster]) -> None:
        self._clusters.clear()
        self._small.clear()
        self._picture = None
        for cluster in clusters:
            self.put_cluster(cluster)
        self._arrived("clusters")

    def put_cluster(self, cluster: KarmadaCluster) -> None:
        if cluster.is_deleting:
            self.remove_cluster(cluster)
            return
        self._clusters[cluster.name] = cluster
        self._picture = None
        try:
            self._small[cluster.name] = small(cluster_message(cluster, self.unknown_fields))
        except InvalidRequest as error:
            self._small.pop(cluster.name, None)
            logger.warning("cluster %s is left out: %s", cluster.name, error.message)

    def remove_cluster(self, cluster: KarmadaCluster) -> None:
        self._clusters.pop(cluster.name, None)
        self._small.pop(cluster.name, None)
        self._picture = None

    def _look(self) -> ShadowFleet:
        """The clusters as they are now; one tuple as long as they are the same."""
        if self._picture is None:
            self._picture = tuple(self._small.values())
        return self._picture

    def replace_bindings(self, bindings: Iterable[KarmadaBinding], kind: str) -> None:
        for binding in bindings:
            self.put_binding(binding)
        self._arrived(kind)

    def put_binding(self, binding: KarmadaBinding) -> None:
        """Compare it where karmada-scheduler has placed it anew since it was seen last."""
        before = self._bindings.get(binding.key)
        self._bindings[binding.key] = binding
        if before is None and self._unlisted:
            return
        prior = before.targets if before is not None and before.uid == binding.uid else {}
        if binding.is_for(self._scheduler) and binding.targets and binding.targets != prior:
            applied = before.applied_placement if before is not None and prior else None
            asked = replace(_running(binding, prior), applied_placement=applied)
            self._waiting.add(_Seen(asked, binding), self._look)
            self.agreement.passed_over = self._waiting.passed_over
            self._woken.set()

    def remove_binding(self, binding: KarmadaBinding) -> None:
        self._bindings.pop(binding.key, None)

    def _arrived(self, kind: str) -> None:
        self._unlisted.discard(kind)
        if not self._unlisted and not self.listed.is_set():
            # What is seen from now on is new.
            self._standing = [
                each
                for each in self._bindings.values()
                if each.is_for(self._scheduler) and each.targets and not each.is_deleting
            ]
            self.listed.set()

    async def compare_standing(self) -> None:
        """All that was placed when everything was listed. Raises what a call raises."""
        placed, self._standing = self._standing, []
        clusters = self._look()
        for start in range(0, len(placed), TOGETHER):
            bindings = placed[start : start + TOGETHER]
            self.agreement.add(await self._compare(bindings, bindings, clusters, Occasion.STANDING))
        for line in summary_lines(self.agreement):
            logger.info("%s", line)

    async def compare_decided(self) -> None:
        """Each new decision as it is seen, until cancelled."""
        while True:
            while not self._waiting:
                self._woken.clear()
                await self._woken.wait()
            (asked, decided), clusters = self._waiting.take()
            try:
                found = await self._compare([asked], [decided], clusters, Occasion.DECIDED)
            except FederationError as error:
                logger.warning("binding %s is not compared: %s", asked.key, error.message)
                continue
            self.agreement.add(found)
            for each in found:
                if not each.agrees:
                    logger.info("%s: %s", each.binding, each.difference.why)

    async def _compare(
        self,
        asked: Sequence[KarmadaBinding],
        decided: Sequence[KarmadaBinding],
        clusters: ShadowFleet,
        occasion: Occasion,
    ) -> list[Comparison]:
        """``asked`` run where they ran before, ``decided`` where karmada-scheduler put them."""
        options = as_karmada_options() if self._as_karmada else usual_options()
        compared: list[Comparison] = []
        sound: list[tuple[KarmadaBinding, KarmadaBinding, resource_pb2.ResourceBinding]] = []
        for before, after in zip(asked, decided, strict=True):
            try:
                sound.append((before, after, self._request(before)))
            except InvalidRequest as error:
                wrong = Disagreement(Cause.INVALID, error.message)
                compared.append(_comparison(after, occasion, None, wrong))
        messages = [message for _, _, message in sound]
        decisions = await self._simulated(clusters, messages, options)
        for (_, after, message), decision in zip(sound, decisions, strict=True):
            if decision is None:
                compared.append(_comparison(after, occasion, None, TOO_LARGE))
                continue
            ours = targets_of(decision)
            difference = NONE
            if not is_same(after, ours):
                difference = await self._difference(after, message, clusters, decision)
            compared.append(_comparison(after, occasion, ours, difference))
        return compared

    async def _simulated(
        self,
        picture: ShadowFleet,
        bindings: Sequence[resource_pb2.ResourceBinding],
        options: simulation_pb2.SimulationOptions,
    ) -> list[scheduling_pb2.Decision | None]:
        """A decision about each, in as many calls as it takes; None where one call is too small."""
        if not bindings:
            return []
        clusters = await asyncio.to_thread(clusters_for, picture, bindings)
        clusters_bytes = sum(each.ByteSize() + FRAME_BYTES for each in clusters)
        sizes = [each.ByteSize() + FRAME_BYTES for each in bindings]
        decisions: list[scheduling_pb2.Decision | None] = [None] * len(bindings)
        for start, end in parts(sizes, len(clusters), clusters_bytes):
            some = bindings[start:end]
            decisions[start:end] = await self._client.simulate(clusters, some, options=options)
        return decisions

    async def _difference(
        self,
        decided: KarmadaBinding,
        message: resource_pb2.ResourceBinding,
        clusters: ShadowFleet,
        decision: scheduling_pb2.Decision,
    ) -> Disagreement:
        """The first of Karmada's ways under which it would have been the same, else our reason."""
        if not self._as_karmada:
            for options, cause in ((same_ties(), TIES), (as_karmada_options(), ESTIMATES)):
                (other,) = await self._simulated(clusters, [message], options)
                if other is not None and is_same(decided, targets_of(other)):
                    return cause
        return difference_of(decided, decision)

    def _request(self, binding: KarmadaBinding) -> resource_pb2.ResourceBinding:
        return request_of(
            binding, scheduler=self._scheduler, as_karmada=False, unknown=self.unknown_fields
        )


def _running(binding: KarmadaBinding, prior: dict[str, int]) -> KarmadaBinding:
    """The binding as it was when it was decided: where it ran before."""
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
