"""The files of a stopped database are put back: nothing is promised on what they say until agents
have said what is there. Real processes, an embedded PostgreSQL.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from federation.v1.agents_pb2 import ConnectRequest, Echo, EchoShape
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED
from lab.control_planes import hello, report
from tests.e2e.test_kills import Serving, binding, stored_binding

BEAT_SECONDS = 1
# After three missed beats an agent is silent.
SILENT_SECONDS = 3.5 * BEAT_SECONDS
PACE = f"--heartbeat-seconds={BEAT_SECONDS}"
# Of 100m each: all that one node of 4 cores holds.
REPLICAS = 40


def say(plane: Serving, credential: str, epoch: int, nodes: int, **seen: Any) -> None:
    """The agent is told what to look for, reports once, and is away."""
    said: SimpleQueue[ConnectRequest | None] = SimpleQueue()
    said.put(ConnectRequest(cluster="member1", hello=hello(epoch)))
    heard: list[str] = []
    for each in plane.caller(credential).connect(iter(said.get, None)):
        heard.append(each.WhichOneof("message"))
        if heard.count("interest") == 1 and heard[-1] == "interest":
            fields = {"interest_version": each.interest.version, **seen}
            made = report(epoch, nodes=nodes, **fields)
            said.put(ConnectRequest(cluster="member1", report=made))
        elif heard[-1] == "ack":
            said.put(None)
    assert "ack" in heard


def copy(files: Path, to: Path) -> None:
    """With their owners: a server that root starts runs as somebody else."""
    subprocess.run(["cp", "-a", str(files), str(to)], check=True)


def schedule(plane: Serving, name: str) -> Any:
    return plane.ask("Schedule", binding=binding(name, REPLICAS))


def test_what_was_promised_since_is_not_promised_again(tmp_path: Path) -> None:
    with Serving.on(tmp_path, PACE) as plane:
        credential = plane.enroll("member1")
        say(plane, credential, epoch=1, nodes=1)
        files = plane.postgres_directory
        assert plane.server.stop() == 0
    backup = files.with_name(f"{files.name}-backup")
    copy(files, backup)
    with Serving.on(tmp_path, PACE) as plane:
        say(plane, credential, epoch=2, nodes=1)
        assert schedule(plane, "since").decision.outcome == OUTCOME_SCHEDULED
        assert plane.server.stop() == 0
    shutil.rmtree(files)
    backup.rename(files)
    time.sleep(SILENT_SECONDS)
    with Serving.on(tmp_path, PACE) as plane:
        answer = schedule(plane, "again")
        assert answer.queued
        assert "cannot be seen since" in answer.decision.reason
        # The pods that were promised since take all of the node.
        pools = report(nodes=1).pools
        pools.minimums[0] = 0
        running = {
            "pools": pools,
            "allocated": {"cpu": 4000, "memory": 0, "pods": REPLICAS},
            "echo_shapes": [EchoShape(request={"cpu": 100})],
            "echoes": [Echo(binding="shop/since", bound=REPLICAS)],
        }
        say(plane, credential, epoch=3, nodes=1, **running)
        assert not stored_binding(plane, "again").binding.spec.clusters
        assert "0 replicas are available" in str(schedule(plane, "more").decision)
