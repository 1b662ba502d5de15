"""What agents are asked behind a decision: nodes for its replicas, and labels their pools lack.

Must not delay an answer, hold a transaction while it asks, or lose a plan that somebody waits for.
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
# The first plans of a batch wait a moment so that others can join them.
BATCH_SECONDS = 0.02

AGAIN_SECONDS = 30.0
ANSWER_SECONDS = 5.0
# Until an agent that is away is looked for again.
LOOK_SECONDS = 0.5
# Clusters and sets of labels remembered, and agents asked at a time.
MAX_KNOWN, MAX_RUNNING = 100_000, 200


class _Said(NamedTuple):
    """Where a cluster's share goes: what its agent said, or why nobody did."""

    plan: NodePlan
    by_agent: bool
    was_asked: bool = True


class NodePlans:
    """Asks agents where the replicas of decisions go, and writes many decisions' plans together."""

    def __init__(self, store: Store, agents: AgentGateway, releases: ReleaseService) -> None:
        self._store = store
        self._agents = agents
        self._releases = releases
        self._batches = Batcher(self._write, seconds=BATCH_SECONDS)

    def placeable(self, decided: Iterable[Scheduled]) -> list[Scheduled]:
        """Those with an agent to ask for nodes, or promised by a plan that nobody keeps."""
        sees_nodes = cache(self._agents.sees_nodes)
        return [
            each
            for each in decided
            if any(
                sees_nodes(target.name)
                for target in each.record.decision.clusters
                if target.replicas > 0
            )
            or _planned(each.record)
        ]

    async def place(
        self, record: DecisionRecord, binding: Binding, timeout_seconds: float
    ) -> DecisionRecord:
        """The record with what the target clusters' agents say about nodes within the time.

        An agent that is late or gone costs only its own cluster's plan; of those that are not
        connected nothing is kept. What was promised by plan stays so where nobody said anything:
        ``awaits_agents`` tells whether there is such.
        """
        orders = _orders(record, binding)
        said = await asyncio.gather(
            *(self._ask(cluster, order, timeout_seconds) for cluster, order in orders.items())
        )
        kept = record.promises
        if record.id:
            planned = _planned(record)
            settled = [each for each in said if each.by_agent or each.plan.cluster not in planned]
            await self._settle(record, settled)
            kept = worth_now(kept, [each.plan for each in settled])
        plans = sorted((each.plan for each in said), key=lambda plan: plan.cluster)
        return replace(record, node_plans=tuple(plans), promises=kept)

    def awaits_agents(self, placed: DecisionRecord) -> bool:
        """Whether something is promised by plan that no agent has said anything about."""
        return bool(placed.id and _unsaid(placed))

    async def place_once_back(
        self, placed: DecisionRecord, binding: Binding, return_seconds: float
    ) -> None:
        """What awaits agents is asked again until they answer, and careful after that time."""
        until = asyncio.get_running_loop().time() + return_seconds
        orders = _orders(placed, binding)

        async def settle(cluster: str) -> None:
            while self._releases.is_planned(placed.binding_key, placed.id, cluster):
                left = until - asyncio.get_running_loop().time()
                seconds = min(max(left, 0.0), ANSWER_SECONDS)
                said = await self._ask(cluster, orders[cluster], seconds)
                if said.by_agent or left <= 0:
                    return await self._settle(placed, [said])
                await asyncio.sleep(min(left, LOOK_SECONDS))
            return None

        await asyncio.gather(*map(settle, _unsaid(placed)))

    async def _settle(self, record: DecisionRecord, said: Sequence[_Said]) -> None:
        """Keeps plans; what was promised by plan is only careful where no agent keeps the plan."""
        planned = _planned(record)
        for plan, *_ in said:
            if plan.cluster in planned and not plan.claimed:
                await self._releases.downgrade(
                    record.namespace, record.name, record.id, plan.cluster, plan.message
                )
        answers = [each.plan for each in said if each.was_asked]
        if answers:
            await self._batches.put(record.id, (record.id, answers))

    async def _ask(self, cluster: str, order: PlaceOrder, timeout_seconds: float) -> _Said:
        wanted = sum(share.replicas for share in order.shares)
        by_agent = False
        if not self._agents.sees_nodes(cluster):
            plan = NodePlan(cluster=cluster, unplaced=wanted, message=str(NO_AGENT))
            return _Said(plan, by_agent, was_asked=False)
        try:
            plan = await self._agents.place(cluster, order, timeout_seconds)
        except DeadlineMissed:
            message = f"the agent did not answer within {timeout_seconds:g} s"
        except FederationError as error:
            message = error.message
        else:
            by_agent = True
            answered = plan.unplaced + sum(node.replicas for node in plan.nodes)
            if answered == wanted:
                return _Said(replace(plan, cluster=cluster), by_agent)
            message = f"the agent answered for {plural(answered, 'replica')}, not for {wanted}"
        return _Said(NodePlan(cluster=cluster, unplaced=wanted, message=message), by_agent)

    async def _write(self, batch: Sequence[tuple[str, Sequence[NodePlan]]]) -> Sequence[None]:
        async with self._store.transaction() as tx:
            await tx.decisions.put_node_plans(dict(batch))
        return [None] * len(batch)


class LabelDiscovery:
    """Asks agents what fits where their pools cannot tell; their next reports can."""

    def __init__(self, fleet: FleetOwner, agents: AgentEstimates, clock: Clock) -> None:
        self._fleet = fleet
        self._agents = agents
        self._clock = clock
        self._asked_at: dict[tuple[str, frozenset[str]], float] = {}
        self._running: set[asyncio.Task[None]] = set()

    def look(self, binding: Binding) -> None:
        """Behind a decision: ask the agents that should know of the labels it names."""
        every = [binding.requirements, *(each.requirements for each in binding.components)]
        for requirements in every:
            claim = requirements.node_claim
            if claim is None or not claim.label_keys:
                continue
            snapshot = self._fleet.snapshot
            _, reasons = snapshot.rooms.told(requirements)
            for position in reasons:
                self._ask(snapshot.names[position], claim.label_keys, requirements)

    def _ask(self, cluster: str, keys: frozenset[str], requirements: ReplicaRequirements) -> None:
        now = self._clock.now()
        asked_at = self._asked_at.get((cluster, keys))
        if asked_at is not None and now - asked_at < AGAIN_SECONDS:
            return
        if len(self._running) >= MAX_RUNNING or not self._agents.sees_nodes(cluster):
            return
        if len(self._asked_at) >= MAX_KNOWN:
            self._asked_at.clear()
        self._asked_at[cluster, keys] = now
        task = asyncio.create_task(self._teach(cluster, requirements))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _teach(self, cluster: str, requirements: ReplicaRequirements) -> None:
        # The answer is of no use: it would be older than what is decided next.
        with suppress(FederationError):
            question = ExactQuestion(shapes=(requirements,))
            await self._agents.estimate(cluster, question, ANSWER_SECONDS)


def _planned(record: DecisionRecord) -> frozenset[str]:
    """The clusters whose shares were promised by plan."""
    return frozenset(
        each.cluster for each in record.promises if each.certificate is PromiseCertificate.PLANNED
    )


def _unsaid(placed: DecisionRecord) -> frozenset[str]:
    """The clusters of those whose agents have said nothing."""
    return _planned(placed).difference(plan.cluster for plan in placed.node_plans if plan.claimed)


def _orders(record: DecisionRecord, binding: Binding) -> Mapping[str, PlaceOrder]:
    """What each target cluster's agent is asked."""
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
