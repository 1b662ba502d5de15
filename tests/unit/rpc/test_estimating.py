"""Large fleets are estimated by a process, which answers as the control plane itself would."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest

from federation.model.cluster import Cluster
from federation.model.errors import InvalidRequest
from federation.model.estimate import EstimateOptions
from federation.model.workload import ReplicaRequirements
from federation.rpc import estimating
from federation.rpc.calls import call_as
from federation.rpc.estimates import EstimatesServicer
from federation.rpc.estimating import EstimatingProcess, Wanted
from federation.services.estimates.availability import Availability
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ClusterChanged
from federation.services.values import Principal, PrincipalKind
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from federation.v1.estimates_pb2 import EstimateReplicasRequest
from lab.fleet import report_of
from lab.patience import until

CLUSTERS = 5


class FixedClock:
    def now(self) -> float:
        return 50.0


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> FleetOwner:
    monkeypatch.setattr(estimating, "WORTH_CLUSTERS", CLUSTERS)
    owner = FleetOwner(PostgresStore(create_engine("postgresql://unused")))
    for number in range(CLUSTERS):
        owner.put_cluster(Cluster(name=f"c{number}"))
        owner.put_report(f"c{number}", report_of(number), 1.0)
    # A fixture sets it for all tests that come after it in this process.
    monkeypatch.setattr("federation.rpc.calls._caller", ContextVar("caller of a test"))
    call_as(Principal(kind=PrincipalKind.ADMIN))
    return owner


@pytest.fixture
def beside(owner: FleetOwner) -> Availability:
    """The one that the process works for."""
    return availability_of(owner)


@pytest.fixture
async def process(owner: FleetOwner, beside: Availability) -> AsyncIterator[EstimatingProcess]:
    made = EstimatingProcess(owner, beside, FixedClock())
    yield made
    await made.close()


class NoDeadline:
    """The context of a call."""

    def time_remaining(self) -> None:
        return None


CONTEXT: Any = NoDeadline()


def availability_of(owner: FleetOwner) -> Availability:
    return Availability(owner, None, FixedClock())  # type: ignore[arg-type] - asks no agents


def request(*clusters: str, shapes: int = 1, **options: Any) -> EstimateReplicasRequest:
    asked = EstimateReplicasRequest(
        clusters=clusters, include_cluster_names=True, include_upper_bounds=True, **options
    )
    for number in range(shapes):
        asked.shapes.add().resource_request["cpu"] = f"{300 + number}m"
    return asked


async def test_the_process_answers_as_the_control_plane(
    owner: FleetOwner,
    beside: Availability,
    process: EstimatingProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = availability_of(owner)
    with_process, without = EstimatesServicer(beside, process), EstimatesServicer(alone)
    is_asked = asyncio.Event()
    answer = process.answer

    async def seen(asked: Any, seconds: Any) -> Any:
        response = await answer(asked, seconds)
        if response is not None:
            is_asked.set()
        return response

    monkeypatch.setattr(process, "answer", seen)

    async def both(asked: EstimateReplicasRequest) -> None:
        found = await with_process.EstimateReplicas(asked, CONTEXT)
        assert found == await without.EstimateReplicas(asked, CONTEXT)

    async def has_answered() -> bool:
        await both(request())
        # What is answered at once gives the process no time to start.
        await asyncio.sleep(0.01)
        return is_asked.is_set()

    await until(has_answered, bool)
    beside.answered[:] = alone.answered[:] = 0
    await both(request("c3", "c1"))
    await both(request(shapes=4))
    owner.remove("c2")
    owner.put_cluster(Cluster(name="new"))
    await both(request())
    await both(request("new", "c0"))
    assert (beside.answered == alone.answered).all()
    for servicer in (with_process, without):
        with pytest.raises(InvalidRequest, match="no cluster 'c2'"):
            await servicer.EstimateReplicas(request("c2"), CONTEXT)


async def test_a_question_that_the_process_cannot_answer_is_answered_here(
    owner: FleetOwner,
    beside: Availability,
    process: EstimatingProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servicer = EstimatesServicer(beside, process)
    asked = Wanted(
        shapes=[ReplicaRequirements(request={"cpu": 300})],
        clusters=(),
        options=EstimateOptions(),
        include_cluster_names=False,
        include_upper_bounds=False,
    )

    async def answered() -> object:
        await asyncio.sleep(0.01)
        return await process.answer(asked)

    await until(answered, bool)
    pid = process.process.pid
    monkeypatch.setattr(owner, "check_known", lambda _: None)
    assert await process.answer(replace(asked, clusters=("nowhere",))) is None
    with pytest.raises(InvalidRequest, match="no cluster 'nowhere'"):
        await servicer.EstimateReplicas(request("nowhere"), CONTEXT)
    assert await process.answer(asked) is not None
    assert process.process.pid == pid


async def test_the_process_is_told_how_long_a_caller_waits(
    beside: Availability, process: EstimatingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float | None] = []

    async def seen(_: Any, seconds: float | None) -> None:
        told.append(seconds)

    class Deadline(NoDeadline):
        def time_remaining(self) -> Any:
            return 7.0

    monkeypatch.setattr(process, "answer", seen)
    context: Any = Deadline()
    await EstimatesServicer(beside, process).EstimateReplicas(request(), context)
    await EstimatesServicer(beside, process).EstimateReplicas(request(), CONTEXT)
    assert told == [7.0, None]


async def test_small_fleets_and_large_questions_are_not_for_it(
    owner: FleetOwner, process: EstimatingProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(process.process, "begin", lambda: started.append("begun"))
    servicer = EstimatesServicer(availability_of(owner), process)
    await servicer.EstimateReplicas(request(shapes=60), CONTEXT)
    assert not started
    monkeypatch.setattr(estimating, "WORTH_CLUSTERS", CLUSTERS + 1)
    await servicer.EstimateReplicas(request(), CONTEXT)
    assert not started
    owner.put_cluster(Cluster(name="one-more"))
    owner.apply(ClusterChanged(cluster="one-more"))
    assert started == ["begun"]
