"""Keeps Karmada's bindings and the control plane's in step.

Level-triggered: whatever happened, the same two lists lead to the same end. Must not forget
bindings because a list does not name them, where it misses many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final

from federation.bridge.clusters import BridgedClusters
from federation.bridge.decisions import BindingDecisions, DecisionAnswer
from federation.bridge.metrics import Counts
from federation.bridge.objects import NO_REPLICAS, SCHEDULED, KarmadaBinding
from federation.bridge.steps import (
    KARMADA_SCHEDULER,
    BindingCopy,
    BridgeStep,
    ClusterNames,
    LastRequest,
    fixed_shares_note,
    keeps_shares,
    leaving,
    next_step,
    requested_generation,
    trigger_of,
    with_fixed_shares,
)
from federation.bridge.writes import BindingVerdict, KarmadaWrites, Overtaken
from federation.client import Client
from federation.model.errors import DeadlineMissed, FederationError, NotFound, PreconditionFailed
from federation.runtime.backoff import Backoff
from federation.v1 import resource_pb2, scheduling_pb2

# More at once would be written no sooner: decisions are written meanwhile.
MAX_BATCH: Final = 200
# Where so many take the control plane longer than a call may, fewer are requested.
MIN_BATCH: Final = 5
# Batches that are being decided; bindings that come meanwhile are in the next.
MAX_BATCHES: Final = 2
GATHER_SECONDS: Final = 0.02
# Up to so many that a list lacks are looked at one by one, and forgotten when they are gone.
MAX_FORGOTTEN: Final = 20
# A binding that a webhook refuses is decided again after up to so long.
REFUSED_SECONDS: Final = 60.0
FAILED_SECONDS: Final = 10.0
FIRST_WAIT_SECONDS: Final = 1.0
NEVER_REQUESTED: Final = LastRequest(uid="", generation=-1)

logger = logging.getLogger(__name__)


class BridgedBindings:
    """The bindings of both sides. Belongs to one event loop."""

    def __init__(
        self,
        client: Client,
        writes: KarmadaWrites,
        decisions: BindingDecisions,
        counts: Counts,
        *,
        scheduler: str,
    ) -> None:
        self.counts = counts
        # Set once Karmada has listed the bindings of both kinds.
        self.listed = asyncio.Event()
        self._client = client
        self._writes = writes
        self._decisions = decisions
        self._scheduler = scheduler
        self._clusters: BridgedClusters | None = None
        self._karmada: dict[str, KarmadaBinding] = {}
        self._stored: dict[str, BindingCopy] = {}
        self._requests: dict[str, LastRequest] = {}
        self._backing_off: dict[str, Backoff] = {}
        self._working: set[str] = set()
        # To be requested again, once the work about them has ended.
        self._outdated: set[str] = set()
        self._missing: set[str] = set()
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()
        self._unlisted = {True, False}
        self._is_stored_known = False
        # At first: clusters may have changed while no bridge watched them.
        self._have_clusters_changed = True
        self._batches = 0
        self._max_batch = MAX_BATCH
        # Requested without an answer: the decision is stored, if there is one.
        self._unanswered: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, clusters: BridgedClusters) -> None:
        """Take the clusters that the bindings go to."""
        self._clusters = clusters

    def replace(self, bindings: Iterable[KarmadaBinding], *, namespaced: bool) -> None:
        """Take Karmada's list of one kind."""
        listed = {binding.key: binding for binding in bindings}
        for key in [key for key in self._karmada if ("/" in key) is namespaced]:
            if key not in listed:
                del self._karmada[key]
        for binding in listed.values():
            self.put(binding)
        self._unlisted.discard(namespaced)
        if not self._unlisted:
            self.listed.set()
        self._find_missing()
        self._woken.set()

    def put(self, binding: KarmadaBinding) -> None:
        older = self._karmada.get(binding.key)
        self._karmada[binding.key] = binding
        self._missing.discard(binding.key)
        self._mark(binding.key)
        self._put_ready(binding.key, older, binding)

    def remove(self, binding: KarmadaBinding) -> None:
        """Note that Karmada deleted it."""
        self._put_ready(binding.key, self._karmada.pop(binding.key, None), None)
        self._requests.pop(binding.key, None)
        self._mark(binding.key)

    def _put_ready(
        self, key: str, older: KarmadaBinding | None, newer: KarmadaBinding | None
    ) -> None:
        old_ready, ready = older.ready if older else {}, newer.ready if newer else {}
        if self._clusters is not None and old_ready != ready:
            self._clusters.put_ready(key, {**dict.fromkeys(old_ready, NO_REPLICAS), **ready})

    def put_ready_in(self, cluster: str) -> None:
        """Pass on all ready replicas of a cluster that the bridge begins to report."""
        if self._clusters is not None:
            for binding in self._karmada.values():
                if ready := binding.ready.get(cluster):
                    self._clusters.put_ready(binding.key, {cluster: ready})

    def clusters_changed(self) -> None:
        """Note that labels or spec of a cluster changed: duplicated bindings may go on."""
        self._have_clusters_changed = True
        self._woken.set()

    def _request_duplicated(self) -> None:
        """Request decisions of bindings that may go elsewhere since clusters changed."""
        self._have_clusters_changed = False
        for key, binding in self._karmada.items():
            # The control plane itself tries waiting bindings again.
            is_nowhere = not binding.targets and key not in self._stored
            if binding.goes_everywhere or is_nowhere:
                self._request_again(key)

    def cluster_moved(self, name: str) -> None:
        """Note that a cluster came, or is to be left: look at the bindings there."""
        self._dirty |= {key for key, binding in self._karmada.items() if name in binding.targets}
        self._woken.set()

    def _request_again(self, key: str) -> None:
        """Request as if the binding had changed, whichever process requested it last."""
        if key in self._working:
            self._outdated.add(key)
        if key in self._requests or key in self._karmada:
            request = self._requests.get(key, NEVER_REQUESTED)
            self._requests[key] = replace(request, generation=-1)
        self._mark(key)

    def _put_request(self, key: str, request: LastRequest) -> None:
        """Note a request, unless the binding is to be requested again since."""
        is_outdated = key in self._outdated
        self._requests[key] = replace(request, generation=-1) if is_outdated else request

    async def follow(self) -> None:
        """Watch the control plane's bindings, until cancelled."""
        async for message in self._client.watch_bindings():
            if message.relist:
                self._stored.clear()
                self._is_stored_known = False
            for event in message.events:
                self._take(event)
            if message.resource_version and not self._is_stored_known:
                self._is_stored_known = True
                self._find_missing()
                # A control plane that was restored from a backup may have lost some.
                for key in self._requests.keys() - self._stored.keys():
                    self._request_again(key)
                self._dirty |= self._karmada.keys()
                self._woken.set()

    async def keep(self) -> None:
        """Take the next steps, until cancelled; begun work is ended first."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                while (self._dirty or self._have_clusters_changed) and self.is_known:
                    await self._round()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_known(self) -> bool:
        """Whether both sides have listed their bindings."""
        return not self._unlisted and self._is_stored_known and self._clusters is not None

    def _take(self, event: scheduling_pb2.BindingEvent) -> None:
        metadata = event.binding.metadata
        key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        if event.type == resource_pb2.EVENT_TYPE_DELETED:
            self._stored.pop(key, None)
            self._request_again(key)
        elif metadata.annotations.get(KARMADA_SCHEDULER) == self._scheduler:
            self._stored[key] = BindingCopy.of(event)
        else:
            return
        self._mark(key)

    def _find_missing(self) -> None:
        """Find bindings of the control plane that Karmada does not list: gone, if they are few.

        A server that lost its objects, or was restored from a backup, lists too little as well.
        """
        if self._unlisted or not self._is_stored_known:
            return
        missing = self._stored.keys() - self._karmada.keys()
        limit = max(MAX_FORGOTTEN, len(self._stored) // 2)
        if len(missing) > limit or (missing and not self._karmada):
            self.counts.held = len(missing)
            logger.error(
                "%d of the %d bindings that the control plane has for %s are not in Karmada: "
                "they keep what they hold until they are there again, or are deleted with fedctl",
                len(missing),
                len(self._stored),
                self._scheduler,
            )
            self._missing = set(missing)
            return
        self.counts.held = 0
        self._missing.clear()
        for key in missing:
            self._mark(key)

    def _mark(self, key: str) -> None:
        if key not in self._missing:
            self._dirty.add(key)
            self._woken.set()

    def _cluster_names(self) -> ClusterNames:
        clusters = self._clusters
        if clusters is None:
            return ClusterNames()
        deleting = frozenset(clusters.deleting)
        return ClusterNames(stored=clusters.stored, missing=clusters.missing, deleting=deleting)

    async def _round(self) -> None:
        """Take some bindings that are to be looked at, and request decisions together."""
        if self._have_clusters_changed:
            self._request_duplicated()
        clusters = self._cluster_names()
        keys = [key for key in self._dirty if key not in self._working][: self._max_batch]
        if not keys or self._batches >= MAX_BATCHES:
            self._woken.clear()
            await self._woken.wait()
            return
        to_schedule: list[KarmadaBinding] = []
        to_look_up: list[KarmadaBinding] = []
        for key in keys:
            self._dirty.discard(key)
            binding, request = self._karmada.get(key), self._requests.get(key)
            stored = self._stored.get(key)
            step = next_step(binding, stored, request, clusters, scheduler=self._scheduler)
            if step is BridgeStep.SCHEDULE and binding is not None:
                (to_look_up if key in self._unanswered else to_schedule).append(binding)
            elif step is not BridgeStep.REST:
                self._begin([key], self._do(step, key))
        if to_schedule:
            self._batches += 1
            self._begin(_keys(to_schedule), self._schedule(to_schedule, clusters))
        if to_look_up:
            self._unanswered.difference_update(_keys(to_look_up))
            self._begin(_keys(to_look_up), self._look_up(to_look_up, clusters))
        # Bindings that come meanwhile are looked at together.
        await asyncio.sleep(GATHER_SECONDS)

    def _begin(self, keys: list[str], work: Coroutine[Any, Any, None]) -> None:
        self._working.update(keys)
        self._outdated.difference_update(keys)

        async def guarded() -> None:
            has_failed = True
            try:
                await work
                has_failed = False
            except FederationError as error:
                logger.warning("bindings: %s", error.message)
            except Exception:
                logger.exception("working on bindings failed")
            finally:
                self._working.difference_update(keys)
                for key in keys if has_failed else ():
                    self._retry(key, FAILED_SECONDS)
                self._woken.set()

        self.start(guarded())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin work that goes on beside everything else, to its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _schedule(self, bindings: list[KarmadaBinding], clusters: ClusterNames) -> None:
        new = {binding.key for binding in bindings if binding.key not in self._stored}
        requested = [
            with_fixed_shares(binding, self._stored.get(binding.key)) for binding in bindings
        ]
        try:
            answers = await self._decisions.request(requested, clusters.deleting)
            self._max_batch = min(2 * self._max_batch, MAX_BATCH)
        except FederationError as error:
            self._unanswered.update(_keys(bindings))
            if isinstance(error, DeadlineMissed):
                self._max_batch = max(self._max_batch // 4, MIN_BATCH)
            raise
        finally:
            self._batches -= 1
            self._woken.set()
        await asyncio.gather(
            *(
                self._write(binding, answers[binding.key], clusters, is_new=binding.key in new)
                for binding in bindings
                if binding.key in answers
            )
        )

    async def _write(
        self,
        binding: KarmadaBinding,
        answer: DecisionAnswer,
        clusters: ClusterNames,
        *,
        is_new: bool = False,
    ) -> None:
        """Write a decision. Without a trigger of Karmada's, a binding that stays needs no patch.

        A binding that is ``new`` to the control plane and stays is adopted, which an event says.
        """
        verdict, decision_id = answer
        key = binding.key
        if verdict.is_scheduled and (note := fixed_shares_note(binding, verdict.targets or {})):
            verdict = replace(verdict, message=f"{verdict.message} {note}")
        request = LastRequest(
            uid=binding.uid,
            generation=binding.generation,
            leaving=leaving(binding, clusters),
            decision_id=decision_id,
        )
        stays = _stays(binding, verdict, clusters)
        try:
            if stays:
                written, result = await self._writes.close(binding), verdict
            else:
                written, result = await self._writes.write(binding, verdict)
        except (Overtaken, NotFound):
            # The watch brings it again, as it is by now.
            return
        except FederationError as error:
            logger.warning("binding %s is not written: %s", key, error.message)
            # The decision is stored: to decide again would lose a reschedule.
            self._unanswered.add(key)
            self._retry(key, FAILED_SECONDS)
            return
        self._put_request(key, replace(request, generation=written.generation))
        self._put_written(written)
        is_written = written.version != binding.version
        self.counts.add(is_scheduled=result.is_scheduled, is_written=is_written)
        if result != verdict or result.targets == {}:
            await self._give_back(key, binding.uid)
        if result != verdict or result.is_passing:
            self._retry(key, REFUSED_SECONDS)
        elif result.is_scheduled:
            self._backing_off.pop(key, None)
        if is_new if stays else is_written:
            self.start(self._writes.report(written, result))

    def _put_written(self, written: KarmadaBinding) -> None:
        """Take a binding as it was written, until the watch brings it."""
        current = self._karmada.get(written.key)
        if current is None or current.uid != written.uid:
            return
        if current.generation <= written.generation:
            self._karmada[written.key] = written

    async def _give_back(self, key: str, uid: str) -> None:
        """Release the promise of a decision that Karmada did not take."""
        namespace, _, name = key.rpartition("/")
        try:
            await self._client.release(namespace, name, uid=uid)
        except NotFound:
            logger.debug("binding %s holds nothing", key)

    async def _do(self, step: BridgeStep, key: str) -> None:
        namespace, _, name = key.rpartition("/")
        stored, binding = self._stored.get(key), self._karmada.get(key)
        uid = stored.uid if stored else ""
        try:
            match step:
                case BridgeStep.FORGET:
                    if binding is not None or await self._writes.is_gone(namespace, name):
                        await self._client.delete_binding(namespace, name, uid=uid)
                        self._requests.pop(key, None)
                        self._stored.pop(key, None)
                        self._dirty.add(key)
                case BridgeStep.SUSPEND | BridgeStep.RESUME:
                    resume = step is BridgeStep.RESUME
                    await self._client.suspend_binding(namespace, name, uid=uid, resume=resume)
                    if resume:
                        self._request_again(key)
                case BridgeStep.WRITE if binding is not None:
                    await self._write_moved(binding)
        except (NotFound, PreconditionFailed) as error:
            logger.info("binding %s: %s", key, error.message)

    async def _write_moved(self, binding: KarmadaBinding) -> None:
        """Write a decision that the control plane made by itself, as it is stored by now."""
        stored = await self._client.get_binding(binding.namespace, binding.name)
        verdict = await self._decisions.of_stored(binding, stored)
        is_requested = binding.key in self._requests
        # Karmada refused it while another process bridged: it is promised no more.
        was_refused = not is_requested and (verdict is None or not stored.reservations)
        keeps = verdict is None or keeps_shares(binding, verdict.targets)
        if was_refused or not keeps:
            self._batches += 1
            await self._schedule([binding], self._cluster_names())
        elif verdict is not None:
            await self._write(binding, (verdict, stored.decision.id), self._cluster_names())
        else:
            request = LastRequest(
                uid=binding.uid, generation=binding.generation, decision_id=stored.decision.id
            )
            self._put_request(binding.key, request)

    async def _look_up(self, bindings: list[KarmadaBinding], clusters: ClusterNames) -> None:
        """Write stored decisions of these generations, and request the missing ones: a decision
        that is made twice may lose a reschedule.
        """
        try:
            answers = await asyncio.gather(*map(self._stored_answer, bindings))
        except FederationError:
            self._unanswered.update(_keys(bindings))
            raise
        pairs = list(zip(bindings, answers, strict=True))
        if undecided := [binding for binding, answer in pairs if answer is None]:
            self._batches += 1
            await self._schedule(undecided, clusters)
        await asyncio.gather(
            *(self._write(binding, answer, clusters) for binding, answer in pairs if answer)
        )

    async def _stored_answer(self, binding: KarmadaBinding) -> DecisionAnswer | None:
        """Return the stored decision about this generation."""
        try:
            stored = await self._client.get_binding(binding.namespace, binding.name)
        except NotFound:
            return None
        if requested_generation(stored.binding) != binding.generation:
            return None
        verdict = await self._decisions.of_stored(binding, stored)
        if verdict is None or not keeps_shares(binding, verdict.targets):
            return None
        return verdict, stored.decision.id

    def _retry(self, key: str, max_seconds: float) -> None:
        """Look at it once more after a while, and request anew."""
        backoff = self._backing_off.setdefault(key, Backoff(cap_seconds=max_seconds))
        request = self._requests.get(key)

        def look() -> None:
            if self._requests.get(key) is request:
                self._request_again(key)
            self._mark(key)

        wait_seconds = FIRST_WAIT_SECONDS + backoff.next_seconds()
        asyncio.get_running_loop().call_later(wait_seconds, look)


def _keys(bindings: Iterable[KarmadaBinding]) -> list[str]:
    return [binding.key for binding in bindings]


def _stays(binding: KarmadaBinding, verdict: BindingVerdict, clusters: ClusterNames) -> bool:
    """Whether the verdict changes nothing, and Karmada would not decide the binding again."""
    is_same = verdict.targets is None or dict(verdict.targets) == binding.targets
    # A process that ended between two patches left clusters that no condition names.
    is_scheduled = (binding.condition(SCHEDULED) or {}).get("status") == "True"
    return is_same and is_scheduled and not trigger_of(binding, clusters.deleting)
