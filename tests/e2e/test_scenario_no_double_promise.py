"""Twenty workloads at once on two clusters that have room for four: the rest are told so.

Whatever the number of callers and control planes. Real processes on one PostgreSQL.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.codec.bindings import binding_to_message
from federation.codec.reports import report_to_message
from federation.model.placement import (
    Binding,
    ClusterAffinity,
    DivisionPreference,
    Placement,
    ReplicaScheduling,
    SchedulingType,
)
from federation.model.workload import ReplicaRequirements
from federation.v1.agents_pb2 import ConnectRequest
from federation.v1.agents_pb2_grpc import AgentsStub
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
from tests.chaos.members import enrolled
from tests.chaos.planes import Planes, running_planes
from tests.control_planes import hello
from tests.databases import Databases
from tests.services import make_report

PLANES = 3
WORKLOADS = 20
SECONDS = 30.0
POLL_SECONDS = 0.02
# Nobody's agent is there: their reports must not grow stale while the test runs.
PATIENT = ("--heartbeat-seconds=600",)
DIVIDED = SchedulingType.DIVIDED
SCHEDULINGS = {
    "by capacity": ReplicaScheduling(type=DIVIDED, dynamic=True),
    "aggregated": ReplicaScheduling(type=DIVIDED, preference=DivisionPreference.AGGREGATED),
}

serial = itertools.count(1)


class Fleet:
    """Two clusters of a test's own, with two free cores each, and the control planes to ask."""

    def __init__(self, channels: Sequence[grpc.aio.Channel], token: str) -> None:
        number = next(serial)
        self.names = [f"member{number}a", f"member{number}b"]
        self.channels = channels
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._token = token

    async def join(self, endpoint: str) -> None:
        """Until every control plane knows what is free."""
        credentials = await enrolled(endpoint, self._token, self.names)
        for name, credential in credentials.items():
            stub: Any = AgentsStub(self.channels[0])
            report = report_to_message(make_report(cpu_millis=2000))
            call = stub.Connect(metadata=(("authorization", f"Bearer {credential}"),))
            await call.write(ConnectRequest(cluster=name, hello=hello()))
            await call.write(ConnectRequest(cluster=name, report=report))
            await call.done_writing()
            async for message in call:
                if message.WhichOneof("message") == "ack":
                    break
            call.cancel()
        deadline = time.monotonic() + SECONDS
        for channel in self.channels:
            while not await self._is_known_to(channel):
                assert time.monotonic() < deadline
                await asyncio.sleep(POLL_SECONDS)

    async def _is_known_to(self, channel: grpc.aio.Channel) -> bool:
        stub: Any = ClustersStub(channel)
        listed = await stub.ListClusters(
            ListClustersRequest(page_size=1000), metadata=self._metadata, timeout=SECONDS
        )
        reported = {
            each.metadata.name
            for each in listed.clusters
            if each.status.resource_summary.allocatable
        }
        return reported >= set(self.names)

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
    with running_planes(folder, PLANES, url, PATIENT) as started:
        yield started
        codes = started.stop()
    databases.drop(url)
    assert codes == [0] * PLANES
    assert [line for plane in started.all for line in plane.unexpected()] == []


@pytest.mark.parametrize("scheduling", SCHEDULINGS.values(), ids=SCHEDULINGS)
@pytest.mark.parametrize(
    ("count", "ask"),
    [
        (1, one_after_the_other),
        (1, all_at_once),
        (1, in_one_batch),
        (2, all_at_once),
        (3, one_after_the_other),
        (3, all_at_once),
        (3, in_a_batch_for_each),
    ],
)
async def test_four_are_placed_and_sixteen_are_told_why_not(
    planes: Planes, count: int, ask: Ask, scheduling: ReplicaScheduling
) -> None:
    channels = [grpc.aio.insecure_channel(each) for each in planes.endpoints[:count]]
    try:
        fleet = Fleet(channels, planes.token)
        await fleet.join(planes.endpoints[0])
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
    assert not any(each.queued for each in answers)
    for each in answers:
        refused = each.decision.outcome == OUTCOME_UNSCHEDULABLE
        assert bool(each.decision.reason) == refused
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
