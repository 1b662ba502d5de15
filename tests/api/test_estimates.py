"""Estimates over the wire: order, what is unknown and why, and answers that are too large."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from federation.operations import estimates
from federation.v1.agents_pb2 import NodePool, NodePools
from federation.v1.estimates_pb2 import (
    ESTIMATE_BOUND_LOWER,
    ESTIMATE_BOUND_NONE,
    ESTIMATE_SOURCE_EXACT,
    ESTIMATE_SOURCE_MODELS,
    ESTIMATE_SOURCE_POOLS,
    ESTIMATE_SOURCE_SUMMARY,
    ESTIMATE_SOURCE_UNSPECIFIED,
)
from federation.v1.resource_pb2 import Component, ReplicaRequirements
from lab.control_planes import AgentStream, Plane, graded, hello, refused, report
from lab.held_clocks import HeldClock


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


def pooled() -> Any:
    """Seven nodes with at least 4 cores, one of them with 12."""
    pools = NodePools(
        label_keys=["disk"],
        pools=[NodePool(labels={"disk": "ssd"})],
        resources=["cpu", "memory", "pods"],
        cell_pools=[0],
        counts=[7],
        minimums=[4000, 64 << 30, 100],
        spreads=[8000, 0, 0],
        surpluses=[8000, 0, 0],
    )
    return report(nodes=7, pools=pools)


async def test_each_cluster_answers_by_the_best_that_it_has_told(
    api: Plane, clock: HeldClock
) -> None:
    async with AgentStream(await api.enrolled("graded"), "graded") as stream:
        await stream.say(hello=hello())
        model = (await stream.hear("welcome")).model_hash
        await stream.say(report=graded(model, {2: 1, 3: 6}, nodes=7, pools=None))
        await stream.hear("ack")
    async with api.connected("pooled", report=pooled()):
        pass
    small = shape(cpu="3", memory="20Gi")
    answer = await estimated(api, small, shape(cpu="3", memory="60Gi"), include_upper_bounds=True)
    models, pools = ESTIMATE_SOURCE_MODELS, ESTIMATE_SOURCE_POOLS
    assert list(answer.sources) == [models, pools] * 2
    assert (answer.replicas[0], answer.replicas[2]) == (7, 6)
    assert 7 <= answer.replicas[1] <= 9
    assert list(answer.bounds[:2]) == [ESTIMATE_BOUND_NONE, ESTIMATE_BOUND_LOWER]
    assert list(answer.upper_replicas[:2]) == [-1, 12]
    # The database's clock, by which reports are dated, may be ahead of one that stands still.
    clock.advance(1000)
    before = list((await estimated(api, small)).age_seconds)
    clock.advance(12.5)
    later = await estimated(api, small)
    assert list(later.age_seconds) == pytest.approx([age + 12.5 for age in before])
    # Without an agent that sees its nodes a cluster loses one level.
    exact = await estimated(api, small, highest_source=ESTIMATE_SOURCE_EXACT)
    assert list(exact.sources) == [models, pools]
    assert {each.reason for each in exact.notes} == {"no agent that sees its nodes is connected"}
    by_zone = shape(cpu="3", memory="20Gi")
    by_zone.node_claim.node_selector["zone"] = "a"
    answer = await estimated(api, by_zone, clusters=["pooled"])
    assert list(answer.sources) == [ESTIMATE_SOURCE_UNSPECIFIED]
    (note,) = answer.notes
    assert note.reason.startswith("the cluster's pools do not tell nodes apart by zone; ")

    async def sets(requirements: ReplicaRequirements, *names: str, **fields: Any) -> Any:
        components = [Component(name="a", replicas=2, replica_requirements=requirements)]
        return await api.ask(
            "EstimateComponentSets", components=components, clusters=names, **fields
        )

    summary = ESTIMATE_SOURCE_SUMMARY
    found = await sets(small, "pooled", "graded")
    assert (list(found.sources), found.sets[0]) == ([pools, summary], 3)
    assert list((await sets(by_zone)).sources) == [ESTIMATE_SOURCE_UNSPECIFIED] * 2
    # Of a summary they are counted by their sum.
    single = await estimated(api, small, clusters=["graded"], highest_source=summary)
    assert found.sets[1] == single.replicas[0] // 2 >= 1
