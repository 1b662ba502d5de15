"""A bridge that takes over from another one: nothing that was at rest is forgotten."""

from __future__ import annotations

import pytest

from lab.karmadas import EVERYWHERE, binding, member, placed, until
from lab.kubeapi.resources import Document
from tests.bridge.worlds import World


async def place(world: World) -> None:
    """Have a bridge place a divided binding and one that goes everywhere, and end it."""
    world.put(
        member("m1", cpu="100"),
        member("m2", cpu="100"),
        binding("web"),
        binding("everywhere", replicas=2, placement=EVERYWHERE),
    )
    async with world.bridging():
        await until(lambda: world.is_settled("web") and world.is_settled("everywhere"))
    assert world.targets("web") == {"m1": 2, "m2": 2}
    assert world.targets("everywhere") == {"m1": 2, "m2": 2}


@pytest.mark.parametrize("moment", ["while no bridge runs", "after the restart"])
async def test_clusters_that_come_and_go_concern_bindings_that_another_bridge_placed(
    world: World, moment: str
) -> None:
    await place(world)
    if moment == "while no bridge runs":
        world.begin_deleting("m2")
        world.put(member("m3", cpu="100"))
    async with world.bridging():
        if moment == "after the restart":
            written = len(world.writes())
            world.put(binding("later"))
            await until(lambda: world.is_settled("later"))
            # By a restart alone nothing is written.
            assert len(world.writes()) == written + len(world.writes("later"))
            world.begin_deleting("m2")
            world.put(member("m3", cpu="100"))
        await until(lambda: world.targets("everywhere") == {"m1": 2, "m3": 2})
        await until(lambda: "m2" not in world.targets("web"))
        await until(lambda: sum(world.targets("web").values()) == 4)
        await until(lambda: world.is_settled("web"))


def ready(replicas: int) -> list[Document]:
    status = {"readyReplicas": replicas, "generation": 1, "observedGeneration": 1}
    return [{"clusterName": "m1", "applied": True, "status": status}]


async def promised(world: World) -> dict[str, int]:
    """What ``fedctl get reservations`` shows, by binding."""
    answer = await world.plane.ask("ListClusters", include_packable=True)
    promises = [each for cluster in answer.clusters for each in cluster.status.packable.promises]
    return {each.binding: each.replicas for each in promises}


@pytest.mark.parametrize("before", ["another bridge", "karmada-scheduler"])
async def test_what_runs_already_is_not_counted_a_second_time(world: World, before: str) -> None:
    """Eight of ten cores are in use: two more replicas find room at once, and a third does not."""
    if before == "another bridge":
        world.put(member("m1"), binding("web", replicas=8))
        async with world.bridging():
            await until(lambda: world.is_settled("web"))
            world.edit_status("web", aggregatedStatus=ready(8))
            await world.until_outstanding({"web": 0}, used="8", cpu="10")
    else:
        web = placed("web", m1=8)
        web["status"]["aggregatedStatus"] = ready(8)
        cluster = member("m1")
        used = {"cpu": "8", "memory": "0", "pods": "8"}
        cluster["status"]["resourceSummary"]["allocated"] = used
        world.put(cluster, web)
    async with world.bridging():
        world.put(binding("later", replicas=2))
        await until(lambda: world.is_settled("later"))
        # Placed when it was asked about first: nothing said that there was no room.
        assert len(world.writes("later")) == 2
        assert await world.outstanding("web") == [0]
        assert await promised(world) == {"default/later": 2}
        world.put(binding("last", replicas=1))
        await until(lambda: world.is_unschedulable("last"))
        if before == "another bridge":
            # Fewer are ready, and as many again: those need newer totals, whoever counted them.
            world.edit_status("web", aggregatedStatus=ready(5))
            world.edit_status("web", aggregatedStatus=ready(8))
            await world.until_outstanding({"web": 0}, used="8", cpu="10")
