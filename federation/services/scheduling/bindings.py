"""Bindings and the decisions about them, as callers ask for them.

Must not decide or commit: ``pipeline`` does; must not hold a transaction while it asks agents.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import cache

from federation.model.errors import (
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.placement import Binding, binding_key
from federation.model.reservations import PromiseCertificate
from federation.model.workload import TargetCluster
from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.validation import violations_of
from federation.services.fleet.registry import FleetOwner
from federation.services.ports import AgentGateway, Store
from federation.services.scheduling.label_discovery import LabelDiscovery
from federation.services.scheduling.node_plans import NodePlans
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.queue import Attempt
from federation.services.scheduling.release import ReleaseService, held_in
from federation.services.values import (
    BindingPage,
    BindingView,
    DecisionRecord,
    HeldReservation,
    Once,
    Scheduled,
)

NOT_CONNECTED = "the agent is not connected"


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
        self._agents = agents
        self._pipeline = pipeline
        self._releases = releases
        self._discovery = discovery
        self._profiles = profiles
        self._plans = NodePlans(store)

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
        self, binding: Binding, *, adopt: bool, wait: bool, once: Once | None = None
    ) -> asyncio.Future[Scheduled]:
        """What ``schedule`` awaits, for who waits for many; then ``learn`` of each.

        Raises InvalidRequest, PreconditionFailed (suspended) and LimitExceeded at once.
        """
        self._check(binding)
        return self._pipeline.submit(binding, adopt=adopt, wait=wait, once=once)

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

    def placeable(self, decided: Iterable[Scheduled]) -> list[Scheduled]:
        """Those with an agent to ask for nodes, or promised by a plan that nobody keeps."""
        is_connected = cache(self._agents.is_connected)
        return [
            each
            for each in decided
            if any(
                is_connected(target.name)
                for target in each.record.decision.clusters
                if target.replicas > 0
            )
            or _planned(each.record)
        ]

    async def place_nodes(
        self, record: DecisionRecord, binding: Binding, timeout_seconds: float
    ) -> DecisionRecord:
        """The record with what the target clusters' agents say about nodes within the time.

        An agent that is late or gone costs only its own cluster's plan; of those that are not
        connected nothing is kept.
        """
        planned = _planned(record)
        targets = [target for target in record.decision.clusters if target.replicas > 0]
        reached = {each.name for each in targets if self._agents.is_connected(each.name)}
        answers = await asyncio.gather(
            *(
                self._ask(
                    target.name,
                    PlaceOrder(
                        decision_id=record.id,
                        binding_key=record.binding_key,
                        shares=shares_of(binding, target),
                        planned=target.name in planned,
                    ),
                    timeout_seconds,
                )
                for target in targets
                if target.name in reached
            )
        )
        away = [
            NodePlan(cluster=target.name, unplaced=target.replicas, message=NOT_CONNECTED)
            for target in targets
            if target.name not in reached
        ]
        plans = sorted((*answers, *away), key=lambda each: each.cluster)
        if planned and record.id:
            await self._weaken(record, plans)
        if answers and record.id:
            await self._plans.keep(record.id, answers)
        return replace(record, node_plans=tuple(plans))

    async def get_binding(self, namespace: str, name: str) -> BindingView:
        """A binding, the newest decision about it, and what it holds. Raises NotFound."""
        async with self._store.reading() as read:
            stored = await read.bindings.get(namespace, name)
            if stored is None:
                raise _no_binding(namespace, name)
            record = await read.decisions.get(stored.decision_id) if stored.decision_id else None
            row = await read.reservations.of(namespace, name)
        held_there = self._fleet.holdings(stored.binding.key)
        ledgers = {cluster: self._fleet.ledger(cluster) for cluster in held_there}
        return BindingView(
            binding=stored.binding,
            record=record,
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
            record = await read.decisions.get(decision_id)
        if record is None:
            raise NotFound(f"There is no decision {decision_id!r}.")
        return record

    async def _weaken(self, record: DecisionRecord, plans: Collection[NodePlan]) -> None:
        """What was promised by plan is only careful where no agent keeps the plan."""
        planned = _planned(record)
        for plan in plans:
            if plan.cluster in planned and not plan.claimed:
                await self._releases.downgrade(
                    record.namespace, record.name, record.id, plan.cluster
                )

    async def _ask(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> NodePlan:
        wanted = sum(share.replicas for share in order.shares)
        try:
            async with asyncio.timeout(timeout_seconds):
                plan = await self._agents.place(cluster, order, timeout_seconds)
        except (TimeoutError, DeadlineMissed):
            message = f"the agent did not answer within {timeout_seconds:g} s"
        except FederationError as error:
            message = error.message
        else:
            answered = plan.unplaced + sum(node.replicas for node in plan.nodes)
            if answered == wanted:
                return replace(plan, cluster=cluster)
            message = f"the agent answered for {answered} replicas, not for {wanted}"
        return NodePlan(cluster=cluster, unplaced=wanted, message=message)


def _planned(record: DecisionRecord) -> frozenset[str]:
    """The clusters whose shares were promised by plan."""
    return frozenset(
        each.cluster for each in record.promises if each.certificate is PromiseCertificate.PLANNED
    )


def shares_of(binding: Binding, target: TargetCluster) -> tuple[ShareOrder, ...]:
    """What one cluster's agent has to place; a workload of components goes there as a whole."""
    if binding.components:
        return tuple(
            ShareOrder(
                component=component.name,
                replicas=component.replicas,
                requirements=component.requirements,
            )
            for component in binding.components
        )
    return (ShareOrder(replicas=target.replicas, requirements=binding.requirements),)


def _no_binding(namespace: str, name: str) -> NotFound:
    return NotFound(f"There is no binding {binding_key(namespace, name)!r}.")
