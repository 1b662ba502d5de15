"""Plans as people make, see, approve and stop them, at any control plane.

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
from federation.services.scheduling.planned import PlannedMove
from federation.services.threads import PLANNING

MOST_MOVES: Final = 5000
WATCH_SECONDS: Final = 0.5
STEPS_A_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNews:
    """A plan as it is now, and those of its steps that changed since it was told of last."""

    plan: Plan
    steps: Sequence[PlanStep]


class PlanControl:
    """What people do with plans."""

    def __init__(
        self, store: Store, fleet: FleetOwner, pipeline: DecisionPipeline, clock: Timer
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._clock = clock
        self._drafting = Drafting(store, fleet, pipeline, clock)

    async def create(self, wish: PlanWish, by: str) -> tuple[Plan, Sequence[PlanStep]]:
        """A draft, kept; nothing moves. Raises as ``Drafting.draft`` does."""
        plan, steps = await self._drafting.draft(wish, by)
        async with self._store.transaction() as tx:
            return await tx.plans.add(plan, steps), steps

    async def get(self, plan_id: int) -> tuple[Plan, Sequence[PlanStep]]:
        """Raises NotFound."""
        async with self._store.reading() as read:
            plan = _found(await read.plans.get(plan_id), plan_id)
            return plan, await read.plans.steps(plan_id, limit=MOST_MOVES)

    async def page(self, before: int | None, limit: int) -> Sequence[Plan]:
        """The newest first."""
        async with self._store.reading() as read:
            return await read.plans.page(before, limit)

    async def approve(self, plan_id: int, by: str) -> Plan:
        """From now on its steps are done. Its clusters get nothing new any more.

        Raises NotFound, and PreconditionFailed where it is no draft, another plan runs, or a step
        is not feasible any more: that is named.
        """
        plan, steps = await self.get(plan_id)
        now = self._clock.now()
        approved = plan.approved(by, now)
        await self._check_steps(plan, steps, now)
        async with self._store.transaction() as tx:
            running = await tx.plans.lock_running()
            # By whoever may have been quicker.
            approved = _found(await tx.plans.lock(plan_id), plan_id).approved(by, now)
            if running is not None:
                raise PreconditionFailed(
                    f"Plan {running.id} runs: wait for its end, or stop it.", reason="PLAN_RUNNING"
                )
            emptied = cordoned_by(plan, steps)
            cordoned = [
                each for name in emptied if (each := await _cordoned(tx, name, plan_id, by))
            ]
            if cordoned:
                await tx.journal.append([ClusterChanged(cluster=each.name) for each in cordoned])
            await tx.plans.put(approved)
        for each in cordoned:
            self._fleet.put_cluster(each)
        return approved

    async def stop(self, plan_id: int, by: str, reason: str) -> Plan:
        """No step begins any more; those that are moving come to their end. Raises NotFound, and
        PreconditionFailed where it has ended.
        """
        async with self._store.transaction() as tx:
            plan = _found(await tx.plans.lock(plan_id), plan_id)
            plan = plan.stopped(by, self._clock.now(), reason)
            await tx.plans.put(plan)
        return plan

    async def watch(self, plan_id: int) -> AsyncGenerator[PlanNews]:
        """Everything first, then what changes, until nothing can any more. Raises NotFound."""
        known = -1
        while True:
            async with self._store.reading() as read:
                plan = _found(await read.plans.get(plan_id), plan_id)
                steps: Sequence[PlanStep] = ()
                if plan.version > known:
                    steps = await read.plans.steps_since(plan_id, known, MOST_MOVES)
                moving = await read.plans.steps(plan_id, states=[StepState.MOVING], limit=1)
            if plan.version > known:
                for start in range(0, max(len(steps), 1), STEPS_A_MESSAGE):
                    yield PlanNews(plan=plan, steps=steps[start : start + STEPS_A_MESSAGE])
                known = plan.version
            elif plan.has_ended and not moving:
                return
            await self._clock.sleep(WATCH_SECONDS)

    async def _check_steps(self, plan: Plan, steps: Sequence[PlanStep], now: float) -> None:
        """Raises PreconditionFailed for the first one that is not feasible any more."""
        attempts = await self._drafting.attempts(
            [
                (Binding(namespace=step.namespace, name=step.name), planned_move(step))
                for step in steps
            ]
        )
        emptied = dict.fromkeys(cordoned_by(plan, steps), TO_BE_EMPTIED)
        working = self._pipeline.working().closed(emptied)
        found = await PLANNING.run(infeasible, working, attempts, steps, now)
        if found is not None:
            step, why = found
            raise PreconditionFailed(
                f"Step {step.number} of plan {plan.id} ({step.key}) is not feasible any more: "
                f"{why}. Make another plan.",
                reason="STEP_NOT_FEASIBLE",
            )


def planned_move(step: PlanStep, reason: str = "") -> PlannedMove:
    """What a step moves; ``reason``: why, for people, where it is not the step's."""
    why: Mapping[str, str] = {each.name: reason or step.reason for each in step.leaves}
    return PlannedMove(
        why=why, before=step.before, after=step.after, leaves_group=step.leaves_group
    )


def _found(plan: Plan | None, plan_id: int) -> Plan:
    if plan is None:
        raise NotFound(f"There is no plan {plan_id}.")
    return plan


async def _cordoned(tx: Transaction, name: str, plan_id: int, by: str) -> Cluster | None:
    """The cluster, cordoned from now on; None where it was, or is gone."""
    stored = await tx.clusters.lock(name)
    if stored is None or stored.cluster.cordoned:
        return None
    cordoned = replace(
        stored.cluster, cordoned=True, cordon_reason=f"plan {plan_id}", cordoned_by=by
    )
    return await tx.clusters.put(stored.id, cordoned)
