"""SIGKILL while bindings wait: they wait on in their order, and are placed once there is room."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from federation.v1 import clusters_pb2, scheduling_pb2
from federation.v1.agents_pb2 import ConnectRequest, Echo, EchoShape
from federation.v1.agents_pb2_grpc import AgentsStub
from federation.v1.clusters_pb2_grpc import ClustersStub
from lab.control_planes import hello, report
from lab.patience import PATIENCE_SECONDS
from tests.e2e.test_kills import Serving, binding, serving, stored_binding


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


def say(plane: Serving, credential: str, epoch: int, nodes: int, **seen: Any) -> None:
    """The agent is told what to look for, reports once, and is away."""
    agents: Any = AgentsStub(plane.channel)
    said: SimpleQueue[ConnectRequest | None] = SimpleQueue()
    said.put(ConnectRequest(cluster="member1", hello=hello(epoch)))
    metadata = (("authorization", f"Bearer {credential}"),)
    heard: list[str] = []
    for each in agents.Connect(iter(said.get, None), metadata=metadata, timeout=PATIENCE_SECONDS):
        heard.append(each.WhichOneof("message"))
        if heard.count("interest") == 1 and heard[-1] == "interest":
            fields = {"interest_version": each.interest.version, **seen}
            made = report(epoch, nodes=nodes, **fields)
            said.put(ConnectRequest(cluster="member1", report=made))
        elif heard[-1] == "ack":
            said.put(None)
    assert "ack" in heard


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


def test_who_preempted_what_runs_has_its_room_after_a_kill(
    fresh_database_url: str, tmp_path: Path
) -> None:
    """The victims leave while no control plane is there."""
    running = {
        "pools": report(nodes=2).pools,
        "echo_shapes": [EchoShape(request={"cpu": 100})],
        "echoes": [Echo(binding="shop/low", bound=60)],
    }
    running["pools"].minimums[0] = 1000
    low, urgent, late = binding("low", 60), binding("urgent", 60), binding("late", 30)
    urgent.spec.schedule_priority.priority = 7
    urgent.spec.preemption_policy = "PreemptLowerPriority"
    with serving(tmp_path, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
        credential = joined(plane)
        say(plane, credential, epoch=1, nodes=2)

        def schedule(wanted: Any) -> Any:
            request = scheduling_pb2.ScheduleRequest(binding=wanted)
            return plane.call(plane.scheduling.Schedule, request)

        assert not schedule(low).queued
        say(plane, credential, epoch=2, nodes=2, **running)
        answer = schedule(urgent)
        assert answer.queued
        assert "waits for 60 replicas of shop/low to leave member1" in answer.decision.reason
        assert names(plane) == ["urgent", "low"]
        plane.server.kill()
    with serving(tmp_path, FEDERATION_DATABASE_URL=fresh_database_url) as plane:
        (nominated,) = [each.wait.nominated for each in queue(plane) if each.name == "urgent"]
        assert [(each.name, each.replicas) for each in nominated.shares] == [("member1", 60)]
        (task,) = stored_binding(plane, "low").binding.spec.graceful_eviction_tasks
        assert (task.from_cluster, task.replicas, task.purge_mode) == ("member1", 60, "Directly")
        refused = plane.call(
            plane.scheduling.Schedule, scheduling_pb2.ScheduleRequest(binding=late)
        )
        assert refused.queued
        say(plane, credential, epoch=3, nodes=2)
        until(lambda: names(plane), ["low", "late"])
        (target,) = stored_binding(plane, "urgent").binding.spec.clusters
        assert (target.name, target.replicas) == ("member1", 60)
        assert plane.server.stop() == 0
