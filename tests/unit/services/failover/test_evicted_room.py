"""What left a lost cluster may start there once it is back: until then its room is kept."""

from __future__ import annotations

from dataclasses import replace

from federation.model.namespace_quotas import NamespaceQuota
from federation.model.placement import Binding, ClusterAffinity, Placement
from federation.model.resources import CPU
from lab.services import DYNAMIC, WEB, apply, decided, shares
from tests.unit.services.conftest import held, only
from tests.unit.services.failover.conftest import Drill

OTHER = replace(only("a", 4), name="other", uid="")


def within(*clusters: str) -> Binding:
    affinity = ClusterAffinity(cluster_names=clusters)
    placement = Placement(replica_scheduling=DYNAMIC, affinity=affinity)
    return replace(WEB, replicas=3, placement=placement)


async def moved_from_a_to_b(drill: Drill) -> None:
    """Of three replicas in a, which had six cores, two ran when it was lost; it is back."""
    assert decided(await apply(drill.deciders.scheduling, within("a"))) == {"a": 3}
    assert decided(await apply(drill.deciders.scheduling, within("a", "b"))) == {"a": 3}
    await drill.sees("a", 2, free=4, unbound=1)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    assert shares((await drill.stored()).clusters) == {"b": 3}
    await drill.sees("b", 1, free=2, unbound=2)
    drill.speaking.add("a")
    await drill.sees("a", 2, free=4, unbound=1)
    await drill.pass_time(3)


async def test_pods_on_no_node_keep_their_room_until_the_eviction_ends(drill: Drill) -> None:
    await moved_from_a_to_b(drill)
    assert [task.replicas for task in (await drill.stored()).eviction_tasks] == [3]
    assert await held(drill.store) == {"a": 3, "b": 3}
    # Four cores are free in a, and one of them is for the pod that was not deleted.
    assert decided(await apply(drill.deciders.scheduling, OTHER)) == {}
    assert decided(await apply(drill.deciders.scheduling, replace(OTHER, replicas=3))) == {"a": 3}


async def test_the_room_is_free_once_the_replacement_runs(drill: Drill) -> None:
    await moved_from_a_to_b(drill)
    await drill.sees("b", 3, free=0)
    await drill.pass_time(3)
    assert (await drill.stored()).eviction_tasks == ()
    assert await held(drill.store) == {"b": 3}
    assert decided(await apply(drill.deciders.scheduling, OTHER)) == {"a": 4}


async def test_a_binding_that_was_submitted_again_keeps_it_too(drill: Drill) -> None:
    await moved_from_a_to_b(drill)
    again = replace(within("a", "b"), labels={"version": "2"})
    assert decided(await apply(drill.deciders.scheduling, again)) == {"b": 3}
    assert await held(drill.store) == {"a": 3, "b": 3}


async def test_a_namespace_at_its_quota_leaves_a_lost_cluster(drill: Drill) -> None:
    quota = NamespaceQuota(namespace=WEB.namespace, limits={CPU: 3000})
    async with drill.store.transaction() as tx:
        await tx.quotas.put(quota)
    await moved_from_a_to_b(drill)
    # Until it is gone it counts there as well, for everybody else.
    assert decided(await apply(drill.deciders.scheduling, replace(OTHER, replicas=1))) == {}


async def test_an_eviction_goes_on_in_a_cluster_that_was_not_heard_of(drill: Drill) -> None:
    """Whoever has the duty may lag behind the control plane that added the cluster."""
    await apply(drill.deciders.scheduling, replace(WEB, replicas=3))
    drill.speaking.remove("a")
    await drill.pass_time(65)
    before = (await drill.stored()).eviction_tasks
    drill.fleet.remove("a")
    await drill.pass_time(3)
    assert before
    assert (await drill.stored()).eviction_tasks == before
