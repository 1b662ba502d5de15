"""Two control planes on one database: each decides on what the other did, whether it read it yet.

``world`` and ``rival`` are the same namespace and clusters at both. Something that the other one
does before ``journal.lock``, the first statement of a commit, comes between decision and commit.
Must not wait for the journal where a test is about what was not read.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import grpc
import pytest

from federation.services.scheduling.attempt import MAX_TRIES_WITHOUT_LOCKS
from federation.services.scheduling.pipeline import DecisionPipeline
from federation.services.scheduling.working_copy import WorkingCopy
from federation.v1.resource_pb2 import (
    Gang,
    TargetCluster,
    WorkloadAffinity,
)
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE
from lab.control_planes import refused
from lab.databases import connect
from lab.patience import until
from tests.api.calls import BY_ROOM, component
from tests.api.world import World, code_of, shares

CORES = {"a": 6, "b": 3, "c": 3}
COMMIT = "journal.lock"
EVENLY = {"replica_scheduling": BY_ROOM}


async def begin(world: World, rival: World, **cores: int) -> None:
    """Clusters that both control planes have read of, with their agents."""
    cores = cores or CORES
    await world.clusters(**cores)

    async def shown() -> list[dict[str, int]]:
        await rival.plane.follow()
        return [await rival.placed("asks", 1, each, preview=True) for each in cores]

    await until(shown, all)


async def assert_alike(world: World, rival: World) -> None:
    """Both promise what the database says."""
    for each in (world, rival):
        await each.plane.follow()
    assert await world.free() == await rival.free()


def is_kept(before: dict[str, int], after: dict[str, int]) -> bool:
    return all(after.get(name, 0) >= count for name, count in before.items())


@pytest.mark.parametrize("act", ["move", "preview", "schedule again", "release", "delete"])
async def test_what_the_other_one_did_counts_before_it_was_read(
    world: World, rival: World, act: str
) -> None:
    await begin(world, rival)
    async with world.unread_journal():
        first = await world.schedule("web", 2, only=["a"])
        match act:
            case "move":
                assert await rival.placed("web", 2, "b") == {"b": 2}
            case "preview":
                preview = await rival.schedule("web", 2, only=["b"], preview=True)
                await rival.commit(preview)
            case "schedule again":
                await world.release()
                again = await rival.schedule("web", 2, only=["a"])
                assert again.decision.id != first.decision.id
            case "release":
                assert [each.replicas for each in (await rival.release()).released] == [2]
            case _:
                await rival.delete()
                await world.schedule("web", 2, only=["c"])
    await assert_alike(world, rival)
    expected = {"schedule again": {"a": 2}, "release": {}, "delete": {"c": 2}}
    assert await world.held() == expected.get(act, {"b": 2})


@pytest.mark.parametrize("act", ["grow", "reschedule", "preview", "release", "delete"])
async def test_shares_in_a_cluster_that_was_not_read_of_are_kept_and_ended(
    world: World, rival: World, act: str
) -> None:
    await begin(world, rival, a=9)
    async with world.unread_journal():
        await world.clusters(new=9)
        before = await world.placed("web", 12, placement=EVENLY)
        assert before.keys() == {"a", "new"}
        assert (await rival.free()).keys() == {"a"}
        match act:
            case "grow":
                after = await rival.placed("web", 13, placement=EVENLY)
            case "reschedule":
                after = shares((await rival.ask_of("RescheduleBinding")).decision)
                assert sum(after.values()) == 12
            case "preview":
                preview = await rival.schedule("web", 13, placement=EVENLY, preview=True)
                after = shares(preview.decision)
                await rival.commit(preview)
            case "release":
                (ended,) = (await rival.release(clusters=["new"])).released
                assert ended.cluster == "new"
                after = {"a": before["a"]}
            case _:
                await rival.delete()
                after = await rival.placed("web", 1, "a")
    if act in ("grow", "preview"):
        assert sum(after.values()) == 13
        assert is_kept(before, after)
    await assert_alike(world, rival)
    assert await world.held() == after


async def test_a_name_that_was_given_again_is_not_of_the_cluster_that_left(
    world: World, rival: World
) -> None:
    await begin(world, rival, a=9, new=9)
    await world.schedule("web", 12, placement=EVENLY)
    await world.delete_cluster("new")
    await rival.plane.follow()
    async with world.unread_journal():
        await world.clusters(new=9)
        placed = await world.placed("web", 12, placement=EVENLY)
        assert "new" in placed
        await world.release(clusters=["new"])
        grown = await rival.placed("web", 13, placement=EVENLY)
        assert is_kept(placed, grown)
    await assert_alike(world, rival)
    assert await world.held() == grown


async def test_a_cluster_that_one_forgets_is_read_again(
    world: World, rival: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while all is read anew: between reading and deciding, and before a journal entry."""
    await begin(world, rival, a=9, new=9)
    before = await world.placed("web", 12, placement=EVENLY)
    # An entry of before, read after it was forgotten, would bring it back without its report.
    await rival.plane.follow()
    parts, forgotten = rival.plane.plane.parts, list[str]()
    working = DecisionPipeline.working

    def forgetful(pipeline: DecisionPipeline) -> WorkingCopy:
        if pipeline is parts.pipeline and not forgotten:
            forgotten.append("new")
            parts.fleet.remove("new")
        return working(pipeline)

    monkeypatch.setattr(DecisionPipeline, "working", forgetful)
    assert is_kept(before, await rival.placed("web", 13, placement=EVENLY))
    assert forgotten
    await assert_alike(world, rival)
    parts.fleet.remove("new")
    await world.schedule("web", 14, placement=EVENLY)
    await assert_alike(world, rival)


async def test_what_the_other_one_took_meanwhile_is_not_promised(
    world: World, rival: World
) -> None:
    await begin(world, rival)
    rival.store.before(COMMIT, lambda: world.schedule("rival", 2, only=["b"]))
    answer = await rival.schedule("web", 2, only=["b"], wait=False)
    assert answer.decision.outcome == OUTCOME_UNSCHEDULABLE
    assert await world.held("rival") == {"b": 2}
    # What still fits is promised as it was decided.
    rival.store.before(COMMIT, lambda: world.schedule("small", 1, only=["c"]))
    assert await rival.placed("late", 2, "c") == {"c": 2}
    assert await world.held("small") == {"c": 1}
    # A binding that is gone by then is made anew, and a cluster that is gone is given nothing.
    await world.schedule("web", 1, only=["a"])
    rival.store.before(COMMIT, world.delete)
    again = await rival.schedule("web", 1, only=["b"])
    assert again.binding.metadata.generation == 1
    rival.store.before(COMMIT, lambda: world.delete_cluster("a"))
    wanted = [rival.workload("x", only=["a"]), rival.workload("y", only=["c"])]
    results = await rival.batch(*wanted, rival.workload("z", 9))
    assert [shares(each.decision) for each in results] == [{}, {}, {}]
    assert (await rival.free()).keys() == {"b", "c"}
    await assert_alike(world, rival)


async def test_one_room_is_never_promised_twice(world: World, rival: World) -> None:
    """Twenty replicas want three cores in each of two clusters; all of them ask at once."""
    await begin(world, rival)
    wanted = [(cluster, n, plane) for n in range(5) for cluster in "bc" for plane in (world, rival)]
    answers = await asyncio.gather(
        *(
            plane.placed(f"{cluster}{n}-{int(plane is rival)}", 1, cluster, wait=False)
            for cluster, n, plane in wanted
        )
    )
    assert Counter(next(iter(each), "") for each in answers) == {"b": 3, "c": 3, "": 14}
    assert await world.free() == {"a": 6, "b": 0, "c": 0}
    await assert_alike(world, rival)


async def test_one_binding_is_decided_by_one_after_the_other(world: World, rival: World) -> None:
    await begin(world, rival)
    answers = await asyncio.gather(
        *(plane.schedule("web", 2, only=[each]) for each in "abc" for plane in (world, rival))
    )
    found = await world.got()

    def version(answer: Any) -> int:
        return int(answer.binding.metadata.resource_version.rpartition("-")[2])

    newest = max(answers, key=version)
    assert found.decision.id == newest.decision.id
    # What is held is said from what a control plane has read.
    await assert_alike(world, rival)
    assert await world.held() == shares(newest.decision)


def shy(world: World, name: str) -> Any:
    """A workload that keeps away from others of its kind."""
    affinity = WorkloadAffinity(anti_affinity={"group_by_label_key": "shy"})
    wanted = world.workload(name, placement={"workload_affinity": affinity})
    wanted.metadata.labels["shy"] = "yes"
    return wanted


async def test_workloads_that_avoid_each_other_are_kept_apart(world: World, rival: World) -> None:
    await begin(world, rival)
    rival.store.before("bindings.lock_groups", lambda: world.schedule(shy(world, "rival")))
    first = shares((await rival.schedule(shy(world, "web"))).decision)
    others = await asyncio.gather(
        *(
            plane.schedule(shy(world, f"{name}{int(plane is rival)}"), wait=False)
            for name in "xyz"
            for plane in (world, rival)
        )
    )
    placed = [name for each in others for name in shares(each.decision)]
    names = [*first, *await world.shares("rival"), *placed]
    assert sorted(names) == ["a", "b", "c"]


async def test_members_of_a_gang_that_come_to_both_find_each_other(
    world: World, rival: World
) -> None:
    await begin(world, rival)
    gang, names = Gang(name="train", size=6), [f"w{n}" for n in range(6)]
    planes = (world, rival)
    await asyncio.gather(*(planes[n % 2].schedule(name, gang=gang) for n, name in enumerate(names)))
    for name in names:
        assert sum((await world.shares(name)).values()) == 1
    assert await world.queued() == []


async def test_a_preview_of_what_the_other_one_moved_is_stale(world: World, rival: World) -> None:
    """The binding asks for the same all the time."""
    await begin(world, rival)
    await world.schedule("web", 3)
    preview = await rival.schedule("web", 3, preview=True)
    moved = [TargetCluster(name="c", replicas=3)]
    await world.schedule("web", 3, clusters=moved, adopt=True)
    refusal = await refused(rival.commit(preview))
    assert "placed elsewhere" in refusal.message
    assert await world.held() == {"c": 3}


async def test_the_same_request_is_answered_once_by_both(world: World, rival: World) -> None:
    await begin(world, rival)
    key = f"{world.namespace}-k"
    first, second = await asyncio.gather(
        *(each.schedule("web", 2, only=["a"], idempotency_key=key) for each in (world, rival))
    )
    assert first.decision.id == second.decision.id
    # A key that the other one takes before the commit keeps nothing, and harms no other.
    key = f"{world.namespace}-k2"
    rival.store.before(COMMIT, lambda: world.schedule("taker", 2, only=["b"], idempotency_key=key))
    refusal, beside = await asyncio.gather(
        refused(rival.schedule("late", 2, only=["a"], idempotency_key=key)),
        rival.placed("beside", 2, "c"),
    )
    assert refusal.reason == "IDEMPOTENCY_KEY_REUSED"
    assert beside == {"c": 2}
    await assert_alike(world, rival)
    assert await world.free() == {"a": 4, "b": 1, "c": 1}
    # Nor is a decision that stands the answer to it.
    key = f"{world.namespace}-k3"
    rival.store.before(
        "reservations.holdings", lambda: world.schedule("third", only=["b"], idempotency_key=key)
    )
    refusal = await refused(rival.schedule("web", 2, only=["a"], idempotency_key=key))
    assert refusal.reason == "IDEMPOTENCY_KEY_REUSED"
    await assert_alike(world, rival)


def pair(world: World, name: str, **cores: int) -> list[Any]:
    """Items of a batch: one for each cluster."""
    return [world.workload(f"{name}-{each}", n, only=[each]) for each, n in cores.items()]


async def test_an_atomic_batch_is_decided_again_as_a_whole(world: World, rival: World) -> None:
    await begin(world, rival)
    rival.store.before(COMMIT, lambda: world.schedule("small", 1, only=["b"]))
    results = await rival.batch(*pair(world, "x", a=2, b=2), atomic=True)
    assert [shares(each.decision) for each in results] == [{"a": 2}, {"b": 2}]
    rival.store.before(COMMIT, lambda: world.schedule("greedy", 2, only=["c"]))
    results = await rival.batch(*pair(world, "y", a=1, c=2), atomic=True)
    assert [shares(each.decision) for each in results] == [{}, {}]
    assert await world.free() == {"a": 4, "b": 0, "c": 1}
    await assert_alike(world, rival)


async def test_callers_of_both_never_have_half_a_batch(world: World, rival: World) -> None:
    """Twelve batches of a replica in each cluster, where three of them fit."""
    await begin(world, rival)
    answers = await asyncio.gather(
        *(
            plane.batch(*pair(world, f"{n}{int(plane is rival)}", a=1, b=1, c=1), atomic=True)
            for n in range(6)
            for plane in (world, rival)
        )
    )
    placed = Counter(sum(bool(each.decision.clusters) for each in answer) for answer in answers)
    assert placed == {3: 3, 0: 9}
    assert await world.free() == {"a": 3, "b": 0, "c": 0}
    await assert_alike(world, rival)


class Changing:
    """Changes a binding at one control plane before each commit of the other, so many times."""

    def __init__(self, world: World, rival: World, times: int) -> None:
        self.times = 0
        self._world, self._rival, self._times = world, rival, times
        rival.store.before(COMMIT, self.change)

    async def change(self) -> None:
        self.times += 1
        if self.times < self._times:
            self._rival.store.before(COMMIT, self.change)
        noted = self._world.workload("x-a", 1, only=["a"])
        noted.metadata.annotations["times"] = str(self.times)
        await self._world.schedule(noted)


@pytest.mark.parametrize("atomic", [False, True])
async def test_who_loses_again_and_again_is_decided_under_locks(
    world: World, rival: World, atomic: bool
) -> None:
    """Of clusters where it may go alone: others promise elsewhere meanwhile."""
    await begin(world, rival)
    await world.schedule("x-a", only=["a"])
    changing = Changing(world, rival, MAX_TRIES_WITHOUT_LOCKS)
    stranger = await connect(world.plane.database_url)
    async with stranger.transaction():
        await stranger.execute(
            "SELECT * FROM cluster_capacity JOIN cluster ON cluster.id = cluster_id "
            "WHERE name = 'c' FOR UPDATE OF cluster_capacity"
        )
        wanted = pair(world, "x", a=3, b=3) if atomic else pair(world, "x", a=3)
        results = await rival.batch(*wanted, atomic=atomic)
    await stranger.close()
    assert [shares(each.decision) for each in results] == [{"a": 3}, {"b": 3}][: len(wanted)]
    assert changing.times == MAX_TRIES_WITHOUT_LOCKS


async def test_who_never_comes_through_is_told(world: World, rival: World) -> None:
    await begin(world, rival)
    await world.schedule("x-a", only=["a"])
    Changing(world, rival, 20)
    refusal = await refused(rival.batch(*pair(world, "x", a=3, b=3), atomic=True))
    assert refusal.code is grpc.StatusCode.ABORTED
    rival.store.forget_acts()
    assert await world.free() == {"a": 5, "b": 3, "c": 3}


async def test_a_cluster_that_joins_while_all_are_locked_is_locked_too(
    world: World, rival: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(world, rival, a=6)
    monkeypatch.setattr("federation.services.scheduling.attempt.MAX_TRIES_WITHOUT_LOCKS", 0)
    world.store.before(COMMIT, lambda: world.clusters(new=9))
    read = world.store.statements["bindings.to_decide"]
    assert (await world.placed("web", 12, placement=EVENLY)).keys() == {"a", "new"}
    # It is decided once more, with that cluster locked as well.
    assert world.store.statements["bindings.to_decide"] == read + 2
    await assert_alike(world, rival)


@pytest.mark.parametrize("parts", [False, True], ids=["replicas", "a set"])
async def test_what_is_kept_back_of_careful_promises_is_so_for_both(
    world: World, rival: World, parts: bool
) -> None:
    """On nodes of 16 cores what is small may stand anywhere, and leave less for what is large."""
    await world.clusters(big=1)
    await world.agents["big"].report(cores=16, node_count=10, pods=500)
    await rival.plane.follow()
    large: dict[str, Any] = {"replicas": 40, "request": {"cpu": "2"}}
    if parts:
        large = {"replicas": 0, "components": [component("one", 2), component("two", 37, "2")]}
    rival.store.before(COMMIT, lambda: world.schedule("small", 80))
    assert await rival.placed("large", wait=False, **large) == {}
    assert await world.shares("small") == {"big": 80}
    # What is there stays, and may shrink, whatever came beside it.
    assert await rival.placed("beside", 20, request={"cpu": "2"}) == {"big": 20}
    for replicas in (80, 79):
        assert await rival.placed("small", replicas) == {"big": replicas}


async def test_a_batch_that_is_not_written_leaves_nothing(world: World, rival: World) -> None:
    await begin(world, rival, a=6, b=3)
    free = await world.free()
    world.store.fail_at("journal.append")
    refused_write = world.schedule("first", 7, placement=EVENLY)
    assert await code_of(refused_write) is grpc.StatusCode.UNAVAILABLE
    assert await world.free() == free
    assert await rival.placed("later", 9, placement=EVENLY) == {"a": 6, "b": 3}
    await assert_alike(world, rival)
    assert set((await world.free()).values()) == {0}


async def test_what_happens_to_a_cluster_is_told_to_the_other_one_once(
    world: World, rival: World
) -> None:
    await begin(world, rival, a=6, b=3)
    await world.placed("web", 9)
    plane = world.plane

    async def told(method: str, **fields: Any) -> int:
        """How many changes the journal tells of after a call, which the other one knows then."""
        count = "SELECT count(*) FROM journal"
        ((before,),) = await plane.sql(count)
        code = await code_of(plane.ask(method, **fields))
        ((after,),) = await plane.sql(count)
        await rival.plane.follow()
        if code is grpc.StatusCode.OK and method != "DeleteCluster":
            views = [(await each.plane.ask("GetCluster", name="a")) for each in (world, rival)]
            assert views[0].cluster.spec == views[1].cluster.spec
        return int(after - before)

    for method, fields, times in (
        ("CordonCluster", {"name": "a", "cordoned": True}, 1),
        ("CordonCluster", {"name": "a", "cordoned": True}, 0),
        ("CordonCluster", {"name": "a", "cordoned": False}, 1),
    ):
        assert await told(method, **fields) == times, method
    for times in (1, 0):
        cluster = (await plane.ask("GetCluster", name="a")).cluster
        cluster.spec.region = "north"
        assert await told("UpdateCluster", cluster=cluster) == times
    assert await told("RevokeCluster", name="a") == 1
    await world.agents["a"].leave()
    # Another cluster in its place, or none, takes what was promised there along.
    assert await told("ReplaceCluster", name="a", cluster_uid="another") >= 1
    assert await rival.held() == await world.held() == {"b": 3}
    del world.agents["a"]
    assert await told("DeleteCluster", name="a", force=True) >= 1
    assert await told("DeleteCluster", name="a", force=True) == 0
    assert (await rival.free()).keys() == {"b"}
