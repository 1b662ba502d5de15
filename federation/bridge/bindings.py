"""Keeps Karmada's bindings and the control plane's in step.

Level-triggered: whatever happened before, the same two lists lead to the same end. Must not forget
bindings because a list does not name them, where it misses many.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from typing import Any, Final

from federation.bridge.affected import goes_everywhere
from federation.bridge.asking import Answers
from federation.bridge.counts import Counts
from federation.bridge.fleet import BridgedFleet
from federation.bridge.jobs import keeps_shares, note_of, with_fixed_shares
from federation.bridge.karmada import NO_REPLICAS, SCHEDULED, KarmadaBinding
from federation.bridge.patches import BindingVerdict
from federation.bridge.requests import KARMADA_SCHEDULER, asked_generation
from federation.bridge.steps import (
    Asked,
    BridgeStep,
    BridgeSurroundings,
    HeldBinding,
    leaving,
    next_step,
)
from federation.bridge.triggers import trigger_of
from federation.bridge.writing import KarmadaWrites, Overtaken
from federation.client import Client
from federation.model.errors import DeadlineMissed, FederationError, NotFound, PreconditionFailed
from federation.runtime.backoff import Backoff
from federation.v1 import resource_pb2, scheduling_pb2

# More at once would be written no sooner: what is decided is written meanwhile.
MOST_AT_ONCE: Final = 200
# Where so many take the control plane longer than a call may, fewer are asked for.
LEAST_AT_ONCE: Final = 5
# Batches that are being decided; what comes meanwhile is in the next.
ASKING_AT_ONCE: Final = 2
TOGETHER_SECONDS: Final = 0.02
# Fewer that are missing from a list are looked at one by one, and forgotten when they are gone.
FEW: Final = 20
# A binding that a webhook refuses is decided again after up to so long.
REFUSED_SECONDS: Final = 60.0
FAILED_SECONDS: Final = 10.0
NEVER_ASKED: Final = Asked(uid="", generation=-1)

logger = logging.getLogger(__name__)


class BridgedBindings:
    """Belongs to one event loop."""

    def __init__(
        self,
        client: Client,
        writes: KarmadaWrites,
        answers: Answers,
        counts: Counts,
        *,
        scheduler: str,
    ) -> None:
        self.counts = counts
        # Set once Karmada has listed the bindings of both kinds.
        self.listed = asyncio.Event()
        self._client = client
        self._writes = writes
        self._answers = answers
        self._scheduler = scheduler
        self._fleet: BridgedFleet | None = None
        self._karmada: dict[str, KarmadaBinding] = {}
        self._stored: dict[str, HeldBinding] = {}
        self._asked: dict[str, Asked] = {}
        self._backing_off: dict[str, Backoff] = {}
        self._working: set[str] = set()
        # To be asked again, once what was begun before has ended.
        self._outdated: set[str] = set()
        self._missing: set[str] = set()
        self._dirty: set[str] = set()
        self._woken = asyncio.Event()
        self._unlisted = {True, False}
        self._is_stored_known = False
        # At first: clusters may have changed while no bridge watched them.
        self._is_fleet_changed = True
        self._asking = 0
        self._at_once = MOST_AT_ONCE
        # Asked about without an answer: what was decided is stored, if it was.
        self._unanswered: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, fleet: BridgedFleet) -> None:
        """The clusters that the bindings go to."""
        self._fleet = fleet

    def replace(self, bindings: Iterable[KarmadaBinding], *, namespaced: bool) -> None:
        """Karmada lists these, of one kind."""
        listed = {each.key: each for each in bindings}
        for key in [key for key in self._karmada if ("/" in key) is namespaced]:
            if key not in listed:
                del self._karmada[key]
        for binding in listed.values():
            self.put(binding)
        self._unlisted.discard(namespaced)
        if not self._unlisted:
            self.listed.set()
        self._look_for_missing()
        self._woken.set()

    def put(self, binding: KarmadaBinding) -> None:
        before = self._karmada.get(binding.key)
        self._karmada[binding.key] = binding
        self._missing.discard(binding.key)
        self._want(binding.key)
        self._tell_ready(before, binding)

    def remove(self, binding: KarmadaBinding) -> None:
        """Karmada says that it is deleted."""
        self._tell_ready(self._karmada.pop(binding.key, None), None)
        self._asked.pop(binding.key, None)
        self._want(binding.key)

    def _tell_ready(self, before: KarmadaBinding | None, now: KarmadaBinding | None) -> None:
        known, told = before.ready if before else {}, now.ready if now else {}
        named = now or before
        if self._fleet is not None and named is not None and known != told:
            self._fleet.tell_ready(named.key, {**dict.fromkeys(known, NO_REPLICAS), **told})

    def tell_ready_in(self, cluster: str) -> None:
        """Somebody begins to speak for a cluster: all that is ready there."""
        if self._fleet is not None:
            for binding in self._karmada.values():
                if ready := binding.ready.get(cluster):
                    self._fleet.tell_ready(binding.key, {cluster: ready})

    def clusters_changed(self) -> None:
        """A cluster came, or its labels or spec changed: duplicated bindings are asked about."""
        self._is_fleet_changed = True
        self._woken.set()

    def _ask_about_duplicated(self) -> None:
        """Ask again about bindings that may go elsewhere since clusters changed."""
        self._is_fleet_changed = False
        for key, binding in self._karmada.items():
            # What waits for room is the control plane's to try again.
            is_nowhere = not binding.targets and key not in self._stored
            if goes_everywhere(binding) or is_nowhere:
                self._ask_again(key)

    def cluster_moved(self, name: str) -> None:
        """A cluster came, or everything has to leave it: look at what is there."""
        self._dirty |= {key for key, each in self._karmada.items() if name in each.targets}
        self._woken.set()

    def _ask_again(self, key: str) -> None:
        """Ask as if the binding had changed, whichever process asked about it last."""
        if key in self._working:
            self._outdated.add(key)
        if key in self._asked or key in self._karmada:
            self._asked[key] = replace(self._asked.get(key, NEVER_ASKED), generation=-1)
        self._want(key)

    def _put_asked(self, key: str, asked: Asked) -> None:
        """It was asked about, unless it is to be asked again since."""
        self._asked[key] = replace(asked, generation=-1) if key in self._outdated else asked

    async def follow(self) -> None:
        """Know the control plane's bindings, until cancelled."""
        async for message in self._client.watch_bindings():
            if message.relist:
                self._stored.clear()
                self._is_stored_known = False
            for event in message.events:
                self._see(event)
            if message.resource_version and not self._is_stored_known:
                self._is_stored_known = True
                self._look_for_missing()
                # A control plane that was restored from a backup may have lost some.
                for key in self._asked.keys() - self._stored.keys():
                    self._ask_again(key)
                self._dirty |= self._karmada.keys()
                self._woken.set()

    async def keep(self) -> None:
        """Do what is to be done, until cancelled; what was begun is ended first."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                while (self._dirty or self._is_fleet_changed) and self.is_known:
                    await self._round()
        finally:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def is_known(self) -> bool:
        """Whether both sides have said what there is."""
        return not self._unlisted and self._is_stored_known and self._fleet is not None

    def _see(self, event: scheduling_pb2.BindingEvent) -> None:
        metadata = event.binding.metadata
        key = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
        if event.type == resource_pb2.EVENT_TYPE_DELETED:
            self._stored.pop(key, None)
            self._ask_again(key)
        elif metadata.annotations.get(KARMADA_SCHEDULER) == self._scheduler:
            self._stored[key] = HeldBinding.of(event)
        else:
            return
        self._want(key)

    def _look_for_missing(self) -> None:
        """Bindings of the control plane that Karmada does not list: gone, if they are few.

        A server that lost its objects, or was restored from a backup, lists too little as well.
        """
        if self._unlisted or not self._is_stored_known:
            return
        missing = self._stored.keys() - self._karmada.keys()
        if len(missing) > max(FEW, len(self._stored) // 2) or (missing and not self._karmada):
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
            self._want(key)

    def _want(self, key: str) -> None:
        if key not in self._missing:
            self._dirty.add(key)
            self._woken.set()

    def _around(self) -> BridgeSurroundings:
        fleet = self._fleet
        if fleet is None:
            return BridgeSurroundings(scheduler=self._scheduler)
        return BridgeSurroundings(
            scheduler=self._scheduler,
            known=fleet.known,
            missing=fleet.missing,
            deleting=frozenset(fleet.deleting),
        )

    async def _round(self) -> None:
        """Take some of what is to be looked at; what is asked for together is asked at once."""
        if self._is_fleet_changed:
            self._ask_about_duplicated()
        around = self._around()
        keys = [key for key in self._dirty if key not in self._working][: self._at_once]
        if not keys or self._asking >= ASKING_AT_ONCE:
            self._woken.clear()
            await self._woken.wait()
            return
        to_schedule: list[KarmadaBinding] = []
        to_look_up: list[KarmadaBinding] = []
        for key in keys:
            self._dirty.discard(key)
            binding = self._karmada.get(key)
            step = next_step(binding, self._stored.get(key), self._asked.get(key), around)
            if step is BridgeStep.SCHEDULE and binding is not None:
                (to_look_up if key in self._unanswered else to_schedule).append(binding)
            elif step is not BridgeStep.REST:
                self._begin([key], self._do(step, key))
        if to_schedule:
            self._asking += 1
            self._begin([each.key for each in to_schedule], self._schedule(to_schedule, around))
        if to_look_up:
            looked_up = [each.key for each in to_look_up]
            self._unanswered.difference_update(looked_up)
            self._begin(looked_up, self._look_up(to_look_up, around))
        # What comes meanwhile is looked at together.
        await asyncio.sleep(TOGETHER_SECONDS)

    def _begin(self, keys: Iterable[str], work: Coroutine[Any, Any, None]) -> None:
        keys = list(keys)
        self._working.update(keys)
        self._outdated.difference_update(keys)

        async def done() -> None:
            try:
                await work
            except FederationError as error:
                logger.warning("bindings: %s", error.message)
                for key in keys:
                    self._again(key, FAILED_SECONDS)
            except Exception:
                logger.exception("working on bindings failed")
                for key in keys:
                    self._again(key, FAILED_SECONDS)
            finally:
                self._working.difference_update(keys)
                self._woken.set()

        self.start(done())

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside everything else, to its end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _schedule(self, bindings: list[KarmadaBinding], around: BridgeSurroundings) -> None:
        new = {each.key for each in bindings if each.key not in self._stored}
        asked = [with_fixed_shares(each, self._stored.get(each.key)) for each in bindings]
        try:
            answers = await self._answers.ask(asked, around.deleting)
            self._at_once = min(2 * self._at_once, MOST_AT_ONCE)
        except FederationError as error:
            self._unanswered.update(each.key for each in bindings)
            if isinstance(error, DeadlineMissed):
                self._at_once = max(self._at_once // 4, LEAST_AT_ONCE)
            raise
        finally:
            self._asking -= 1
            self._woken.set()
        await asyncio.gather(
            *(
                self._settle(binding, answers[binding.key], around, is_new=binding.key in new)
                for binding in bindings
                if binding.key in answers
            )
        )

    async def _settle(
        self,
        binding: KarmadaBinding,
        answer: tuple[BindingVerdict, str],
        around: BridgeSurroundings,
        *,
        is_new: bool = False,
    ) -> None:
        """Write what was decided. Without a trigger of Karmada's, what stays needs none.

        A binding that is ``new`` to the control plane and stays is adopted, which people are told.
        """
        verdict, decision_id = answer
        key = binding.key
        if verdict.is_scheduled and (note := note_of(binding, verdict.targets or {})):
            verdict = replace(verdict, message=f"{verdict.message} {note}")
        asked = Asked(
            uid=binding.uid,
            generation=binding.generation,
            leaving=leaving(binding, around),
            decision_id=decision_id,
        )
        is_kept = verdict.targets is None or dict(verdict.targets) == binding.targets
        # One that was killed between two patches leaves clusters of which nothing is told.
        is_told = (binding.condition(SCHEDULED) or {}).get("status") == "True"
        stands = is_kept and is_told and not trigger_of(binding, around.deleting)
        try:
            if stands:
                written, told = await self._writes.close(binding), verdict
            else:
                written, told = await self._writes.write(binding, verdict)
        except (Overtaken, NotFound):
            # It comes again, as it is by now.
            return
        except FederationError as error:
            logger.warning("binding %s is not written: %s", key, error.message)
            # The decision is stored: to decide again would lose a reschedule.
            self._unanswered.add(key)
            self._again(key, FAILED_SECONDS)
            return
        self._put_asked(key, replace(asked, generation=written.generation))
        self._keep_newer(written)
        self._count(binding, written, told)
        if told != verdict or told.targets == {}:
            await self._give_back(key, binding.uid)
        if told != verdict or told.is_passing:
            self._again(key, REFUSED_SECONDS)
        elif told.is_scheduled:
            self._backing_off.pop(key, None)
        if is_new if stands else written.version != binding.version:
            self.start(self._writes.tell(written, told))

    def _keep_newer(self, written: KarmadaBinding) -> None:
        """The watch tells of it later; until then it must not be taken for unwritten."""
        known = self._karmada.get(written.key)
        if (
            known is not None
            and known.uid == written.uid
            and known.generation <= written.generation
        ):
            self._karmada[written.key] = written

    def _count(
        self, binding: KarmadaBinding, written: KarmadaBinding, told: BindingVerdict
    ) -> None:
        self.counts.scheduled += told.is_scheduled
        self.counts.failed += not told.is_scheduled
        self.counts.written += written.version != binding.version

    async def _give_back(self, key: str, uid: str) -> None:
        """What Karmada did not take is not promised."""
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
                    if binding is not None or await self._is_gone(namespace, name):
                        await self._client.delete_binding(namespace, name, uid=uid)
                        self._asked.pop(key, None)
                        self._stored.pop(key, None)
                        self._dirty.add(key)
                case BridgeStep.SUSPEND | BridgeStep.RESUME:
                    resume = step is BridgeStep.RESUME
                    await self._client.suspend_binding(namespace, name, uid=uid, resume=resume)
                    if resume:
                        self._ask_again(key)
                case BridgeStep.WRITE if binding is not None:
                    await self._write_moved(binding)
        except (NotFound, PreconditionFailed) as error:
            logger.info("binding %s: %s", key, error.message)

    async def _is_gone(self, namespace: str, name: str) -> bool:
        """Asked for by name: a list may have missed it."""
        nobody = KarmadaBinding(
            namespace=namespace, name=name, uid="", version="", generation=0, spec={}
        )
        return await self._writes.read(nobody) is None

    async def _write_moved(self, binding: KarmadaBinding) -> None:
        """The control plane placed it by itself: as it is stored by now, not as was told."""
        stored = await self._client.get_binding(binding.namespace, binding.name)
        verdict = await self._answers.of_stored(binding, stored)
        is_asked = binding.key in self._asked
        if not is_asked and (verdict is None or not stored.reservations):
            # Before this bridge began: what Karmada refused then is promised no more.
            self._asking += 1
            await self._schedule([binding], self._around())
        elif verdict is not None and not keeps_shares(binding, verdict.targets):
            self._asking += 1
            await self._schedule([binding], self._around())
        elif verdict is not None:
            around = self._around()
            await self._settle(binding, (verdict, stored.decision.id), around)
        else:
            asked = Asked(
                uid=binding.uid, generation=binding.generation, decision_id=stored.decision.id
            )
            self._put_asked(binding.key, asked)

    async def _look_up(self, bindings: list[KarmadaBinding], around: BridgeSurroundings) -> None:
        """Write what was decided of these generations, and ask about the others: what is decided
        twice may lose a reschedule.
        """
        try:
            decided = await asyncio.gather(*map(self._decided, bindings))
        except FederationError:
            self._unanswered.update(each.key for each in bindings)
            raise
        pairs = list(zip(bindings, decided, strict=True))
        if left := [binding for binding, answer in pairs if answer is None]:
            self._asking += 1
            await self._schedule(left, around)
        await asyncio.gather(
            *(self._settle(binding, answer, around) for binding, answer in pairs if answer)
        )

    async def _decided(self, binding: KarmadaBinding) -> tuple[BindingVerdict, str] | None:
        """What was decided of this generation."""
        try:
            stored = await self._client.get_binding(binding.namespace, binding.name)
        except NotFound:
            return None
        if asked_generation(stored.binding) != binding.generation:
            return None
        verdict = await self._answers.of_stored(binding, stored)
        if verdict is None or not keeps_shares(binding, verdict.targets):
            return None
        return verdict, stored.decision.id

    def _again(self, key: str, most_seconds: float) -> None:
        """Look at it once more after a while, and ask anew."""
        backoff = self._backing_off.setdefault(key, Backoff(cap_seconds=most_seconds))
        asked = self._asked.get(key)

        def look() -> None:
            if self._asked.get(key) is asked:
                self._ask_again(key)
            self._want(key)

        asyncio.get_running_loop().call_later(1.0 + backoff.next_seconds(), look)
