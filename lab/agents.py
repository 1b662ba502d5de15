"""``estimator`` processes, and what a control plane says of their clusters.

Must not look into a process: what is known of it is what it says and how it ends.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from federation.v1.clusters_pb2 import CreateJoinTokenResponse
from federation.v1.resource_pb2 import Cluster
from lab.control_planes import RunningControlPlane
from lab.patience import PATIENCE_SECONDS
from lab.program_logs import check_process
from lab.workloads import DUPLICATED, workload_message

ROOT = Path(__file__).parents[1]
DUMPS = ROOT / "examples" / "clusters"
# A bound on hanging only.
SECONDS = PATIENCE_SECONDS
POLL_SECONDS = 0.05


class Process:
    """An ``estimator`` process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def end(self) -> tuple[int, str]:
        """Its exit code and what it said on standard error."""
        async with asyncio.timeout(SECONDS):
            _, said = await self.process.communicate()
        assert self.process.returncode is not None
        check_process("estimator", said.decode())
        return self.process.returncode, said.decode()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        return await self.end()


@asynccontextmanager
async def estimator(*arguments: str, **environment: str) -> AsyncIterator[Process]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ESTIMATOR_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "estimator", *arguments),
        cwd=ROOT,
        env={**kept, **environment},
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Process(process)
    finally:
        if process.returncode is None:
            process.kill()
            _, said = await process.communicate()
            check_process("estimator", said.decode())
            # Shown beside a test that failed.
            sys.stderr.write(said.decode())


async def join_token(plane: RunningControlPlane, cluster: str) -> CreateJoinTokenResponse:
    made = await plane.ask("CreateJoinToken", cluster=cluster)
    assert isinstance(made, CreateJoinTokenResponse)
    return made


async def cluster_where(
    plane: RunningControlPlane, name: str, holds: Callable[[Cluster], bool]
) -> Cluster:
    """The cluster as soon as it is so."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                answer = await plane.ask("GetCluster", name=name)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.NOT_FOUND:
                    raise
            else:
                cluster: Cluster = answer.cluster
                if holds(cluster):
                    return cluster
            await asyncio.sleep(POLL_SECONDS)


def has_reported(cluster: Cluster) -> bool:
    return bool(cluster.status.resource_summary.allocatable)


def flags(plane: RunningControlPlane, cluster: str, tmp_path: Path) -> list[str]:
    return [
        *("--cluster", cluster),
        *("--endpoint", str(plane.plane.endpoint)),
        *("--insecure", "--credential-file", str(tmp_path / f"{cluster}.json")),
    ]


async def scheduled(
    plane: RunningControlPlane,
    cluster: str,
    *,
    replicas: int,
    name: str = "web",
    is_urgent: bool = False,
) -> Any:
    """The decision about a workload whose replicas ask for half a core.

    An urgent one takes the place of the others.
    """
    binding = workload_message(
        name,
        {"cpu": 500},
        replicas,
        scheduling=DUPLICATED,
        namespace="shop",
        uid="",
        among=[cluster],
    )
    binding.spec.resource.api_version, binding.spec.resource.kind = "apps/v1", "Deployment"
    binding.spec.resource.namespace, binding.spec.resource.name = "shop", name
    if is_urgent:
        binding.spec.schedule_priority.priority = 100
        binding.spec.preemption_policy = "PreemptLowerPriority"
    answer = await plane.ask("Schedule", binding=binding, node_timeout_seconds=60.0)
    return answer.decision
