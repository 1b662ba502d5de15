"""Asking agents for nodes after a commit: beside the answer or behind it, and never lost halfway.

Must not delay or undo a decision: it is committed before anything here begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

from federation.model.errors import LimitExceeded
from federation.model.placement import Binding
from federation.services.scheduling.agents import NodePlans
from federation.services.troubles import TOLD_AGAIN_SECONDS, Trouble
from federation.services.values import DecisionRecord, Scheduled

MAX_RUNNING = 1000
BACKGROUND_SECONDS = 30.0
# How long an agent may be away before what it was to plan is promised carefully; a new one of its
# kind needs a few seconds.
RETURN_SECONDS = 30.0
# Each looks twice a second.
MAX_AWAITED = 1_000

logger = logging.getLogger(__name__)


class NodePlacing:
    """Runs ``NodePlans.place`` in tasks that outlive the calls they come from."""

    def __init__(self, node_plans: NodePlans) -> None:
        self._node_plans = node_plans
        self._running: set[asyncio.Task[DecisionRecord]] = set()
        self._awaiting: set[asyncio.Task[None]] = set()
        often = partial(Trouble, logger, again_seconds=TOLD_AGAIN_SECONDS)
        self._unasked = often("too many decisions wait for agents")
        self._unplaced = often("node placement not stored")

    def start(
        self, record: DecisionRecord, binding: Binding, timeout_seconds: float
    ) -> asyncio.Future[DecisionRecord]:
        """The record with the agents' plans, to be awaited under ``asyncio.shield`` or not at all.

        Without plans when too many wait already, or when they could not be stored.
        """
        if len(self._running) >= MAX_RUNNING:
            self._unasked.met(LimitExceeded(f"{MAX_RUNNING} wait already"), decision=record.id)
            unplaced = asyncio.get_running_loop().create_future()
            unplaced.set_result(record)
            return unplaced
        task = asyncio.create_task(self._place(record, binding, timeout_seconds))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    def start_behind(self, decided: Iterable[Scheduled]) -> None:
        """Ask where that is still open; whoever reads the decisions later finds the answers."""
        every = [other for each in decided for other in (each, *each.others)]
        for each in self._node_plans.placeable(filter(lacks_nodes, every)):
            if each.binding is not None:
                self.start(each.record, each.binding, BACKGROUND_SECONDS)

    async def settle(self, timeout_seconds: float) -> None:
        """Wait, at most this long, until nothing runs."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_seconds)

    async def _place(
        self, record: DecisionRecord, binding: Binding, timeout_seconds: float
    ) -> DecisionRecord:
        try:
            placed = await self._node_plans.place(record, binding, timeout_seconds)
        except Exception as error:  # noqa: BLE001 - told; the decision stands
            self._unplaced.met(error, decision=record.id)
            return record
        if self._node_plans.awaits_agents(placed):
            self._await_agents(placed, binding)
        return placed

    def _await_agents(self, placed: DecisionRecord, binding: Binding) -> None:
        """Without holding up the end of this process: agents claim what they are told of anyway."""
        return_seconds = RETURN_SECONDS if len(self._awaiting) < MAX_AWAITED else 0.0
        task = asyncio.create_task(self._place_after_return(placed, binding, return_seconds))
        self._awaiting.add(task)
        task.add_done_callback(self._awaiting.discard)

    async def _place_after_return(
        self, placed: DecisionRecord, binding: Binding, return_seconds: float
    ) -> None:
        try:
            await self._node_plans.place_after_return(placed, binding, return_seconds)
        except Exception as error:  # noqa: BLE001 - told; the decision stands
            self._unplaced.met(error, decision=placed.id)


def lacks_nodes(scheduled: Scheduled) -> bool:
    """Whether the decision stands, and an agent has not said yet, or not in full, where its share
    goes.
    """
    record = scheduled.record
    settled = {plan.cluster for plan in record.node_plans if not plan.unplaced}
    return not scheduled.superseded and any(
        target.replicas > 0 and target.name not in settled for target in record.decision.clusters
    )
