"""Pools and exact answers of a real agent, through the control plane."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from federation.v1.estimates_pb2 import (
    ESTIMATE_BOUND_EXACT,
    ESTIMATE_BOUND_LOWER,
    ESTIMATE_BOUND_NONE,
    ESTIMATE_SOURCE_EXACT,
    ESTIMATE_SOURCE_MODELS,
    ESTIMATE_SOURCE_POOLS,
    EstimateComponentSetsRequest,
    EstimateReplicasRequest,
)
from federation.v1.resource_pb2 import (
    Component,
    NodeClaim,
    ObjectMeta,
    ObjectReference,
    Placement,
    ReplicaRequirements,
    ResourceBinding,
    ResourceBindingSpec,
    Toleration,
)
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, ScheduleRequest
from lab.agents import (
    DUMPS,
    POLL_SECONDS,
    ROOT,
    SECONDS,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
)
from lab.control_planes import RunningControlPlane, running_control_plane

TRUTH = ROOT / "tests" / "vectors" / "clusters"


@pytest.fixture
async def member(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    """A control plane with the agent of member2 connected, which answers.

    At the usual pace: on a busy machine, an agent that is to speak all the time is soon late and
    taken for lost.
    """
    async with running_control_plane(database_url, tmp_path / "plane") as plane:
        made = await join_token(plane, "member2")
        arguments = [
            *flags(plane, "member2", tmp_path),
            *("--from", str(DUMPS / "member2.json"), "--join-token", made.token),
        ]
        async with estimator("run", *arguments):
            await cluster_where(plane, "member2", has_reported)
            await agent_answers(plane)
            yield plane


async def agent_answers(plane: RunningControlPlane) -> None:
    """As soon as the agent has answered a question."""
    asked = EstimateReplicasRequest(
        shapes=[ReplicaRequirements()], highest_source=ESTIMATE_SOURCE_EXACT
    )
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await plane.admin.call(plane.admin.estimates.EstimateReplicas, asked)
            if list(answer.sources) == [ESTIMATE_SOURCE_EXACT]:
                return
            await asyncio.sleep(POLL_SECONDS)


def recorded() -> list[dict[str, Any]]:
    """Recorded shapes whose claims are labels and tolerations alone."""
    shapes = json.loads((TRUTH / "member2.truth.json").read_text())["shapes"]
    return [each for each in shapes if not each["affinity_terms"]]


def requirements(shape: dict[str, Any]) -> ReplicaRequirements:
    return ReplicaRequirements(
        resource_request=shape["requests"],
        node_claim=NodeClaim(
            node_selector=shape["node_selector"],
            tolerations=[Toleration(**each) for each in shape["tolerations"]],
        ),
    )


async def test_exact_is_the_truth_and_pools_never_more(member: RunningControlPlane) -> None:
    shapes = recorded()
    admin = member.admin

    async def ask(**fields: Any) -> Any:
        request = EstimateReplicasRequest(
            shapes=map(requirements, shapes), include_upper_bounds=True, **fields
        )
        return await admin.call(admin.estimates.EstimateReplicas, request)

    exact = await ask(highest_source=ESTIMATE_SOURCE_EXACT)
    assert set(exact.sources) == {ESTIMATE_SOURCE_EXACT}
    assert list(exact.replicas) == [shape["replicas"] for shape in shapes]
    assert exact.upper_replicas == exact.replicas
    pools = await ask()
    models = await ask(highest_source=ESTIMATE_SOURCE_MODELS)
    assert [each in models.ignores_node_claim for each in range(len(shapes))] == [
        bool(shape["node_selector"]) for shape in shapes
    ]
    assert not pools.ignores_node_claim
    answered = open_above = 0
    for position, shape in enumerate(shapes):
        if pools.sources[position] != ESTIMATE_SOURCE_POOLS:
            assert position in pools.unknown
            assert "do not tell nodes apart by" in pools.notes[0].reason
            continue
        # Each of the few nodes is a cell: on nodes that are capacity nothing is lost.
        truth = shape["replicas_ready_and_uncordoned"]
        most = pools.upper_replicas[position]
        assert pools.replicas[position] == truth
        if most < 0:
            # It may run on nodes that are cordoned or not ready, too, which are in no pool.
            keys = [each.get("key", "") for each in shape["tolerations"]]
            assert any(not key or key.startswith("node.kubernetes.io/") for key in keys)
            assert pools.bounds[position] == ESTIMATE_BOUND_LOWER
            open_above += 1
        else:
            assert most == truth == shape["replicas"]
            assert pools.bounds[position] == ESTIMATE_BOUND_EXACT
        answered += 1
    assert answered > len(shapes) / 2
    assert 0 < open_above < answered


async def test_sets_are_packed_into_cells(member: RunningControlPlane) -> None:
    admin = member.admin
    needs = ReplicaRequirements(resource_request={"cpu": "500m", "memory": "1Gi"})
    asked = EstimateComponentSetsRequest(
        components=[
            Component(name="manager", replicas=1, replica_requirements=needs),
            Component(name="worker", replicas=3, replica_requirements=needs),
        ]
    )
    packed = await admin.call(admin.estimates.EstimateComponentSets, asked)
    asked.highest_source = ESTIMATE_SOURCE_EXACT
    exact = await admin.call(admin.estimates.EstimateComponentSets, asked)
    assert list(packed.sources) == [ESTIMATE_SOURCE_POOLS]
    assert list(exact.sources) == [ESTIMATE_SOURCE_EXACT]
    # Equal components: whatever the order of the nodes, only whole sets are left over.
    assert 1 <= packed.sets[0] <= exact.sets[0]


async def test_nothing_is_exact_beside_promises(member: RunningControlPlane) -> None:
    """Their pods are on no node yet, and nobody knows where they will land."""
    admin = member.admin
    half = ReplicaRequirements(resource_request={"cpu": "500m"})
    placed = await admin.call(
        admin.scheduling.Schedule,
        ScheduleRequest(
            binding=ResourceBinding(
                metadata=ObjectMeta(name="web", namespace="shop"),
                spec=ResourceBindingSpec(
                    resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web"),
                    replicas=3,
                    replica_requirements=half,
                    placement=Placement(),
                ),
            )
        ),
    )
    assert placed.decision.outcome == OUTCOME_SCHEDULED
    big = ReplicaRequirements(resource_request={"cpu": "2", "memory": "1Gi"})
    asked = EstimateReplicasRequest(shapes=[half, big], include_upper_bounds=True)
    pools = await admin.call(admin.estimates.EstimateReplicas, asked)
    assert set(pools.bounds) == {ESTIMATE_BOUND_LOWER}
    asked.highest_source = ESTIMATE_SOURCE_EXACT
    agent = await admin.call(admin.estimates.EstimateReplicas, asked)
    assert set(agent.sources) == {ESTIMATE_SOURCE_EXACT}
    assert set(agent.bounds) == {ESTIMATE_BOUND_NONE}
    assert "3 promised replicas" in agent.notes[0].reason
    bounds = zip(pools.replicas, agent.replicas, pools.upper_replicas, strict=True)
    assert all(lower <= there <= upper for lower, there, upper in bounds)


async def test_people_see_source_bound_and_age(member: RunningControlPlane) -> None:
    command = [
        *("--endpoint", str(member.plane.endpoint), "--insecure"),
        *("--token-file", str(member.plane.admin_token_file)),
        *("estimate", "--request", "cpu=500m,memory=1Gi"),
    ]

    async def shown(*options: str) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*command, *options])
        assert result.exit_code == 0, result.output
        return result.output

    table = [line.split() for line in (await shown()).splitlines()]
    assert table[0] == ["CLUSTER", "REPLICAS", "SOURCE", "BOUND", "AT", "MOST", "AGE"]
    assert table[1][:5] == ["member2", "109", "pools", "exact", "109"]
    (row,) = json.loads(await shown("--source", "exact", "-o", "json"))
    assert (row["replicas"], row["source"], row["atMost"]) == (109, "exact", 109), row["note"]
