"""Karmada's API and the control plane that bridges of a test run between.

    world.put(member("m1"), binding("web"))
    async with world.bridging():
        await until(lambda: world.is_settled("web"))

Must not decide anything, nor look into a bridge.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from federation.client import Target
from federation.model.access import Role
from lab.control_planes import RunningControlPlane
from lab.karmadas import DYNAMIC, Karmada, bridging
from lab.kubeapi.resources import CLUSTERS, EVENTS, Document
from lab.kubeapi.server import ADMIN_TOKEN, KubeApiServer
from lab.patience import until


class World(Karmada):
    """The API server with what is in it, and the control plane."""

    def __init__(self, server: KubeApiServer, plane: RunningControlPlane, folder: Path) -> None:
        super().__init__(server)
        self.plane = plane
        self.folder = folder
        self._pods = itertools.count(1)

    async def target(self, role: Role = Role.BRIDGE, **fields: Any) -> Target:
        token = await self.plane.token(role)
        endpoint = str(self.plane.plane.endpoint)
        return Target(endpoint=endpoint, token=token, plaintext=True, **fields)

    @asynccontextmanager
    async def bridging(self, user: str = ADMIN_TOKEN, **options: Any) -> AsyncIterator[None]:
        """A bridge until the end of the block."""
        config = self.kubeconfig(self.folder, user)
        async with bridging(config, await self.target(), **options):
            yield

    async def stored(self) -> set[str]:
        """Names of the bindings that the control plane has."""
        listed = (await self.plane.ask("ListBindings", page_size=1000)).bindings
        return {each.metadata.name for each in listed}

    async def is_stored(self, *names: str) -> None:
        await until(self.stored, lambda found: found == set(names))

    async def got(self, name: str) -> Any:
        return await self.plane.ask("GetBinding", namespace="default", name=name)

    async def outstanding(self, *names: str) -> list[int]:
        """Promised replicas of each that were not seen yet."""
        answers = [await self.got(name) for name in names]
        return [sum(each.outstanding for each in answer.reservations) for answer in answers]

    async def until_outstanding(
        self,
        names: Mapping[str, int],
        used: str,
        before: Callable[[], object] = lambda: None,
        cpu: str = "40",
    ) -> None:
        """Wait for these; totals of m1 come again and again, as Karmada tells them.

        The first may come before the statuses of bindings.
        """

        async def ask() -> list[int]:
            before()
            allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "440"}
            allocated = {"cpu": used, "pods": str(next(self._pods))}
            summary = {"allocatable": allocatable, "allocated": allocated}
            self.edit_cluster("m1", part="status", status={"resourceSummary": summary})
            return await self.outstanding(*names)

        await until(ask, lambda found: found == [*names.values()])

    async def certificates(self, name: str) -> dict[str, str]:
        """What the newest decision's promises are worth, by cluster."""
        promises = (await self.got(name)).decision.promises
        return {each.cluster: each.certificate for each in promises}

    def begin_deleting(self, name: str) -> None:
        """Karmada keeps the cluster until no binding lists it."""
        cluster = self.cluster.get(CLUSTERS, "", name)
        assert cluster is not None
        cluster["metadata"].update(deletionTimestamp="2026-03-01T12:00:00Z", finalizers=["karmada"])
        self.put(cluster)

    def told_of(self, reason: str) -> set[str]:
        """The objects with an event of that reason."""
        events = self.cluster.all(EVENTS)
        return {each["involvedObject"]["name"] for each in events if each["reason"] == reason}


def only(*clusters: str) -> Document:
    """A placement in these clusters."""
    return {"clusterAffinity": {"clusterNames": [*clusters]}, "replicaScheduling": DYNAMIC}
