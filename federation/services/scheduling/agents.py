"""Requests to agents after a decision: nodes for its replicas, and labels that pools lack.

Must not delay an answer, hold a transaction during a request, or lose a plan that a caller awaits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

from federation.model.errors import (
    DeadlineMissed,
    FederationError,
)
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.placement import Binding
from federation.model.readable import plural
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.reservations import PromiseCertificate
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.runtime.batching import Batcher
from federation.services.fleet.registry import FleetOwner
from federation.services.member_ports import AgentEstimates, AgentGateway
from federation.services.ports import Clock, Store
from federation.services.scheduling.release import ReleaseService
from federation.services.values import (
    DecisionRecord,
    ExactQuestion,
    Scheduled,
    worth_now,
)

NO_AGENT: Final = Reason(ReasonCode.NO_AGENT)
# Plans are written in batches; the first plan of a batch waits this long for further ones.
BATCH_SECONDS = 0.02

# The least time between two requests for the same labels in a cluster.
REPEAT_SECONDS = 30.0
ANSWER_SECONDS = 5.0
# The time between two attempts to reach a disconnected agent.
RETRY_SECONDS = 0.5
# Remembered pairs of a cluster and a set of labels, and concurrent requests for labels.
MAX_REMEMBERED, MAX_RUNNING = 100_000, 200


class _Answer(NamedTuple):
    """The plan of nodes for a cluster's share; ``by_agent``, or with a message why it has none."""

    plan: NodePlan
    by_agent: bool
    was_asked: bool = True


class NodePlans:
    """Asks agents for nodes of decided replicas, and writes the plans of many decisions at once."""

    def __init__(self, store: Store, agents: AgentGateway, releases: ReleaseService) -> None:
        self._store = store
        self._agents = agents
        self._releases = releases
        self._batches = Batcher(self._write, seconds=BATCH_SECONDS)

    def placeable(self, decided: Iterable[Scheduled]) -> list[Scheduled]:
        """Return the decisions with an agent to ask for nodes, or with planned promises."""
        sees_nodes = cache(self._agents.sees_nodes)
        return [
            scheduled
            for scheduled in decided
            if any(
                sees_nodes(target.name)
                for target in scheduled.record.decision.clusters
                if target.replicas > 0
            )
            or _planned(scheduled.record)
        ]

    async def place(
        self, record: DecisionRecord, binding: Binding, timeout_seconds: float
    ) -> DecisionRecord:
        """Return the record with the plans that the target clusters' agents make within the time.

        A late agent costs only the plan of its own cluster. The missing plan of a disconnected
        agent is not stored. A planned promise stays planned without an answer of the agent:
        ``awaits_agents`` tells whether there is one.
        """
        orders = _orders(record, binding)
        answers = await asyncio.gather(
            *(self._ask(cluster, order, timeout_seconds) for cluster, order in orders.items())
        )
        promises = record.promises
        if record.id:
            planned = _planned(record)
            final = [item for item in answers if item.by_agent or item.plan.cluster not in planned]
            await self._settle(record, final)
            promises = worth_now(promises, [item.plan for item in final])
        plans = sorted((item.plan for item in answers), key=lambda plan: plan.cluster)
        return replace(record, node_plans=tuple(plans), promises=promises)

    def awaits_agents(self, placed: DecisionRecord) -> bool:
        """Tell whether an agent has not answered for a planned promise yet."""
        return bool(placed.id and _unanswered(placed))

    async def place_after_return(
        self, placed: DecisionRecord, binding: Binding, return_seconds: float
    ) -> None:
        """Ask the agents of unanswered planned promises again; after the time, downgrade these."""
        until = asyncio.get_running_loop().time() + return_seconds
        orders = _orders(placed, binding)

        async def settle(cluster: str) -> None:
            while self._releases.is_planned(placed.binding_key, placed.id, cluster):
                remaining = until - asyncio.get_running_loop().time()
                seconds = min(max(remaining, 0.0), ANSWER_SECONDS)
                answer = await self._ask(cluster, orders[cluster], seconds)
                if answer.by_agent or remaining <= 0:
                    return await self._settle(placed, [answer])
                await asyncio.sleep(min(remaining, RETRY_SECONDS))
            return None

        await asyncio.gather(*map(settle, _unanswered(placed)))

    async def _settle(self, record: DecisionRecord, answers: Sequence[_Answer]) -> None:
        """Store the plans, and downgrade planned promises whose agents do not keep the plan."""
        planned = _planned(record)
        for plan, *_ in answers:
            if plan.cluster in planned and not plan.claimed:
                await self._releases.downgrade(
                    record.namespace, record.name, record.id, plan.cluster, plan.message
                )
        plans = [item.plan for item in answers if item.was_asked]
        if plans:
            await self._batches.put(record.id, (record.id, plans))

    async def _ask(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> _Answer:
        replicas = sum(share.replicas for share in order.shares)
        by_agent = False
        if not self._agents.sees_nodes(cluster):
            plan = NodePlan(cluster=cluster, unplaced=replicas, message=str(NO_AGENT))
            return _Answer(plan, by_agent, was_asked=False)
        try:
            plan = await self._agents.place(cluster, order, timeout_seconds)
        except DeadlineMissed:
            message = f"the agent did not answer within {timeout_seconds:g} s"
        except FederationError as error:
            message = error.message
        else:
            by_agent = True
            answered = plan.unplaced + sum(node.replicas for node in plan.nodes)
            if answered == replicas:
                return _Answer(replace(plan, cluster=cluster), by_agent)
            message = f"the agent answered for {plural(answered, 'replica')}, not for {replicas}"
        return _Answer(NodePlan(cluster=cluster, unplaced=replicas, message=message), by_agent)

    async def _write(self, batch: Sequence[tuple[str, Sequence[NodePlan]]]) -> Sequence[None]:
        async with self._store.transaction() as tx:
            await tx.decisions.put_node_plans(dict(batch))
        return [None] * len(batch)


class LabelDiscovery:
    """Asks agents about node labels that their pools lack, so that the next reports have them."""

    def __init__(self, fleet: FleetOwner, agents: AgentEstimates, clock: Clock) -> None:
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._asked_at: dict[tuple[str, frozenset[str]], float] = {}
        self._running: set[asyncio.Task[None]] = set()

    def request_labels(self, binding: Binding) -> None:
        """Ask the agents whose pools lack labels that the binding selects nodes by."""
        parts = [binding.requirements, *(item.requirements for item in binding.components)]
        for requirements in parts:
            claim = requirements.node_claim
            if claim is None or not claim.label_keys:
                continue
            snapshot = self._fleet.snapshot
            _, reasons = snapshot.rooms.label_carriers(requirements)
            for position in reasons:
                self._ask(snapshot.names[position], claim.label_keys, requirements)

    def _ask(self, cluster: str, keys: frozenset[str], requirements: ReplicaRequirements) -> None:
        now = self._clock.now()
        asked_at = self._asked_at.get((cluster, keys))
        if asked_at is not None and now - asked_at < REPEAT_SECONDS:
            return
        if len(self._running) >= MAX_RUNNING or not self._agents.sees_nodes(cluster):
            return
        if len(self._asked_at) >= MAX_REMEMBERED:
            self._asked_at.clear()
        self._asked_at[cluster, keys] = now
        task = asyncio.create_task(self._teach(cluster, requirements))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _teach(self, cluster: str, requirements: ReplicaRequirements) -> None:
        # The question makes the agent report the labels; its answer is not used.
        with suppress(FederationError):
            question = ExactQuestion(shapes=(requirements,))
            await self._agents.estimate(cluster, question, ANSWER_SECONDS)


def _planned(record: DecisionRecord) -> frozenset[str]:
    """Return the clusters with planned promises."""
    return frozenset(
        promise.cluster
        for promise in record.promises
        if promise.certificate is PromiseCertificate.PLANNED
    )


def _unanswered(placed: DecisionRecord) -> frozenset[str]:
    """Return the clusters with planned promises whose agents have no plan yet."""
    return _planned(placed).difference(plan.cluster for plan in placed.node_plans if plan.claimed)


def _orders(record: DecisionRecord, binding: Binding) -> Mapping[str, PlaceOrder]:
    """Return the orders for the agents of the target clusters, by name of the cluster."""
    planned = _planned(record)
    return {
        target.name: PlaceOrder(
            decision_id=record.id,
            binding_key=record.binding_key,
            shares=shares_of(binding, target),
            planned=target.name in planned,
        )
        for target in record.decision.clusters
        if target.replicas > 0
    }


def shares_of(binding: Binding, target: TargetCluster) -> tuple[ShareOrder, ...]:
    """Return the shares for one cluster's agent; components go there as a whole set."""
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
