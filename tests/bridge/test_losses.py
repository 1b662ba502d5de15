"""Nothing is lost: neither what runs in a lost cluster, nor a decision that was not written."""

from __future__ import annotations

import pytest

from lab.karmadas import FULLY_APPLIED, binding, member, placed, until
from lab.kubeapi.faults import First, bad_gateway
from lab.kubeapi.resources import RESOURCE_BINDINGS, Document
from tests.bridge.worlds import World, only

LOST = {"key": "cluster.karmada.io/not-ready", "effect": "NoSchedule"}
PATIENT = {
    "key": "cluster.karmada.io/not-ready",
    "operator": "Exists",
    "effect": "NoExecute",
    "tolerationSeconds": 86_400,
}
THEIRS = {"fromCluster": "m1", "producer": "TaintManager", "reason": "TaintUntolerated"}


async def test_what_runs_in_a_lost_cluster_leaves_it_gracefully(world: World) -> None:
    here = binding("web")["spec"]["placement"]
    world.put(member("m1", cpu="100"), binding("web"), binding("known"))
    world.put(binding("patient", placement={**here, "clusterTolerations": [PATIENT]}))
    async with world.bridging(failover=True):
        await until(lambda: all(map(world.is_settled, ("web", "known", "patient"))))
        # Somebody else has seen it first.
        world.edit("known", gracefulEvictionTasks=[THEIRS])
        await until(lambda: world.is_settled("known"))
        world.put(member("m2", cpu="100"))
        world.edit_cluster("m1", spec={"taints": [LOST]})
        await until(lambda: world.targets("web") == world.targets("known") == {"m2": 4})
        await until(lambda: world.is_settled("web"))
        (task,) = world.binding("web")["spec"]["gracefulEvictionTasks"]
        assert (task["fromCluster"], task["producer"]) == ("m1", "fedsched")
        assert (task["reason"], task["replicas"]) == ("TaintUntolerated", 4)
        assert task["creationTimestamp"]
        assert world.binding("known")["spec"]["gracefulEvictionTasks"] == [THEIRS]
        # Karmada ends the task, and it is not made again.
        world.edit("web", gracefulEvictionTasks=None)
        await until(lambda: world.is_settled("web"))
        world.edit_cluster("m1", spec={"taints": None})
        world.put(binding("later"))
        await until(lambda: world.is_settled("later"))
        assert "gracefulEvictionTasks" not in world.binding("web")["spec"]
        assert world.targets("web") == {"m2": 4}
        # Karmada gives each policy such a toleration: with it there is time to come back.
        assert world.targets("patient") == {"m1": 4}
        # A cluster that has replicas back loses our task, and nobody else's.
        ours = {**THEIRS, "fromCluster": "m1", "producer": "fedsched"}
        other = {**THEIRS, "fromCluster": "m9"}
        world.edit("web", gracefulEvictionTasks=[ours, other], placement=only("m1"))
        await until(lambda: world.targets("web") == {"m1": 4})
        assert world.binding("web")["spec"]["gracefulEvictionTasks"] == [other]


async def test_many_clusters_that_are_lost_at_once_are_not_left(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """That is rather one network, or Karmada itself."""
    names = [f"m{number:02}" for number in range(12)]
    world.put(*(member(name) for name in names), binding("web", placement=only("m04", "m11")))
    async with world.bridging(failover=True):
        await until(lambda: world.is_settled("web"))
        for name in names[:4]:
            world.edit_cluster(name, spec={"taints": [LOST]})
        world.put(binding("later"))
        await until(lambda: world.is_settled("later"))
        assert "nothing moves off them" not in caplog.text
        world.edit_cluster("m04", spec={"taints": [LOST]})
        await until(lambda: "nothing moves off them" in caplog.text)
        assert "m04" in world.targets("web")
        world.edit_cluster("m00", spec={"taints": None})
        await until(lambda: "what runs there moves off them" in caplog.text)
        await until(lambda: world.targets("web") == {"m11": 4})


async def test_a_reschedule_whose_writing_fails_is_written_and_not_decided_again(
    world: World,
) -> None:
    """Decided a second time it would be a binding that stays where it is."""
    web = placed("web", m1=4)
    web["spec"]["rescheduleTriggeredAt"] = "2026-03-01T13:00:00Z"
    web["metadata"]["generation"] = 2
    world.put(member("m1"), member("m2", cpu="30"), web)
    world.server.faults.add(bad_gateway(), resource="resourcebindings", verb="patch", times=2)
    async with world.bridging():
        await until(lambda: world.is_settled("web"))
    assert world.targets("web") == {"m1": 1, "m2": 3}
    assert world.binding("web")["status"]["lastScheduledTime"] > "2026-03-01T13:00:00Z"


async def test_what_another_writes_at_the_same_moment_is_not_undone(world: World) -> None:
    def meanwhile(part: str, patch: Document) -> None:
        """Just before the next patch arrives, somebody else's does."""
        writer = world.server.writer
        act = First(act=lambda: writer.patch(RESOURCE_BINDINGS, "default", "web", patch, part=part))
        world.server.faults.add(act, times=1, resource="resourcebindings", verb="patch")

    world.put(member("m1", cpu="100"), binding("web"))
    meanwhile("status", {"status": {"conditions": [FULLY_APPLIED]}})
    async with world.bridging():
        await until(lambda: world.is_settled("web"))
        kinds = {each["type"] for each in world.binding("web")["status"]["conditions"]}
        assert kinds == {"FullyApplied", "Scheduled"}
        assert world.targets("web") == {"m1": 4}
        # An eviction is another generation: what was decided is not for that.
        world.put(member("m2", cpu="100"))
        meanwhile("", {"spec": {"clusters": None, "gracefulEvictionTasks": [THEIRS]}})
        world.edit("web", replicas=6)
        await until(lambda: world.targets("web") == {"m2": 6})
        assert world.binding("web")["spec"]["gracefulEvictionTasks"] == [THEIRS]
