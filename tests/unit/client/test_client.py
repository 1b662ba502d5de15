"""The typed client against a real control plane: answers, and failures as the error tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.client import BlockingClient, Client, Target
from federation.model.errors import InvalidRequest, NotFound, Unauthenticated, Unavailable
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scoring_pb2 import ScoringContainer, ScoringNode, ScoringPod
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.patience import PATIENCE_SECONDS

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "scoring"


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


def target(plane: RunningControlPlane, token: str | None = None) -> Target:
    kept = plane.plane.admin_token_file.read_text(encoding="ascii").strip()
    return Target(
        endpoint=str(plane.plane.endpoint),
        token=kept if token is None else token,
        plaintext=True,
        timeout_seconds=PATIENCE_SECONDS,
    )


async def test_unknown_is_none_and_every_shape_has_its_row(plane: RunningControlPlane) -> None:
    await plane.enrolled("member1")
    shapes = [ReplicaRequirements(resource_request={"cpu": each}) for each in ("1", "2")]
    async with Client(target(plane)) as client:
        table = await client.estimate(shapes)
    assert list(table.clusters) == ["member1"]
    assert [list(row) for row in table.replicas] == [[None], [None]]
    assert "reported" in table.notes[1][0]


async def test_violations_arrive_with_their_fields(plane: RunningControlPlane) -> None:
    shape = ReplicaRequirements(resource_request={"cpu": "1 Gi", "memory": "-1"})
    async with Client(target(plane)) as client:
        with pytest.raises(InvalidRequest) as raised:
            await client.estimate([shape])
        fields = {each.field for each in raised.value.violations}
        assert len(fields) == 2
        with pytest.raises(NotFound):
            await client.get_cluster("nobody")
    async with Client(target(plane, token="wrong.token")) as stranger:
        with pytest.raises(Unauthenticated):
            await stranger.list_clusters()


async def test_nodes_are_scored(plane: RunningControlPlane) -> None:
    wanted = ScoringPod(containers=[ScoringContainer(requests={"cpu": "2"})])
    node = ScoringNode(name="n1", allocatable={"cpu": "4", "memory": "8Gi", "pods": "10"})
    configuration = (EXAMPLES / "requested-to-capacity-ratio.yaml").read_text(encoding="utf-8")
    async with Client(target(plane)) as client:
        answer = await client.score_nodes(configuration, wanted, [node])
    assert [each.name for each in answer.nodes] == ["n1"]


async def test_the_blocking_client_answers_and_raises_the_same(plane: RunningControlPlane) -> None:
    def ask() -> list[str]:
        with BlockingClient(target(plane)) as client:
            with pytest.raises(NotFound):
                client.call(lambda api: api.get_cluster("nobody"))
            return [each.metadata.name for each in client.call(lambda api: api.list_clusters())]

    await plane.enrolled("member1")
    assert await asyncio.to_thread(ask) == ["member1"]


async def test_nobody_there_is_unavailable() -> None:
    nobody = Target(endpoint="127.0.0.1:1", plaintext=True, timeout_seconds=5.0)
    async with Client(nobody) as client:
        with pytest.raises(Unavailable):
            await client.list_clusters()
