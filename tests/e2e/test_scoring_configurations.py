"""Agents that place by every scoring configuration of the examples, whatever their scale."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from federation.cli.decisions import score_text
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.agents import (
    DUMPS,
    ROOT,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
    scheduled,
)
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.kubeapi.documents import namespace, node
from lab.kubeapi.server import KubeApiServer
from lab.kubeapi.state import Cluster

EXAMPLES = ROOT / "examples" / "scoring"
# Each with the most that it can score: plugins of weight 1 and 2, and Volcano's weight 5.
SCALES = {
    "most-allocated.yaml": 200.0,
    "policy.json": 200.0,
    "requested-to-capacity-ratio.yaml": 200.0,
    "volcano-scheduler.conf": 500.0,
}


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(
        database_url, tmp_path / "plane", heartbeat_seconds="10", report_seconds="0.5"
    ) as running:
        yield running


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    cluster = Cluster(version=100)
    cluster.put(namespace("kube-system", uid="the-uid"))
    for name in ("a", "b"):
        cluster.put(node(name))
    with KubeApiServer(cluster) as server:
        yield server.kubeconfig(tmp_path / "kubeconfig")


def test_every_example_is_tried() -> None:
    configurations = {path.name for path in EXAMPLES.iterdir() if "nodes-and-pod" not in path.name}
    assert configurations == SCALES.keys()


# Scores do not know where nodes are read: each kind of file is tried with either.
@pytest.mark.parametrize(
    ("configuration", "source"), [*zip(SCALES, ["dump", "live"] * 2, strict=True)]
)
async def test_shares_are_placed_by_its_scores(
    plane: RunningControlPlane, tmp_path: Path, kubeconfig: Path, source: str, configuration: str
) -> None:
    token = (await join_token(plane, "member1")).token
    dump = str(DUMPS / "member1.json")
    where = ("--from", dump) if source == "dump" else ("--kubeconfig", str(kubeconfig))
    async with estimator(
        *("run", *flags(plane, "member1", tmp_path), "--join-token", token, *where),
        *("--scoring-config", str(EXAMPLES / configuration)),
    ) as agent:
        await cluster_where(plane, "member1", has_reported)
        for replicas in (1, 3):
            decision = await scheduled(plane, "member1", replicas=replicas)
            assert decision.outcome == OUTCOME_SCHEDULED
            (placement,) = decision.node_placements
            assert (placement.unplaced, placement.message) == (0, "")
            assert sum(each.replicas for each in placement.nodes) == replicas
            for each in placement.nodes:
                is_on_its_scale(each, SCALES[configuration])
        assert agent.process.returncode is None


def is_on_its_scale(placed: Any, scale: float) -> None:
    assert placed.total_scale == scale
    assert 0.0 < placed.total <= scale
    assert placed.score == round(100 * placed.total / scale)
    assert score_text(placed).endswith(f" of {scale:g}")
