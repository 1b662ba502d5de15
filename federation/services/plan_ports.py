"""What plans need from the store.

Protocols only. Must not name a technology.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from federation.model.placement import Binding, BindingName
from federation.plans.plan import Plan, PlanStep, StepState


class StoredPlans(Protocol):
    """Plans and their steps."""

    async def add(self, plan: Plan, steps: Sequence[PlanStep]) -> Plan:
        """The plan under the id that it is kept by."""
        ...

    async def get(self, plan_id: int) -> Plan | None: ...

    async def lock(self, plan_id: int) -> Plan | None:
        """Held until the end of the transaction."""
        ...

    async def lock_running(self) -> Plan | None:
        """The plan that runs, None where there is none; no other begins to run until the end of
        the transaction.
        """
        ...

    async def put(self, plan: Plan, steps: Sequence[PlanStep] = ()) -> None:
        """In place of the one that is locked, and of its steps of these numbers."""
        ...

    async def active(self) -> Sequence[Plan]:
        """Those that run, and those of which a step is moving still, by ascending id."""
        ...

    async def page(self, before: int | None, limit: int) -> Sequence[Plan]:
        """By descending id, of those below ``before``, None: of all; without what they leave."""
        ...

    async def steps(
        self, plan_id: int, *, states: Collection[StepState] = (), after: int = 0, limit: int
    ) -> Sequence[PlanStep]:
        """By ascending number, of those above ``after``; in some states, none: in any."""
        ...

    async def steps_since(self, plan_id: int, version: int, limit: int) -> Sequence[PlanStep]:
        """Those that changed in later versions of the plan, in the order of those."""
        ...

    async def away(self, after: BindingName | None, limit: int) -> Sequence[Binding]:
        """Bindings that are placed, and not in the first of their affinity groups, by ascending
        (namespace, name); without those that only a newer release can read.
        """
        ...

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        """Forgets old plans that do not run; how many."""
        ...
