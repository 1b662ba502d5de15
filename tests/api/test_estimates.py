"""Estimates over the wire: order, what is unknown and why, and answers that are too large."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from federation.rpc import estimates
from federation.v1.estimates_pb2 import ESTIMATE_SOURCE_POOLS, ESTIMATE_SOURCE_UNSPECIFIED
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.control_planes import Plane, refused, report


async def reported(api: Plane, **nodes: int) -> None:
    for sequence, (cluster, count) in enumerate(nodes.items(), start=1):
        async with api.connected(cluster, report=report(sequence=sequence, nodes=count)):
            pass


def shape(**request: str) -> ReplicaRequirements:
    return ReplicaRequirements(resource_request=request)


async def estimated(api: Plane, *shapes: ReplicaRequirements, **fields: Any) -> Any:
    return await api.ask("EstimateReplicas", shapes=shapes, **fields)


async def test_an_answer_is_packed_shape_after_shape(api: Plane) -> None:
    assert list((await estimated(api, shape(cpu="1"))).replicas) == []
    await reported(api, a=1, b=2)
    await api.enrolled("c")
    answer = await estimated(api, shape(cpu="1"), shape(cpu="2"), include_cluster_names=True)
    assert list(answer.clusters) == ["a", "b", "c"]
    assert list(answer.replicas) == [4, 8, 0, 2, 4, 0]
    assert list(answer.unknown) == [2, 5]
    sources = [ESTIMATE_SOURCE_POOLS] * 2 + [ESTIMATE_SOURCE_UNSPECIFIED]
    assert list(answer.sources) == sources * 2
    assert len(answer.bounds) == 6
    assert list(answer.sequences) == [1, 2, 0]
    assert min(answer.age_seconds) >= answer.age_seconds[2] == 0.0
    assert [note.position for note in answer.notes] == [2, 5]


async def test_named_clusters_are_answered_in_the_order_named(api: Plane) -> None:
    await reported(api, a=1, b=2, c=3)
    answer = await estimated(api, shape(cpu="1"), clusters=["c", "a"])
    assert (list(answer.replicas), list(answer.clusters)) == ([12, 4], [])
    assert list(answer.sequences) == [3, 1]


async def test_an_answer_too_large_for_a_client_is_refused_and_the_limit_named(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reported(api, a=1)
    monkeypatch.setattr(estimates, "MAX_NUMBERS", 2)
    assert len((await estimated(api, *[shape()] * 2)).replicas) == 2
    refusal = await refused(estimated(api, *[shape()] * 3))
    assert refusal.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "answer holds 2" in refusal.message


async def test_many_numbers_are_written_beside_the_loop_and_come_out_the_same(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await reported(api, a=1)
    shapes = [shape(cpu=f"{number}m") for number in range(1, 61)]
    few = await estimated(api, *shapes[:40])
    monkeypatch.setattr(estimates, "NUMBERS_PER_THREAD", 0)
    many = await estimated(api, *shapes)
    assert list(many.replicas)[:40] == list(few.replicas)
