"""Bindings and the decisions about them, as callers ask for them.

Must not decide or commit: ``pipeline`` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from federation.model.errors import InvalidRequest, NotFound, PreconditionFailed
from federation.model.placement import Binding
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.validation import violations_of
from federation.services.binding_ports import BindingStanding, QueuePlace, StoredBinding
from federation.services.fleet.registry import FleetOwner
from federation.services.member_ports import AgentGateway
from federation.services.ports import Store, Transaction
from federation.services.scheduling.agents import LabelDiscovery, NodePlans
from federation.services.scheduling.attempt import Attempt
from federation.services.scheduling.missing import missing_binding
from federation.services.scheduling.pipeline import DecisionPipeline
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
        self.check(binding)
        if binding.gang and not wait:
            raise InvalidRequest.of("wait", "must be true with spec.gang: members wait for others")
        return self._pipeline.submit(binding, adopt=adopt, wait=wait, once=once, place=place)

    def submit_together(
        self, bindings: Iterable[tuple[Binding, bool, Once | None]]
    ) -> list[asyncio.Future[Scheduled]]:
        """The decisions about an atomic batch, as ``DecisionPipeline.submit_together`` makes them;
        then ``learn`` of each. Every binding was checked. Raises LimitExceeded at once.
        """
        return self._pipeline.submit_together(bindings)

    def learn(self, binding: Binding) -> None:
        """Behind a decision: see to it that agents know what the next one like it asks for."""
        self._discovery.look(binding)

    async def consider(self, binding: Binding, *, adopt: bool, wait: bool) -> Attempt:
        """Decides a binding and stores nothing. Raises as ``schedule`` does."""
        self.check(binding)
        return await self._pipeline.consider(binding, adopt=adopt, wait=wait)

    def check(self, binding: Binding) -> None:
        """Raises InvalidRequest, and PreconditionFailed where it is suspended."""
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
                raise await missing_binding(read, namespace, name)
            packed = await read.decisions.get(stored.decision_id) if stored.decision_id else None
            row = await read.reservations.of(namespace, name)
            position = await _position(read, stored)
        held_there = self._fleet.holdings(stored.binding.key)
        ledgers = {cluster: self._fleet.ledger(cluster) for cluster in held_there}
        return BindingView(
            binding=stored.binding,
            record=await UNPACKING.run(packed.unpacked) if packed else None,
            held=held_in(ledgers, stored.binding.key, held_there),
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
        """Bindings that come after ``after``; an empty namespace means all of them.

        ``among`` are patterns of namespaces, as in ``Scope``: only of these; none: of all. Only
        those whose name has this ``part``, and that stand so, where that is said.
        """
        async with self._store.reading() as read:
            position = await read.journal.position()
            found = await read.bindings.page(
                namespace, after, limit + 1, among=among, part=part, standing=standing
            )
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


async def _position(read: Transaction, stored: StoredBinding) -> int:
    """Its place in the queue, 0 where it has none."""
    binding, wait = stored.binding, stored.wait
    if wait is None or not wait.is_tried:
        return 0
    priority = wait.priority if wait.gang else binding.priority
    return await read.waiting.position(
        QueuePlace(priority, wait.place_at, binding.namespace, binding.name, wait.entry)
    )
