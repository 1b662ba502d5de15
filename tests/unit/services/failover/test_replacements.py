"""What runs leaves a cluster only for a replacement that runs, and returns to its own group."""

from __future__ import annotations

from dataclasses import replace

from federation.model.placement import AffinityGroup, ClusterAffinity, Placement
from federation.services.failover.evicting import progress_of
from lab.services import DYNAMIC, WEB, apply, decided, shares
from tests.unit.services.failover.conftest import Drill

THREE = replace(WEB, replicas=3)


async def test_a_replacement_that_found_no_node_ends_nothing(drill: Drill) -> None:
    """Its pods are seen, on no node: the old share, which runs, is back with its cluster."""
    await apply(drill.deciders.scheduling, THREE)
    before = await drill.stored()
    had = shares(before.clusters)
    await drill.sees("a", had["a"])
    drill.speaking.remove("a")
    await drill.pass_time(65)
    moved = await drill.stored()
    for name, replicas in shares(moved.clusters).items():
        await drill.sees(name, had.get(name, 0), unbound=replicas - had.get(name, 0))
    # Longer than evictions may last: nothing replaces what may run in a.
    await drill.pass_time(150)
    assert (await drill.stored()).eviction_tasks == moved.eviction_tasks
    assert [each.deadline for each in (await drill.control.get()).evictions] == [None]
    drill.speaking.add("a")
    await drill.sees("a", had["a"])
    await drill.pass_time(3)
    back = await drill.stored()
    assert shares(back.clusters) == had
    assert back.eviction_tasks == ()


async def test_a_share_that_moved_to_another_affinity_group_returns_to_its_own(
    drill: Drill,
) -> None:
    groups = tuple(
        AffinityGroup(name=name, affinity=ClusterAffinity(cluster_names=clusters))
        for name, clusters in (("home", ("a",)), ("abroad", ("b", "c")))
    )
    placement = Placement(affinity_groups=groups, replica_scheduling=DYNAMIC)
    assert decided(await apply(drill.deciders.scheduling, replace(THREE, placement=placement))) == {
        "a": 3
    }
    drill.speaking.remove("a")
    await drill.pass_time(65)
    assert "a" not in shares((await drill.stored()).clusters)
    drill.speaking.add("a")
    await drill.pass_time(3)
    back = await drill.stored()
    assert (shares(back.clusters), back.eviction_tasks) == ({"a": 3}, ())


async def test_a_replacement_in_a_cluster_that_is_gone_or_silent_does_not_run(
    drill: Drill,
) -> None:
    await apply(drill.deciders.scheduling, replace(THREE, replicas=1))
    (first,) = (await drill.stored()).clusters
    drill.speaking.remove(first.name)
    await drill.pass_time(65)
    moved = await drill.stored()
    (second,), (task,) = moved.clusters, moved.eviction_tasks
    await drill.sees(second.name, 1)
    assert progress_of(drill.fleet, moved, task, {second.name}).outstanding == 0
    assert progress_of(drill.fleet, moved, task, {first.name}).outstanding == 1
    drill.fleet.remove(second.name)
    assert progress_of(drill.fleet, moved, task, {second.name}).outstanding == 1
