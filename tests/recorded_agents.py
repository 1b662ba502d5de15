"""Agents in this process, run by the agent's own code: they replay the recorded clusters.

Must not make a report itself: a test that needs reports as a running fleet has them starts these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from estimator.app import run
from estimator.settings import OPTIONS, run_settings
from lab.control_planes import RunningControlPlane
from lab.patience import until

DUMPS: Final = Path(__file__).parents[1] / "examples" / "clusters"
RECORDED: Final = ("member1", "member2", "member3")


@asynccontextmanager
async def recorded_agents(
    running: RunningControlPlane,
    folder: Path,
    clusters: Sequence[str] = RECORDED,
    scripts: Mapping[str, Path] = MappingProxyType({}),
) -> AsyncIterator[None]:
    """Agents of these clusters, from their first reports on, until the end of the block.

    A cluster replays its dump, or reports what its script says.
    """
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as agents:
        for cluster in clusters:
            token = await _join_token(running, cluster)
            flags = {"cluster": cluster, "join_token": token} | _source(cluster, scripts)
            agents.create_task(_agent(running, folder, flags, stopping))
        try:
            await until(lambda: _reported(running), set(clusters).issubset)
            yield
        finally:
            stopping.set()


async def _agent(
    running: RunningControlPlane, folder: Path, flags: Mapping[str, str], stopping: asyncio.Event
) -> None:
    endpoint = {"endpoint": str(running.plane.endpoint), "insecure": "true"}
    credential = {"credential_file": str(folder / f"{flags['cluster']}.credential.json")}
    loaded = OPTIONS.load(
        flags={**flags, **endpoint, **credential}, environment={}, document={}, source=""
    )
    await run(run_settings(loaded, folder), stopping)


def _source(cluster: str, scripts: Mapping[str, Path]) -> dict[str, str]:
    if cluster in scripts:
        return {"report": str(scripts[cluster])}
    return {"from": str(DUMPS / f"{cluster}.json")}


async def _join_token(running: RunningControlPlane, cluster: str) -> str:
    answer = await running.admin.ask("CreateJoinToken", cluster=cluster)
    return str(answer.token)


async def _reported(running: RunningControlPlane) -> set[str]:
    answer = await running.admin.ask("ListClusters")
    return {
        cluster.metadata.name
        for cluster in answer.clusters
        if cluster.status.agent.report_sequence > 0
    }
