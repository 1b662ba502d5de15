"""Exact estimates over real streams: a hundred agents, some of them silent, slow or lying."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest_asyncio
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.client import BlockingClient, Client, EstimateTable, Target
from federation.v1.agents_pb2 import EstimateReply, EstimateRequest, PlaceReply
from federation.v1.estimates_pb2 import (
    ESTIMATE_BOUND_EXACT,
    ESTIMATE_SOURCE_EXACT,
    ESTIMATE_SOURCE_SUMMARY,
    EstimateComponentSetsRequest,
)
from federation.v1.resource_pb2 import Component, ReplicaRequirements
from lab.control_planes import AgentStream, Plane, report
from lab.patience import PATIENCE_SECONDS

SHAPE = ReplicaRequirements(resource_request={"cpu": "1"})
# Four nodes of four cores, as the reports say.
BY_SUMMARY = 16
# A caller waits so long at most; the answer comes before that, whoever stays silent.
SECONDS = PATIENCE_SECONDS

# What an agent does when it is asked.
Manner = Callable[[AgentStream, EstimateRequest], Awaitable[None]]


def answering(*replicas: int, message: str = "") -> Manner:
    async def answer(stream: AgentStream, request: EstimateRequest) -> None:
        await stream.say(
            estimate_reply=EstimateReply(
                request_id=request.request_id, replicas=replicas, message=message
            )
        )

    return answer


def noting(questions: list[EstimateRequest], *replicas: int) -> Manner:
    async def answer(stream: AgentStream, request: EstimateRequest) -> None:
        questions.append(request)
        await answering(*replicas)(stream, request)

    return answer


async def silent(stream: AgentStream, request: EstimateRequest) -> None:
    """Never answers."""


async def vanishing(stream: AgentStream, request: EstimateRequest) -> None:
    await stream.hang_up()


async def about_something_else(stream: AgentStream, request: EstimateRequest) -> None:
    await stream.say(estimate_reply=EstimateReply(request_id="1-999", replicas=[5]))


async def by_another_kind_of_answer(stream: AgentStream, request: EstimateRequest) -> None:
    await stream.say(place_reply=PlaceReply(request_id=request.request_id, unplaced=5))


MANNERS: dict[str, tuple[Manner, str]] = {
    "silent": (silent, "did not answer within"),
    "vanishing": (vanishing, "went away"),
    "elsewhere": (about_something_else, "did not answer within"),
    "mistaken": (by_another_kind_of_answer, "did not answer within"),
    "negative": (answering(-1), "must be from 0 to"),
    "enormous": (answering(2**31), "must be from 0 to"),
    "short": (answering(), "must hold 1 numbers, not 0"),
    "long": (answering(1, 2), "must hold 1 numbers, not 2"),
    "unable": (answering(message="no nodes here"), "cannot tell: “no nodes here”"),
}


class Agents:
    """Agents of many clusters, each with its manner."""

    def __init__(self, api: Plane, stack: AsyncExitStack) -> None:
        self._running = api
        self._stack = stack
        self._listening: list[asyncio.Task[None]] = []

    async def join(self, cluster: str, manner: Manner) -> None:
        stream = await self._stack.enter_async_context(
            self._running.connected(cluster, report=report(pools=None))
        )
        self._listening.append(asyncio.create_task(self._listen(stream, manner)))

    async def _listen(self, stream: AgentStream, manner: Manner) -> None:
        try:
            while (message := await stream.next()) is not None:
                if message.WhichOneof("message") == "estimate_request":
                    await manner(stream, message.estimate_request)
        except (grpc.aio.AioRpcError, TimeoutError):
            return

    async def leave(self) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module")
async def agents(api: Plane) -> Any:
    async with AsyncExitStack() as stack:
        agents = Agents(api, stack)
        yield agents
        await agents.leave()


async def estimated(api: Plane, **fields: Any) -> Any:
    asked = {
        "shapes": [SHAPE],
        "highest_source": ESTIMATE_SOURCE_EXACT,
        "include_cluster_names": True,
        **fields,
    }
    return await api.ask("EstimateReplicas", **asked)


def notes(answer: Any) -> Iterator[tuple[str, str]]:
    for note in answer.notes:
        yield answer.clusters[note.position], note.reason


async def test_of_a_hundred_agents_only_those_that_fail_lose_a_level(
    api: Plane, agents: Agents
) -> None:
    good = 100 - len(MANNERS)
    joining = [agents.join(f"z-{name}", manner) for name, (manner, _) in MANNERS.items()]
    joining += [agents.join(f"good-{number:02}", answering(number)) for number in range(good)]
    await asyncio.gather(*joining)
    answer = await estimated(api)
    by_cluster = dict(zip(answer.clusters, answer.replicas, strict=True))
    sources = dict(zip(answer.clusters, answer.sources, strict=True))
    reasons = dict(notes(answer))
    for number in range(good):
        name = f"good-{number:02}"
        assert (by_cluster[name], sources[name]) == (number, ESTIMATE_SOURCE_EXACT)
        assert name not in reasons
    for name, (_, reason) in MANNERS.items():
        assert by_cluster[f"z-{name}"] == BY_SUMMARY
        assert sources[f"z-{name}"] == ESTIMATE_SOURCE_SUMMARY
        assert reason in reasons[f"z-{name}"]


async def test_nonsense_does_not_end_the_stream(api: Plane, agents: Agents) -> None:
    answers = iter([answering(-5), answering(7)])

    async def learning(stream: AgentStream, request: EstimateRequest) -> None:
        await next(answers)(stream, request)

    await agents.join("member1", learning)
    first = await estimated(api)
    second = await estimated(api)
    assert [list(first.replicas), list(second.replicas)] == [[BY_SUMMARY], [7]]
    assert list(second.bounds) == [ESTIMATE_BOUND_EXACT]


async def test_agents_are_asked_only_when_they_are_named_as_the_source(
    api: Plane, agents: Agents
) -> None:
    questions: list[EstimateRequest] = []
    await agents.join("member1", noting(questions, 7))
    assert list((await estimated(api, highest_source=0)).replicas) == [BY_SUMMARY]
    assert not questions
    assert list((await estimated(api)).replicas) == [7]
    assert len(questions) == 1


async def test_all_shapes_go_in_one_question_to_the_clusters_named(
    api: Plane, agents: Agents
) -> None:
    questions: list[EstimateRequest] = []
    for cluster in ("member1", "member2"):
        await agents.join(cluster, noting(questions, 0, 1))
    shapes = [SHAPE, ReplicaRequirements(resource_request={"cpu": "2"})]
    answer = await estimated(api, shapes=shapes, clusters=["member2"])
    assert list(answer.replicas) == [0, 1]
    (question,) = questions
    assert [each.resource_request["cpu"] for each in question.shapes] == ["1", "2"]


async def test_sets_are_asked_for_as_components(api: Plane, agents: Agents) -> None:
    await agents.join("member1", answering(3))
    await agents.join("member2", silent)
    admin = api.admin
    answer = await admin.estimates.EstimateComponentSets(
        EstimateComponentSetsRequest(
            components=[
                Component(name="manager", replicas=1, replica_requirements=SHAPE),
                Component(name="worker", replicas=3, replica_requirements=SHAPE),
            ],
            highest_source=ESTIMATE_SOURCE_EXACT,
        ),
        timeout=SECONDS,
        metadata=admin.metadata,
    )
    assert list(answer.sets) == [3, 4]
    assert list(answer.sources) == [ESTIMATE_SOURCE_EXACT, ESTIMATE_SOURCE_SUMMARY]
    assert "did not answer" in answer.notes[0].reason


async def test_fedctl_and_both_clients_ask_for_sets(api: Plane, agents: Agents) -> None:
    await agents.join("member1", answering(3))
    await agents.join("member2", answering(5))
    api = api.plane
    target = Target(
        endpoint=str(api.endpoint),
        token=api.admin_token_file.read_text().strip(),
        plaintext=True,
        timeout_seconds=SECONDS,
    )
    components = [
        Component(name="manager", replicas=1, replica_requirements=SHAPE),
        Component(name="worker", replicas=3, replica_requirements=SHAPE),
    ]

    def asked(api: Client) -> Awaitable[EstimateTable]:
        return api.estimate_component_sets(
            components, clusters=["member2"], highest_source=ESTIMATE_SOURCE_EXACT
        )

    async with Client(target) as client:
        table = await asked(client)
    assert (table.clusters, table.replicas) == (["member2"], [[5]])
    assert table.sources == [[ESTIMATE_SOURCE_EXACT]]

    def blocking() -> EstimateTable:
        with BlockingClient(target) as client:
            return client.call(asked)

    assert (await asyncio.to_thread(blocking)).replicas == [[5]]
    connecting = ["--insecure", "--endpoint", str(api.endpoint)]
    connecting += ["--token-file", str(api.admin_token_file), "estimate", "--source", "exact"]
    parts = ["--component", "manager=1:cpu=1", "--component", "worker=3:cpu=1,memory=2048m"]
    shown = await asyncio.to_thread(CliRunner().invoke, fedctl, [*connecting, *parts, "-o", "json"])
    assert shown.exit_code == 0, shown.output
    rows = json.loads(shown.stdout)
    assert [(row["cluster"], row["replicas"]) for row in rows] == [("member1", 3), ("member2", 5)]
    assert "--component worker[memory]: 2048m is a fraction" in shown.stderr
    for wrong in ("worker", "worker=x:cpu=1", "=1:cpu=1", "worker=1"):
        refused = CliRunner().invoke(fedctl, [*connecting, "--component", wrong])
        assert refused.exit_code == 2
        assert f"{wrong!r} is not NAME=REPLICAS:REQUEST" in refused.stderr
