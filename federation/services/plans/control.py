"""Plans as people create, see, approve and stop them, at any control plane.

Must not move anything.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federation.model.cluster import Cluster
from federation.model.errors import NotFound, PreconditionFailed
from federation.model.placement import Binding
from federation.plans.plan import Plan, PlanStep, StepState, cordoned_by
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.plans.drafting import Drafting, PlanWish
from federation.services.plans.search import TO_BE_EMPTIED, infeasible
from federation.services.ports import Store, Timer, Transaction
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.stated_moves import PlannedMove
from federation.services.threads import PLANNING

MAX_MOVES: Final = 5000
WATCH_SECONDS: Final = 0.5
STEPS_A_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNews:
    """A plan as it is now, and its steps that changed since the news before."""

    plan: Plan
    steps: Sequence[PlanStep]


class PlanControl:
    """Use cases of people with plans."""

    def __init__(
        self, store: Store, fleet: FleetOwner, pipeline: DecisionPipeline, clock: Timer
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._clock = clock
        self._drafting = Drafting(store, fleet, pipeline, clock)

    async def create(self, wish: PlanWish, by: str) -> tuple[Plan, Sequence[PlanStep]]:
        """Draft a plan and store it; nothing moves. Raises as ``Drafting.draft`` does."""
        plan, steps = await self._drafting.draft(wish, by)
        async with self._store.transaction() as tx:
            return await tx.plans.add(plan, steps), steps

    async def get(self, plan_id: int) -> tuple[Plan, Sequence[PlanStep]]:
        """Raises NotFound."""
        async with self._store.reading() as read:
            plan = _existing(await read.plans.get(plan_id), plan_id)
            return plan, await read.plans.steps(plan_id, limit=MAX_MOVES)

    async def page(self, older_than: int | None, limit: int) -> Sequence[Plan]:
        """Return a page of plans, the newest first."""
        async with self._store.reading() as read:
            return await read.plans.page(older_than, limit)

    async def approve(self, plan_id: int, by: str) -> Plan:
        """Let the steps of a plan begin, and cordon the clusters that it empties.

        Raises NotFound, and PreconditionFailed if it is no draft, another plan runs, or a step is
        not feasible any more.
        """
        plan, steps = await self.get(plan_id)
        now = self._clock.now()
        approved = plan.approved(by, now)
        await self._check_steps(plan, steps, now)
        async with self._store.transaction() as tx:
            running = await tx.plans.lock_running()
            # Another control plane may have been quicker.
            approved = _existing(await tx.plans.lock(plan_id), plan_id).approved(by, now)
            if running is not None:
                raise PreconditionFailed(
                    f"Plan {running.id} runs: wait for its end, or stop it.", reason="PLAN_RUNNING"
                )
            emptied = cordoned_by(plan, steps)
            cordoned = [
                cluster for name in emptied if (cluster := await _cordoned(tx, name, plan_id, by))
            ]
            if cordoned:
                await tx.journal.append([ClusterChanged(cluster=c.name) for c in cordoned])
            await tx.plans.put(approved)
        for cluster in cordoned:
            self._fleet.put_cluster(cluster)
        return approved

    async def stop(self, plan_id: int, by: str, reason: str) -> Plan:
        """Let no step begin any more; those that are moving come to their end.

        Raises NotFound, and PreconditionFailed if the plan has ended.
        """
        async with self._store.transaction() as tx:
            plan = _existing(await tx.plans.lock(plan_id), plan_id)
            plan = plan.stopped(by, self._clock.now(), reason)
            await tx.plans.put(plan)
        return plan

    async def watch(self, plan_id: int) -> AsyncGenerator[PlanNews]:
        """Yield the plan with its steps, then changes until its end. Raises NotFound."""
        version = -1
        while True:
            async with self._store.reading() as read:
                plan = _existing(await read.plans.get(plan_id), plan_id)
                steps: Sequence[PlanStep] = ()
                if plan.version > version:
                    steps = await read.plans.steps_since(plan_id, version, MAX_MOVES)
                moving = await read.plans.steps(plan_id, states=[StepState.MOVING], limit=1)
            if plan.version > version:
                for start in range(0, max(len(steps), 1), STEPS_A_MESSAGE):
                    yield PlanNews(plan=plan, steps=steps[start : start + STEPS_A_MESSAGE])
                version = plan.version
            elif plan.has_ended and not moving:
                return
            await self._clock.sleep(WATCH_SECONDS)

    async def _check_steps(self, plan: Plan, steps: Sequence[PlanStep], now: float) -> None:
        """Raise PreconditionFailed for the first step that is not feasible any more."""
        attempts = await self._drafting.attempts(
            [
                (Binding(namespace=step.namespace, name=step.name), planned_move(step))
                for step in steps
            ]
        )
        emptied = dict.fromkeys(cordoned_by(plan, steps), TO_BE_EMPTIED)
        working = self._pipeline.working().closed(emptied)
        obstacle = await PLANNING.run(infeasible, working, attempts, steps, now)
        if obstacle is not None:
            step, why = obstacle
            raise PreconditionFailed(
                f"Step {step.number} of plan {plan.id} ({step.key}) is not feasible any more: "
                f"{why}. Make another plan.",
                reason="STEP_NOT_FEASIBLE",
            )


def planned_move(step: PlanStep, reason: str = "") -> PlannedMove:
    """Return the move of a step; a ``reason`` for people replaces the step's."""
    why: Mapping[str, str] = {target.name: reason or step.reason for target in step.leaves}
    return PlannedMove(
        why=why, before=step.before, after=step.after, leaves_group=step.leaves_group
    )


def _existing(plan: Plan | None, plan_id: int) -> Plan:
    if plan is None:
        raise NotFound(f"There is no plan {plan_id}.")
    return plan


async def _cordoned(tx: Transaction, name: str, plan_id: int, by: str) -> Cluster | None:
    """Cordon and return the cluster; None if it was cordoned already, or is gone."""
    stored = await tx.clusters.lock(name)
    if stored is None or stored.cluster.cordoned:
        return None
    cordoned = replace(
        stored.cluster, cordoned=True, cordon_reason=f"plan {plan_id}", cordoned_by=by
    )
    return await tx.clusters.put(stored.id, cordoned)
