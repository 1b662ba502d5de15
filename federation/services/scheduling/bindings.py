"""Bindings and the decisions about them, as callers ask for them.

Must not decide or commit: ``pipeline`` does. Must not make a batch atomic: each item is decided as
by ``Scheduling.schedule``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from federation.model.placement import Binding, binding_key
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.validation import violations_of
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import AgentGateway, Store
from federation.services.scheduling.agents import LabelDiscovery, NodePlans
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.release import ReleaseService, held_in
from federation.services.threads import UNPACKING
from federation.services.values import (
    BindingPage,
    BindingView,
    DecisionRecord,
    HeldReservation,
    Once,
    Scheduled,
)

_Answer: TypeAlias = "asyncio.Future[Scheduled]"

# What is wrong with one item and says nothing about the next.
ITEM_ERRORS = (InvalidRequest, PreconditionFailed, Conflict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One binding, and the same choices as for one alone."""

    binding: Binding
    adopt: bool = False
    wait: bool = True
    once: Once | None = None


class Scheduling:
    """Bindings and the decisions about them."""

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
        self._releases = releases
        self._discovery = discovery
        self._profiles = profiles
        self.node_plans = NodePlans(store, agents, releases)

    async def schedule(
        self, binding: Binding, *, adopt: bool, wait: bool, once: Once | None = None
    ) -> Scheduled:
        """Decides a binding; committed when it returns.

        ``adopt`` takes ``binding.clusters`` as where the workload runs even when the binding is
        known. Without ``wait`` an unknown binding that cannot be placed is not stored. Where
        nothing changed, and deciding again says the same, the answer is the standing decision.
        What was asked ``once`` is answered as it was the first time.

        Raises InvalidRequest, PreconditionFailed (another uid, suspended, or a key of another
        request), PluginFailed, LimitExceeded, Unavailable, and Conflict when others keep changing
        the binding.
        """
        scheduled = await self.submit(binding, adopt=adopt, wait=wait, once=once)
        self.learn(binding)
        return scheduled

    def submit(
        self, binding: Binding, *, adopt: bool, wait: bool, once: Once | None = None, place: int = 0
    ) -> asyncio.Future[Scheduled]:
        """What ``schedule`` awaits, for who waits for many; then ``learn`` of each. ``place`` is
        its place among them, from 1.

        Raises InvalidRequest, PreconditionFailed (suspended) and LimitExceeded at once.
        """
        self._check(binding)
        return self._pipeline.submit(binding, adopt=adopt, wait=wait, once=once, place=place)

    def learn(self, binding: Binding) -> None:
        """Behind a decision: see to it that agents know what the next one like it asks for."""
        self._discovery.look(binding)

    async def consider(self, binding: Binding, *, adopt: bool, wait: bool) -> Attempt:
        """Decides a binding and stores nothing. Raises as ``schedule`` does."""
        self._check(binding)
        return await self._pipeline.consider(binding, adopt=adopt, wait=wait)

    def _check(self, binding: Binding) -> None:
        violations = [*violations_of(binding), *self._profiles.violations_of(binding)]
        if violations:
            raise InvalidRequest(violations)
        if binding.suspended:
            raise PreconditionFailed(f"Scheduling of binding {binding.key!r} is suspended.")

    async def get_binding(self, namespace: str, name: str) -> BindingView:
        """A binding, the newest decision about it, and what it holds. Raises NotFound."""
        async with self._store.reading() as read:
            stored = await read.bindings.get(namespace, name)
            if stored is None:
                raise _no_binding(namespace, name)
            packed = await read.decisions.get(stored.decision_id) if stored.decision_id else None
            row = await read.reservations.of(namespace, name)
        held_there = self._fleet.holdings(stored.binding.key)
        ledgers = {cluster: self._fleet.ledger(cluster) for cluster in held_there}
        return BindingView(
            binding=stored.binding,
            record=await UNPACKING.run(packed.unpacked) if packed else None,
            held=held_in(ledgers, stored.binding.key, held_there),
            lease_expires_at=row.lease_expires_at if row else None,
        )

    async def list_bindings(
        self, namespace: str, after: tuple[str, str] | None, limit: int
    ) -> BindingPage:
        """Bindings that come after ``after``; an empty namespace means all of them."""
        async with self._store.reading() as read:
            position = await read.journal.position()
            found = await read.bindings.page(namespace, after, limit + 1)
        page = tuple(found[:limit])
        more = len(found) > limit
        return BindingPage(
            bindings=page,
            next_after=(page[-1].namespace, page[-1].name) if more else None,
            position=position,
        )

    async def delete_binding(self, namespace: str, name: str, uid: str = "") -> None:
        """With all that it holds; its decisions stay.

        Raises NotFound, and PreconditionFailed for another uid.
        """
        await self._releases.delete(namespace, name, uid)

    async def release(
        self, namespace: str, name: str, uid: str = "", clusters: Collection[str] = ()
    ) -> tuple[HeldReservation, ...]:
        """Ends what the binding holds in the clusters (none: in all); what that was.

        Raises NotFound where it holds nothing there, and PreconditionFailed for another uid.
        """
        return await self._releases.release(namespace, name, uid, clusters)

    async def renew(
        self, namespace: str, name: str, uid: str = "", lease_seconds: int | None = None
    ) -> float:
        """When the binding's lease ends now, in Unix seconds; None: as long as its spec says.

        Raises NotFound, and PreconditionFailed where there is no lease, or none any more.
        """
        return await self._releases.renew(namespace, name, uid, lease_seconds)

    async def get_decision(self, decision_id: str) -> DecisionRecord:
        """A decision with its trace. Raises NotFound."""
        async with self._store.reading() as read:
            packed = await read.decisions.get(decision_id)
        if packed is None:
            raise NotFound(f"There is no decision {decision_id!r}.")
        return await UNPACKING.run(packed.unpacked)


def _no_binding(namespace: str, name: str) -> NotFound:
    return NotFound(f"There is no binding {binding_key(namespace, name)!r}.")


async def schedule_batch(
    scheduling: Scheduling, items: Sequence[BatchItem]
) -> list[Scheduled | FederationError]:
    """Decides by (priority descending, place in the batch); answers in the order of the batch.

    What is wrong with one item is its answer. Raises Unavailable, with some items committed.
    """
    submitted: list[_Answer | FederationError] = []
    try:
        for item in items:
            _submit(scheduling, item, submitted)
        await _all_arrived([each for each in submitted if isinstance(each, asyncio.Future)])
    finally:
        for each in submitted:
            if isinstance(each, asyncio.Future):
                each.cancel()
    return [
        each if isinstance(each, FederationError) else _outcome(scheduling, item, each)
        for item, each in zip(items, submitted, strict=True)
    ]


def _submit(
    scheduling: Scheduling, item: BatchItem, submitted: list[_Answer | FederationError]
) -> None:
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


async def _all_arrived(answers: Sequence[_Answer]) -> None:
    """Raises what is wrong with more than one item, as soon as that is known."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = len(answers)

    def arrived(answer: _Answer) -> None:
        nonlocal left
        left -= 1
        error = None if answer.cancelled() else answer.exception()
        if ended.done():
            return
        if error is not None and not isinstance(error, ITEM_ERRORS):
            ended.set_exception(error)
        elif not left:
            ended.set_result(None)

    for answer in answers:
        answer.add_done_callback(arrived)
    if answers:
        await ended


def _outcome(
    scheduling: Scheduling, item: BatchItem, answer: _Answer
) -> Scheduled | FederationError:
    error = answer.exception()
    if isinstance(error, FederationError):
        return error
    scheduling.learn(item.binding)
    return answer.result()
