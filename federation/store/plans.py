"""Plans and their steps: rows, and statements over them.

Must not decide what becomes of a plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Select,
    Text,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.placement import Binding, BindingName
from federation.plans.plan import Plan, PlanState, PlanStep, StepState
from federation.store.bindings import name_of, plain_binding
from federation.store.lists import is_one_of
from federation.store.plan_rows import PLAN_STEPS, PLANS
from federation.store.plan_tables import plan as table
from federation.store.plan_tables import plan_step as step_table
from federation.store.readable_rows import readable_page
from federation.store.statements import named
from federation.store.tables import binding

LOCK_RUNNING = text(
    "SELECT /* fedsched:plans.lock_running */ "
    "pg_advisory_xact_lock(hashtextextended('fedsched plan', 0))"
)
PUT_STEPS = text("""
    INSERT /* fedsched:plans.put_steps */ INTO plan_step (plan_id, number, state, version, body)
    SELECT :plan_id, number, state, version, body::jsonb
    FROM unnest(:numbers, :states, :versions, :bodies) AS given (number, state, version, body)
    ON CONFLICT (plan_id, number) DO UPDATE
    SET state = excluded.state, version = excluded.version, body = excluded.body
""").bindparams(
    bindparam("plan_id", type_=BigInteger),
    *(bindparam(name, type_=ARRAY(BigInteger)) for name in ("numbers", "versions")),
    *(bindparam(name, type_=ARRAY(Text)) for name in ("states", "bodies")),
)
# As the indexes have them.
IS_RUNNING = table.c.state == literal_column(f"'{PlanState.RUNNING}'")
IS_MOVING = step_table.c.state == literal_column(f"'{StepState.MOVING}'")
# A list does without what it would not show.
LISTED = (table.c.id, literal_column("body - 'unfixed'", JSONB).label("body"))
# So many are encoded, or decoded, in less than 10 ms; then it is others' turn on the event loop.
ROWS_AT_ONCE = 500


class PlanStatements:
    """Implements ``plan_ports.StoredPlans`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, plan: Plan, steps: Sequence[PlanStep]) -> Plan:
        created_at = datetime.fromtimestamp(plan.created_at, tz=UTC)
        statement = insert(table).values(created_at=created_at, **_columns(plan))
        added = await self._connection.execute(named("plans.add", statement.returning(table.c.id)))
        plan = replace(plan, id=added.scalar_one())
        await self._put_steps(plan, steps)
        return plan

    async def get(self, plan_id: int) -> Plan | None:
        return await self._one(named("plans.get", select(table).where(table.c.id == plan_id)))

    async def lock(self, plan_id: int) -> Plan | None:
        locked = select(table).where(table.c.id == plan_id).with_for_update()
        return await self._one(named("plans.lock", locked))

    async def lock_running(self) -> Plan | None:
        await self._connection.execute(LOCK_RUNNING)
        running = select(table).where(IS_RUNNING)
        return await self._one(named("plans.running", running))

    async def put(self, plan: Plan, steps: Sequence[PlanStep] = ()) -> None:
        statement = update(table).where(table.c.id == plan.id).values(**_columns(plan))
        await self._connection.execute(named("plans.put", statement))
        await self._put_steps(plan, [replace(step, version=plan.version) for step in steps])

    async def active(self) -> Sequence[Plan]:
        moving = select(step_table.c.plan_id).where(IS_MOVING)
        is_active = or_(IS_RUNNING, table.c.id.in_(moving))
        rows = await self._connection.execute(
            named("plans.active", select(table).where(is_active).order_by(table.c.id))
        )
        return [_plan(row) for row in rows]

    async def page(self, before_id: int | None, limit: int) -> Sequence[Plan]:
        statement = select(*LISTED).order_by(table.c.id.desc()).limit(limit)
        if before_id is not None:
            statement = statement.where(table.c.id < before_id)
        return [
            _plan(row) for row in await self._connection.execute(named("plans.page", statement))
        ]

    async def steps(
        self, plan_id: int, *, states: Collection[StepState] = (), after: int = 0, limit: int
    ) -> Sequence[PlanStep]:
        statement = _steps_of(plan_id).where(step_table.c.number > after)
        if states:
            statement = statement.where(is_one_of(step_table.c.state, sorted(states)))
        ordered = statement.order_by(step_table.c.number).limit(limit)
        return await self._steps(named("plans.steps", ordered))

    async def steps_since(self, plan_id: int, version: int, limit: int) -> Sequence[PlanStep]:
        statement = _steps_of(plan_id).where(step_table.c.version > version)
        ordered = statement.order_by(step_table.c.version, step_table.c.number)
        return await self._steps(named("plans.steps_since", ordered.limit(limit)))

    async def away(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        first = binding.c.spec["placement"]["affinity_groups"][0]["name"].astext
        statement = named(
            "plans.away",
            select(binding)
            .where(
                binding.c.observed_affinity != "",
                binding.c.observed_affinity != first,
                binding.c.clusters != text("'[]'"),
            )
            .order_by(binding.c.namespace, binding.c.name),
        )

        def rows_after(last: BindingName | None) -> Select[Any]:
            name = tuple_(binding.c.namespace, binding.c.name)
            return statement if last is None else statement.where(name > last)

        return await readable_page(
            self._connection, rows_after, after, limit, plain_binding, name_of
        )

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        moving = select(step_table.c.plan_id).where(IS_MOVING)
        old = (
            select(table.c.id)
            .where(
                table.c.created_at < func.now() - timedelta(seconds=older_than_seconds),
                ~IS_RUNNING,
                table.c.id.not_in(moving),
            )
            .order_by(table.c.id)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        statement = delete(table).where(table.c.id.in_(old)).returning(table.c.id)
        return len((await self._connection.execute(named("plans.prune", statement))).all())

    async def _one(self, statement: Select[Any]) -> Plan | None:
        row = (await self._connection.execute(statement.limit(1))).one_or_none()
        return None if row is None else _plan(row)

    async def _steps(self, statement: Select[Any]) -> Sequence[PlanStep]:
        rows = (await self._connection.execute(statement)).all()
        steps: list[PlanStep] = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            part = rows[start : start + ROWS_AT_ONCE]
            steps += (PLAN_STEPS.read(row.body) for row in part)
            await asyncio.sleep(0)
        return steps

    async def _put_steps(self, plan: Plan, steps: Sequence[PlanStep]) -> None:
        for start in range(0, len(steps), ROWS_AT_ONCE):
            rows = steps[start : start + ROWS_AT_ONCE]
            columns = {
                "plan_id": plan.id,
                "numbers": [step.number for step in rows],
                "states": [step.state.value for step in rows],
                "versions": [step.version for step in rows],
                "bodies": [PLAN_STEPS.json(step) for step in rows],
            }
            await self._connection.execute(PUT_STEPS, columns)


def _steps_of(plan_id: int) -> Select[Any]:
    return select(step_table.c.body).where(step_table.c.plan_id == plan_id)


def _columns(plan: Plan) -> dict[str, object]:
    return {"state": plan.state, "body": PLANS.builtins(plan)}


def _plan(row: Any) -> Plan:
    return replace(PLANS.read(row.body), id=row.id)
