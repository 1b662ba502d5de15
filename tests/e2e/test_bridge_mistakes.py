"""The ten mistakes that are easiest to make in karmada-scheduler's place, one by one.

Over Karmada's API alone, whoever serves it: one bridge and one control plane for all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from federation.bridge.objects import APPLIED_PLACEMENT
from federation.client import Target
from federation.model.access import Role
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.karmadas import (
    DYNAMIC,
    FULLY_APPLIED,
    binding,
    bridging,
    is_settled,
    member,
    scheduled_condition,
    targets_of,
)
from lab.kubeapi.resources import Document
from lab.patience import until
from tests.karmada_api import KarmadaApi

ON_M1: Document = {"clusterAffinity": {"clusterNames": ["m1"]}, "replicaScheduling": DYNAMIC}
NOWHERE: Document = {"clusterAffinity": {"clusterNames": ["m9"]}, "replicaScheduling": DYNAMIC}
LONG_AGO, LATER = "2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z"


@dataclass(frozen=True, slots=True)
class World:
    """Karmada's API, and the control plane behind the bridge."""

    api: KarmadaApi
    plane: RunningControlPlane

    async def put(self, *documents: Document) -> None:
        await asyncio.to_thread(self.api.create, *documents)

    async def edit(self, name: str, **patch: Any) -> None:
        await asyncio.to_thread(lambda: self.api.edit(name, **patch))

    async def edit_cluster(self, name: str, **patch: Any) -> None:
        await asyncio.to_thread(lambda: self.api.edit_cluster(name, **patch))

    async def when(self, name: str, holds: Callable[[Document], bool]) -> Document:
        """The binding, as soon as this holds of it."""

        async def ask() -> Document:
            return await asyncio.to_thread(self.api.binding, name)

        return await until(ask, holds)

    async def outstanding(self, name: str) -> int:
        answer = await self.plane.admin.ask("GetBinding", namespace="default", name=name)
        return sum(each.outstanding for each in answer.reservations)


def failed(reason: str) -> Callable[[Document], bool]:
    return lambda found: scheduled_condition(found).get("reason") == reason


def version(found: Document) -> str:
    return str(found["metadata"]["resourceVersion"])


def totals(cpu: str, used: Document) -> Document:
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": "440"}
    return {"resourceSummary": {"allocatable": allocatable, "allocated": used}}


async def the_applied_placement_is_written_and_follows(world: World) -> None:
    """1. Without it a binding is scheduled for ever, and never evicted or descheduled."""
    await world.put(binding("applied"))
    for placement in (binding("applied")["spec"]["placement"], ON_M1):
        await world.edit("applied", spec={"placement": placement})

        def is_applied(found: Document, wanted: Document = placement) -> bool:
            applied = found["metadata"].get("annotations", {}).get(APPLIED_PLACEMENT, "null")
            return is_settled(found) and json.loads(applied) == wanted

        await world.when("applied", is_applied)


async def the_generation_of_its_own_patch_is_closed(world: World) -> None:
    """2. Otherwise graceful evictions wait for their timeout."""
    await world.put(binding("closed"))
    found = await world.when("closed", is_settled)
    # A server that counts from 1 has seen the patch of spec.clusters.
    assert found["metadata"]["generation"] == 2
    assert found["status"]["schedulerObservedGeneration"] == 2


async def the_time_is_written_on_success_only(world: World) -> None:
    """3. Written on failure, or never, it loses rebalances."""
    await world.put(binding("timed", replicas=900))
    found = await world.when("timed", failed("Unschedulable"))
    assert "lastScheduledTime" not in found["status"]
    await world.edit("timed", spec={"replicas": 2})
    await world.when("timed", is_settled)
    await world.edit("timed", status={"lastScheduledTime": LONG_AGO})
    await world.edit("timed", spec={"rescheduleTriggeredAt": LATER})
    await world.when(
        "timed", lambda each: is_settled(each) and each["status"]["lastScheduledTime"] > LATER
    )


async def what_fails_keeps_where_it_is(world: World) -> None:
    """4. To empty is to delete the workload everywhere."""
    await world.put(binding("kept", replicas=2, placement=ON_M1))
    await world.when("kept", is_settled)
    await world.edit("kept", spec={"replicas": 900})
    found = await world.when("kept", failed("Unschedulable"))
    assert targets_of(found) == {"m1": 2}
    await world.edit("kept", spec={"replicas": 2, "placement": NOWHERE})
    found = await world.when("kept", failed("NoClusterFit"))
    assert targets_of(found) == {"m1": 2}


async def what_is_deleted_is_left_and_what_evicts_is_not_chosen(world: World) -> None:
    """5. The first hangs a cluster's removal, the second fights the evictor."""
    leaving = member("leaving")
    leaving["metadata"]["finalizers"] = ["karmada.io/cluster-controller"]
    task = {"fromCluster": "m2", "reason": "TaintUntolerated", "producer": "TaintManager"}
    await world.put(
        leaving,
        binding(
            "leaver",
            placement={
                "clusterAffinity": {"clusterNames": ["leaving", "m1"]},
                "replicaScheduling": DYNAMIC,
            },
            clusters=[{"name": "leaving", "replicas": 4}],
        ),
        binding("evicted", gracefulEvictionTasks=[task]),
    )
    found = await world.when("evicted", is_settled)
    assert "m2" not in targets_of(found)
    assert found["spec"]["gracefulEvictionTasks"] == [task]
    await world.when("leaver", is_settled)
    await asyncio.to_thread(world.api.remove_cluster, "leaving")
    await world.when("leaver", lambda each: is_settled(each) and targets_of(each) == {"m1": 4})
    await world.edit_cluster("leaving", metadata={"finalizers": None})


async def what_others_write_is_not_undone(world: World) -> None:
    """6. Arrays travel whole: a stale one takes away what came meanwhile."""
    await world.put(binding("shared"))
    await world.when("shared", is_settled)
    for replicas in range(5, 10):
        # At once, so that they meet as they will.
        await asyncio.gather(
            world.edit("shared", spec={"replicas": replicas}),
            world.edit("shared", status={"aggregatedStatus": [{"clusterName": f"m{replicas}"}]}),
        )
    found = await world.when(
        "shared", lambda each: is_settled(each) and sum(targets_of(each).values()) == 9
    )
    conditions = [*found["status"]["conditions"], FULLY_APPLIED]
    await world.edit("shared", status={"conditions": conditions})
    await world.edit("shared", spec={"replicas": 3})
    found = await world.when(
        "shared", lambda each: is_settled(each) and sum(targets_of(each).values()) == 3
    )
    assert FULLY_APPLIED in found["status"]["conditions"]
    assert found["status"]["aggregatedStatus"] == [{"clusterName": "m9"}]


async def its_own_writes_and_other_metadata_ask_for_nothing(world: World) -> None:
    """7. Whoever reacts to status or annotations goes round in circles."""
    await world.put(binding("quiet"))
    await world.when("quiet", is_settled)
    await world.edit("quiet", metadata={"annotations": {"team": "shop"}})
    await world.edit("quiet", status={"aggregatedStatus": [{"clusterName": "m1"}]})
    before = version(await asyncio.to_thread(world.api.binding, "quiet"))
    # What comes behind it is written, and it is not.
    await world.put(binding("behind"))
    await world.when("behind", is_settled)
    assert version(await asyncio.to_thread(world.api.binding, "quiet")) == before


async def new_room_moves_nothing_that_is_placed(world: World) -> None:
    """8. Neither a new cluster nor more room asks what is placed; what waits gets it."""
    await world.put(binding("settled"), binding("waiting", replicas=70))
    before = version(await world.when("settled", is_settled))
    await world.when("waiting", failed("Unschedulable"))
    await world.put(member("m4", cpu="90"))
    await world.when("waiting", is_settled)
    assert version(await asyncio.to_thread(world.api.binding, "settled")) == before


async def neither_lease_nor_bindings_of_karmada_scheduler_are_touched(world: World) -> None:
    """9. With one lease for both, one of them waits for ever; old policies keep their name."""
    theirs = binding("theirs", schedulerName="default-scheduler")
    await world.put(theirs, binding("ours"))
    await world.when("ours", is_settled)
    found = await asyncio.to_thread(world.api.binding, "theirs")
    assert "status" not in found
    assert "clusters" not in found["spec"]
    leases = await asyncio.to_thread(world.api.leases, "fedsched")
    assert leases == ["fedsched-bridge"]


async def health_is_no_evidence_and_omitted_zeros_are_zeros(world: World) -> None:
    """10. Health may be of an older assignment; a Job is always healthy."""
    await world.put(binding("healthy", placement=ON_M1))
    await world.when("healthy", is_settled)
    told: Document = {"clusterName": "m1", "applied": True, "health": "Healthy"}
    none_ready = {"generation": 1, "observedGeneration": 1, "replicas": 4}
    await world.edit("healthy", status={"aggregatedStatus": [{**told, "status": none_ready}]})
    # Once what is ready has come through, what was told before it has been, too.
    ready = {**none_ready, "readyReplicas": 1}
    for count in itertools.count(1):
        await world.edit_cluster("m1", status=totals("40", {"cpu": "1", "pods": str(count)}))
        outstanding = await world.outstanding("healthy")
        assert outstanding >= 3
        if outstanding == 3:
            return
        await world.edit("healthy", status={"aggregatedStatus": [{**told, "status": ready}]})
        await asyncio.sleep(0.1)


async def test_none_of_the_ten_easiest_mistakes_is_made(
    karmada_api: KarmadaApi, database_url: str, tmp_path: Path
) -> None:
    await asyncio.to_thread(karmada_api.create, member("m1", cpu="40"), member("m2", cpu="60"))
    kubeconfig = karmada_api.kubeconfig(tmp_path / "karmada.config")
    async with running_control_plane(database_url, tmp_path) as plane:
        token = await plane.token(Role.BRIDGE)
        target = Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)
        world = World(karmada_api, plane)
        async with bridging(kubeconfig, target):
            await the_applied_placement_is_written_and_follows(world)
            await the_generation_of_its_own_patch_is_closed(world)
            await the_time_is_written_on_success_only(world)
            await what_fails_keeps_where_it_is(world)
            await what_is_deleted_is_left_and_what_evicts_is_not_chosen(world)
            await what_others_write_is_not_undone(world)
            await its_own_writes_and_other_metadata_ask_for_nothing(world)
            await new_room_moves_nothing_that_is_placed(world)
            await neither_lease_nor_bindings_of_karmada_scheduler_are_touched(world)
            await health_is_no_evidence_and_omitted_zeros_are_zeros(world)
