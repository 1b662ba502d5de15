"""The use cases of bindings, one or a batch: schedule, consider, get and list them.

Every item of a batch is decided alone, or all items are placed or none. Must not decide or commit:
``pipeline`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from federation.history.bodies import NewerBody
from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from federation.model.placement import Binding
from federation.runtime.futures import fail
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.validation import violations_of
from federation.services.binding_ports import BindingStanding, QueuePlace, StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.member_ports import AgentGateway
from federation.services.ports import Store, Transaction
from federation.services.scheduling.agents import LabelDiscovery, NodePlans
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.release import ReleaseService, held_in, missing_binding
from federation.services.scheduling.together import not_placed_together
from federation.services.threads import UNPACKING
from federation.services.values import (
    BindingPage,
    BindingView,
    DecisionRecord,
    IdempotencyKey,
    Scheduled,
)


class Scheduling:
    """Schedules bindings, and reads bindings and decisions."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        agents: AgentGateway,
        pipeline: DecisionPipeline,
        releases: ReleaseService,
        discovery: LabelDiscovery,
        profiles: Profiles = DEFAULT_PROFILES,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self.discovery = discovery
        self._profiles = profiles
        self.node_plans = NodePlans(store, agents, releases)

    async def schedule(
        self, binding: Binding, *, adopt: bool, wait: bool, once: IdempotencyKey | None = None
    ) -> Scheduled:
        """Decide a binding, and return after the commit.

        With ``adopt``, the workload runs in ``binding.clusters``, whatever is stored of the
        binding. Without ``wait``, a new binding that cannot be placed is not stored. If a new
        decision would say the same, the answer is the standing one. A request with the key of
        ``once`` is answered like the first request with it.

        Raises InvalidRequest, PreconditionFailed (another uid, suspended, or a key of another
        request), PluginFailed, LimitExceeded, Unavailable, and Conflict if other requests keep
        changing the binding.
        """
        scheduled = await self.submit(binding, adopt=adopt, wait=wait, once=once)
        self.discovery.request_labels(binding)
        return scheduled

    def submit(
        self,
        binding: Binding,
        *,
        adopt: bool,
        wait: bool,
        once: IdempotencyKey | None = None,
        place: int = 0,
    ) -> asyncio.Future[Scheduled]:
        """Return the future that ``schedule`` awaits, for callers with several bindings.

        ``place`` is the binding's place among them, from 1. Call ``discovery.request_labels`` once
        it is decided.

        Raises InvalidRequest, PreconditionFailed (suspended) and LimitExceeded at once.
        """
        self.check(binding)
        if binding.gang and not wait:
            raise InvalidRequest.of("wait", "must be true with spec.gang: members wait for others")
        return self._pipeline.submit(binding, adopt=adopt, wait=wait, once=once, place=place)

    def submit_together(
        self, bindings: Iterable[tuple[Binding, bool, IdempotencyKey | None]]
    ) -> list[asyncio.Future[Scheduled]]:
        """Return the futures of an atomic batch, as ``DecisionPipeline.submit_together`` does.

        ``check`` every binding first, and call ``discovery.request_labels`` once it is decided.
        Raises LimitExceeded at once.
        """
        return self._pipeline.submit_together(bindings)

    async def consider(self, binding: Binding, *, adopt: bool, wait: bool) -> Attempt:
        """Decide a binding without storing anything. Raises as ``schedule`` does."""
        self.check(binding)
        return await self._pipeline.consider(binding, adopt=adopt, wait=wait)

    def check(self, binding: Binding) -> None:
        """Check a binding. Raises InvalidRequest, and PreconditionFailed if it is suspended."""
        violations = [*violations_of(binding), *self._profiles.violations_of(binding)]
        if violations:
            raise InvalidRequest(violations)
        if binding.suspended:
            raise PreconditionFailed(f"Scheduling of binding {binding.key!r} is suspended.")

    async def get_binding(self, namespace: str, name: str) -> BindingView:
        """Return a binding, its newest decision and its reservations. Raises NotFound."""
        async with self._store.reading() as read:
            stored = await read.bindings.get(namespace, name)
            if stored is None:
                raise await missing_binding(read, namespace, name)
            packed = await read.decisions.get(stored.decision_id) if stored.decision_id else None
            row = await read.reservations.of(namespace, name)
            position = await _position(read, stored)
        clusters = self._fleet.holdings(stored.binding.key)
        ledgers = {cluster: self._fleet.ledger(cluster) for cluster in clusters}
        return BindingView(
            binding=stored.binding,
            record=await UNPACKING.run(packed.unpacked) if packed else None,
            held=held_in(ledgers, stored.binding.key, clusters),
            lease_expires_at=row.lease_expires_at if row else None,
            wait=stored.wait,
            position=position,
        )

    async def list_bindings(
        self,
        namespace: str,
        after: tuple[str, str] | None,
        limit: int,
        *,
        among: Collection[str] = (),
        part: str = "",
        standing: BindingStanding | None = None,
    ) -> BindingPage:
        """Return a page of bindings that come after ``after``; an empty namespace means all.

        ``among`` are patterns of namespaces as in ``Scope`` (empty: all namespaces). ``part`` is a
        part of the name. With a ``standing``, only bindings in this state are listed.
        """
        async with self._store.reading() as read:
            position = await read.journal.position()
            bindings = await read.bindings.page(
                namespace, after, limit + 1, among=among, part=part, standing=standing
            )
        page = tuple(bindings[:limit])
        is_last = len(bindings) <= limit
        return BindingPage(
            bindings=page,
            next_after=None if is_last else (page[-1].namespace, page[-1].name),
            position=position,
        )

    async def get_decision(self, decision_id: str) -> DecisionRecord:
        """Return a decision with its trace. Raises NotFound."""
        async with self._store.reading() as read:
            packed = await read.decisions.get(decision_id)
        if packed is None:
            raise NotFound(f"There is no decision {decision_id!r}.")
        return await UNPACKING.run(packed.unpacked)


async def _position(read: Transaction, stored: StoredBinding) -> int:
    """Return the binding's place in the queue, 0 if it does not wait there."""
    binding, wait = stored.binding, stored.wait
    if wait is None or not wait.is_tried:
        return 0
    priority = wait.priority if wait.gang else binding.priority
    return await read.waiting.position(
        QueuePlace(priority, wait.place_at, binding.namespace, binding.name, wait.entry)
    )


_Answer: TypeAlias = "asyncio.Future[Scheduled]"

# Errors of one item that do not concern the other items.
ITEM_ERRORS = (InvalidRequest, PreconditionFailed, Conflict, NewerBody)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """A binding of a batch with its options, which are those of ``Scheduling.schedule``."""

    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: IdempotencyKey | None = None


async def schedule_batch(
    scheduling: Scheduling, items: Sequence[BatchItem | InvalidRequest], *, atomic: bool = False
) -> list[Scheduled | FederationError]:
    """Decide the items by descending priority and place in the batch; answer in their order.

    The answer of a wrong item is its error; an item that is an error is wrong already. Of an
    ``atomic`` batch all items are placed or none, and none waits: NotPlacedTogether is the answer
    of items that are not placed because of another one.

    Raises Unavailable; some items may be committed then, but none of an atomic batch. Raises
    Conflict for an atomic batch if other requests keep changing the same bindings.
    """
    submitted: list[_Answer | FederationError] = []
    try:
        if atomic:
            submitted += _submitted_together(scheduling, items)
        else:
            for item in items:
                _submit(scheduling, item, submitted)
        await _all_arrived([item for item in submitted if isinstance(item, asyncio.Future)])
    finally:
        for answer in submitted:
            if isinstance(answer, asyncio.Future):
                answer.cancel()
    results = [_outcome(answer) for answer in submitted]
    if atomic:
        for result in results:
            if isinstance(result, Conflict):
                raise result
    for item, result in zip(items, results, strict=True):
        if isinstance(item, BatchItem) and isinstance(result, Scheduled):
            scheduling.discovery.request_labels(item.binding)
    return results


def _submit(
    scheduling: Scheduling,
    item: BatchItem | InvalidRequest,
    submitted: list[_Answer | FederationError],
) -> None:
    if isinstance(item, InvalidRequest):
        submitted.append(item)
        return
    try:
        submitted.append(
            scheduling.submit(
                item.binding,
                adopt=item.adopt,
                wait=item.wait,
                once=item.once,
                place=len(submitted) + 1,
            )
        )
    except ITEM_ERRORS as error:
        submitted.append(error)


def _submitted_together(
    scheduling: Scheduling, items: Sequence[BatchItem | InvalidRequest]
) -> Sequence[_Answer | FederationError]:
    """Return the answers of an atomic batch; if an item is wrong, none is decided."""
    sound: list[BatchItem] = []
    wrong: dict[int, FederationError] = {}
    first_positions: dict[Hashable, int] = {}
    for position, item in enumerate(items):
        try:
            sound.append(_checked(scheduling, item, position, first_positions))
        except ITEM_ERRORS as error:
            wrong[position] = error
    if not wrong:
        return scheduling.submit_together((item.binding, item.adopt, item.once) for item in sound)
    first = items[min(wrong)]
    key = first.binding.key if isinstance(first, BatchItem) else ""
    not_decided = not_placed_together(min(wrong) + 1, key, len(wrong) - 1)
    return [wrong.get(position, not_decided) for position in range(len(items))]


def _checked(
    scheduling: Scheduling,
    item: BatchItem | InvalidRequest,
    position: int,
    first_positions: dict[Hashable, int],
) -> BatchItem:
    """Return the item. Raises its error, also if it repeats a binding or key of an earlier one.

    ``first_positions`` has the first item of every binding and idempotency key.
    """
    if isinstance(item, InvalidRequest):
        raise item
    scheduling.check(item.binding)
    if item.binding.gang is not None:
        raise InvalidRequest.of(
            "spec.gang", "cannot be used in an atomic batch: nobody waits there"
        )
    first = first_positions.setdefault(item.binding.key, position)
    if first != position:
        rule = f"is that of items[{first}]: an atomic batch names each binding once"
        raise InvalidRequest.of("metadata.name", rule)
    if item.once is not None:
        first = first_positions.setdefault((item.once.caller, item.once.key), position)
        if first != position:
            raise InvalidRequest.of("idempotencyKey", f"is that of items[{first}]")
    return item


async def _all_arrived(answers: Sequence[_Answer]) -> None:
    """Wait for all answers. Raises an error that concerns the whole batch as soon as it comes."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    pending = len(answers)

    def arrived(answer: _Answer) -> None:
        nonlocal pending
        pending -= 1
        error = None if answer.cancelled() else answer.exception()
        if ended.done():
            return
        if error is not None and not isinstance(error, ITEM_ERRORS):
            fail(ended, error)
        elif not pending:
            ended.set_result(None)

    for answer in answers:
        answer.add_done_callback(arrived)
    if answers:
        await ended


def _outcome(answer: _Answer | FederationError) -> Scheduled | FederationError:
    if isinstance(answer, FederationError):
        return answer
    error = answer.exception()
    return error if isinstance(error, FederationError) else answer.result()
