"""SIGKILL while bindings wait: they wait on in their order, and are placed once there is room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from federation.v1 import clusters_pb2, scheduling_pb2
from federation.v1.agents_pb2 import ConnectRequest
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2_grpc import ClustersStub
from tests.control_planes import hello, report
from tests.e2e.test_kills import Serving, binding, serving, stored_binding
from tests.patience import PATIENCE_SECONDS


def joined(plane: Serving) -> str:
    """The credential of the only cluster's agent."""
    clusters: Any = ClustersStub(plane.channel)
    made = plane.call(
        clusters.CreateJoinToken, clusters_pb2.CreateJoinTokenRequest(cluster="member1")
    )
    enroll = clusters_pb2.EnrollClusterRequest(
        cluster="member1", token=made.token, cluster_uid="uid-member1"
    )
    return str(clusters.EnrollCluster(enroll).credential)


def say(plane: Serving, credential: str, epoch: int, nodes: int) -> None:
    """The agent reports once, and is away."""
    agents: Any = AgentsStub(plane.channel)
    said = [
        ConnectRequest(cluster="member1", hello=hello(epoch)),
        ConnectRequest(cluster="member1", report=report(epoch, nodes=nodes)),
    ]
    metadata = (("authorization", f"Bearer {credential}"),)
    heard = agents.Connect(iter(said), metadata=metadata, timeout=PATIENCE_SECONDS)
    assert "ack" in [each.WhichOneof("message") for each in heard]


def queue(plane: Serving) -> Sequence[Any]:
    request = scheduling_pb2.ListQueueRequest()
    return list(plane.call(plane.scheduling.ListQueue, request).bindings)


def names(plane: Serving) -> list[str]:
    return [each.name for each in queue(plane)]


def until(ask: Callable[[], object], wanted: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (answer := ask()) != wanted:
        assert time.monotonic() < deadline, answer
        threading.Event().wait(0.05)


def test_who_waits_is_placed_in_order_after_a_kill(fresh_database_url: str, tmp_path: Path) -> None:
    with serving(tmp_path, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
        credential = joined(plane)
        say(plane, credential, epoch=1, nodes=1)
        for name, priority in (("one", 0), ("two", 0), ("urgent", 7)):
            wanted = binding(name, 60)
            wanted.spec.schedule_priority.priority = priority
            request = scheduling_pb2.ScheduleRequest(binding=wanted)
            assert plane.call(plane.scheduling.Schedule, request).queued
        before = queue(plane)
        plane.server.kill()
    assert [each.name for each in before] == ["urgent", "one", "two"]
    with serving(tmp_path, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
        assert [(each.name, each.wait.since) for each in queue(plane)] == [
            (each.name, each.wait.since) for each in before
        ]
        # Room for two of them.
        say(plane, credential, epoch=2, nodes=4)
        until(lambda: names(plane), ["two"])
        for name in ("urgent", "one"):
            (target,) = stored_binding(plane, name).binding.spec.clusters
            assert (target.name, target.replicas) == ("member1", 60)
        assert not stored_binding(plane, "two").binding.spec.clusters
        assert plane.server.stop() == 0
