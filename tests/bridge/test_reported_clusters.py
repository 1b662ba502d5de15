"""Clusters without an agent, which the bridge reports on a control plane with a quick heartbeat."""

from __future__ import annotations

from typing import Any

import pytest

from lab.karmadas import binding, member, until
from lab.patience import until as until_held
from tests.bridge.worlds import World, only


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    return {"heartbeat_seconds": "0.2", "report_seconds": "0.2"}


async def status_of(world: World, name: str) -> Any:
    return (await world.plane.ask("GetCluster", name=name)).cluster.status


async def test_a_cluster_that_reports_nothing_yet_is_heard_all_the_same(world: World) -> None:
    """Its status comes later: it is no lost cluster until then."""
    bare = member("m2")
    summary = bare["status"].pop("resourceSummary")
    world.put(member("m1"), bare, binding("web", placement=only("m1")))
    async with world.bridging():
        await until(lambda: world.is_settled("web"))

        # By its clock's offset, which is taken as a stream opens: it is heard on the same one.
        earlier = (await status_of(world, "m2")).agent

        async def is_heard() -> bool:
            nonlocal earlier
            agent, last = (await status_of(world, "m2")).agent, earlier
            earlier = agent
            is_later = (
                agent.last_heartbeat_time.ToNanoseconds() > last.last_heartbeat_time.ToNanoseconds()
            )
            return is_later and agent.clock_offset_seconds == last.clock_offset_seconds

        await until_held(is_heard, bool)
        assert not (await status_of(world, "m2")).HasField("resource_summary")
        world.edit_cluster("m2", part="status", status={"resourceSummary": summary})

        async def cpu() -> str:
            return str((await status_of(world, "m2")).resource_summary.allocatable["cpu"])

        await until_held(cpu, lambda amount: amount == "10")
