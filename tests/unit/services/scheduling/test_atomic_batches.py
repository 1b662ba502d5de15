"""Atomic batches: all items are placed in one transaction, or none is and nothing is stored."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import (
    Conflict,
    FederationError,
    InvalidRequest,
    LimitExceeded,
    NotPlacedTogether,
    PluginFailed,
    PreconditionFailed,
)
from federation.model.placement import Binding, Certificate, Placement
from federation.scheduler.decision import Outcome
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles, Score
from federation.scheduler.state import CycleState
from federation.services.fleet.registry import FleetOwner
from federation.services.scheduling import queue as waiting
from federation.services.scheduling.attempt import TRIES_WITHOUT_LOCKS
from federation.services.scheduling.batches import BatchItem, schedule_batch
from federation.services.values import Once, Scheduled
from federation.store.postgres import PostgresStore
from lab.services import DYNAMIC, WEB, Agents, Deciders, apply, decided, make_scheduling
from tests.unit.services.conftest import (
    ControlPlane,
    MeddledStore,
    StillClock,
    held,
    only,
    rows,
)

Answers = Sequence[Scheduled | FederationError]


def named(name: str, binding: Binding) -> Binding:
    return replace(binding, name=name, uid="")


def items(*bindings: Binding) -> list[BatchItem]:
    """Named w0, w1 and so on, in order."""
    return [BatchItem(binding=named(f"w{n}", each)) for n, each in enumerate(bindings)]


def keyed(batch: Sequence[BatchItem]) -> list[BatchItem]:
    return [
        replace(
            each,
            once=Once(
                caller="admin",
                key=f"key of {each.binding.name}",
                body_hash=hashlib.sha256(repr(each.binding).encode()).digest(),
            ),
        )
        for each in batch
    ]


async def together(plane: Deciders, batch: Sequence[BatchItem]) -> Answers:
    return await schedule_batch(plane.scheduling, batch, atomic=True)


def shares(answers: Answers) -> list[dict[str, int]]:
    return [decided(each) if isinstance(each, Scheduled) else {} for each in answers]


def ids(answers: Answers) -> list[str]:
    return [each.record.id for each in answers if isinstance(each, Scheduled)]


async def transactions(engine: AsyncEngine) -> int:
    """How many have written decisions."""
    async with engine.connect() as connection:
        counted = await connection.execute(text("SELECT count(DISTINCT xmin::text) FROM decision"))
        return int(counted.scalar_one())


async def nothing_is_stored(engine: AsyncEngine, fleet: FleetOwner) -> bool:
    """Nor known to hold anything."""
    counts = [await rows(engine, table) for table in ("binding", "decision", "reservation")]
    held_by = [fleet.ledger(name).bindings() for name in fleet.snapshot.names]
    return not any(counts) and not any(held_by)


@pytest.mark.parametrize("asked", [None, *Certificate])
async def test_all_are_placed_in_one_transaction(
    deciders: Deciders, engine: AsyncEngine, asked: Certificate | None
) -> None:
    wanted = [only("a", 3), only("b", 3), only("c", 2)]
    answers = await together(
        deciders, items(*(replace(each, certificate=asked) for each in wanted))
    )
    assert shares(answers) == [{"a": 3}, {"b": 3}, {"c": 2}]
    assert await transactions(engine) == 1
    worth = {
        promise.certificate.value
        for each in answers
        if isinstance(each, Scheduled)
        for promise in each.record.promises
    }
    # Nobody follows plans here.
    assert worth == {Certificate.STRICT.value if asked is Certificate.STRICT else "careful"}


async def test_more_than_an_ordinary_batch_takes_is_one_transaction_too(
    deciders: Deciders, engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_BATCH", 2)
    monkeypatch.setattr(waiting, "LEAST_BATCH", 2)
    answers = await together(deciders, items(*[only("a", 1)] * 6))
    assert shares(answers) == [{"a": 1}] * 6
    assert await transactions(engine) == 1


async def test_where_one_has_no_room_none_is_placed_and_all_are_told_why(
    deciders: Deciders, engine: AsyncEngine, fleet: FleetOwner
) -> None:
    answers = await together(deciders, items(only("a", 3), only("b", 4), only("c", 1), only("b")))
    first, second, third, fourth = answers
    assert isinstance(second, Scheduled)
    assert second.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert "3 replicas are available, 4 wanted" in second.record.decision.reason
    assert (second.record.id, second.binding, second.queued) == ("", None, False)
    for each in (first, third, fourth):
        assert isinstance(each, NotPlacedTogether)
        assert each.message == (
            "Not placed, because items[1] (shop/w1) of the same atomic batch was not placed."
        )
    assert await nothing_is_stored(engine, fleet)
    # What was not taken is there for the next one.
    assert shares(await together(deciders, items(only("a", 6), only("b", 3)))) == [
        {"a": 6},
        {"b": 3},
    ]


async def test_several_that_have_no_room_are_counted(deciders: Deciders) -> None:
    answers = await together(
        deciders, items(only("a", 9), only("a", 1), only("b", 9), only("c", 9))
    )
    assert isinstance(answers[1], NotPlacedTogether)
    assert answers[1].message.endswith(
        "items[0] (shop/w0) of the same atomic batch was not placed, nor were 2 more."
    )


async def test_a_partial_placement_is_one_where_the_item_takes_it(deciders: Deciders) -> None:
    greedy = only("b", 9)
    greedy = replace(greedy, placement=replace(greedy.placement, partial=True))
    assert shares(await together(deciders, items(only("a", 1), greedy))) == [{"a": 1}, {"b": 3}]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (BatchItem(binding=replace(WEB, replicas=-1)), "INVALID_REQUEST"),
        (BatchItem(binding=replace(WEB, suspended=True)), "PRECONDITION_FAILED"),
        (InvalidRequest.of("metadata.name", "is required"), "INVALID_REQUEST"),
        (BatchItem(binding=named("w0", WEB)), "INVALID_REQUEST"),
        (BatchItem(binding=replace(WEB, name="known", uid="another")), "PRECONDITION_FAILED"),
        (BatchItem(binding=replace(WEB, name="bad")), "PLUGIN_FAILED"),
    ],
)
async def test_where_one_is_wrong_none_is_placed(
    wrong: BatchItem | InvalidRequest,
    reason: str,
    deciders: Deciders,
    store: PostgresStore,
    fleet: FleetOwner,
    clock: StillClock,
    engine: AsyncEngine,
) -> None:
    def picky(state: CycleState) -> object:
        if state.binding.name == "bad":
            raise KeyError("no such label")
        return state.prior_c * 0

    await apply(deciders.scheduling, replace(only("a", 1), name="known"))
    profiles = Profiles.of(
        [replace(DEFAULT_PROFILE, scores=(Score(name="P", run=picky, weight=1),))]
    )
    scheduling = make_scheduling(store, fleet, Agents(), clock, profiles)
    batch = [*items(only("a", 1)), wrong, BatchItem(binding=named("w2", only("b", 1)))]
    answers = await schedule_batch(scheduling, batch, atomic=True)
    assert [each.reason for each in answers if isinstance(each, FederationError)] == [
        "NOT_PLACED_TOGETHER",
        reason,
        "NOT_PLACED_TOGETHER",
    ]
    assert "items[1]" in str(answers[0])
    assert isinstance(answers[1], (InvalidRequest, PreconditionFailed, PluginFailed))
    assert await rows(engine, "binding") == 1


async def test_a_key_twice_is_wrong(deciders: Deciders) -> None:
    one, other = keyed(items(only("a", 1), only("b", 1)))
    answers = await together(deciders, [one, replace(other, once=one.once)])
    assert isinstance(answers[1], InvalidRequest)
    assert [str(each) for each in answers[1].violations] == ["idempotencyKey: is that of items[0]"]


async def test_the_same_again_under_its_keys_is_answered_as_before(
    deciders: Deciders, engine: AsyncEngine
) -> None:
    batch = keyed(items(only("a"), only("b")))
    first = await together(deciders, batch)
    assert ids(await together(deciders, batch)) == ids(first)
    # One that was placed before, and one that is new.
    more = [*batch, *keyed([BatchItem(binding=named("w2", only("c")))])]
    again = await together(deciders, more)
    assert ids(again)[:2] == ids(first)
    assert shares(again) == [{"a": 2}, {"b": 2}, {"c": 2}]
    assert await rows(engine, "decision") == 3


async def test_a_key_of_another_request_spoils_the_batch(
    deciders: Deciders, engine: AsyncEngine
) -> None:
    (old,) = keyed(items(only("a")))
    await together(deciders, [old])
    changed = replace(old, binding=named("w0", only("a", 1)))
    changed = replace(changed, once=replace(old.once, body_hash=b"x" * 32) if old.once else None)
    answers = await together(deciders, [changed, BatchItem(binding=named("w1", only("b")))])
    assert [each.reason for each in answers if isinstance(each, FederationError)] == [
        "IDEMPOTENCY_KEY_REUSED",
        "NOT_PLACED_TOGETHER",
    ]
    assert await rows(engine, "binding") == 1


async def test_what_was_not_placed_may_be_asked_again_under_its_keys(deciders: Deciders) -> None:
    await apply(deciders.scheduling, only("b", 2))
    batch = keyed(items(only("a"), only("b")))
    assert shares(await together(deciders, batch)) == [{}, {}]
    await deciders.releases.delete("shop", "web")
    assert shares(await together(deciders, batch)) == [{"a": 2}, {"b": 2}]


async def test_one_that_was_refused_under_its_key_spoils_the_batch(
    deciders: Deciders, engine: AsyncEngine
) -> None:
    batch = keyed(items(only("a"), only("b", 9)))
    await schedule_batch(deciders.scheduling, batch[1:])
    assert isinstance((await together(deciders, batch))[0], NotPlacedTogether)
    assert await rows(engine, "binding") == 1


async def test_what_stands_already_is_answered_with_the_others(
    deciders: Deciders, engine: AsyncEngine
) -> None:
    batch = items(only("a"), only("b"))
    (standing,) = ids(await together(deciders, batch[:1]))
    first = await together(deciders, batch)
    assert ids(first)[0] == standing
    assert ids(await together(deciders, batch)) == ids(first)
    assert await rows(engine, "decision") == 2
    # It stays where the others are not placed.
    answers = await together(deciders, [*batch, BatchItem(binding=named("w2", only("c", 9)))])
    assert [isinstance(each, NotPlacedTogether) for each in answers] == [True, True, False]
    assert await rows(engine, "decision") == 2


async def test_workloads_that_avoid_each_other_see_each_other(deciders: Deciders) -> None:
    placement = Placement(workload_anti_affinity_key="shy", replica_scheduling=DYNAMIC)
    shy = replace(WEB, replicas=1, labels={"shy": "yes"}, placement=placement)
    answers = shares(await together(deciders, items(*[shy] * 3)))
    assert sorted(name for each in answers for name in each) == ["a", "b", "c"]
    others = items(*[replace(shy, namespace="other")] * 4)
    assert shares(await together(deciders, others)) == [{}] * 4
    together_there = replace(placement, workload_anti_affinity_key="", workload_affinity_key="shy")
    first = replace(only("b", 1).placement, workload_affinity_key="shy")
    friends = [replace(shy, placement=each, namespace="third") for each in (first, together_there)]
    assert shares(await together(deciders, items(*friends))) == [{"b": 1}, {"b": 1}]


async def test_what_another_one_took_meanwhile_decides_the_whole_batch_again(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, store: PostgresStore
) -> None:
    rival = replace(only("b", 1), name="rival", uid="")
    meddled.meddle = lambda: apply(one.deciders.scheduling, rival)
    assert shares(await together(other.deciders, items(only("a"), only("b")))) == [
        {"a": 2},
        {"b": 2},
    ]
    greedy = replace(only("c", 2), name="greedy", uid="")
    meddled.meddle = lambda: apply(one.deciders.scheduling, greedy)
    batch = [BatchItem(binding=named(f"x{n}", only("c", n))) for n in (1, 2)]
    answers = await together(other.deciders, batch)
    assert shares(answers) == [{}, {}]
    assert [await held(store, each.binding) for each in batch] == [{}, {}]
    assert await held(store, greedy) == {"c": 2}
    await other.follow()
    assert set(other.fleet.ledger("c").bindings()) == {"shop/greedy"}


async def test_a_batch_that_others_keep_winning_against_is_decided_under_locks(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, engine: AsyncEngine
) -> None:
    """Before each of its transactions somebody changes one of its bindings."""
    changed = named("w0", only("a", 1))
    await apply(one.deciders.scheduling, changed)
    replicas = iter(range(2, 30))
    before = TRIES_WITHOUT_LOCKS

    async def meddle() -> None:
        number = next(replicas)
        await apply(one.deciders.scheduling, replace(changed, labels={"n": str(number)}))
        if number < 2 + before:
            meddled.meddle = meddle

    meddled.meddle = meddle
    answers = await together(other.deciders, items(only("a", 3), only("b", 3)))
    assert shares(answers) == [{"a": 3}, {"b": 3}]
    assert next(replicas) == 3 + before


async def test_a_batch_that_never_comes_through_is_a_conflict(
    one: ControlPlane, other: ControlPlane, meddled: MeddledStore, engine: AsyncEngine
) -> None:
    changed = named("w0", only("a", 1))
    await apply(one.deciders.scheduling, changed)
    numbers = iter(range(1000))

    async def meddle() -> None:
        meddled.meddle = meddle
        await apply(one.deciders.scheduling, replace(changed, labels={"n": str(next(numbers))}))

    meddled.meddle = meddle
    with pytest.raises(Conflict):
        await together(other.deciders, items(only("a", 3), only("b", 3)))
    meddled.meddle = None
    assert await rows(engine, "binding") == 1


async def test_callers_of_two_control_planes_never_have_half_a_batch(
    one: ControlPlane, other: ControlPlane, store: PostgresStore, engine: AsyncEngine
) -> None:
    """Twelve batches of a replica in each cluster, where three of them fit."""
    batches = [
        [BatchItem(binding=named(f"{n}-{name}", only(name, 1))) for name in "abc"]
        for n in range(12)
    ]
    answers = await asyncio.gather(
        *(
            together((one, other)[number % 2].deciders, batch)
            for number, batch in enumerate(batches)
        )
    )
    placed = Counter(len([each for each in shares(answer) if each]) for answer in answers)
    assert placed == {3: 3, 0: 9}
    for batch, answer in zip(batches, answers, strict=True):
        assert [await held(store, each.binding) for each in batch] == shares(answer)
    assert await transactions(engine) == 3


async def test_too_many_leave_nothing_behind(
    deciders: Deciders, engine: AsyncEngine, fleet: FleetOwner, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "MAX_WAITING", 2)
        with pytest.raises(LimitExceeded):
            await together(deciders, items(*[only("a", 1)] * 3))
    assert await nothing_is_stored(engine, fleet)
    assert await together(deciders, []) == []
