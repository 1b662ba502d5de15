"""Questions of the control plane as the agent answers them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator

import pytest

from estimator.agent import Agent
from estimator.control_plane.estimating import MAX_RUNNING, Estimating
from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node
from estimator.sight import Loss
from estimator.watched_cluster import WatchedCluster
from federation.model.grades import DEFAULT_MODEL
from federation.v1.agents_pb2 import AssumedWorkload, ConnectRequest, EstimateReply, EstimateRequest
from federation.v1.resource_pb2 import Component, NodeClaim, ReplicaRequirements
from lab.patience import PATIENCE_SECONDS

ONE_CPU = ReplicaRequirements(resource_request={"cpu": "1"})


class Answers:
    """Everything that was sent, as it comes."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[ConnectRequest] = asyncio.Queue()
        self.send = self._sent.put_nowait

    async def next(self) -> EstimateReply:
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self._sent.get()
        assert message.cluster == "member1"
        return message.estimate_reply


@pytest.fixture
def member() -> WatchedCluster:
    member = WatchedCluster(NodeSet.SCHEDULABLE)
    member.cache.put_node(Node(name="a", allocatable={"cpu": 4000, "pods": 10}))
    return member


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
async def estimating(member: WatchedCluster, answers: Answers) -> AsyncIterator[Estimating]:
    agent = Agent(member, epoch=1, clock=lambda: 100.0)
    running = Estimating("member1", agent, answers.send)
    yield running
    await running.stop()


def component(name: str, replicas: int) -> Component:
    return Component(name=name, replicas=replicas, replica_requirements=ONE_CPU)


async def test_every_shape_is_answered(estimating: Estimating, answers: Answers) -> None:
    estimating.start(EstimateRequest(request_id="7", shapes=[ONE_CPU, ReplicaRequirements()]))
    assert await answers.next() == EstimateReply(request_id="7", replicas=[4, 10])


async def test_many_shapes_and_assumed_workloads(estimating: Estimating, answers: Answers) -> None:
    held = AssumedWorkload(components=[component("held", 1)])
    estimating.start(EstimateRequest(request_id="7", shapes=[ONE_CPU] * 100, assumed=[held]))
    assert list((await answers.next()).replicas) == [3] * 100


async def test_what_is_asked_for_tells_pools_apart(
    member: WatchedCluster, estimating: Estimating, answers: Answers
) -> None:
    claim = NodeClaim(node_selector={"disk": "ssd"})
    estimating.start(EstimateRequest(shapes=[ReplicaRequirements(node_claim=claim)]))
    assert list((await answers.next()).replicas) == [0]
    pools = member.capacity(DEFAULT_MODEL).pools
    assert pools is not None
    assert pools.label_keys[0] == "disk"


async def test_sets_beside_assumed_workloads(estimating: Estimating, answers: Answers) -> None:
    """Those are packed first, by the same rule; what did not fit of one still holds its part."""
    pair = [component("manager", 1), component("worker", 1)]
    for held, left in (([1], 1), ([2], 1), ([3], 0), ([1, 1, 1], 0), ([9], 0)):
        assumed = [AssumedWorkload(components=[component("held", each)]) for each in held]
        estimating.start(EstimateRequest(components=pair, assumed=assumed))
        assert list((await answers.next()).replicas) == [left]


async def test_sets(estimating: Estimating, answers: Answers) -> None:
    components = [component("manager", 1), component("worker", 1)]
    estimating.start(EstimateRequest(request_id="7", components=components))
    assert list((await answers.next()).replicas) == [2]


async def test_a_wrong_question_is_answered_by_what_is_wrong(
    estimating: Estimating, answers: Answers
) -> None:
    wrong = ReplicaRequirements(resource_request={"cpu": "much"})
    estimating.start(EstimateRequest(request_id="7", shapes=[wrong]))
    reply = await answers.next()
    assert reply.message.startswith("shapes[0].resourceRequest[cpu]: ")
    assert not reply.replicas


async def test_a_picture_that_may_be_old_is_no_exact_one(
    estimating: Estimating, answers: Answers, member: WatchedCluster
) -> None:
    member.sight.lose("nodes", Loss(since=time.monotonic() - 60.0, why="gone"))
    estimating.start(EstimateRequest(request_id="7", shapes=[ONE_CPU]))
    message = (await answers.next()).message
    assert re.fullmatch(r"the agent has not seen its cluster for \d+ s: nodes: gone", message)


async def test_more_questions_than_can_be_answered_are_refused_at_once(
    estimating: Estimating, answers: Answers
) -> None:
    for number in range(MAX_RUNNING + 1):
        estimating.start(EstimateRequest(request_id=str(number), shapes=[ONE_CPU]))
    refused = await answers.next()
    assert refused.request_id == str(MAX_RUNNING)
    assert "are being answered already" in refused.message
    replies = [await answers.next() for _ in range(MAX_RUNNING)]
    assert all(list(reply.replicas) == [4] for reply in replies)
