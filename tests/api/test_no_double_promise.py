"""Twenty workloads at once on two clusters that have room for four: the rest are told so.

Whatever the number of callers, and of control planes on one database.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from federation.v1.resource_pb2 import ClusterPreferences, ReplicaSchedulingStrategy
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    ScheduleBatchItem,
)
from lab.control_planes import Plane, running_control_plane
from lab.patience import until
from tests.api.calls import AGGREGATED
from tests.api.world import World, shares

WORKLOADS = 20
# What is lacking: known while it was decided, or noticed while it was committed.
LACK = re.compile(r"0 replicas are available, 1 wanted|0 of 1 replicas find room")
BY_CAPACITY = ReplicaSchedulingStrategy(
    replica_scheduling_type="Divided",
    weight_preference=ClusterPreferences(dynamic_weight="AvailableReplicas"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def planes(
    plane: Plane, module_database_url: str, module_folder: Path
) -> AsyncIterator[list[Plane]]:
    """Three control planes on one database."""
    async with AsyncExitStack() as stack:
        others = [running_control_plane(module_database_url, module_folder) for _ in range(2)]
        yield [plane, *[await stack.enter_async_context(each) for each in others]]


async def is_known(plane: Plane) -> bool:
    """Whether it counts on both clusters."""
    listed = (await plane.ask("ListClusters")).clusters
    ready = [each for each in listed if each.status.conditions[0].status == "True"]
    return sum("cpu" in each.status.resource_summary.allocatable for each in ready) == 2


async def asked(world: World, planes: Sequence[Plane], how: str, division: Any) -> list[Any]:
    """The answers about all workloads, of which each asks for a core."""
    workloads = [
        world.workload(f"w{number}", placement={"replica_scheduling": division})
        for number in range(WORKLOADS)
    ]
    count = len(planes)
    if how == "in batches":
        batches = (
            plane.ask(
                "ScheduleBatch",
                items=[ScheduleBatchItem(binding=each) for each in workloads[number::count]],
            )
            for number, plane in enumerate(planes)
        )
        return [each for answer in await asyncio.gather(*batches) for each in answer.results]
    calls = [
        planes[number % count].ask("Schedule", binding=each)
        for number, each in enumerate(workloads)
    ]
    if how == "one after the other":
        return [await call for call in calls]
    return list(await asyncio.gather(*calls))


@pytest.mark.parametrize(
    ("count", "how", "division"),
    [
        (1, "one after the other", BY_CAPACITY),
        (1, "all at once", BY_CAPACITY),
        (1, "in batches", BY_CAPACITY),
        (2, "all at once", BY_CAPACITY),
        (3, "one after the other", BY_CAPACITY),
        (3, "all at once", BY_CAPACITY),
        (3, "all at once", AGGREGATED),
        (3, "in batches", AGGREGATED),
    ],
)
async def test_four_are_placed_and_sixteen_are_told_why_not(
    world: World, planes: list[Plane], count: int, how: str, division: Any
) -> None:
    await world.clusters(a=2, b=2)
    for plane in planes:
        await until(partial(is_known, plane), bool)
    answers = await asked(world, planes[:count], how, division)
    outcomes = Counter(each.decision.outcome for each in answers)
    assert outcomes == {OUTCOME_SCHEDULED: 4, OUTCOME_UNSCHEDULABLE: 16}
    placed = Counter(each.name for answer in answers for each in answer.decision.clusters)
    assert placed == {"a": 2, "b": 2}
    for answer in answers:
        is_refused = answer.decision.outcome == OUTCOME_UNSCHEDULABLE
        assert answer.queued == is_refused == answer.decision.remainder
        assert bool(LACK.search(answer.decision.reason)) == is_refused, answer.decision.reason
        # Every control plane says the same: what was placed is held, and no more.
        named = {"namespace": world.namespace, "name": answer.decision.name}
        for plane in planes:
            found = await plane.ask("GetBinding", **named)
            assert found.decision.id == answer.decision.id
            held = {each.cluster: each.outstanding for each in found.reservations}
            assert held == shares(answer.decision.clusters)
            assert all(each.certificate == "careful" for each in found.reservations)
