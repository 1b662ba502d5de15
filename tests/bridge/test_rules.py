"""What the bridge asks for, writes and leaves alone: Karmada's rules, many bindings at a time."""

from __future__ import annotations

import copy
import json
import logging
from typing import Any

import pytest

from federation.bridge.__main__ import bridge
from federation.bridge.objects import APPLIED_PLACEMENT
from lab.karmadas import (
    ANY_PORT,
    DYNAMIC,
    EVERYWHERE,
    FULLY_APPLIED,
    POLICY_LABEL,
    binding,
    health_address,
    is_served,
    member,
    placed,
    until,
)
from lab.kubeapi.faults import bad_gateway
from lab.kubeapi.resources import EVENTS, Document
from lab.patience import until as until_asked
from tests.bridge.worlds import World, only

LONG_AGO, LATER = "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"
# Without weights all clusters get as much: by what runs it is seen whether it was divided anew.
EVENLY: Document = {
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Weighted",
    }
}
KEPT, ANEW = {"m1": 1, "m2": 7}, {"m1": 4, "m2": 4}
LOST = {"key": "cluster.karmada.io/unreachable", "effect": "NoSchedule"}
TERMS = [
    {"affinityName": "near", "clusterNames": ["m1", "m2"]},
    {"affinityName": "far", "clusterNames": ["m3"]},
]


def resting(name: str, placement: Document, applied: Document | str | None) -> Document:
    """A binding that was placed long ago, by that placement."""
    document = placed(name, **KEPT)
    document["spec"]["placement"] = placement
    annotations = document["metadata"]["annotations"]
    annotations.clear()
    if applied is not None:
        text = applied if isinstance(applied, str) else json.dumps(applied)
        annotations[APPLIED_PLACEMENT] = text
    return document


def with_terms(*, changed: str = "") -> Document:
    terms = [{**each, **({"clusterNames": ["m9"]} if each["affinityName"] == changed else {})}
             for each in TERMS]  # fmt: skip
    return {**EVENLY, "clusterAffinities": terms}


def rows() -> list[tuple[Document, dict[str, int], bool]]:
    """Bindings at rest, where they are in the end, and whether they are decided again."""
    made: list[tuple[Document, dict[str, int], bool]] = []

    def row(
        name: str,
        applied: Document | str | None = EVENLY,
        targets: dict[str, int] | None = None,
        *,
        is_decided: bool | None = None,
        placement: Document = EVENLY,
        observing: str = "",
        **spec: Any,
    ) -> None:
        document = resting(name, placement, applied)
        document["spec"].update(spec)
        if observing:
            document["status"]["schedulerObservingAffinityName"] = observing
        decided = targets is not None if is_decided is None else is_decided
        made.append((document, KEPT if targets is None else targets, decided))

    row("rest")
    row("unreadable", "{not JSON")
    row("same-in-meaning", {**EVENLY, "clusterTolerations": [], "spreadConstraints": None})
    row("limited", {"replicaScheduling": {**EVENLY["replicaScheduling"]}})
    row("applied-missing", None, ANEW)
    row("other-affinity", {**EVENLY, "clusterAffinity": {"clusterNames": ["m1"]}}, ANEW)
    row("other-strategy", {}, ANEW)
    row("scaled", EVENLY, {"m1": 3, "m2": 3}, replicas=6)
    row("rescheduled", EVENLY, ANEW, rescheduleTriggeredAt=LATER)
    row("rescheduled-before", rescheduleTriggeredAt=LONG_AGO)
    near = {"placement": with_terms(), "observing": "near"}
    row("other-group", with_terms(changed="far"), **near)
    row("own-group", with_terms(changed="near"), ANEW, **near)
    row("no-group", with_terms(changed="far"), ANEW, placement=with_terms())
    everywhere = {**EVERYWHERE, **only("m1")}
    everywhere["replicaScheduling"] = EVERYWHERE["replicaScheduling"]
    row(
        "everywhere",
        everywhere,
        {"m1": 8},
        placement=everywhere,
        clusters=[{"name": "m1", "replicas": 8}],
        rescheduleTriggeredAt=LATER,
    )
    return made


async def test_what_is_at_rest_stays_and_what_karmada_would_decide_again_is(world: World) -> None:
    table = rows()
    world.put(member("m1", cpu="900"), member("m2", cpu="900"))
    world.put(*(copy.deepcopy(document) for document, _, _ in table))
    names = [document["metadata"]["name"] for document, _, _ in table]

    def is_decided(name: str) -> bool:
        return bool(world.binding(name)["status"]["lastScheduledTime"] > LATER)

    async with world.bridging():
        # People are told of what changes, and of what has another scheduler now.
        await until(lambda: world.told_of("ScheduleBindingSucceed") >= set(names))
        assert {name: world.targets(name) for name in names} == {
            document["metadata"]["name"]: targets for document, targets, _ in table
        }
        assert {name: is_decided(name) for name in names} == {
            document["metadata"]["name"]: decided for document, _, decided in table
        }
        assert not any(world.writes(document["metadata"]["name"])
                       for document, _, decided in table if not decided)  # fmt: skip


async def test_bindings_of_others_and_those_that_have_to_wait_are_left_alone(world: World) -> None:
    theirs = [
        binding("default", schedulerName="default-scheduler"),
        binding("unnamed", schedulerName=""),
        binding("unmanaged"),
        binding("suspended", suspension={"scheduling": True}),
        # It runs in a cluster that nobody knows: to decide it would move it.
        placed("strange", m9=4),
    ]
    theirs[2]["metadata"]["labels"] = {POLICY_LABEL: ""}
    ours = [binding(name) for name in ("renamed", "ending", "replaced", "moved")]
    changed = placed("strange-and-changed", m9=4)
    changed["metadata"]["generation"] = 2
    world.put(member("m1", cpu="900"), *theirs, *ours, changed, binding("none", replicas=1000))
    names = [document["metadata"]["name"] for document in (*ours, changed)]
    async with world.bridging():
        await until(lambda: all(map(world.is_settled, names)))
        await until(lambda: world.is_unschedulable("none"))
        assert world.targets("strange-and-changed") == {"m1": 4}
        await world.is_stored(*names, "none")
        # A new name moves it to another scheduler; others are deleted, or replaced by their like.
        world.edit("renamed", schedulerName="default-scheduler")
        ending = world.binding("ending")
        ending["metadata"].update(deletionTimestamp=LATER, finalizers=["karmada"])
        world.put(ending)
        again = binding("replaced", replicas=2)
        again["metadata"]["uid"] = "another"
        world.cluster.remove(world.binding("replaced"))
        world.put(again)
        await until(lambda: world.targets("replaced") == {"m1": 2})
        await world.is_stored("replaced", "moved", "strange-and-changed", "none")
        assert (await world.got("replaced")).binding.metadata.uid == "another"
        # What failed is not asked about again and again.
        assert len(world.writes("none")) == 1
    assert not any(world.writes(document["metadata"]["name"]) for document in theirs)


async def test_the_control_plane_is_asked_for_all_that_karmada_says(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="federation.bridge.metrics")
    toleration = {"key": "gone", "operator": "Exists", "effect": "NoExecute"}
    groups = {"affinity": {"groupByLabelKey": "app"}, "antiAffinity": {"groupByLabelKey": "tier"}}
    task = {"fromCluster": "m2", "producer": "TaintManager", "reason": "x"}
    rich = placed("rich", m1=4)
    rich["spec"].update(
        placement={
            "replicaScheduling": DYNAMIC,
            "clusterTolerations": [{**toleration, "tolerationSeconds": 9}],
            "workloadAffinity": groups,
            "galaxyAffinity": {"arm": "Orion"},
        },
        workloadAffinityGroups={"affinityGroup": "shop", "antiAffinityGroup": "gold"},
        schedulePriority={"priority": 7},
        gracefulEvictionTasks=[task],
    )
    parts = binding("parts", replicas=0, replicaRequirements=None, placement=only("m1"))
    parts["spec"]["components"] = [
        {"name": "a", "replicas": 1, "spin": 1},
        {"name": "b", "replicas": 1, "spin": 2},
    ]
    wrong = binding("wrong", placement={**only("m1"), "clusterAffinity": "m1"})
    quantity = binding("quantity", replicaRequirements={"resourceRequest": {"cpu": True}})
    world.put(member("m1", cpu="900"), rich, parts, wrong, quantity)
    for is_failover in (False, True):
        async with world.bridging(health=ANY_PORT, failover=is_failover, as_karmada=is_failover):
            await until(lambda: world.is_settled("parts"))
            await world.is_stored("rich", "parts")
            if is_failover:
                world.edit("rich", replicas=5)
            await until(lambda: world.is_settled("rich"))
            spec = (found := (await world.got("rich")).binding).spec
            tolerated = [(each.effect, each.toleration_seconds)
                         for each in spec.placement.cluster_tolerations]  # fmt: skip
            if is_failover:
                assert tolerated == [("NoExecute", 9)]
                assert spec.placement.tie_break == "karmada"
                break
            # Evicting is Karmada's own: who tolerates that tolerates what is told in its place.
            assert [effect for effect, _ in tolerated] == ["NoExecute", "NoSchedule"]
            assert spec.placement.tie_break != "karmada"
            assert found.metadata.uid == "uid-rich"
            assert dict(found.metadata.labels) == {"app": "shop", "tier": "gold"}
            assert (spec.schedule_priority.priority, spec.scheduler_name) == (7, "")
            assert [each.from_cluster for each in spec.graceful_eviction_tasks] == ["m2"]
            # Silence is no loss: a bridge that is away for long must not move anything.
            assert spec.on_cluster_loss == "wait"
            # Replicas are written for what has some to divide.
            assert world.binding("parts")["spec"]["clusters"] == [{"name": "m1"}]
            for name, field in (("wrong", "clusterAffinity"), ("quantity", "resourceRequest")):
                await until(lambda each=name: bool(world.condition(each)))
                assert world.condition(name)["reason"] == "SchedulerError"
                assert field in world.condition(name)["message"]
            health = await health_address(lambda: caplog.text)
            # Of the placement, and of both components.
            await is_served(health, "/metrics", "\nfedsched_bridge_unknown_fields_total ")


async def updates(world: World) -> int:
    """How often a cluster was described anew, so far."""
    audit = (await world.plane.ask("ListAudit", page_size=1000)).records
    return sum(each.method == "Clusters/UpdateCluster" for each in audit)


async def test_a_cluster_is_told_as_karmada_describes_it(world: World) -> None:
    taint = {"key": "maintenance", "effect": "NoExecute", "timeAdded": LONG_AGO}
    described = member("m1", region="r1", zones=["b", "a"], provider="p", taints=[taint, LOST])
    described["metadata"]["labels"] = {"tier": "gold"}
    summary = described["status"]["resourceSummary"]
    summary["allocatableModelings"] = [{"grade": 0, "count": 1}, {"grade": 3, "count": 3}]
    bare, odd = member("m2"), member("m3")
    del bare["status"]["resourceSummary"]
    wrong = [{"grade": 0, "count": -1}, {"grade": 3, "count": 3}]
    odd["status"]["resourceSummary"]["allocatableModelings"] = wrong
    world.put(described, bare, odd, binding("web"))

    async def known(name: str, *, has_totals: bool = True) -> Any:
        async def ask() -> Any:
            return (await world.plane.ask("GetCluster", name=name)).cluster

        return await until_asked(
            ask, lambda found: not has_totals or found.status.HasField("resource_summary")
        )

    async with world.bridging():
        await until(lambda: world.is_settled("web"))
        told = await known("m1")
        assert (told.spec.region, sorted(told.spec.zones)) == ("r1", ["a", "b"])
        assert dict(told.metadata.labels) == {"tier": "gold"}
        # Nothing that runs there is moved because of it: that is Karmada's own to do.
        assert {each.key: each.effect for each in told.spec.taints} == {
            "maintenance": "NoSchedule",
            LOST["key"]: "NoSchedule",
        }
        assert [each.group_version for each in told.status.api_enablements] == ["apps/v1"]
        assert told.status.resource_summary.allocatable["cpu"] == "10"
        graded = told.status.node_summary
        assert (graded.total_num, graded.graded_num) == (4, 4)
        assert (await known("m3")).status.node_summary.graded_num == 0
        assert not (await known("m2", has_totals=False)).status.HasField("resource_summary")
        # What is stored already is not updated, whatever else the control plane notes of it.
        before = await updates(world)
        await world.plane.ask("CordonCluster", name="m1", cordoned=True)
        world.edit_cluster("m1", spec={"zones": ["a", "b"]})
        world.put(binding("behind"))
        await until(lambda: world.is_settled("behind"))
        assert await updates(world) == before
    await taints_evict_with_failover(world)


async def taints_evict_with_failover(world: World) -> None:
    """And so does that a cluster is lost."""
    async with world.bridging(failover=True):

        async def effects() -> list[tuple[str, str]]:
            found = (await world.plane.ask("GetCluster", name="m1")).cluster.spec.taints
            return sorted((each.key, each.effect) for each in found)

        await until_asked(
            effects,
            lambda found: (
                {
                    ("maintenance", "NoExecute"),
                    (LOST["key"], "NoExecute"),
                    (LOST["key"], "NoSchedule"),
                }
                <= {*found}
            ),
        )


@pytest.mark.parametrize("as_karmada", [False, True])
async def test_a_placement_is_emptied_only_where_no_cluster_fits_and_all_are_seen(
    world: World, *, as_karmada: bool
) -> None:
    spread = [{"spreadByField": "region", "minGroups": 2}]
    for name, more in (("nowhere", only("m9")), ("spread", {"spreadConstraints": spread})):
        document = placed(name, m1=4)
        document["spec"]["placement"] = {"replicaScheduling": DYNAMIC, **more}
        document["metadata"]["generation"] = 2
        world.put(document)
    world.put(
        member("m1", cpu="90", region="r"), member("m2", region="r"), placed("few", m1=3, m2=1)
    )
    world.edit("few", replicas=900)
    async with world.bridging(as_karmada=as_karmada):
        for name in ("nowhere", "spread"):
            await until(lambda each=name: world.condition(each).get("reason") == "NoClusterFit")
        await until(lambda: world.is_unschedulable("few"))
        assert world.targets("nowhere") == ({} if as_karmada else {"m1": 4})
        assert (world.binding("nowhere")["spec"].get("clusters") is None) is as_karmada
        assert world.targets("spread") == {"m1": 4}
        # Too little room keeps all but what is deleted.
        assert world.targets("few") == {"m1": 3, "m2": 1}
        world.begin_deleting("m2")
        await until(lambda: world.targets("few") == {"m1": 3})
        if as_karmada:
            # Clusters that are not seen may be those that fit.
            world.put(binding("blind", placement=only("m1")))
            await until(lambda: world.is_settled("blind"))
            world.server.faults.add(bad_gateway(), resource="clusters")
            world.server.end_watches()
            world.edit("blind", placement=only("m9"))
            await until(lambda: world.condition("blind").get("reason") == "NoClusterFit")
            assert world.targets("blind") == {"m1": 4}
            world.server.faults.clear()


async def test_conditions_keep_their_time_and_people_are_told_at_the_workload_too(
    world: World,
) -> None:
    failed = binding("failed", replicas=900)
    condition = {
        "type": "Scheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "too little",
        "lastTransitionTime": LONG_AGO,
    }
    failed["status"] = {"conditions": [FULLY_APPLIED, condition]}
    far = {"replicaScheduling": DYNAMIC, "clusterAffinities": [
        {"affinityName": "near", "clusterNames": ["m9"]},
        {"affinityName": "far", "clusterNames": ["m1"]},
    ]}  # fmt: skip
    world.put(member("m1"), member("m2"), failed, binding("far", placement=far, replicas=1))
    world.put(binding("global", kind="ClusterResourceBinding", replicas=900))
    async with world.bridging():
        await until(lambda: world.condition("failed")["message"] != "too little")
        assert world.condition("failed")["lastTransitionTime"] == LONG_AGO
        assert world.binding("failed")["status"].keys() == {"conditions"}
        await until(lambda: "global" in world.told_of("ScheduleBindingFailed"))
        world.edit("failed", replicas=4)
        await until(lambda: world.is_settled("failed") and world.is_settled("far"))
        assert world.condition("failed")["lastTransitionTime"] > LONG_AGO
        assert FULLY_APPLIED in world.binding("failed")["status"]["conditions"]
        assert world.binding("far")["status"]["schedulerObservingAffinityName"] == "far"
        await until(lambda: "failed" in world.told_of("ScheduleBindingSucceed"))
    events = [
        each for each in world.cluster.all(EVENTS) if "Result: {m1:2, m2:2}" in each["message"]
    ]
    assert {each["involvedObject"]["kind"] for each in events} == {"ResourceBinding", "Deployment"}
    assert {each["involvedObject"]["uid"] for each in events} == {"uid-failed", "uid-of-failed"}
    assert {each["source"]["component"] for each in events} == {"fedsched"}
    (of_cluster, *_) = [each for each in world.cluster.all(EVENTS)
                        if each["involvedObject"]["kind"] == "ClusterResourceBinding"]  # fmt: skip
    assert (of_cluster["metadata"]["namespace"], of_cluster["type"]) == ("default", "Warning")


async def test_only_evidence_of_the_newest_spec_counts_as_ready(world: World) -> None:
    """Not health: it may be of an older assignment, and a Job is always healthy."""
    current = {"readyReplicas": 2, "generation": 4, "observedGeneration": 4}
    left: dict[str, tuple[Document | None, bool, int]] = {
        "current": (current, True, 1),
        "more-than-assigned": ({"readyReplicas": 9}, True, 0),
        "not-ready": ({"replicas": 3}, True, 3),
        "older": ({**current, "generation": 5}, True, 3),
        "active": ({"active": 2}, True, 1),
        "not-applied": ({"readyReplicas": 2}, False, 3),
        "nothing": (None, True, 3),
    }
    world.put(member("m1", cpu="40"))
    world.put(*(binding(name, replicas=3, placement=only("m1")) for name in left))
    elsewhere = {"clusterName": "m9", "applied": True, "status": {"readyReplicas": 5}}
    async with world.bridging():
        await until(lambda: all(map(world.is_settled, left)))
        for name, (status, applied, _) in left.items():
            item = {"clusterName": "m1", "applied": applied, "health": "Healthy", "status": status}
            world.edit_status(name, aggregatedStatus=[item, elsewhere])
        expected = {name: count for name, (_, _, count) in left.items()}
        await world.until_outstanding(expected, used="7")
        # Less is less at once, without other totals.
        item = {"clusterName": "m1", "applied": True, "status": {"readyReplicas": 1}}
        world.edit_status("more-than-assigned", aggregatedStatus=[item])

        async def ask() -> list[int]:
            return await world.outstanding("more-than-assigned")

        assert await until_asked(ask, lambda found: found == [2]) == [2]


def test_a_bridge_waits_for_no_lease_of_karmadas_scheduler() -> None:
    defaults = {each.name: each.default for each in bridge.params}
    assert defaults["lease_name"] == "fedsched-bridge"
