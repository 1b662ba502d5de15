"""Two control planes on one store that tell each other whom they hear. Clocks stand still."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import API_SERVER_UNREACHABLE, Blindness
from federation.model.errors import Conflict, Unavailable
from federation.services.agent_values import AgentSight
from federation.services.journal_ports import Replica, StoredPresence
from federation.services.members import presences
from federation.services.members.hearing import forgive
from federation.services.members.presences import LEAST_SECONDS, MOST_SECONDS
from federation.services.members.reports import Reporting, ReportTimes
from federation.store.postgres import PostgresStore
from lab.patience import until
from lab.services import make_report
from tests.unit.services.members.conftest import (
    GRACE_SECONDS,
    HEARTBEAT_SECONDS,
    Plane,
    pass_time,
    share,
)


async def rows(store: PostgresStore) -> list[StoredPresence]:
    async with store.reading() as read:
        return list(await read.presences.all())


async def test_an_agent_at_one_is_heard_by_all(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    await a.connect(credential_id, epoch=5)
    await share(a, b)
    for _ in range(10):
        assert not b.is_stale()
        assert (b.seen.connected, b.seen.peer, b.seen.epoch) == (True, "a", 5)
        assert b.seen.clock_offset_seconds == 3
        assert b.seen.last_heartbeat_at == b.clock.now()
        pass_time(a, b, seconds=HEARTBEAT_SECONDS)
        a.beat()
        await share(a, b)
    assert b.presences.holder("member1") == Replica(id="a", endpoint="a.example:7443")
    assert a.presences.holder("member1") is None


async def test_a_report_that_the_agent_stands_by_is_fresh_for_all(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    await a.connect(credential_id)
    await a.reporting.accept("member1", make_report(1, content_hash="h"))
    await b.following.follow()
    pass_time(a, b, seconds=HEARTBEAT_SECONDS)
    a.beat("h")
    await share(a, b)
    state = b.fleet.view("member1").state
    assert state.as_of == b.clock.now()
    assert state.report is not None
    assert state.report.snapshot_time == b.clock.now() + 3
    fresh_at = b.clock.now()
    pass_time(a, b, seconds=HEARTBEAT_SECONDS)
    a.beat("of another picture")
    await share(a, b)
    assert b.fleet.view("member1").state.as_of == fresh_at
    assert b.seen.last_heartbeat_at == b.clock.now()


async def test_a_blind_agent_is_blind_for_all_since_the_same_time(
    planes: tuple[Plane, Plane], store: PostgresStore, credential_id: str
) -> None:
    a, b = planes
    await a.connect(credential_id)
    await a.reporting.accept("member1", make_report(1, content_hash="h"))
    await b.following.follow()
    for age in (20.0, 20.0 + HEARTBEAT_SECONDS):
        sight = AgentSight(picture_age_seconds=age, blind=True, message="gone", skipped_objects=2)
        a.beat("h", sight)
        await share(a, b)
        for plane in (a, b):
            since = plane.clock.now() - age
            assert plane.seen.blindness == Blindness(
                since=since, reason=API_SERVER_UNREACHABLE, message="gone"
            )
            assert plane.seen.skipped_objects == 2
            assert plane.fleet.view("member1").state.as_of == since
            assert plane.is_stale()
        pass_time(a, b, seconds=HEARTBEAT_SECONDS)
    # Who starts now knows it before the agent is heard again.
    c = Plane(store, "c", 500.0)
    await c.start()
    assert c.seen.blindness is not None
    assert c.is_stale()
    a.beat("h", AgentSight())
    await share(a, b, c)
    for plane in (a, b, c):
        assert plane.seen.blindness is None
        assert not plane.is_stale()


async def test_an_agent_that_falls_silent_is_stale_everywhere(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    await a.connect(credential_id)
    await share(a, b)
    for _ in range(3):
        pass_time(a, b, seconds=HEARTBEAT_SECONDS)
        await share(a, b)
        assert not b.is_stale()
    pass_time(a, b, seconds=2 * b.presences.round_seconds + 0.1)
    await share(a, b)
    assert a.is_stale()
    assert b.is_stale()


async def test_a_control_plane_that_dies_takes_its_agents_along_in_time(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    await a.connect(credential_id)
    await share(a, b)
    await a.replicas.leave()
    assert not b.presences.is_left_alone("member1")
    await share(b)
    assert not b.seen.connected
    assert b.presences.holder("member1") is None
    assert b.presences.is_left_alone("member1")
    assert not a.presences.is_left_alone("member1")
    assert not b.is_stale()
    pass_time(b, seconds=60)
    await share(b)
    assert b.is_stale()


async def test_a_stream_that_ended_is_told(planes: tuple[Plane, Plane], credential_id: str) -> None:
    a, b = planes
    session = await a.connect(credential_id)
    await share(a, b)
    a.hang_up(session)
    await share(a, b)
    assert not b.seen.connected
    assert not b.is_stale()
    assert b.presences.holder("member1") is None
    assert (await rows(a.store))[0].replica == ""


async def test_an_agent_that_hung_up_within_a_round_was_heard(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    assert b.is_stale()
    a.hang_up(await a.connect(credential_id, epoch=5))
    await share(a, b)
    for plane in (a, b):
        assert not plane.is_stale()
        assert (plane.seen.connected, plane.seen.epoch) == (False, 5)
    pass_time(a, b, seconds=10 * HEARTBEAT_SECONDS)
    await share(a, b, a, b)
    for plane in (a, b):
        assert plane.is_stale()


async def test_an_ended_session_is_told_once(
    planes: tuple[Plane, Plane], credential_id: str, store: PostgresStore
) -> None:
    a, _ = planes
    a.hang_up(await a.connect(credential_id))
    await a.share()
    before = await rows(store)
    await share(a, a)
    assert await rows(store) == before


async def test_the_newer_session_wins_wherever_it_is(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    old = await a.connect(credential_id, epoch=1)
    await share(a, b)
    new = await b.connect(credential_id, epoch=2)
    await share(b, a)
    assert isinstance(old.error, Conflict)
    assert old.error.reason == "TAKEN_OVER"
    a.hang_up(old)
    assert (a.seen.connected, a.seen.peer, a.seen.epoch) == (True, "b", 2)
    await share(a, b, a)
    assert not new.ended.is_set()
    assert (b.seen.connected, b.seen.peer) == (True, "")
    assert (await rows(a.store))[0].replica == "b"


async def test_an_older_session_elsewhere_ends_as_soon_as_it_learns(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    new = await a.connect(credential_id, epoch=2)
    old = await b.connect(credential_id, epoch=1)
    await share(a, b, a)
    assert isinstance(old.error, Conflict)
    assert not new.ended.is_set()
    assert (await rows(a.store))[0].epoch == 2


async def test_of_one_session_at_two_the_one_that_is_heard_wins(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    broken = await a.connect(credential_id)
    await share(a, b)
    pass_time(a, b, seconds=2 * a.presences.round_seconds + 0.1)
    await b.connect(credential_id)
    await share(b, a)
    assert isinstance(broken.error, Unavailable)
    a.hang_up(broken)
    assert (a.seen.connected, a.seen.peer) == (True, "b")
    assert not a.is_stale()


async def test_a_stream_that_was_heard_just_now_does_not_yield_to_its_like(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    broken = await a.connect(credential_id)
    alive = await b.connect(credential_id)
    await share(b, a, b)
    assert not alive.ended.is_set()
    pass_time(a, b, seconds=HEARTBEAT_SECONDS)
    b.beat()
    await share(a, b, a)
    assert broken.ended.is_set()
    assert not alive.ended.is_set()
    assert b.seen.connected


async def test_a_cluster_that_has_joined_and_reported_elsewhere_is_not_stale(
    planes: tuple[Plane, Plane], credential_id: str
) -> None:
    a, b = planes
    late = Plane(b.store, "late", b.clock.time)
    await late.following.load(grace_until=0.0)
    assert late.is_stale()
    await a.connect(credential_id)
    await a.reporting.accept("member1", make_report(1))
    await late.following.follow()
    assert not late.is_stale()
    pass_time(late, seconds=4 * HEARTBEAT_SECONDS)
    assert late.is_stale()


async def test_what_a_start_finds_was_not_heard_just_now(
    planes: tuple[Plane, Plane], credential_id: str, store: PostgresStore
) -> None:
    a, _ = planes
    await a.connect(credential_id, epoch=7)
    await a.share()
    late = Plane(store, "late", 5_000_000.0)
    await late.start()
    assert late.seen.last_heartbeat_at is None
    assert late.seen.silent_after == late.clock.now() + GRACE_SECONDS
    assert (late.seen.connected, late.seen.epoch, late.seen.peer) == (True, 7, "a")
    pass_time(late, seconds=GRACE_SECONDS + 1)
    assert late.is_stale()
    a.beat()
    pass_time(a, seconds=1)
    a.beat()
    await share(a, late)
    assert not late.is_stale()
    with pytest.raises(Conflict, match="older than 7"):
        await late.connect(credential_id, epoch=6)


async def test_only_what_was_heard_is_told(
    planes: tuple[Plane, Plane], credential_id: str, store: PostgresStore
) -> None:
    a, _ = planes
    await a.connect(credential_id)
    await a.share()
    before = await rows(store)
    await share(a, a)
    assert await rows(store) == before
    pass_time(a, seconds=1)
    a.beat()
    await a.share()
    assert (await rows(store))[0].heard_at > before[0].heard_at


async def test_rows_that_the_store_lost_are_not_missed(
    planes: tuple[Plane, Plane], credential_id: str, store: PostgresStore
) -> None:
    a, b = planes
    await a.connect(credential_id)
    await share(a, b)
    async with store.transaction() as tx:
        found = await tx.clusters.lock("member1")
        assert found is not None
        await tx.clusters.put_uid(found.id, found.cluster.uid)
    assert await rows(store) == []
    await share(b)
    assert b.presences.holder("member1") is not None
    assert b.seen.connected


async def test_a_clock_of_the_store_that_goes_back_hides_nobody_for_long(
    planes: tuple[Plane, Plane], credential_id: str, engine: AsyncEngine
) -> None:
    a, b = planes
    await a.connect(credential_id)
    await share(a, b)
    async with engine.begin() as connection:
        ahead = text("UPDATE presence SET heard_at = now() + interval '1 hour'")
        await connection.execute(ahead)
    await share(b)
    pass_time(a, b, seconds=HEARTBEAT_SECONDS)
    a.beat()
    await share(a, b, b)
    assert b.seen.last_heartbeat_at == b.clock.now()


def test_rounds_are_three_a_heartbeat_within_limits(planes: tuple[Plane, Plane]) -> None:
    a, _ = planes
    assert a.presences.round_seconds == HEARTBEAT_SECONDS / 3

    def round_seconds(heartbeat_seconds: float) -> float:
        beat = ReportTimes(heartbeat_seconds=heartbeat_seconds)
        reporting = Reporting(a.store, a.fleet, a.clock, beat)
        return a.presences_by(reporting).round_seconds

    assert round_seconds(0.1) == LEAST_SECONDS
    assert round_seconds(3600) == MOST_SECONDS


async def test_who_can_read_nothing_calls_nobody_silent(
    planes: tuple[Plane, Plane], credential_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def share_in_vain() -> None:
        raise Unavailable

    a, b = planes
    await a.connect(credential_id)
    await share(a, b)
    with monkeypatch.context() as patched:
        patched.setattr(b.presences, "share", share_in_vain)
        for _ in range(20):
            pass_time(a, b, seconds=HEARTBEAT_SECONDS)
            a.beat()
            with pytest.raises(Unavailable):
                await b.presences.share_or_forgive()
            assert not b.is_stale()
    # Who was silent while it was listened to is not forgiven.
    for _ in range(10):
        pass_time(a, b, seconds=HEARTBEAT_SECONDS)
        await b.presences.share_or_forgive()
    assert b.is_stale()
    monkeypatch.setattr(b.presences, "share", share_in_vain)
    with pytest.raises(Unavailable):
        await b.presences.share_or_forgive()
    assert b.is_stale()


async def test_whose_reading_hangs_calls_nobody_silent(
    planes: tuple[Plane, Plane], credential_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = planes
    asked, forgiven = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    def note(*given: Any) -> None:
        forgive(*given)
        forgiven.set()

    await a.connect(credential_id)
    await share(a, b)
    monkeypatch.setattr(b.presences, "share", hang)
    monkeypatch.setattr(presences, "forgive", note)
    monkeypatch.setattr(presences, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(presences, "MOST_SECONDS", 0.01)
    sharing = asyncio.create_task(b.presences.share_or_forgive())
    await asked.wait()
    pass_time(a, b, seconds=10 * HEARTBEAT_SECONDS)
    forgiven.clear()
    await forgiven.wait()
    assert not b.is_stale()
    sharing.cancel()


@pytest.mark.parametrize("has_peers", [True, False])
async def test_who_can_tell_nobody_of_its_agents_sends_them_to_its_peers_if_there_are_any(
    planes: tuple[Plane, Plane],
    credential_id: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_peers: bool,
) -> None:
    async def share_in_vain() -> None:
        raise Unavailable

    a, b = planes
    session = await a.connect(credential_id)
    if not has_peers:
        await b.replicas.leave()
    await share(a)
    monkeypatch.setattr(a.presences, "share", share_in_vain)
    for _ in range(49):
        pass_time(a, seconds=1)
        with pytest.raises(Unavailable):
            await a.presences.share_or_forgive()
    assert not session.ended.is_set()
    pass_time(a, seconds=1)
    with pytest.raises(Unavailable):
        await a.presences.share_or_forgive()
    assert session.ended.is_set() is has_peers


async def test_a_cluster_that_is_deleted_meanwhile_is_no_trouble(
    planes: tuple[Plane, Plane], store: PostgresStore, credential_id: str, engine: AsyncEngine
) -> None:
    a, b = planes
    await a.connect(credential_id)
    async with engine.connect() as connection:
        await connection.execute(text("DELETE FROM cluster WHERE name = 'member1'"))
        sharing = asyncio.create_task(a.presences.share())
        await until(lambda: waits_for_a_lock(engine), bool)
        await connection.commit()
    await sharing
    assert await rows(store) == []
    await share(a, b)


async def waits_for_a_lock(engine: AsyncEngine) -> bool:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    async with engine.connect() as connection:
        return bool(await connection.scalar(text(waiting)))
