"""Decisions: read the binding, decide in memory, commit once, answer after the commit.

Must not hold a transaction while it decides or while it asks agents.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from federation.model.errors import (
    Conflict,
    DeadlineMissed,
    FederationError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
)
from federation.model.placement import Binding
from federation.model.workload import TargetCluster
from federation.scheduler.profile import DEFAULT_PROFILES, Profiles
from federation.scheduler.validation import violations_of
from federation.services.deciding import (
    Considered,
    availability_of,
    candidate_of,
    decide,
    other_uid,
)
from federation.services.fleet import FleetOwner
from federation.services.ports import (
    AgentGateway,
    Clock,
    Settled,
    Store,
    StoredBinding,
    Transaction,
)
from federation.services.values import (
    BindingPage,
    DecisionRecord,
    NodePlan,
    PlaceOrder,
    Scheduled,
    ShareOrder,
    Verdict,
)

MAX_ATTEMPTS = 5
# Deciding over fewer clusters takes less than 5 ms: not worth a thread.
CLUSTERS_PER_THREAD = 200


class Scheduling:
    """Bindings and the decisions about them."""

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        agents: AgentGateway,
        clock: Clock,
        profiles: Profiles = DEFAULT_PROFILES,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._profiles = profiles

    async def schedule(self, binding: Binding, *, adopt: bool, wait: bool) -> Scheduled:
        """Decides a binding; committed when it returns.

        ``adopt`` takes ``binding.clusters`` as where the workload runs even when the binding is
        known. Without ``wait`` an unknown binding that cannot be placed is not stored. Where
        nothing changed, and deciding again says the same, the answer is the standing decision.

        Raises what ``consider`` raises, and Conflict when others keep changing the binding.
        """
        for _ in range(MAX_ATTEMPTS):
            considered = await self.consider(binding, adopt=adopt)
            if not (considered.known or wait or considered.is_placed):
                return Scheduled(record=self.unstored(considered), binding=None)
            if considered.standing is not None:
                return Scheduled(record=considered.standing, binding=considered.candidate)
            scheduled = await self._commit(considered)
            if scheduled is not None:
                return scheduled
        raise Conflict(f"Binding {binding.key!r} was changed by others meanwhile: try again.")

    async def consider(self, binding: Binding, *, adopt: bool) -> Considered:
        """Decides a binding and stores nothing.

        Raises InvalidRequest, PreconditionFailed (another uid, or suspended), PluginFailed and
        Unavailable.
        """
        violations = [*violations_of(binding), *self._profiles.violations_of(binding)]
        if violations:
            raise InvalidRequest(violations)
        if binding.suspended:
            raise PreconditionFailed(f"Scheduling of binding {binding.key!r} is suspended.")
        newest = None
        async with self._store.reading() as read:
            known = await read.bindings.get(binding.namespace, binding.name)
            candidate = candidate_of(binding, known, adopt=adopt)
            peers = await read.bindings.peers(candidate)
            if known is not None and known.decision_id and candidate == known.binding:
                newest = await read.decisions.get(known.decision_id)
        snapshot, profile = self._fleet.snapshot, self._profiles.profile_of(binding)

        def decided() -> Verdict:
            available = availability_of(candidate, snapshot, self._fleet.known_estimates)
            now = self._clock.now()
            return decide(candidate, known, peers, snapshot, available, profile, now)

        if len(snapshot.names) < CLUSTERS_PER_THREAD:
            verdict = decided()
        else:
            verdict = await asyncio.to_thread(decided)
        return Considered(known=known, candidate=candidate, verdict=verdict, newest=newest)

    def unstored(self, considered: Considered) -> DecisionRecord:
        """The record of a decision that is not stored, or not yet: without an id."""
        candidate = considered.candidate
        return DecisionRecord(
            id="",
            namespace=candidate.namespace,
            name=candidate.name,
            binding_generation=candidate.generation,
            created_at=self._clock.now(),
            decision=considered.verdict.decision,
            evidence=considered.verdict.evidence,
        )

    async def place_nodes(
        self, record: DecisionRecord, binding: Binding, timeout_seconds: float
    ) -> DecisionRecord:
        """The record with what the target clusters' agents say about nodes within the time.

        An agent that is late or gone costs only its own cluster's plan.
        """
        plans = await asyncio.gather(
            *(
                self._ask(record, binding, target, timeout_seconds)
                for target in sorted(record.decision.clusters, key=lambda each: each.name)
                if target.replicas > 0
            )
        )
        if plans and record.id:
            async with self._store.transaction() as tx:
                await tx.decisions.put_node_plans(record.id, plans)
        return replace(record, node_plans=tuple(plans))

    async def get_binding(self, namespace: str, name: str) -> tuple[Binding, DecisionRecord | None]:
        """A binding and the newest decision about it. Raises NotFound."""
        async with self._store.reading() as read:
            stored = await read.bindings.get(namespace, name)
            if stored is None:
                raise _no_binding(namespace, name)
            record = await read.decisions.get(stored.decision_id) if stored.decision_id else None
        return stored.binding, record

    async def list_bindings(
        self, namespace: str, after: tuple[str, str] | None, limit: int
    ) -> BindingPage:
        """Bindings that come after ``after``; an empty namespace means all of them."""
        async with self._store.reading() as read:
            found = await read.bindings.page(namespace, after, limit + 1)
        page = tuple(found[:limit])
        more = len(found) > limit
        return BindingPage(
            bindings=page, next_after=(page[-1].namespace, page[-1].name) if more else None
        )

    async def delete_binding(self, namespace: str, name: str, uid: str = "") -> None:
        """Its decisions stay. Raises NotFound, and PreconditionFailed for another uid."""
        async with self._store.transaction() as tx:
            stored = await tx.bindings.lock(namespace, name)
            if stored is None:
                raise _no_binding(namespace, name)
            if uid and uid != stored.binding.uid:
                raise other_uid(stored.binding, uid)
            await tx.bindings.delete(stored.id)

    async def get_decision(self, decision_id: str) -> DecisionRecord:
        """A decision with its trace. Raises NotFound."""
        async with self._store.reading() as read:
            record = await read.decisions.get(decision_id)
        if record is None:
            raise NotFound(f"There is no decision {decision_id!r}.")
        return record

    async def _commit(self, considered: Considered) -> Scheduled | None:
        """None when the binding is no longer as it was read: then nothing was written."""
        known, candidate = considered.known, considered.candidate
        async with self._store.transaction() as tx:
            if known is None:
                current = await tx.bindings.add(candidate)
            else:
                current = await tx.bindings.lock(candidate.namespace, candidate.name)
            if current is None or (known is not None and not _same(known, current)):
                return None
            return await settle(tx, current, considered)

    async def _ask(
        self,
        record: DecisionRecord,
        binding: Binding,
        target: TargetCluster,
        timeout_seconds: float,
    ) -> NodePlan:
        order = PlaceOrder(
            decision_id=record.id,
            binding_key=record.binding_key,
            shares=shares_of(binding, target),
        )
        wanted = sum(share.replicas for share in order.shares)
        try:
            async with asyncio.timeout(timeout_seconds):
                plan = await self._agents.place(target.name, order, timeout_seconds)
        except (TimeoutError, DeadlineMissed):
            message = f"the agent did not answer within {timeout_seconds:g} s"
        except FederationError as error:
            message = error.message
        else:
            answered = plan.unplaced + sum(node.replicas for node in plan.nodes)
            if answered == wanted:
                return replace(plan, cluster=target.name)
            message = f"the agent answered for {answered} replicas, not for {wanted}"
        return NodePlan(cluster=target.name, unplaced=wanted, message=message)


async def settle(tx: Transaction, current: StoredBinding, considered: Considered) -> Scheduled:
    """Writes a decision, and the binding that follows from it over the current one."""
    candidate, decision = considered.candidate, considered.verdict.decision
    placed = considered.is_placed
    record = await tx.decisions.add(current.id, candidate, considered.verdict)
    settled = Settled(
        decision_id=record.id,
        placed=placed,
        observed_affinity=(decision.trace.affinity_group if placed else current.observed_affinity),
    )
    decided = replace(candidate, clusters=decision.clusters) if placed else candidate
    stored = await tx.bindings.put(current.id, decided, settled)
    return Scheduled(record=record, binding=stored.binding)


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


def _same(read: StoredBinding, current: StoredBinding) -> bool:
    versions = (read.binding.resource_version, current.binding.resource_version)
    return read.id == current.id and versions[0] == versions[1]


def _no_binding(namespace: str, name: str) -> NotFound:
    return NotFound(f"There is no binding {Binding(namespace=namespace, name=name).key!r}.")
