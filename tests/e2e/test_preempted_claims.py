"""Nodes that a real agent keeps for replicas that were preempted before they had pods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.agents import (
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
    scheduled,
)
from lab.control_planes import running_control_plane
from lab.kubeapi.documents import node


def dump(directory: Path) -> Path:
    """Two nodes of two cores each, and no pod."""
    path = directory / "cluster.json"
    document = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [node("a", cpu="2"), node("b", cpu="2")],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize("victims", [1, 4])
async def test_who_preempts_gets_the_nodes_that_were_kept_for_others(
    fresh_database_url: str, tmp_path: Path, victims: int
) -> None:
    async with running_control_plane(fresh_database_url, tmp_path) as plane:
        arguments = ["run", *flags(plane, "member1", tmp_path), "--from", str(dump(tmp_path))]
        arguments += ["--join-token", (await join_token(plane, "member1")).token]
        async with estimator(*arguments):
            await cluster_where(plane, "member1", has_reported)
            for number in range(victims):
                decision = await scheduled(
                    plane, "member1", replicas=8 // victims, name=f"low-{number}"
                )
                (plan,) = decision.node_placements
                assert (plan.unplaced, plan.message) == (0, "")
            decision = await scheduled(plane, "member1", replicas=8, name="urgent", is_urgent=True)
            assert [(each.name, each.replicas) for each in decision.clusters] == [("member1", 8)]
            (plan,) = decision.node_placements
            assert (plan.unplaced, plan.message) == (0, "")
            assert sum(share.replicas for share in plan.nodes) == 8
