"""The files of a stopped database are put back: nothing is promised on what they say until agents
have said what is there. Real processes, an embedded PostgreSQL.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from federation.v1 import scheduling_pb2
from federation.v1.agents_pb2 import Echo, EchoShape
from lab.control_planes import report
from tests.e2e.test_kills import Serving, binding, serving, stored_binding
from tests.e2e.test_queue import joined, say

BEAT_SECONDS = 1
# After three missed beats an agent is silent.
SILENT_SECONDS = 3.5 * BEAT_SECONDS
PACE = (f"--heartbeat-seconds={BEAT_SECONDS}",)
# Of 100m each: all that one node of 4 cores holds.
REPLICAS = 40


def copy(files: Path, to: Path) -> None:
    """With their owners: a server that root starts runs as somebody else."""
    subprocess.run(["cp", "-a", str(files), str(to)], check=True)


def schedule(plane: Serving, name: str) -> Any:
    wanted = binding(name, REPLICAS)
    return plane.call(plane.scheduling.Schedule, scheduling_pb2.ScheduleRequest(binding=wanted))


def test_what_was_promised_since_is_not_promised_again(tmp_path: Path) -> None:
    with serving(tmp_path, *PACE) as plane:
        credential = joined(plane)
        say(plane, credential, epoch=1, nodes=1)
        files = plane.postgres_directory
        assert plane.server.stop() == 0
    backup = files.with_name(f"{files.name}-backup")
    copy(files, backup)
    with serving(tmp_path, *PACE) as plane:
        say(plane, credential, epoch=2, nodes=1)
        assert schedule(plane, "since").decision.outcome == scheduling_pb2.OUTCOME_SCHEDULED
        assert plane.server.stop() == 0
    shutil.rmtree(files)
    backup.rename(files)
    time.sleep(SILENT_SECONDS)
    with serving(tmp_path, *PACE) as plane:
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
