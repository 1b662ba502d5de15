"""Bindings that wait: in which order, how long, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from federation.model.waiting import Leaving, Nomination, WaitState
from federation.model.workload import TargetCluster
from federation.services.binding_ports import NewWait, QueuedBinding, QueuePlace, StoredBinding
from federation.store.postgres import PostgresStore
from tests.contract.store.test_bindings import FULL, add


async def added(
    store: PostgresStore, name: str, priority: int = 0, scheduler: str = ""
) -> StoredBinding:
    binding = replace(FULL, name=name, uid="", priority=priority, scheduler_name=scheduler)
    stored = await add(store, binding)
    assert stored is not None
    return stored


async def put(store: PostgresStore, *bindings: StoredBinding, gate: str = "") -> None:
    async with store.transaction() as tx:
        await tx.waiting.put([new_wait(each, gate) for each in bindings])


def new_wait(stored: StoredBinding, gate: str = "") -> NewWait:
    binding = stored.binding
    return NewWait(
        binding_id=stored.id,
        namespace=binding.namespace,
        name=binding.name,
        priority=binding.priority,
        remainder=3,
        short_of="cpu in 2 clusters",
        state=WaitState.GATED if gate else WaitState.UNSCHEDULABLE,
        gate=gate,
    )


async def page(
    store: PostgresStore,
    namespace: str = "",
    priority: int | None = None,
    after: QueuePlace | None = None,
) -> Sequence[QueuedBinding]:
    async with store.reading() as read:
        return await read.waiting.page(namespace, priority, after, 10)


def names(queued: Sequence[QueuedBinding]) -> list[str]:
    return [each.name for each in queued]


def place(queued: QueuedBinding) -> QueuePlace:
    return QueuePlace(queued.priority, queued.wait.since, queued.namespace, queued.name)


async def test_the_queue_is_in_order_of_priority_then_time_then_name(store: PostgresStore) -> None:
    late = await added(store, "a-late")
    together = [await added(store, "c"), await added(store, "b")]
    urgent = await added(store, "z-urgent", priority=7)
    await put(store, *together)
    await put(store, late)
    await put(store, urgent)
    queued = await page(store)
    assert names(queued) == ["z-urgent", "b", "c", "a-late"]
    assert [each.position for each in queued] == [1, 2, 3, 4]
    assert names(await page(store, after=place(queued[1]))) == ["c", "a-late"]
    assert names(await page(store, priority=7)) == ["z-urgent"]
    assert names(await page(store, "elsewhere")) == []
    async with store.reading() as read:
        assert await read.waiting.position(place(queued[3])) == 4


async def test_who_is_tried_again_keeps_its_place(store: PostgresStore) -> None:
    first, second = await added(store, "one"), await added(store, "other")
    await put(store, first)
    await put(store, second)
    (before, _) = await page(store)
    await put(store, first)
    (after, _) = await page(store)
    assert after.name == "one"
    assert after.wait == replace(before.wait, attempts=2)
    assert (after.wait.remainder, after.wait.short_of) == (3, "cpu in 2 clusters")
    assert after.wait.state is WaitState.UNSCHEDULABLE


async def test_a_gated_one_is_listed_and_has_no_place(store: PostgresStore) -> None:
    gated, other = await added(store, "gated"), await added(store, "other")
    await put(store, gated, gate="suspended")
    await put(store, other)
    (one, two) = await page(store)
    assert (one.name, one.position, one.wait.gate) == ("gated", 0, "suspended")
    assert (two.name, two.position) == ("other", 1)


async def test_a_binding_tells_how_it_waits_until_it_does_not(store: PostgresStore) -> None:
    stored = await added(store, "web")
    key = stored.binding.namespace, "web"
    await put(store, stored)
    async with store.transaction() as tx:
        (queued,) = await tx.waiting.page("", None, None, 10)
        for found in (
            await tx.bindings.get(*key),
            await tx.bindings.lock(*key),
            (await tx.bindings.find([key]))[key],
        ):
            assert found is not None
            assert found.wait == queued.wait
        await tx.waiting.remove([stored.id])
        found = await tx.bindings.get(*key)
        assert found is not None
        assert found.wait is None


async def test_a_binding_that_is_deleted_waits_no_more(store: PostgresStore) -> None:
    stored = await added(store, "web")
    await put(store, stored)
    async with store.transaction() as tx:
        await tx.bindings.delete(stored.id)
    assert not await page(store)


async def test_what_became_of_tries_is_noted_of_those_that_may_be_tried(
    store: PostgresStore,
) -> None:
    refused, failed, overtaken, gated = [
        await added(store, name) for name in ("a-refused", "b-failed", "c-overtaken", "d-gated")
    ]
    await put(store, refused, failed, overtaken)
    await put(store, gated, gate="suspended")
    async with store.transaction() as tx:
        await tx.waiting.note(
            {refused.id: "memory in 1 cluster", gated.id: "nothing"},
            {failed.id: 4.0},
            {overtaken.id: "shop/other"},
            [overtaken.id, gated.id],
        )
    a, b, c, d = [each.wait for each in await page(store)]
    assert (a.state, a.attempts, a.next_try) == (WaitState.UNSCHEDULABLE, 2, None)
    assert a.short_of == "memory in 1 cluster"
    assert (b.state, b.attempts) == (WaitState.BACKOFF, 2)
    assert b.next_try is not None
    assert b.next_try > b.since
    assert (c.attempts, c.overtaken_by) == (1, "shop/other")
    assert c.overtaken_since is not None
    assert c.earmarked_since is not None
    assert (d.state, d.attempts, d.earmarked_since) == (WaitState.GATED, 1, None)
    async with store.transaction() as tx:
        await tx.waiting.note({}, {}, {overtaken.id: "shop/later"}, [overtaken.id])
    assert (await page(store))[2].wait == c
    async with store.reading() as read:
        (kept,) = await read.bindings.earmarked(10)
        assert (kept.id, kept.wait) == (overtaken.id, c)
        every = await read.bindings.waiting(refused.id, 2)
        assert [each.id for each in every] == [failed.id, overtaken.id]
    # What asks for something else was not overtaken as that.
    async with store.transaction() as tx:
        await tx.waiting.put([replace(new_wait(overtaken), is_changed=True)])
    changed = (await page(store))[2].wait
    assert (changed.overtaken_since, changed.overtaken_by) == (None, "")
    assert changed.earmarked_since is None


async def test_room_that_others_leave_is_kept_until_something_else_is_asked_for(
    store: PostgresStore,
) -> None:
    every = [await added(store, name) for name in ("one", "two", "three", "gated")]
    made = [
        Nomination(
            since=5.0,
            until=1e9 + number,
            shares=(TargetCluster(name="m1", replicas=2),),
            leaving=(Leaving("shop/low", "m1", 3, "d1"),),
            avoids=("m2",),
        )
        for number in range(4)
    ]
    async with store.transaction() as tx:
        waits = [
            replace(new_wait(each, "suspended" if number == 3 else ""), nominated=nomination)
            for number, (each, nomination) in enumerate(zip(every, made, strict=True))
        ]
        await tx.waiting.put(waits)
        # Tried once more, and no longer.
        await tx.waiting.put([new_wait(every[0]), replace(new_wait(every[1]), is_changed=True)])
    async with store.reading() as read:
        found = await read.bindings.earmarked(0, 20)
        last = await read.bindings.earmarked(10, 1)
    kept = {each.binding.name: each.wait.nominated for each in found if each.wait}
    assert kept == {"one": made[0], "three": made[2]}
    assert [each.binding.name for each in last] == ["three"]


async def test_the_first_of_each_scheduler_name_is_found(store: PostgresStore) -> None:
    for name, priority, scheduler in (
        ("one", 0, "batch"),
        ("urgent", 5, "batch"),
        ("plain", 0, ""),
        ("other", 9, "loose"),
    ):
        await put(store, await added(store, name, priority, scheduler))
    gated = await added(store, "gated", 9, "batch")
    await put(store, gated, gate="suspended")
    async with store.reading() as read:
        first = await read.bindings.first_waiting({"batch", ""})
    assert [each.binding.name for each in first] == ["plain", "urgent"]


async def test_a_gate_keeps_the_place_and_is_opened(store: PostgresStore) -> None:
    stored = await added(store, "web")
    await put(store, stored)
    (before,) = await page(store)
    async with store.transaction() as tx:
        await tx.waiting.gate(new_wait(stored, "suspended"))
    (gated,) = await page(store)
    assert gated.wait == replace(before.wait, state=WaitState.GATED, gate="suspended")
    async with store.transaction() as tx:
        await tx.waiting.open(stored.id)
    assert (await page(store))[0].wait == before.wait
