"""Twenty workloads at once on two clusters that have room for four: the rest are told so.

Whatever the number of callers and control planes. Real processes on one PostgreSQL.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from federation.capacity.cluster_room import ReportId
from federation.codec.bindings import binding_to_message
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements
from federation.v1.clusters_pb2 import ListClustersRequest
from federation.v1.clusters_pb2_grpc import ClustersStub
from federation.v1.scheduling_pb2 import (
    OUTCOME_SCHEDULED,
    OUTCOME_UNSCHEDULABLE,
    GetBindingRequest,
    ScheduleBatchItem,
    ScheduleBatchRequest,
    ScheduleRequest,
)
from federation.v1.scheduling_pb2_grpc import SchedulingStub
from lab.callers import enrolled
from lab.chaos.members import Member
from lab.chaos.slow_ledger import SeenReport
from lab.databases import Databases
from lab.packed_clusters import GIB
from lab.patience import PATIENCE_SECONDS
from lab.planes import Planes, running_planes

PLANES = 3
WORKLOADS = 20
SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.02
# What is lacking: known while it was decided, or noticed while it was committed.
LACK = re.compile(r"0 replicas are available, 1 wanted|0 of 1 replicas find room")
REPORT_SECONDS = 1.0
# Control planes tell each other three times as often which agents they hear.
PACE = ("--heartbeat-seconds=3",)
DIVIDED = SchedulingType.DIVIDED
BY_CAPACITY = ReplicaScheduling(type=DIVIDED, dynamic=True)
AGGREGATED = ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED)
# One node, in the order of RESOURCES.
TWO_CORES = np.array([[2000], [16 * GIB], [110], [100 * GIB], [0]], dtype=np.int64)

serial = itertools.count(1)


class Fleet:
    """Two clusters of a test's own, with two free cores each, and the control planes to ask."""

    def __init__(self, channels: Sequence[grpc.aio.Channel], token: str) -> None:
        number = next(serial)
        self.names = [f"member{number}a", f"member{number}b"]
        self.channels = channels
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._token = token

    @asynccontextmanager
    async def joined(self, endpoints: Sequence[str]) -> AsyncIterator[None]:
        """Agents are connected, each to one of the control planes, and all know what is free."""
        credentials = await enrolled(endpoints[0], self._token, self.names)
        sent: dict[tuple[str, ReportId], SeenReport] = {}
        living = [
            asyncio.create_task(
                Member(name, TWO_CORES, sent, seed=1, report_seconds=REPORT_SECONDS).live(
                    lambda: list(endpoints), credentials[name]
                )
            )
            for name in self.names
        ]
        try:
            async with asyncio.timeout(SECONDS):
                for channel in self.channels:
                    while not await self._are_known_to(channel):  # noqa: ASYNC110 - asked for
                        await asyncio.sleep(POLL_SECONDS)
            yield
        finally:
            for each in living:
                each.cancel()
            await asyncio.gather(*living, return_exceptions=True)

    async def _are_known_to(self, channel: grpc.aio.Channel) -> bool:
        stub: Any = ClustersStub(channel)
        listed = await stub.ListClusters(
            ListClustersRequest(page_size=1000), metadata=self._metadata, timeout=SECONDS
        )
        ready = {
            each.metadata.name
            for each in listed.clusters
            if each.status.resource_summary.allocatable
            and each.status.agent.connected
            and each.status.conditions[0].status == "True"
        }
        return ready >= set(self.names)

    async def call(self, method: str, request: Any, plane: int = 0) -> Any:
        stub: Any = SchedulingStub(self.channels[plane])
        return await getattr(stub, method)(request, metadata=self._metadata, timeout=SECONDS)

    def binding(self, number: int, scheduling: ReplicaScheduling) -> Any:
        """One replica that needs a core, in one of the two clusters."""
        binding = Binding(
            namespace="shop",
            name=f"{self.names[0]}-{number}",
            replicas=1,
            requirements=ReplicaRequirements(request={"cpu": 1000}),
            placement=Placement(
                affinity=ClusterAffinity(cluster_names=tuple(self.names)),
                replica_scheduling=scheduling,
            ),
        )
        return binding_to_message(binding)


Ask = Callable[[Fleet, ReplicaScheduling], Awaitable[list[Any]]]


async def one_after_the_other(fleet: Fleet, scheduling: ReplicaScheduling) -> list[Any]:
    return [await schedule(fleet, number, scheduling) for number in range(WORKLOADS)]


async def all_at_once(fleet: Fleet, scheduling: ReplicaScheduling) -> list[Any]:
    """Twenty callers, the control planes in turn."""
    calls = [schedule(fleet, number, scheduling) for number in range(WORKLOADS)]
    return list(await asyncio.gather(*calls))


async def in_one_batch(fleet: Fleet, scheduling: ReplicaScheduling) -> list[Any]:
    return await in_batches(fleet, scheduling, 1)


async def in_a_batch_for_each(fleet: Fleet, scheduling: ReplicaScheduling) -> list[Any]:
    return await in_batches(fleet, scheduling, len(fleet.channels))


async def in_batches(fleet: Fleet, scheduling: ReplicaScheduling, planes: int) -> list[Any]:
    def request(plane: int) -> ScheduleBatchRequest:
        numbers = range(plane, WORKLOADS, planes)
        items = [ScheduleBatchItem(binding=fleet.binding(each, scheduling)) for each in numbers]
        return ScheduleBatchRequest(items=items)

    answers = await asyncio.gather(
        *(fleet.call("ScheduleBatch", request(plane), plane) for plane in range(planes))
    )
    return [result for answer in answers for result in answer.results]


async def schedule(fleet: Fleet, number: int, scheduling: ReplicaScheduling) -> Any:
    request = ScheduleRequest(binding=fleet.binding(number, scheduling))
    return await fleet.call("Schedule", request, number % len(fleet.channels))


@pytest.fixture(scope="module")
def planes(
    databases: Databases, template_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planes]:
    """Three control planes that all tests share, on a database of their own."""
    url = databases.create("scenario", template=template_url)
    folder: Path = tmp_path_factory.mktemp("planes")
    with running_planes(folder, PLANES, url, PACE) as started:
        yield started
        codes = started.stop()
    databases.drop(url)
    assert codes == [0] * PLANES
    assert [line for plane in started.all for line in plane.unexpected()] == []


@pytest.mark.parametrize(
    ("count", "ask", "scheduling"),
    [
        (1, one_after_the_other, BY_CAPACITY),
        (1, all_at_once, BY_CAPACITY),
        (1, in_one_batch, BY_CAPACITY),
        (2, all_at_once, BY_CAPACITY),
        (3, one_after_the_other, BY_CAPACITY),
        (3, all_at_once, BY_CAPACITY),
        (3, all_at_once, AGGREGATED),
        (3, in_a_batch_for_each, AGGREGATED),
    ],
)
async def test_four_are_placed_and_sixteen_are_told_why_not(
    planes: Planes, count: int, ask: Ask, scheduling: ReplicaScheduling
) -> None:
    channels = [grpc.aio.insecure_channel(each) for each in planes.endpoints[:count]]
    try:
        fleet = Fleet(channels, planes.token)
        async with fleet.joined(planes.endpoints):
            answers = await ask(fleet, scheduling)
            check(answers)
            await check_what_is_held(fleet, answers)
    finally:
        for channel in channels:
            await channel.close()


def check(answers: Sequence[Any]) -> None:
    outcomes = Counter(each.decision.outcome for each in answers)
    assert outcomes == {OUTCOME_SCHEDULED: 4, OUTCOME_UNSCHEDULABLE: 16}
    where = Counter(
        target.name for each in answers for target in each.decision.clusters if target.replicas
    )
    assert sorted(where.values()) == [2, 2]
    for each in answers:
        refused = each.decision.outcome == OUTCOME_UNSCHEDULABLE
        assert each.queued == refused
        assert bool(LACK.search(each.decision.reason)) == refused, each.decision.reason
        assert each.decision.remainder == refused
        assert each.decision.id


async def check_what_is_held(fleet: Fleet, answers: Sequence[Any]) -> None:
    """Every control plane says the same of every binding: what was placed is held, no more."""
    for each in answers:
        decision = each.decision
        request = GetBindingRequest(namespace=decision.namespace, name=decision.name)
        told = [await fleet.call("GetBinding", request, plane) for plane in planes_of(fleet)]
        for found in told:
            assert found.decision.id == decision.id
            assert {held.cluster: held.outstanding for held in found.reservations} == {
                target.name: target.replicas for target in decision.clusters
            }
            assert all(held.certificate == "careful" for held in found.reservations)


def planes_of(fleet: Fleet) -> range:
    return range(len(fleet.channels))
