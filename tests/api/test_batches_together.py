"""Batches: by priority, answered in order, each item by itself; or all of them, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest

from federation.model.arrays import IntArray
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles, Score
from federation.scheduler.state import CycleState
from federation.services.scheduling.queue import MAX_BATCH
from federation.v1.resource_pb2 import (
    ClusterAffinity,
    ResourceBinding,
    Suspension,
    WorkloadAffinity,
)
from federation.v1.scheduling_pb2 import OUTCOME_UNSCHEDULABLE, ScheduleBatchItem
from tests.api.world import World, code_of, shares

CORES = {"a": 6, "b": 3, "c": 3}


def picky(state: CycleState) -> IntArray:
    if state.binding.name == "bad":
        raise KeyError("no such label")
    return np.zeros_like(state.prior_c)


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    score = Score(name="Picky", run=picky, weight=1)
    return Profiles.of([replace(DEFAULT_PROFILE, scores=(score,))])


def item(binding: ResourceBinding, key: str = "", **fields: Any) -> ScheduleBatchItem:
    return ScheduleBatchItem(binding=binding, idempotency_key=key, **fields)


def keyed_by_name(world: World, *bindings: ResourceBinding) -> list[ScheduleBatchItem]:
    """Each with a key of its own."""
    return [item(each, f"{world.namespace}-{each.metadata.name}") for each in bindings]


async def together(world: World, *items: Any) -> Any:
    """The results of an atomic batch."""
    return await world.batch(*items, atomic=True)


def placed(results: Sequence[Any]) -> list[dict[str, int]]:
    return [shares(each.decision.clusters) for each in results]


def ids(results: Sequence[Any]) -> list[str]:
    return [each.decision.id for each in results]


def reasons(results: Sequence[Any]) -> list[str]:
    return [each.error_reason for each in results]


def wanted(world: World, **replicas: int) -> list[ResourceBinding]:
    """Bindings named w-CLUSTER with these replicas each."""
    return [world.workload(f"w-{name}", count, only=[name]) for name, count in replicas.items()]


async def stored(world: World) -> dict[str, int]:
    """Rows by table of the test's namespace."""
    tables = ("binding", "decision", "reservation")
    counted = [
        await world.plane.sql(f"SELECT count(*) FROM {table} WHERE namespace = $1", world.namespace)
        for table in tables
    ]
    return {table: rows[0][0] for table, rows in zip(tables, counted, strict=True)}


NOTHING = {"binding": 0, "decision": 0, "reservation": 0}


async def transactions(world: World) -> int:
    """How many have written decisions."""
    (row,) = await world.plane.sql(
        "SELECT count(DISTINCT xmin::text) FROM decision WHERE namespace = $1", world.namespace
    )
    return int(row[0])


async def test_items_are_decided_by_priority_and_answered_in_order(world: World) -> None:
    """There is room for two of them."""
    await world.clusters(**CORES)
    priorities = {"low": -1, "first": 5, "middle": 0, "second": 5}
    results = await world.batch(
        *(world.workload(name, 5, priority=value) for name, value in priorities.items())
    )
    assert [each.decision.name for each in results] == list(priorities)
    assert [bool(each.decision.clusters) for each in results] == [False, True, False, True]


async def test_a_bad_item_harms_no_other(world: World) -> None:
    await world.clusters(**CORES)
    results = await world.batch(
        world.workload("a"),
        world.workload("broken", -1),
        world.workload("b"),
        world.workload("stopped", suspension=Suspension(scheduling=True)),
        world.workload("strange", scheduler_name="nobody"),
        world.workload("bad"),
        world.workload("much", 1000),
    )
    assert reasons(results) == [
        *("", "INVALID_REQUEST", "", "PRECONDITION_FAILED"),
        *("INVALID_REQUEST", "PLUGIN_FAILED", ""),
    ]
    assert [each.field for each in results[1].violations] == ["spec.replicas"]
    assert results[6].decision.outcome == OUTCOME_UNSCHEDULABLE
    assert (await stored(world))["binding"] == 3


async def test_the_same_binding_twice_is_decided_twice(world: World) -> None:
    await world.clusters(**CORES)
    results = await world.batch(world.workload("a", 2), world.workload("a", 3))
    assert [sum(found.values()) for found in placed(results)] == [2, 3]


async def test_a_store_that_is_away_ends_the_batch(world: World) -> None:
    await world.clusters(**CORES)
    for atomic in (False, True):
        world.store.fail_at("decisions.add_all")
        asked = world.batch(world.workload("a"), atomic=atomic)
        assert await code_of(asked) is grpc.StatusCode.UNAVAILABLE
    assert await stored(world) == NOTHING


@pytest.mark.parametrize("certificate", ["", "careful", "strict"])
async def test_all_are_placed_in_one_transaction(world: World, certificate: str) -> None:
    await world.clusters(**CORES)
    wishes = wanted(world, a=3, b=3, c=2)
    for wish in wishes:
        wish.spec.certificate = certificate
    results = await together(world, *wishes)
    assert placed(results) == [{"a": 3}, {"b": 3}, {"c": 2}]
    assert await transactions(world) == 1
    worth = {promise.certificate for each in results for promise in each.decision.promises}
    # Nobody follows plans here.
    assert worth == {certificate or "careful"}


async def test_more_than_an_ordinary_batch_takes_is_one_transaction_too(world: World) -> None:
    count = MAX_BATCH + 1
    await world.clusters(a=count)
    for number in range(2):
        await world.agents["a"].report(cores=count, pods=1000 + number)
    results = await together(world, *(world.workload(f"w{n}") for n in range(count)))
    assert placed(results) == [{"a": 1}] * count
    assert await transactions(world) == 1


async def test_where_one_has_no_room_none_is_placed_and_all_are_told_why(world: World) -> None:
    await world.clusters(**CORES)
    results = await together(world, *wanted(world, a=3, b=4, c=1))
    decision = results[1].decision
    assert decision.outcome == OUTCOME_UNSCHEDULABLE
    assert "3 replicas are available, 4 wanted" in decision.reason
    assert (decision.id, results[1].queued) == ("", False)
    assert reasons(results) == ["NOT_PLACED_TOGETHER", "", "NOT_PLACED_TOGETHER"]
    rule = f"items[1] ({world.namespace}/w-b) of the same atomic batch was not placed"
    for number in (0, 2):
        assert rule in results[number].decision.reason + str(results[number].violations)
    assert await stored(world) == NOTHING
    # What was not taken is there for the next one.
    assert placed(await together(world, *wanted(world, a=6, b=3))) == [{"a": 6}, {"b": 3}]


async def test_several_that_have_no_room_are_counted(world: World) -> None:
    await world.clusters(**CORES)
    results = await together(world, *wanted(world, b=9, a=1, c=9))
    text = results[1].decision.reason + str(results[1].violations)
    assert "of the same atomic batch was not placed, nor was 1 more" in text


async def test_a_partial_placement_is_one_where_the_item_takes_it(world: World) -> None:
    await world.clusters(**CORES)
    greedy = world.workload("greedy", 9, only=["b"], placement={"partial": True})
    assert placed(await together(world, *wanted(world, a=1), greedy)) == [{"a": 1}, {"b": 3}]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"replicas": -1}, "INVALID_REQUEST"),
        ({"suspension": Suspension(scheduling=True)}, "PRECONDITION_FAILED"),
        ({"name": ""}, "INVALID_REQUEST"),
        ({"name": "w-a"}, "INVALID_REQUEST"),
        ({"name": "known", "uid": "another"}, "PRECONDITION_FAILED"),
        ({"name": "bad"}, "PLUGIN_FAILED"),
    ],
)
async def test_where_one_is_wrong_none_is_placed(
    world: World, fields: dict[str, Any], reason: str
) -> None:
    await world.clusters(**CORES)
    await world.schedule("known", uid="one", only=["a"])
    one, two = wanted(world, a=1, b=1)
    results = await together(world, one, world.workload(**fields), two)
    assert reasons(results) == ["NOT_PLACED_TOGETHER", reason, "NOT_PLACED_TOGETHER"]
    assert (await stored(world))["binding"] == 1


async def test_keys_stand_for_their_items(world: World) -> None:
    await world.clusters(**CORES)
    a, b, c = wanted(world, a=2, b=2, c=2)
    keyed = [item(a, "key-a"), item(b, "key-b")]
    # A key twice is wrong.
    results = await together(world, keyed[0], item(b, "key-a"))
    (violation,) = results[1].violations
    assert (violation.field, violation.rule) == ("idempotencyKey", "is that of items[0]")
    # The same again is answered as before, beside one that is new.
    first = ids(await together(world, *keyed))
    assert ids(await together(world, *keyed)) == first
    again = await together(world, *keyed, item(c, "key-c"))
    assert ids(again)[:2] == first
    assert placed(again) == [{"a": 2}, {"b": 2}, {"c": 2}]
    assert (await stored(world))["decision"] == 3
    # A key of another request spoils the batch.
    changed = item(world.workload("w-a", 1, only=["a"]), "key-a")
    results = await together(world, changed, world.workload("new"))
    assert reasons(results) == ["IDEMPOTENCY_KEY_REUSED", "NOT_PLACED_TOGETHER"]
    assert (await stored(world))["binding"] == 3
    # So does it in a batch that is not atomic, and harms its own item only.
    results = await world.batch(changed, world.workload("new"))
    assert reasons(results) == ["IDEMPOTENCY_KEY_REUSED", ""]


async def test_what_was_not_placed_may_be_asked_again_under_its_keys(world: World) -> None:
    await world.clusters(**CORES)
    await world.schedule("web", 2, only=["b"])
    keyed = [
        item(wish, f"{world.namespace}-{wish.metadata.name}") for wish in wanted(world, a=2, b=2)
    ]
    assert placed(await together(world, *keyed)) == [{}, {}]
    await world.delete("web")
    assert placed(await together(world, *keyed)) == [{"a": 2}, {"b": 2}]


async def test_one_that_was_refused_under_its_key_spoils_the_batch(world: World) -> None:
    await world.clusters(**CORES)
    a, b = (
        item(wish, f"{world.namespace}-{wish.metadata.name}") for wish in wanted(world, a=2, b=9)
    )
    await world.batch(b)
    assert reasons(await together(world, a, b))[0] == "NOT_PLACED_TOGETHER"
    assert (await stored(world))["binding"] == 1


async def test_what_stands_already_is_answered_with_the_others(world: World) -> None:
    await world.clusters(**CORES)
    a, b = wanted(world, a=2, b=2)
    (standing,) = ids(await together(world, a))
    first = ids(await together(world, a, b))
    assert first[0] == standing
    assert ids(await together(world, a, b)) == first
    # It stays where the others are not placed.
    results = await together(world, a, b, *wanted(world, c=9))
    assert reasons(results) == ["NOT_PLACED_TOGETHER", "NOT_PLACED_TOGETHER", ""]
    assert (await stored(world))["decision"] == 2


def shy(world: World, name: str, namespace: str = "", **fields: Any) -> ResourceBinding:
    """Keeps away from others of its kind, unless told otherwise."""
    affinity = {"workload_affinity": WorkloadAffinity(anti_affinity={"group_by_label_key": "shy"})}
    binding = world.workload(
        name,
        namespace=namespace or world.namespace,
        placement=fields.pop("placement", affinity),
        **fields,
    )
    binding.metadata.labels["shy"] = "yes"
    return binding


async def test_workloads_that_avoid_each_other_see_each_other(world: World) -> None:
    await world.clusters(a=9, b=9, c=9)
    results = placed(await together(world, *(shy(world, f"w{n}") for n in range(3))))
    assert sorted(name for each in results for name in each) == ["a", "b", "c"]
    others = [shy(world, f"w{n}", f"{world.namespace}-2") for n in range(4)]
    assert placed(await together(world, *others)) == [{}] * 4
    friends = {"workload_affinity": WorkloadAffinity(affinity={"group_by_label_key": "shy"})}
    third = f"{world.namespace}-3"
    there = {**friends, "cluster_affinity": ClusterAffinity(cluster_names=["b"])}
    results = await together(
        world,
        shy(world, "w1", third, placement=there),
        shy(world, "w2", third, placement=friends),
    )
    assert placed(results) == [{"b": 1}, {"b": 1}]
    # In a batch that is not atomic the last one finds no cluster.
    fourth = [shy(world, f"w{n}", f"{world.namespace}-4") for n in range(4)]
    found = [name for each in placed(await world.batch(*fourth)) for name in each or [""]]
    assert sorted(found) == ["", "a", "b", "c"]


async def test_callers_never_have_half_a_batch(world: World) -> None:
    """Twelve batches of a replica in each cluster, where three of them fit."""
    await world.clusters(**CORES)
    answers = await asyncio.gather(
        *(
            together(world, *(world.workload(f"{n}-{name}", only=[name]) for name in "abc"))
            for n in range(12)
        )
    )
    counts = [len([each for each in placed(answer) if each]) for answer in answers]
    assert sorted(counts) == [0] * 9 + [3] * 3
    assert await transactions(world) == 3


async def test_what_a_caller_who_left_waited_for_is_not_decided(world: World) -> None:
    """The second item waits for what comes of the first."""
    await world.clusters(**CORES)
    is_reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        is_reached.set()
        await goes_on.wait()

    world.store.before("decisions.add_all", hold)
    call = asyncio.create_task(world.batch(world.workload("a", 1), world.workload("a", 2)))
    await is_reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    # Calls that come later show that the control plane knows it.
    for _ in range(2):
        await world.queued()
    goes_on.set()
    await world.batch(world.workload("a", 3))
    assert (await stored(world))["decision"] == 2
    assert sum((await world.shares("a")).values()) == 3
