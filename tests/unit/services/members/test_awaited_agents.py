"""A control plane that starts where nobody has listened for a while: the database may be a restored
one, and agents have to say first that what is stored is still their picture.
"""

from __future__ import annotations

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import AGENT_AWAITED
from federation.services.agent_values import AgentSight
from federation.services.members.reports import MISSED_BEATS
from federation.store.postgres import PostgresStore
from lab.services import make_report
from tests.unit.services.members.conftest import HEARTBEAT_SECONDS, Plane, share

HOUR = 3600.0
AGE_WORDS = text("UPDATE presence SET heard_at = heard_at - make_interval(secs => :seconds)")
AGE_REPORTS = text(
    "UPDATE cluster_capacity SET received_at = received_at - make_interval(secs => :seconds)"
)


async def started_after(
    seconds: float, engine: AsyncEngine, store: PostgresStore, name: str
) -> Plane:
    """A control plane that starts so long after the agents were heard last."""
    async with engine.begin() as connection:
        for statement in (AGE_WORDS, AGE_REPORTS):
            await connection.execute(statement, {"seconds": seconds})
    plane = Plane(store, name, 2_000_000.0)
    await plane.start()
    return plane


@pytest.fixture
async def reported(store: PostgresStore, credential_id: str) -> Plane:
    """The control plane that has heard and stored a report, with the hash h."""
    plane = Plane(store, "before", 1_000_000.0)
    await plane.start()
    await plane.connect(credential_id, epoch=1)
    await plane.reporting.accept("member1", make_report(1, content_hash="h"))
    await plane.share()
    return plane


async def test_nothing_is_promised_until_the_agent_stands_by_its_report(
    reported: Plane, engine: AsyncEngine, store: PostgresStore, credential_id: str
) -> None:
    plane = await started_after(HOUR, engine, store, "after")
    blindness = plane.seen.blindness
    assert blindness is not None
    assert blindness.reason == AGENT_AWAITED
    assert blindness.since == pytest.approx(plane.clock.now() - HOUR, abs=60)
    assert plane.is_stale()
    # To be connected is not enough, nor is a beat that says that the picture is another one.
    await plane.connect(credential_id, epoch=1)
    plane.reporting.see("member1", AgentSight())
    plane.beat("another")
    assert plane.is_stale()
    plane.beat("h")
    assert plane.seen.blindness is None
    assert not plane.is_stale()


async def test_an_agent_that_is_blind_stands_by_nothing(
    reported: Plane, engine: AsyncEngine, store: PostgresStore, credential_id: str
) -> None:
    """What it sees when it sees again may be another picture."""
    plane = await started_after(HOUR, engine, store, "after")
    await plane.connect(credential_id, epoch=1)
    plane.beat("h", AgentSight(blind=True, picture_age_seconds=1.0, message="gone"))
    assert plane.is_stale()
    plane.beat("another", AgentSight())
    assert plane.is_stale()
    plane.beat("h", AgentSight())
    assert not plane.is_stale()


async def test_a_report_ends_it_everywhere(
    reported: Plane, engine: AsyncEngine, store: PostgresStore, credential_id: str
) -> None:
    a = await started_after(HOUR, engine, store, "a")
    b = await started_after(0.0, engine, store, "b")
    await a.connect(credential_id, epoch=2)
    await share(a, b)
    assert a.is_stale()
    assert b.is_stale()
    await a.reporting.accept("member1", make_report(1, epoch=2, content_hash="i"))
    assert not a.is_stale()
    await b.following.follow()
    assert not b.is_stale()


async def test_a_report_that_the_agent_stands_by_at_a_peer_ends_it(
    reported: Plane, engine: AsyncEngine, store: PostgresStore, credential_id: str
) -> None:
    a = await started_after(HOUR, engine, store, "a")
    b = await started_after(0.0, engine, store, "b")
    await a.connect(credential_id, epoch=1)
    a.beat("h")
    await share(a, b)
    assert not b.is_stale()


async def test_a_report_that_was_stored_just_now_is_a_word_of_its_agent(
    reported: Plane, engine: AsyncEngine, store: PostgresStore
) -> None:
    """Its control plane was killed before it told the others."""
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM presence"))
    assert not (await started_after(0.0, engine, store, "soon")).is_stale()
    assert (await started_after(HOUR, engine, store, "late")).is_stale()


async def test_who_starts_soon_after_counts_on_what_is_stored(
    reported: Plane, engine: AsyncEngine, store: PostgresStore
) -> None:
    silence = MISSED_BEATS * HEARTBEAT_SECONDS
    assert not (await started_after(silence - 5, engine, store, "soon")).is_stale()
    assert (await started_after(10, engine, store, "late")).is_stale()


async def test_an_old_report_counts_where_its_agent_was_heard_just_now(
    reported: Plane, engine: AsyncEngine, store: PostgresStore
) -> None:
    async with engine.begin() as connection:
        await connection.execute(AGE_REPORTS, {"seconds": HOUR})
    assert not (await started_after(0.0, engine, store, "soon")).is_stale()


async def test_who_runs_has_seen_all_that_was_promised(
    reported: Plane, engine: AsyncEngine
) -> None:
    """An agent that falls silent is stale, as ever."""
    async with engine.begin() as connection:
        for statement in (AGE_WORDS, AGE_REPORTS):
            await connection.execute(statement, {"seconds": HOUR})
    await reported.share()
    assert reported.seen.blindness is None
