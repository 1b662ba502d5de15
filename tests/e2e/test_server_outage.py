"""A database that goes away under a running control plane, and comes back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.store.migrate import upgrade
from federation.v1.resource_pb2 import (
    ReplicaRequirements,
)
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.control_planes import (
    RunningControlPlane,
    heartbeat,
    refused,
    report,
    running_control_plane,
)
from lab.patience import until
from lab.servers import http_status
from tests.api.calls import binding


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, that the control plane takes for somebody else's."""
    binaries = os.environ.get("FEDERATION_POSTGRES_BIN")
    found = find_binaries(Path(binaries) if binaries else None, os.environ.get("PATH", ""))
    server = EmbeddedPostgres(found, tmp_path / "postgres")
    server.start()
    yield server
    server.discard()


def scheduled(running: RunningControlPlane) -> Any:
    everywhere = binding("cart", replicas=2, placement={"replica_scheduling": None})
    return running.admin.ask("Schedule", binding=everywhere)


async def test_what_is_known_is_answered_and_the_rest_is_unavailable_until_it_is_back(
    postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    upgrade(postgres.url)
    async with (
        running_control_plane(postgres.url, tmp_path / "state") as running,
        running.connected("member1", report=report(sequence=1)) as stream,
    ):
        ready = f"http://{running.plane.web_endpoint}/readyz"
        assert await asyncio.to_thread(http_status, ready) == 200
        await asyncio.to_thread(postgres.stop)

        refusal = await refused(scheduled(running))
        assert refusal.code is grpc.StatusCode.UNAVAILABLE
        assert await asyncio.to_thread(http_status, ready) == 503
        admin = running.admin
        listed = await admin.ask("ListClusters")
        assert [each.metadata.name for each in listed.clusters] == ["member1"]
        shapes = [ReplicaRequirements(resource_request={"cpu": "1"})]
        estimated = await admin.ask("EstimateReplicas", shapes=shapes)
        assert list(estimated.replicas) == [16]
        # A report that cannot be stored is not acknowledged, and costs nobody the stream.
        await stream.say(report=report(sequence=2, nodes=2))

        await asyncio.to_thread(postgres.start)
        answer = await until(lambda: unless_unavailable(running), lambda answer: answer is not None)
        assert answer is not None
        assert answer.decision.outcome == OUTCOME_SCHEDULED
        assert await asyncio.to_thread(http_status, ready) == 200
        # What agents were asked meanwhile does not matter here.
        await stream.say(heartbeat=heartbeat(2, "not what is stored"))
        while (message := await stream.next()) is not None:
            if message.WhichOneof("message") == "resync":
                break
        await stream.say(report=report(sequence=3, nodes=2))
        while (message := await stream.next()) is not None:
            if message.WhichOneof("message") == "ack":
                assert message.ack.sequence == 3
                break


async def unless_unavailable(running: RunningControlPlane) -> Any:
    try:
        return await scheduled(running)
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.UNAVAILABLE:
            raise
        return None
