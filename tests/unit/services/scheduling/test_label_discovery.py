"""Agents learn of the labels that bindings name and their pools do not carry."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from federation.model.workload import NodeClaim, ReplicaRequirements
from federation.scheduler.decision import Outcome
from federation.services.scheduling.bindings import Scheduling
from lab.services import WEB, Agents, apply
from tests.unit.services.conftest import StillClock

ON_SSD = ReplicaRequirements(
    request={"cpu": 100}, node_claim=NodeClaim(node_selector={"disk": "ssd"})
)
PICKY = replace(WEB, requirements=ON_SSD)


async def test_agents_are_asked_about_labels_that_their_pools_do_not_carry(
    scheduling: Scheduling, agents: Agents
) -> None:
    agents.errors = {"c": RuntimeError("is not connected")}
    refused = await apply(scheduling, PICKY)
    assert refused.record.decision.outcome is Outcome.UNSCHEDULABLE
    await asyncio.sleep(0)
    assert agents.questions.keys() == {"a", "b"}
    assert agents.questions["a"][0].shapes == (ON_SSD,)


async def test_an_agent_is_not_asked_again_and_again(
    scheduling: Scheduling, agents: Agents, clock: StillClock
) -> None:
    for number in range(3):
        await apply(scheduling, replace(PICKY, name=f"w{number}", uid=""))
        clock.time += 9
    await asyncio.sleep(0)
    assert len(agents.questions["a"]) == 1
    clock.time += 4
    await apply(scheduling, replace(PICKY, name="later", uid=""))
    await asyncio.sleep(0)
    assert len(agents.questions["a"]) == 2


async def test_nobody_is_asked_where_pools_can_tell(scheduling: Scheduling, agents: Agents) -> None:
    await apply(scheduling, WEB)
    await asyncio.sleep(0)
    assert not agents.questions
