"""Background work: one control plane does each duty, and every loop goes on whatever happens."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from federation import database
from federation.model.audit import AuditRecord
from federation.services.access.audit import MAX_WAITING
from lab.commanded_stores import CommandedStore
from lab.control_planes import Plane, running_control_plane
from lab.patience import PATIENCE_SECONDS, until
from tests.api.world import World

TRIES = 4
EXPIRE = "expire leases"
RUN_OUT = "UPDATE duty SET expires_at = now() - interval '1 second'"
PROMISES_RUN_OUT = "UPDATE reservation SET lease_expires_at = now() - interval '1 second'"


async def holder(world: World, name: str = EXPIRE) -> Any:
    """Who has a duty, by which token, and whether its lease lasts."""
    (row,) = await world.plane.sql(
        "SELECT holder, token, expires_at > now() AS lasts FROM duty WHERE name = $1", name
    )
    return row


def id_of(world: World) -> str:
    return str(world.plane.plane.parts.replicas.id)


async def rounds(world: World, count: int = 1) -> None:
    """Let so many rounds of duties begin."""
    wanted = world.store.statements["duties.hold"] + count
    await world.pass_until(world.queued, lambda _: world.store.statements["duties.hold"] >= wanted)


async def test_one_does_each_duty_and_another_takes_over_when_its_lease_has_run_out(
    world: World, rival: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await world.clusters(a=1)
    assert await world.placed("web", lease_seconds=3600) == {"a": 1}
    planes = {id_of(each): each for each in (world, rival)}
    row = await world.pass_until(lambda: holder(world), lambda row: row["holder"] in planes)
    first = planes.pop(row["holder"])
    (other,) = planes.values()

    async def take_over() -> None:
        await world.plane.sql(
            "UPDATE duty SET holder = $1, token = token + 1, "
            "expires_at = now() + interval '1 hour'",
            id_of(other),
        )
        await world.plane.sql(PROMISES_RUN_OUT)

    # Another has taken over before the transaction that does the work: it changes nothing.
    other.store.is_reachable = False
    first.store.before("duties.check", take_over)
    await first.pass_until(lambda: logged(world, caplog, "duty lost"), bool)
    await rounds(first, 2)
    assert await first.held() == {"a": 1}
    taken = await holder(world)
    assert taken["holder"] == id_of(other)
    # The other one does it.
    other.store.is_reachable = True
    await other.pass_until(first.held, lambda held: not held)
    # Every lease runs out while the other one is cut off: who is here takes them.
    other.store.is_reachable = False
    await world.plane.sql(RUN_OUT)
    row = await first.pass_until(
        lambda: holder(world), lambda row: row["holder"] == id_of(first) and row["lasts"]
    )
    other.store.is_reachable = True
    assert row["token"] > taken["token"]


async def logged(world: World, caplog: pytest.LogCaptureFixture, message: str) -> list[Any]:
    await world.queued()
    return [each for each in caplog.records if each.message == message]


async def test_while_a_piece_is_done_its_lease_is_renewed_and_nobody_takes_over(
    world: World, rival: World
) -> None:
    is_reached, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        is_reached.set()
        await goes_on.wait()

    for each in (world, rival):
        each.store.before("reservations.expired", hold)
    world.clock.advance(60)
    await world.pass_until(world.queued, lambda _: is_reached.is_set())
    before = await holder(world)
    await world.plane.sql(RUN_OUT)
    await rounds(world)
    await rounds(rival)
    # By the machine's clock, after a third of the lease.
    after = await until(lambda: holder(world), lambda row: bool(row["lasts"]))
    assert after["holder"] == before["holder"]
    assert after["token"] == before["token"]
    goes_on.set()
    for each in (world, rival):
        each.store.forget_acts()


@pytest.mark.expected_errors("duty not done: prune journal")
async def test_work_that_fails_keeps_none_from_being_done_and_is_done_again(
    world: World, rival: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    planes = (world, rival)

    def done(statement: str) -> int:
        return sum(each.store.statements[statement] for each in planes)

    async def fail() -> None:
        raise RuntimeError("first time")

    for each in planes:
        each.store.before("journal.prune", fail)
    others = done("audit.seal")
    world.clock.advance(61)
    failed = "duty not done: prune journal"
    await world.pass_until(lambda: logged(world, caplog, failed), bool)
    for each in planes:
        each.store.forget_acts()
    failures = world.plane.plane.parts.duties.failures
    told = await until(failures, bool)
    assert [(each.duty, each.why) for each in told] == [
        ("prune journal", "RuntimeError: first time")
    ]
    await world.pass_until(lambda: logged(world, caplog, f"over: {failed}"), bool)
    assert done("audit.seal") > others
    assert await until(failures, lambda found: not found) == []
    # What was done rests for its time.
    before = done("journal.prune")
    for _ in range(3):
        sealed = done("audit.seal")
        world.clock.advance(4)
        await until(world.queued, lambda _, sealed=sealed: done("audit.seal") > sealed)
    assert done("journal.prune") == before


async def test_who_stops_hands_its_duties_over(fresh: Plane) -> None:
    async def mine() -> int:
        (row,) = await fresh.sql(
            "SELECT count(*) FROM duty WHERE holder = $1 AND name = $2",
            fresh.plane.parts.replicas.id,
            EXPIRE,
        )
        return int(row[0])

    await until(mine, lambda count: count == 1)
    await fresh.plane.stop()
    assert await mine() == 0


@pytest.mark.expected_errors("why=try ")
@pytest.mark.parametrize(
    ("message", "part", "method"),
    [
        ("what finished is not written", "finishing", "write"),
        ("readiness not looked at", "readiness", "look"),
        ("agents not forgiven that the event loop stood still", "loop_watch", "late_by"),
        ("duties not held", "duties", "do_round"),
        ("the journal cannot be read", "following", "follow"),
    ],
)
async def test_a_loop_goes_on_after_what_nobody_expected_which_is_told_once(
    world: World,
    message: str,
    part: str,
    method: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    members = "federation.services.members"
    for pause in (
        "federation.services.fleet.conditions.LOOK_SECONDS",
        f"{members}.event_loop_lag.TICK_SECONDS",
        f"{members}.finished_jobs.AGAIN_SECONDS",
        f"{members}.finished_jobs.LONGEST_PAUSE_SECONDS",
        "federation.services.fleet.journal_reader.MIN_PAUSE_SECONDS",
        "federation.services.fleet.journal_reader.MAX_PAUSE_SECONDS",
    ):
        monkeypatch.setattr(pause, 0.0)
    caplog.set_level(logging.INFO)
    tries = list[str]()

    def fail(*_: object) -> None:
        tries.append(f"try {len(tries)}")
        raise RuntimeError(tries[-1])

    await world.clusters(a=6)
    await world.schedule("job", 3)
    with monkeypatch.context() as patch:
        patch.setattr(getattr(world.plane.plane.parts, part), method, fail)
        await world.report("a", 6, job={"bound": 1, "finished": 2})
        await world.pass_until(world.queued, lambda _: len(tries) >= TRIES)
    told = [each for each in await logged(world, caplog, message) if each.fields["why"] in tries]
    assert [bool(each.exc_info) for each in told] == [True]

    async def finished() -> int:
        (held,) = (await world.got("job")).reservations
        return int(held.finished)

    await world.pass_until(finished, lambda count: count == 2)


@pytest.mark.expected_errors("why=try ")
async def test_the_loop_of_the_embedded_database_goes_on_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for pause in ("WATCH_SECONDS", "LONGEST_PAUSE_SECONDS"):
        monkeypatch.setattr(database, pause, 0.0)
    tries, tried_often = list[int](), asyncio.Event()

    def fail(*_: object) -> None:
        tries.append(len(tries))
        if len(tries) >= TRIES:
            tried_often.set()
        raise RuntimeError(f"try {len(tries)}")

    server: Any = SimpleNamespace(is_alive=fail)
    loop = asyncio.create_task(database.keep_running(server))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await tried_often.wait()
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    assert [each.message for each in caplog.records] == ["embedded database does not start"]


async def test_pods_that_finished_stay_so_when_they_are_gone(
    world: World, module_folder: Path
) -> None:
    """At the control plane that serves their agent, and at one that starts later."""
    await world.clusters(a=6)
    await world.schedule("job", 3)
    written = world.store.statements["reservations.finish"]
    await world.report("a", 6, job={"bound": 1, "finished": 2})
    await until(world.queued, lambda _: world.store.statements["reservations.finish"] > written)
    await world.agents["a"].report(cores=6, sees={})
    store = CommandedStore()
    async with running_control_plane(
        world.plane.database_url, module_folder, clock=world.clock, store=store
    ) as later:
        for each in (world, world.at(later, store)):

            async def counts(plane: World = each) -> tuple[int, int]:
                (held,) = (await plane.got("job")).reservations
                return int(held.finished), int(held.outstanding)

            await until(counts, lambda found: found == (2, 1))


async def test_refusals_that_cannot_be_written_are_counted_and_written_by_themselves(
    world: World,
) -> None:
    stranger = AuditRecord(actor="somebody unknown", method="Scheduling/Schedule")
    known = AuditRecord(actor="token ci (tok-1)", method="Scheduling/Schedule")
    trail = world.plane.plane.parts.trail
    world.store.is_reachable = False
    for _ in range(MAX_WAITING + 100):
        for record in (stranger, known):
            trail.refused(record, sparingly=record is stranger)
    world.store.is_reachable = True

    async def told() -> list[int]:
        rows = await world.plane.sql(
            "SELECT count(*), sum(1 + unrecorded) FROM audit WHERE actor = ANY($1)",
            [stranger.actor, known.actor],
        )
        return [int(each or 0) for each in rows[0]]

    rows, _ = await until(told, lambda found: found[0] > 0)
    # Those kept, and one that counts for each sort.
    assert rows <= MAX_WAITING + 2
    await trail.finish()
    assert (await told())[1] == 2 * (MAX_WAITING + 100)
