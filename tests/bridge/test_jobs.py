"""Jobs that run in several clusters: their completions are fixed, so their shares are."""

from __future__ import annotations

from lab.karmadas import EVERYWHERE, binding, member, placed, until
from lab.kubeapi.resources import Document
from lab.patience import until as until_asked
from tests.bridge.worlds import World


def job(name: str) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "namespace": "default",
        "name": name,
        "uid": f"uid-of-{name}",
    }


def cluster(name: str, cpu: str = "20") -> Document:
    """One that knows Jobs."""
    made = member(name, cpu=cpu)
    made["status"]["apiEnablements"] = [
        {"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}
    ]
    return made


async def test_a_job_that_runs_is_not_divided_anew(world: World) -> None:
    everywhere = binding("both", resource=job("both"), placement=EVERYWHERE, replicas=1)
    world.put(cluster("m1"), cluster("m2"), binding("scan", resource=job("scan")), everywhere)
    async with world.bridging():
        await until(lambda: world.is_settled("scan") and world.is_settled("both"))
        assert world.targets("scan") == {"m1": 2, "m2": 2}
        # Divided anew, most of it would go to m1.
        wide = {"allocatable": {"cpu": "900", "memory": "64Gi", "pods": "440"}}
        world.edit_cluster("m1", part="status", status={"resourceSummary": wide})
        await a_person_reschedules(world)
        world.edit("scan", replicas=6)
        # One that goes everywhere has no share of a sum.
        world.edit("both", replicas=3)
        await until(lambda: world.is_settled("scan") and world.is_settled("both"))
        assert world.targets("scan") == {"m1": 2, "m2": 2}
        assert "spec.replicas is 6 and 4 stay" in world.condition("scan")["message"]
        assert world.targets("both") == {"m1": 3, "m2": 3}
        # Pods that succeeded need no totals, and pods of a Job that run count as ready ones.
        status = {"active": 1, "succeeded": 1}
        told = [{"clusterName": "m1", "applied": True, "status": status}]
        world.edit_status("scan", aggregatedStatus=told)

        async def outstanding() -> list[int]:
            return await world.outstanding("scan")

        await until_asked(outstanding, lambda found: found == [3])
        # A share whose cluster is deleted goes whole to a cluster that has none.
        world.put(cluster("m3"))
        world.begin_deleting("m2")
        await until(lambda: world.targets("scan") == {"m1": 2, "m3": 2})
        await until(lambda: world.is_settled("scan"))


async def test_what_an_eviction_took_off_a_job_runs_elsewhere(world: World) -> None:
    """Where nothing says that it ran, a Job that has less than it asks for has what it placed."""
    taken = {"fromCluster": "m2", "producer": "TaintManager", "reason": "x", "replicas": 1}
    for name, tasks in (("evicted", [taken]), ("less", None)):
        document = placed(name, m1=3)
        document["spec"].update(resource=job(name), replicas=4, gracefulEvictionTasks=tasks)
        world.put(document)
    world.put(cluster("m1"), cluster("m2"), cluster("m3"))
    async with world.bridging():
        await until(lambda: world.targets("evicted") == {"m1": 3, "m3": 1})
        await world.is_stored("evicted", "less")
        assert (await world.got("less")).binding.spec.replicas == 3
    assert world.targets("less") == {"m1": 3}


async def a_person_reschedules(world: World) -> None:
    """Until the new totals are known and most of it goes to m1; and the bridge takes it back."""

    async def moved() -> dict[str, int]:
        answer = await world.plane.ask("RescheduleBinding", namespace="default", name="scan")
        return {each.name: each.replicas for each in answer.decision.clusters}

    await until_asked(moved, lambda targets: targets["m1"] > 2)

    async def stored() -> dict[str, int]:
        return {
            each.name: each.replicas for each in (await world.got("scan")).binding.spec.clusters
        }

    await until_asked(stored, lambda targets: targets == {"m1": 2, "m2": 2})
