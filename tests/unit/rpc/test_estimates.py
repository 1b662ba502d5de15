from __future__ import annotations

from typing import Any

import grpc
import pytest

from federation.rpc import estimates
from federation.v1.estimates_pb2 import (
    ESTIMATE_SOURCE_POOLS,
    ESTIMATE_SOURCE_UNSPECIFIED,
    EstimateReplicasRequest,
)
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.control_planes import AgentStream, RunningControlPlane, hello, refused, report


async def reported(running: RunningControlPlane, cluster: str, nodes: int) -> None:
    async with AgentStream(await running.enrolled(cluster), cluster) as stream:
        await stream.say(hello=hello())
        await stream.hear("welcome")
        await stream.say(report=report(sequence=nodes, nodes=nodes))
        await stream.hear("ack")


def shape(**request: str) -> ReplicaRequirements:
    return ReplicaRequirements(resource_request=request)


async def estimated(running: RunningControlPlane, **fields: Any) -> Any:
    return await running.admin.call(
        running.admin.estimates.EstimateReplicas, EstimateReplicasRequest(**fields)
    )


async def test_an_answer_is_packed_shape_after_shape(running: RunningControlPlane) -> None:
    await reported(running, "b", nodes=2)
    await reported(running, "a", nodes=1)
    await running.enrolled("c")
    answer = await estimated(
        running, shapes=[shape(cpu="1"), shape(cpu="2")], include_cluster_names=True
    )
    assert list(answer.clusters) == ["a", "b", "c"]
    assert list(answer.replicas) == [4, 8, 0, 2, 4, 0]
    assert list(answer.unknown) == [2, 5]
    assert answer.sources[0] == ESTIMATE_SOURCE_POOLS
    assert answer.sources[2] == ESTIMATE_SOURCE_UNSPECIFIED
    assert len(answer.bounds) == len(answer.sources) == 6
    assert list(answer.sequences) == [1, 2, 0]
    assert answer.age_seconds[2] == 0.0
    assert 2 in {note.position for note in answer.notes}


async def test_named_clusters_are_answered_in_the_order_named(
    running: RunningControlPlane,
) -> None:
    for number, name in enumerate(("a", "b", "c"), start=1):
        await reported(running, name, nodes=number)
    answer = await estimated(running, shapes=[shape(cpu="1")], clusters=["c", "a"])
    assert list(answer.replicas) == [12, 4]
    assert list(answer.clusters) == []


@pytest.mark.parametrize(
    ("fields", "violations"),
    [
        ({}, {"shapes"}),
        ({"shapes": [shape(cpu="-1")]}, {"shapes[0].resourceRequest[cpu]"}),
        ({"shapes": [shape()], "clusters": ["nobody"]}, {"clusters[0]"}),
        ({"shapes": [shape()], "highest_source": 99, "merge": 99}, {"highestSource", "merge"}),
    ],
)
async def test_questions_that_break_rules_are_refused_by_field(
    running: RunningControlPlane, fields: dict[str, Any], violations: set[str]
) -> None:
    refusal = await refused(estimated(running, **fields))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == violations


async def test_an_answer_too_large_for_a_client_is_refused_and_the_limit_named(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reported(running, "a", nodes=1)
    monkeypatch.setattr(estimates, "MAX_NUMBERS", 2)
    assert len((await estimated(running, shapes=[shape()] * 2)).replicas) == 2
    refusal = await refused(estimated(running, shapes=[shape()] * 3))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "answer holds 2" in refusal.message


async def test_many_numbers_are_written_beside_the_loop_and_come_out_the_same(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reported(running, "a", nodes=1)
    shapes = [shape(cpu=f"{number}m") for number in range(1, 61)]
    few = await estimated(running, shapes=shapes[:40])
    monkeypatch.setattr(estimates, "NUMBERS_PER_THREAD", 0)
    many = await estimated(running, shapes=shapes)
    assert list(many.replicas)[:40] == list(few.replicas)
