"""The steps of approved plans: each reserves capacity before it leaves, and ends by an echo.

Must not choose where anything goes: the plan says so, and an ordinary decision has to agree.
Belongs to the event loop of the control plane with the duty. Its state is stored, so that another
control plane can go on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from federation.failover.moves import PLANNED_MOVE
from federation.model.errors import (
    Conflict,
    FederationError,
    LimitExceeded,
    NotFound,
    PreconditionFailed,
    Unavailable,
)
from federation.model.placement import Binding, BindingName
from federation.plans.plan import Plan, PlanStep, StepState, steps_to_begin
from federation.services.duties import Begin, Duty
from federation.services.fleet.registry import FleetOwner
from federation.services.plans.control import planned_move
from federation.services.ports import Clock, Store
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.release import ReleaseService
from federation.services.scheduling.stated_moves import UndoneEviction
from federation.services.troubles import tell
from federation.services.values import PlacedObserver, Scheduled

# Errors that pass: the step is tried again.
PASSING: Final = (Conflict, LimitExceeded, Unavailable)
BEGUN_AT_ONCE: Final = 100
LOOKED_AT_ONCE: Final = 1000
STILL_THERE: Final = "its pods are still in {clusters}, although what replaces them runs"
BOTH_STAY: Final = "{}; it cannot be taken back, and stays in {} until that runs"
NOT_SEEN: Final = "what replaces it was not seen on nodes within {seconds:.0f} s"

logger = logging.getLogger(__name__)

_Bindings: TypeAlias = Mapping[BindingName, Binding]


class CarryingOut:
    """One control plane's part in carrying out plans.

    A new share may take ``max_seconds`` to run, and the old one as long to go then. ``placed`` is
    called after the commit of each move, so that agents are asked for nodes.
    """

    def __init__(
        self,
        store: Store,
        fleet: FleetOwner,
        pipeline: DecisionPipeline,
        releases: ReleaseService,
        clock: Clock,
        placed: PlacedObserver,
        *,
        max_seconds: float,
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._releases = releases
        self._clock = clock
        self._placed = placed
        self._max_seconds = max_seconds
        self.duty = Duty(name="plans", work=self._carry_out)

    async def _carry_out(self, begin: Begin) -> int:
        """Follow moving steps and begin others; return how many steps changed."""
        async with self._store.reading() as read:
            plans = await read.plans.active()
            freeze = (await read.failover.get()).freeze if plans else None
        changed = 0
        for plan in plans:
            changed += await self._follow(begin, plan)
            if freeze is not None and not plan.has_ended:
                why = f"failover is frozen by {freeze.by}: {freeze.reason}"
                await self._keep(begin, plan, (), stop=why)
            elif not plan.has_ended:
                changed += await self._go_on(begin, plan)
        return changed

    async def _follow(self, begin: Begin, plan: Plan) -> int:
        """End moving steps where they can; return how many ended."""
        async with self._store.reading() as read:
            moving = await read.plans.steps(
                plan.id, states=[StepState.MOVING], limit=plan.limits.moves_at_once
            )
            stored = await read.bindings.find([step.binding for step in moving]) if moving else {}
        bindings = {name: row.binding for name, row in stored.items()}
        sources = {target.name for step in moving for target in step.leaves}
        await self._pipeline.following.read_unknown(sources)
        outcomes = [end for step in moving if (end := self._outcome(step, bindings)) is not None]
        ended = [end for step in outcomes if (end := await self._end(step, bindings)) is not None]
        late = [step for step in ended if step.state is StepState.FAILED]
        if ended:
            why = f"step {late[0].number} ({late[0].key}): {late[0].message}" if late else ""
            await self._keep(begin, plan, ended, stop=why)
        return len(ended)

    def _outcome(self, step: PlanStep, bindings: _Bindings) -> PlanStep | None:
        """Return the step as it has ended, None while it goes on."""
        now = self._clock.now()
        binding = bindings.get(step.binding)
        if binding is None:
            return _ended(step, StepState.DONE, now, "the binding was deleted")
        sources = {target.name for target in step.leaves}
        if not any(task.from_cluster in sources for task in binding.eviction_tasks):
            if not sources.isdisjoint(target.name for target in binding.clusters):
                return _ended(step, StepState.SKIPPED, now, "others have moved it back")
            if staying := [name for name in sorted(sources) if self._pods(step.key, name)]:
                if now - (step.began_at or now) < 2 * self._max_seconds:
                    return None
                why = STILL_THERE.format(clusters=", ".join(staying))
                return _ended(step, StepState.FAILED, now, why)
            is_elsewhere = set(binding.clusters) != set(step.after)
            message = "others have moved it on meanwhile" if is_elsewhere else ""
            return _ended(step, StepState.DONE, now, message)
        if now - (step.began_at or now) < self._max_seconds:
            return None
        return _ended(step, StepState.FAILED, now, NOT_SEEN.format(seconds=self._max_seconds))

    def _pods(self, key: str, cluster: str) -> int:
        """Return how many of its pods the cluster's agent saw last, on nodes or not."""
        if not self._fleet.has(cluster):
            return 0
        return self._fleet.ledger(cluster).seen_of(key)

    async def _end(self, step: PlanStep, bindings: _Bindings) -> PlanStep | None:
        """Clean up after a step that has ended, and return it; None: that has to be tried again."""
        stays: set[str] = set()
        if step.state is StepState.FAILED:
            try:
                stays = await self._not_taken_back(bindings[step.binding], step)
            except PASSING as error:
                logger.info("move not taken back yet", extra={"fields": _fields(step, error)})
                return None
        # Agents need not look for pods where the binding is no more.
        for target in step.leaves:
            if target.name not in stays:
                await self._releases.stop_watching(step.binding, target.name)
        if not stays:
            return step
        return replace(step, message=BOTH_STAY.format(step.message, ", ".join(sorted(stays))))

    async def _not_taken_back(self, binding: Binding, step: PlanStep) -> set[str]:
        """Take moves back whose replacement does not run, and return the clusters where it failed.

        There the share runs until its replacement does. Raises errors that pass.
        """
        sources = {target.name for target in step.leaves}
        stays: set[str] = set()
        for task in binding.eviction_tasks:
            if task.reason != PLANNED_MOVE or task.from_cluster not in sources:
                continue
            stays.add(task.from_cluster)
            try:
                scheduled = await self._pipeline.move(binding, UndoneEviction(task=task))
            except PASSING:
                raise
            except FederationError as error:
                logger.info("move not taken back", extra={"fields": _fields(step, error)})
                continue
            if scheduled.binding is not None:
                stays.remove(task.from_cluster)
                tell([self._placed], [scheduled])
        return stays

    async def _go_on(self, begin: Begin, plan: Plan) -> int:
        """Begin as many steps as may be moving; return how many were begun or skipped."""
        async with self._store.reading() as read:
            moving = await read.plans.steps(
                plan.id, states=[StepState.MOVING], limit=plan.limits.moves_at_once
            )
            # Some steps have to wait for their clusters, and others behind them need not.
            pending = await read.plans.steps(
                plan.id, states=[StepState.PENDING], limit=LOOKED_AT_ONCE
            )
        if not pending and not moving:
            await self._keep(begin, plan, (), is_done=True)
        steps = steps_to_begin(plan.limits, moving, pending)[:BEGUN_AT_ONCE]
        begun = await asyncio.gather(*(self._begin(plan, step) for step in steps))
        changed = [step for step in begun if step is not None]
        if changed:
            await self._keep(begin, plan, changed)
        return len(changed)

    async def _begin(self, plan: Plan, step: PlanStep) -> PlanStep | None:
        """Return the step as moving or skipped; None: it has to be tried again."""
        now = self._clock.now()
        name = Binding(namespace=step.namespace, name=step.name)
        reason = f"{step.reason} (plan {plan.id}, step {step.number})"
        try:
            scheduled = await self._pipeline.move(name, planned_move(step, reason))
        except PASSING as error:
            logger.info("step not begun yet", extra={"fields": _fields(step, error)})
            return None
        except NotFound:
            return _ended(step, StepState.DONE, now, "the binding was deleted")
        except PreconditionFailed as error:
            if await self._was_begun(step):
                return replace(step, state=StepState.MOVING, began_at=now)
            return _ended(step, StepState.SKIPPED, now, error.message)
        if set(_clusters(scheduled)) != set(step.after):
            return _ended(step, StepState.SKIPPED, now, str(scheduled.record.decision.reason))
        tell([self._placed], [scheduled])
        return replace(step, state=StepState.MOVING, began_at=now)

    async def _was_begun(self, step: PlanStep) -> bool:
        """Whether the last control plane with the duty began it, and died before it was stored."""
        async with self._store.reading() as read:
            stored = await read.bindings.get(*step.binding)
        return stored is not None and set(stored.binding.clusters) == set(step.after)

    async def _keep(
        self,
        begin: Begin,
        plan: Plan,
        steps: Sequence[PlanStep],
        *,
        stop: str = "",
        is_done: bool = False,
    ) -> None:
        """Store steps, and the state of the plan unless people have stopped it."""
        now = self._clock.now()
        async with begin() as tx:
            current = await tx.plans.lock(plan.id)
            if current is None:
                return
            newer = replace(current, version=current.version + 1)
            if not current.has_ended and stop:
                newer = current.stopped("fedsched", now, stop)
            elif not current.has_ended and is_done:
                newer = current.done(now)
            await tx.plans.put(newer, steps)
        if newer.state is not current.state:
            fields = {"plan": plan.id, "state": newer.state.value, "why": newer.reason}
            logger.info("plan ended", extra={"fields": fields})


def _ended(step: PlanStep, state: StepState, now: float, message: str) -> PlanStep:
    return replace(step, state=state, ended_at=now, message=message)


def _clusters(scheduled: Scheduled) -> Sequence[object]:
    return scheduled.binding.clusters if scheduled.binding else ()


def _fields(step: PlanStep, error: Exception) -> Mapping[str, object]:
    return {"binding": step.key, "step": step.number, "why": str(error)}
