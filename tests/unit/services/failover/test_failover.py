"""Failover over a real store, with clocks that stand still: lost, moved, evicted, back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from federation.failover.breaker import BREAKER, BreakerLimits, FreezeScope, ScopeKind
from federation.failover.moves import TAINT_UNTOLERATED
from federation.model.cluster import UNREACHABLE_KEY, Taint, TaintEffect
from federation.model.errors import InvalidRequest, PreconditionFailed
from federation.model.placement import (
    EVICTION_PRODUCER,
    ClusterAffinity,
    OnClusterLoss,
    OnClusterReturn,
    Placement,
)
from federation.model.workload import (
    ReplicaRequirements,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.decision import Outcome
from federation.services.journal import BindingChanged, ClusterChanged
from federation.services.members.lifecycle import Membership
from federation.services.values import Scheduled
from lab.services import DYNAMIC, WEB, apply, decided, shares
from tests.unit.services.conftest import Streams, held, only
from tests.unit.services.failover.conftest import SETTINGS, Drill

THREE = replace(WEB, replicas=3)


async def test_a_lost_cluster_is_left_and_keeps_its_share_until_the_new_one_runs(
    drill: Drill,
) -> None:
    assert decided(await apply(drill.deciders.scheduling, only("b", 1))) == {"b": 1}
    first = await apply(drill.deciders.scheduling, replace(THREE, name="api"))
    first = await apply(drill.deciders.scheduling, THREE)
    before = decided(first)
    assert "a" in before
    drill.speaking.remove("a")
    await drill.pass_time(59)
    assert not drill.is_lost("a")
    assert (await drill.control.get()).silent[0].name == "a"
    await drill.pass_time(5)
    assert drill.is_lost("a")
    moved = await drill.stored()
    assert "a" not in shares(moved.clusters)
    assert sum(shares(moved.clusters).values()) == 3
    (task,) = moved.eviction_tasks
    assert (task.from_cluster, task.replicas) == ("a", before["a"])
    assert (task.reason, task.producer) == (TAINT_UNTOLERATED, EVICTION_PRODUCER)
    assert UNREACHABLE_KEY in task.message
    # What left is kept as long as its pods may start there.
    assert await held(drill.store) == {**shares(moved.clusters), "a": before["a"]}
    # A controller that submits it again changes nothing of that.
    again = await apply(drill.deciders.scheduling, THREE)
    assert again.binding is not None
    assert again.binding.eviction_tasks == (task,)
    assert again.binding.generation == moved.generation
    for name, replicas in shares(moved.clusters).items():
        await drill.sees(name, replicas)
    await drill.pass_time(3)
    ended = await drill.stored()
    assert ended.eviction_tasks == ()
    assert ended.clusters == moved.clusters
    assert await held(drill.store) == shares(ended.clusters)


async def test_whose_control_plane_is_gone_has_its_time_anew(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, THREE)
    drill.speaking.remove("a")
    await drill.pass_time(40)
    drill.left_alone.add("a")
    await drill.pass_time(59)
    assert not drill.is_lost("a")
    await drill.pass_time(3)
    assert drill.is_lost("a")


async def test_a_region_that_falls_silent_is_told_of_once_and_moved(
    drill: Drill, caplog: pytest.LogCaptureFixture
) -> None:
    drill.start("one", replace(SETTINGS, breaker=BreakerLimits(clusters=2, percent=70)))
    await drill.put_in("south", "a", "b")
    drill.speaking -= {"a", "b"}
    await drill.pass_time(65)
    assert drill.is_lost("a")
    assert drill.is_lost("b")
    told = [each for each in caplog.records if "many clusters of one place" in each.message]
    assert [vars(each)["fields"] for each in told] == [
        {"where": "region south", "silent": "2 of 2 clusters"}
    ]


async def test_where_that_is_asked_for_a_region_freezes_alone_until_people_or_it_say_otherwise(
    drill: Drill, caplog: pytest.LogCaptureFixture
) -> None:
    limits = BreakerLimits(clusters=2, percent=70, by_place=True)
    drill.start("one", replace(SETTINGS, breaker=limits))
    await drill.put_in("south", "a", "b")
    await apply(drill.deciders.scheduling, THREE)
    before = await drill.stored()
    south = FreezeScope(kind=ScopeKind.REGION, name="south")
    drill.speaking -= {"a", "b"}
    await drill.pass_time(100)
    (place,) = (await drill.control.get()).places
    assert (place.place, place.freeze.by) == (south, BREAKER)
    assert not drill.is_lost("a")
    assert await drill.stored() == before
    drill.speaking |= {"a", "b"}
    await drill.pass_time(3)
    assert (await drill.control.get()).places == ()
    # Once more, and now people let it be moved.
    drill.speaking -= {"a", "b"}
    await drill.pass_time(100)
    await drill.control.resume("admin", south)
    await drill.pass_time(5)
    assert drill.is_lost("a")
    assert shares((await drill.stored()).clusters) == {"c": 3}
    told = [each for each in caplog.records if "place" in each.message]
    frozen, thawed = "failover is frozen in one place", "failover goes on in one place"
    assert [each.message for each in told] == [frozen, thawed, frozen, thawed]
    assert vars(told[0])["fields"]["why"].startswith("2 of 2 clusters of region south fell silent")
    assert [vars(each)["fields"]["by"] for each in told[1::2]] == ["itself", "admin"]


async def test_people_and_watchers_are_told(drill: Drill) -> None:
    told: list[object] = []
    await apply(drill.deciders.scheduling, only("a", 1))
    await apply(drill.deciders.scheduling, THREE)
    ordered: list[Scheduled] = []
    drill.fleet.observe(told.append, ClusterChanged, BindingChanged)
    drill.failover.moving.observe(ordered.extend)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    status = await drill.control.get()
    assert [(each.name, each.lost_since is not None) for each in status.silent] == [("a", True)]
    assert [each.name for each in status.evacuated] == ["a"]
    assert [each.task.from_cluster for each in status.evictions] == ["a"]
    assert status.evictions[0].deadline is None
    assert status.eviction_count == 1
    assert any(isinstance(each, BindingChanged) and each.key == WEB.key for each in told)
    # Agents are asked for nodes, as behind every decision.
    assert [each.record.binding_key for each in ordered] == [WEB.key]
    assert ordered[0].record.id == (await drill.view()).record.id


async def test_who_fits_nowhere_stays_and_goes_once_there_is_room(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, replace(WEB, replicas=12))
    drill.speaking.remove("a")
    await drill.pass_time(70)
    stuck = await drill.stored()
    assert shares(stuck.clusters)["a"] == 6
    assert stuck.eviction_tasks == ()
    await drill.sees("b", 3, free=9)
    await drill.pass_time(40)
    moved = await drill.stored()
    assert "a" not in shares(moved.clusters)
    assert sum(shares(moved.clusters).values()) == 12


async def test_who_fits_nowhere_is_told_so_and_is_placed_again_once_its_cluster_is_back(
    drill: Drill,
) -> None:
    await apply(drill.deciders.scheduling, replace(WEB, replicas=12))
    before = await drill.stored()
    drill.speaking.remove("a")
    await drill.pass_time(70)
    assert await drill.outcome() is Outcome.UNSCHEDULABLE
    drill.speaking.add("a")
    await drill.pass_time(3)
    assert await drill.outcome() is Outcome.SCHEDULED
    assert (await drill.stored()).clusters == before.clusters


async def test_a_cluster_that_is_back_in_time_has_its_share_again(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, THREE)
    before = await drill.stored()
    drill.speaking.remove("a")
    await drill.pass_time(65)
    assert (await drill.stored()).eviction_tasks
    drill.speaking.add("a")
    await drill.pass_time(3)
    assert not drill.is_lost("a")
    back = await drill.stored()
    assert shares(back.clusters) == shares(before.clusters)
    assert back.eviction_tasks == ()
    assert await held(drill.store) == shares(before.clusters)


async def test_what_is_duplicated_is_back_with_its_cluster_however_long_that_was_lost(
    drill: Drill,
) -> None:
    await apply(drill.deciders.scheduling, replace(WEB, replicas=2, placement=Placement()))
    assert shares((await drill.stored()).clusters) == {"a": 2, "b": 2, "c": 2}
    drill.speaking.remove("a")
    await drill.pass_time(65)
    for name in ("b", "c"):
        await drill.sees(name, 2)
    await drill.pass_time(200)
    left = await drill.stored()
    assert shares(left.clusters) == {"b": 2, "c": 2}
    (eviction,) = (await drill.control.get()).evictions
    assert (eviction.task.from_cluster, eviction.deadline) == ("a", None)
    # A control plane that has just begun has not heard of the cluster yet.
    await drill.duties.leave()
    drill.start("two")
    await drill.pass_time(20)
    drill.speaking.add("a")
    await drill.pass_time(5)
    back = await drill.stored()
    assert shares(back.clusters) == {"a": 2, "b": 2, "c": 2}
    assert back.eviction_tasks == ()
    assert await held(drill.store) == shares(back.clusters)


async def test_what_left_a_cluster_out_meanwhile_does_not_return_to_it(drill: Drill) -> None:
    everywhere = replace(WEB, replicas=2, placement=Placement())
    await apply(drill.deciders.scheduling, everywhere)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    elsewhere = Placement(affinity=ClusterAffinity(cluster_names=("b", "c")))
    await apply(drill.deciders.scheduling, replace(everywhere, placement=elsewhere))
    assert (await drill.stored()).eviction_tasks
    drill.speaking.add("a")
    await drill.pass_time(5)
    now = await drill.stored()
    assert now.eviction_tasks == ()
    assert shares(now.clusters) == {"b": 2, "c": 2}


@pytest.mark.parametrize("policy", OnClusterReturn)
async def test_which_replicas_stay_once_new_ones_have_begun(
    drill: Drill, policy: OnClusterReturn
) -> None:
    await apply(drill.deciders.scheduling, replace(THREE, on_cluster_return=policy))
    before = await drill.stored()
    drill.speaking.remove("a")
    await drill.pass_time(65)
    moved = await drill.stored()
    grown = next(
        each for each in moved.clusters if each.replicas > shares(before.clusters).get(each.name, 0)
    )
    await drill.sees(grown.name, shares(before.clusters).get(grown.name, 0) + 1)
    drill.speaking.add("a")
    await drill.pass_time(3)
    now = await drill.stored()
    keeps_original = policy is OnClusterReturn.KEEP_ORIGINAL
    assert shares(now.clusters) == shares((before if keeps_original else moved).clusters)
    assert bool(now.eviction_tasks) is not keeps_original


async def test_who_waits_for_its_clusters_or_tolerates_loss_stays(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, replace(THREE, on_cluster_loss=OnClusterLoss.WAIT))
    tolerating = Toleration(
        key=UNREACHABLE_KEY,
        operator=TolerationOperator.EXISTS,
        effect=TaintEffect.NO_EXECUTE,
    )
    placement = Placement(replica_scheduling=DYNAMIC, tolerations=(tolerating,))
    tolerant = replace(THREE, name="tolerant", placement=placement)
    for_a_while = replace(tolerating, toleration_seconds=30)
    patient = replace(
        THREE, name="patient", placement=replace(placement, tolerations=(for_a_while,))
    )
    await apply(drill.deciders.scheduling, tolerant)
    await apply(drill.deciders.scheduling, patient)
    await drill.sees("c", 0, free=9)
    drill.speaking.remove("a")
    await drill.pass_time(85)
    assert "a" in shares((await drill.stored(patient)).clusters)
    await drill.pass_time(10)
    assert "a" not in shares((await drill.stored(patient)).clusters)
    for binding in (THREE, tolerant):
        assert "a" in shares((await drill.stored(binding)).clusters)


async def test_a_taint_by_people_moves_what_is_there_and_time_ends_the_eviction(
    drill: Drill,
) -> None:
    await apply(drill.deciders.scheduling, THREE)
    cluster = drill.fleet.known("a").cluster
    taint = Taint(key="empty", effect=TaintEffect.NO_EXECUTE)
    ours = Taint(key=UNREACHABLE_KEY, effect=TaintEffect.NO_EXECUTE, time_added=1.0)
    wanted = replace(cluster, taints=(taint, ours))
    view = await drill.registration.update_cluster(wanted, None, now=drill.clock.now())
    # Since when it is there is known, and nobody else says that a cluster is lost.
    assert view.cluster.taints == (replace(taint, time_added=drill.clock.now()),)
    await drill.pass_time(3)
    moved = await drill.stored()
    assert [each.from_cluster for each in moved.eviction_tasks] == ["a"]
    (eviction,) = (await drill.control.get()).evictions
    assert eviction.task.created_at is not None
    assert eviction.deadline == eviction.task.created_at + 100
    await drill.pass_time(97)
    assert (await drill.stored()).eviction_tasks
    await drill.pass_time(5)
    assert (await drill.stored()).eviction_tasks == ()


async def test_many_at_once_freeze_it_and_nothing_moves_until_people_say_so(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, THREE)
    before = await drill.stored()
    drill.speaking -= {"a", "b"}
    await drill.pass_time(40)
    freeze = (await drill.control.get()).freeze
    assert freeze is not None
    assert freeze.by == BREAKER
    assert "2 of 3 clusters" in freeze.reason
    await drill.pass_time(60)
    assert await drill.stored() == before
    assert not drill.is_lost("a")
    # Another control plane goes on with what is known.
    await drill.duties.leave()
    drill.start("two")
    await drill.pass_time(20)
    assert (await drill.control.get()).freeze == freeze
    await drill.control.freeze("admin", "we look into it")
    with pytest.raises(PreconditionFailed, match="frozen already, by “admin”: “we look into it”"):
        await drill.control.freeze("admin", "again")
    drill.speaking |= {"a", "b"}
    await drill.pass_time(3)
    assert (await drill.control.get()).freeze is not None
    await drill.control.resume("admin")
    with pytest.raises(PreconditionFailed, match="is not frozen"):
        await drill.control.resume("admin")
    await drill.pass_time(3)
    assert await drill.stored() == before


async def test_nothing_moves_off_a_place_that_people_have_frozen(
    drill: Drill, caplog: pytest.LogCaptureFixture
) -> None:
    await drill.put_in("south", "a")
    await drill.put_in("north", "b")
    await apply(drill.deciders.scheduling, THREE)
    before = await drill.stored()
    south = FreezeScope(kind=ScopeKind.REGION, name="south")
    status = await drill.control.freeze("admin", "we look into it", south)
    assert (status.freeze, [str(each.place) for each in status.places]) == (None, ["region south"])
    with pytest.raises(PreconditionFailed, match="of region south is frozen already, by “admin”"):
        await drill.control.freeze("admin", "again", south)
    nowhere = FreezeScope(kind=ScopeKind.PROVIDER, name="south")
    with pytest.raises(InvalidRequest, match="provider: is that of no cluster: 'south'"):
        await drill.control.freeze("admin", "why", nowhere)
    with pytest.raises(PreconditionFailed, match="of provider south is not frozen"):
        await drill.control.resume("admin", nowhere)
    drill.speaking.remove("a")
    await drill.pass_time(70)
    assert not drill.is_lost("a")
    assert await drill.stored() == before
    # Another one goes on, and people may freeze all and let it go on beside that.
    drill.speaking.remove("b")
    await drill.control.freeze("admin", "a moment")
    await drill.control.resume("admin")
    await drill.pass_time(70)
    assert (drill.is_lost("a"), drill.is_lost("b")) == (False, True)
    left = shares((await drill.stored()).clusters)
    assert left.get("a") == shares(before.clusters)["a"]
    assert "b" not in left
    assert not (await drill.control.resume("admin", south)).places
    await drill.pass_time(3)
    assert drill.is_lost("a")
    assert shares((await drill.stored()).clusters) == {"c": 3}
    told = [each.message for each in caplog.records if "in one place" in each.message]
    assert told == ["failover is frozen in one place", "failover goes on in one place"]


async def test_silence_accepted_by_people_is_loss_when_its_time_is_over(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, replace(THREE, replicas=2))
    drill.speaking -= {"a", "b"}
    await drill.pass_time(70)
    assert (await drill.control.get()).freeze is not None
    await drill.control.resume("admin")
    await drill.pass_time(5)
    assert drill.is_lost("a")
    assert drill.is_lost("b")
    assert shares((await drill.stored()).clusters) == {"c": 2}


async def test_it_thaws_by_itself(drill: Drill) -> None:
    drill.speaking -= {"a", "b"}
    await drill.pass_time(40)
    assert (await drill.control.get()).freeze is not None
    drill.speaking |= {"a", "b"}
    await drill.pass_time(3)
    assert (await drill.control.get()).freeze is None


async def test_a_start_does_not_take_those_for_back_that_were_not_heard(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, THREE)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    moved = await drill.stored()
    await drill.fleet.load(grace_until=drill.clock.now() + 30)
    unheard = replace(drill.fleet.known("a").presence, last_heartbeat_at=None)
    drill.fleet.put_presence("a", unheard)
    await drill.duties.leave()
    drill.start("two")
    await drill.pass_time(20)
    assert drill.is_lost("a")
    assert await drill.stored() == moved


async def test_switched_off_it_moves_nothing_and_ends_what_had_begun(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, THREE)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    moved = await drill.stored()
    await drill.duties.leave()
    drill.start("two", replace(SETTINGS, enabled=False))
    assert not (await drill.control.get()).enabled
    for name, replicas in shares(moved.clusters).items():
        await drill.sees(name, replicas)
    drill.speaking.remove("b")
    await drill.pass_time(80)
    assert (await drill.stored()).eviction_tasks == ()
    assert (await drill.stored()).clusters == moved.clusters
    assert not drill.is_lost("b")
    drill.speaking |= {"a", "b"}
    await drill.pass_time(3)
    assert not drill.is_lost("a")


async def test_moves_keep_to_the_rate(drill: Drill) -> None:
    there = TargetCluster(name="a", replicas=1)
    small = replace(WEB, replicas=1, requirements=ReplicaRequirements(request={"cpu": 10}))
    bindings = [replace(small, name=f"web{number}", clusters=(there,)) for number in range(30)]
    for binding in bindings:
        await apply(drill.deciders.scheduling, binding)
    drill.speaking.remove("a")
    await drill.pass_time(62)
    left = [await drill.stored(each) for each in bindings]
    before = sum("a" in shares(each.clusters) for each in left)
    await drill.pass_time(10)
    left = [await drill.stored(each) for each in bindings]
    after = sum("a" in shares(each.clusters) for each in left)
    assert before - after in range(9, 11)


async def test_a_cluster_that_is_deleted_ends_its_evictions(drill: Drill) -> None:
    await apply(drill.deciders.scheduling, THREE)
    drill.speaking.remove("a")
    await drill.pass_time(65)
    assert (await drill.stored()).eviction_tasks
    await Membership(drill.store, drill.fleet, Streams()).delete("a", force=True)
    await drill.pass_time(3)
    assert (await drill.stored()).eviction_tasks == ()


@pytest.mark.parametrize(
    ("cause", "named"),
    [
        ("region", "region south, which has 2 of its 2 clusters silent"),
        ("control plane", "through control plane two, which has 2 of its 2 clusters silent"),
        ("database", "the database could not be read until then"),
    ],
)
async def test_an_alarm_within_ten_seconds_names_the_cause_and_nothing_moves(
    drill: Drill, caplog: pytest.LogCaptureFixture, cause: str, named: str
) -> None:
    await apply(drill.deciders.scheduling, THREE)
    before = await drill.stored()
    if cause == "region":
        await drill.put_in("south", "a", "b")
    await drill.pass_time(1)
    drill.speaking -= {"a", "b"}
    if cause == "control plane":
        for name in ("a", "b"):
            presence = drill.fleet.presence(name)
            assert presence is not None
            drill.fleet.put_presence(name, replace(presence, peer="two"))
    for _ in range(20 if cause == "database" else 0):
        # Nothing can be read or written, and whoever speaks is not heard by others.
        drill.clock.time += 1
        drill.failover.look()
    stale_for = 0
    while not caplog.records and stale_for < 100:
        await drill.pass_time(1)
        silent = drill.failover.silences.silent.values()
        stale = [each for each in silent if each.stale_at <= drill.clock.now()]
        stale_for += len(stale) == 2
    assert stale_for <= 10
    (alarm,) = caplog.records
    assert (alarm.levelname, alarm.getMessage()) == ("ERROR", "failover is frozen: nothing moves")
    freeze = (await drill.control.get()).freeze
    assert freeze is not None
    assert named in freeze.reason
    await drill.pass_time(80)
    assert await drill.stored() == before
    assert not drill.is_lost("a")
    assert not drill.is_lost("b")
