"""Plans as people make, see, approve and stop them, at any control plane.

Must not move anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from federation.model.cluster import Cluster
from federation.model.errors import NotFound, PreconditionFailed
from federation.model.placement import Binding, BindingName
from federation.plans.plan import Plan, PlanKind, PlanStep, StepState
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.plans.planning import PlannedMoves, infeasible, planned
from federation.services.ports import Clock, Store, Transaction
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.planned import PlannedMove
from federation.services.scheduling.queue import Attempt
from federation.services.threads import PLANNING

MOST_MOVES: Final = 5000
MOST_MOVES_AT_ONCE: Final = 1000
DEFAULT_MOVES_AT_ONCE: Final = 10
# So many bindings are looked at for a plan, and so many of what it leaves are kept.
MOST_LOOKED_AT: Final = 10_000
MOST_UNFIXED: Final = 1000
READ_AT_ONCE: Final = 100
WATCH_SECONDS: Final = 0.5
STEPS_A_MESSAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWish:
    """What a plan is asked for. ``clusters`` are to be empty by the end of a drain, and are those
    that a failback looks at, none: all.
    """

    kind: PlanKind
    clusters: tuple[str, ...]
    moves_at_once: int = DEFAULT_MOVES_AT_ONCE
    most_moves: int = MOST_MOVES


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNews:
    """A plan as it is now, and those of its steps that changed since it was told of last."""

    plan: Plan
    steps: Sequence[PlanStep]


class PlanControl:
    """What people do with plans."""

    def __init__(
        self, store: Store, fleet: FleetOwner, pipeline: DecisionPipeline, clock: Clock
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._pipeline = pipeline
        self._clock = clock

    async def create(self, wish: PlanWish, by: str) -> tuple[Plan, Sequence[PlanStep]]:
        """A draft, kept; nothing moves. Raises InvalidRequest for clusters that do not exist, and
        LimitExceeded when others plan already.
        """
        self._fleet.check_known(wish.clusters)
        now = self._clock.now()
        is_drain = wish.kind is PlanKind.DRAIN
        bindings, beyond = await (self._in if is_drain else self._away)(wish.clusters)
        why = {name: f"{name} is to be emptied" for name in wish.clusters if is_drain}
        attempts = [_attempt(each, PlannedMove(why=why)) for each in bindings]
        await self._read(attempts)
        if not is_drain:
            for attempt in attempts:
                _fail_back(attempt)
        working = self._pipeline.working().cordoned(why)
        moves = await PLANNING.run(planned, working, attempts, now, wish.most_moves)
        plan = _draft(wish, moves, beyond, by, now)
        async with self._store.transaction() as tx:
            return await tx.plans.add(plan, moves.steps), moves.steps

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
            emptied = _emptied(plan)
            cordoned = [each for name in emptied if (each := await _cordoned(tx, name))]
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
            await asyncio.sleep(WATCH_SECONDS)

    async def _in(self, clusters: Collection[str]) -> tuple[list[Binding], int]:
        """Bindings that are in the clusters, the first ones by name, and how many more are."""
        return await self._found(
            lambda read, after: read.failover.in_clusters(clusters, after, READ_AT_ONCE)
        )

    async def _away(self, clusters: Collection[str]) -> tuple[list[Binding], int]:
        """The same of bindings that are not in the affinity group that they prefer to all others;
        of those in some clusters, none: of all.
        """
        found, more = await self._found(lambda read, after: read.plans.away(after, READ_AT_ONCE))
        there = [
            each
            for each in found
            if not clusters or not {target.name for target in each.clusters}.isdisjoint(clusters)
        ]
        return there, more

    async def _found(
        self, page_of: Callable[[Transaction, BindingName | None], Awaitable[Sequence[Binding]]]
    ) -> tuple[list[Binding], int]:
        found: list[Binding] = []
        more = 0
        after: BindingName | None = None
        while True:
            async with self._store.reading() as read:
                page = await page_of(read, after)
            room = MOST_LOOKED_AT - len(found)
            found += page[:room]
            more += len(page[room:])
            if len(page) < READ_AT_ONCE:
                return found, more
            after = page[-1].namespace, page[-1].name

    async def _read(self, attempts: Sequence[Attempt]) -> None:
        for start in range(0, len(attempts), READ_AT_ONCE):
            await self._pipeline.read(attempts[start : start + READ_AT_ONCE])

    async def _check_steps(self, plan: Plan, steps: Sequence[PlanStep], now: float) -> None:
        """Raises PreconditionFailed for the first one that is not feasible any more."""
        attempts = [
            _attempt(Binding(namespace=step.namespace, name=step.name), planned_move(step))
            for step in steps
        ]
        await self._read(attempts)
        working = self._pipeline.working().cordoned(_emptied(plan))
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


def _fail_back(attempt: Attempt) -> None:
    """It leaves wherever it is, for a group that comes before the one that it is in."""
    group = attempt.known.observed_affinity if attempt.known else ""
    why = f"it prefers other affinity groups to {group}"
    leaves = {each.name: why for each in attempt.candidate.clusters}
    attempt.planned = PlannedMove(why=leaves, leaves_group=group)
    try:
        attempt.planned.whole(attempt.candidate)
    except PreconditionFailed as error:
        attempt.error = attempt.error or error


def _emptied(plan: Plan) -> Sequence[str]:
    return plan.clusters if plan.kind is PlanKind.DRAIN else ()


def _attempt(binding: Binding, move: PlannedMove) -> Attempt:
    return Attempt(binding=binding, is_moved=True, planned=move)


def _found(plan: Plan | None, plan_id: int) -> Plan:
    if plan is None:
        raise NotFound(f"There is no plan {plan_id}.")
    return plan


async def _cordoned(tx: Transaction, name: str) -> Cluster | None:
    """The cluster, cordoned from now on; None where it was, or is gone."""
    stored = await tx.clusters.lock(name)
    if stored is None or stored.cluster.cordoned:
        return None
    return await tx.clusters.put(stored.id, replace(stored.cluster, cordoned=True))


def _draft(wish: PlanWish, moves: PlannedMoves, beyond: int, by: str, now: float) -> Plan:
    count = len(moves.unfixed) + beyond
    return Plan(
        id=0,
        kind=wish.kind,
        clusters=wish.clusters,
        moves_at_once=wish.moves_at_once,
        step_count=len(moves.steps),
        gain=moves.gain,
        unfixed=moves.unfixed[:MOST_UNFIXED],
        unfixed_count=count,
        created_at=now,
        created_by=by,
    )
