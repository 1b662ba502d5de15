"""Previews: nothing is stored until the token comes back, and then exactly what was shown."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.access import EVERYTHING, Scope
from federation.model.cluster import API_SERVER_UNREACHABLE, Blindness
from federation.model.errors import (
    FederationError,
    InvalidRequest,
    PermissionRefused,
    PreconditionFailed,
)
from federation.model.workload import TargetCluster
from federation.scheduler.decision import Outcome
from federation.services.fleet.registry import FleetOwner
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.previews import PREVIEW_SECONDS, Previews
from federation.services.values import Previewed
from federation.store.postgres import PostgresStore
from lab.services import WEB, Agents, Deciders, apply, decided, make_deciders, make_report, shares
from tests.unit.services.conftest import StillClock
from tests.unit.services.scheduling.test_bindings import rows


@pytest.fixture
def previews(deciders: Deciders) -> Previews:
    return deciders.previews


async def shown(previews: Previews, **change: object) -> Previewed:
    return await previews.preview(
        replace(WEB, **change),
        adopt=False,
        wait=True,
    )


async def refusal(previews: Previews, token: str) -> str:
    with pytest.raises(PreconditionFailed) as caught:
        await previews.commit(token, None, EVERYTHING)
    return caught.value.reason


async def test_a_preview_decides_and_stores_nothing(
    previews: Previews, scheduling: Scheduling, engine: AsyncEngine
) -> None:
    previewed = await shown(previews)
    assert previewed.record.id == ""
    assert previewed.record.decision.outcome is Outcome.SCHEDULED
    assert previewed.record.decision.trace.clusters == ("a", "b", "c")
    assert previewed.token
    assert previewed.token not in repr(previewed)
    assert (await rows(engine, "binding"), await rows(engine, "decision")) == (0, 0)
    scheduled = await apply(scheduling, WEB)
    assert decided(scheduled) == shares(previewed.record.decision.clusters)


async def test_a_preview_is_committed_by_who_may_schedule_in_its_namespace(
    previews: Previews, engine: AsyncEngine
) -> None:
    """The token alone, which may be overheard, is not enough."""
    token = (await shown(previews)).token
    with pytest.raises(PermissionRefused, match="of a namespace that is not its caller's"):
        await previews.commit(token, None, Scope(namespaces=("bank",)))
    assert await rows(engine, "binding") == 0
    assert (await previews.commit(token, None, Scope(namespaces=(WEB.namespace,)))).record.id


async def test_nothing_is_committed_in_a_cluster_that_cannot_be_seen_any_more(
    previews: Previews, fleet: FleetOwner, engine: AsyncEngine
) -> None:
    previewed = await shown(previews)
    (name, *_) = [each.name for each in previewed.record.decision.clusters if each.replicas]
    presence = fleet.view(name).presence
    blindness = Blindness(since=0.0, reason=API_SERVER_UNREACHABLE)
    fleet.put_presence(name, replace(presence, blindness=blindness))
    with pytest.raises(PreconditionFailed, match=f"{name} cannot be seen since 1970-01-01T"):
        await previews.commit(previewed.token, None, EVERYTHING)
    assert await rows(engine, "binding") == 0
    fleet.put_presence(name, presence)
    assert (await previews.commit(previewed.token, None, EVERYTHING)).record.id


async def test_the_token_commits_what_was_shown_whatever_was_reported_since(
    previews: Previews, scheduling: Scheduling, reporting: Reporting
) -> None:
    previewed = await shown(previews)
    await reporting.accept("a", make_report(7, cpu_millis=5000))
    await reporting.accept("b", make_report(8, cpu_millis=90_000))
    scheduled = await previews.commit(previewed.token, None, EVERYTHING)
    assert decided(scheduled) == shares(previewed.record.decision.clusters)
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    record = view.record
    assert record is not None
    assert record.id == scheduled.record.id
    assert shares(binding.clusters) == decided(scheduled)
    assert binding.last_scheduled_time is not None
    kept, seen = record.decision.to_plain(), previewed.record.decision.to_plain()
    assert kept == seen
    assert record.evidence == previewed.record.evidence


async def test_what_was_shown_is_not_committed_where_its_room_is_gone(
    previews: Previews, scheduling: Scheduling, reporting: Reporting, engine: AsyncEngine
) -> None:
    previewed = await shown(previews)
    await reporting.accept("a", make_report(7, cpu_millis=4999))
    assert await refusal(previews, previewed.token) == "PREVIEW_STALE"
    assert await rows(engine, "binding") == await rows(engine, "reservation") == 0
    await reporting.accept("a", make_report(8, cpu_millis=6000))
    await apply(scheduling, replace(WEB, name="other", uid="", replicas=9))
    assert await refusal(previews, previewed.token) == "PREVIEW_STALE"


async def test_a_commit_may_be_repeated(
    previews: Previews, scheduling: Scheduling, engine: AsyncEngine
) -> None:
    token = (await shown(previews)).token
    answers = await asyncio.gather(*(previews.commit(token, None, EVERYTHING) for _ in range(4)))
    assert len({answer.record.id for answer in answers}) == 1
    assert await rows(engine, "decision") == 1
    # Even when the binding moved on: what was committed is the answer.
    later = await apply(scheduling, replace(WEB, replicas=3))
    again = await previews.commit(token, None, EVERYTHING)
    assert again.record.id == answers[0].record.id
    assert again.binding == later.binding


async def test_a_token_works_on_another_replica_and_after_a_restart(
    previews: Previews, store: PostgresStore, clock: StillClock, scheduling: Scheduling
) -> None:
    token = (await shown(previews)).token
    fleet = FleetOwner(store)
    await fleet.load(grace_until=clock.time)
    other = make_deciders(store, fleet, Agents(), clock).previews
    committed = await other.commit(token, None, EVERYTHING)
    assert (await scheduling.get_decision(committed.record.id)).decision.clusters


async def test_a_known_binding_is_committed_over(
    previews: Previews, scheduling: Scheduling
) -> None:
    first = await apply(scheduling, WEB)
    previewed = await shown(previews, replicas=3)
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    assert binding == first.binding
    committed = await previews.commit(previewed.token, None, EVERYTHING)
    assert committed.record.binding_generation == 2
    assert sum(decided(committed).values()) == 3


async def test_an_expired_token_is_refused_and_swept_away(
    previews: Previews, engine: AsyncEngine
) -> None:
    previewed = await shown(previews)
    async with engine.begin() as connection:
        found = await connection.execute(text("SELECT expires_at - created_at FROM preview"))
        assert found.scalar_one().total_seconds() == PREVIEW_SECONDS
        await connection.execute(
            text("UPDATE preview SET created_at = now() - interval '1 h', expires_at = now()")
        )
    assert await refusal(previews, previewed.token) == "PREVIEW_EXPIRED"
    await shown(previews)
    assert await rows(engine, "preview") == 1


@pytest.mark.parametrize("token", ["", "nonsense", "a.b", "\0", "x" * 1000])
async def test_what_is_no_token_is_refused(previews: Previews, token: str) -> None:
    assert await refusal(previews, token) == "PREVIEW_EXPIRED"


async def test_the_secret_of_a_token_is_checked(previews: Previews) -> None:
    identifier, _, secret = (await shown(previews)).token.partition(".")
    assert await refusal(previews, f"{identifier}.{secret[::-1]}") == "PREVIEW_EXPIRED"


async def test_a_binding_that_was_changed_since_is_not_overwritten(
    previews: Previews, scheduling: Scheduling
) -> None:
    await apply(scheduling, WEB)
    previewed = await shown(previews, replicas=3)
    await apply(scheduling, replace(WEB, replicas=4))
    assert await refusal(previews, previewed.token) == "PREVIEW_STALE"
    view = await scheduling.get_binding("shop", "web")
    binding = view.binding
    assert binding.replicas == 4


async def test_what_is_only_noted_on_a_binding_does_not_spoil_its_preview(
    previews: Previews, scheduling: Scheduling
) -> None:
    await apply(scheduling, WEB)
    previewed = await shown(previews, replicas=3)
    await apply(scheduling, replace(WEB, annotations={"seen": "yes"}))
    assert sum(decided(await previews.commit(previewed.token, None, EVERYTHING)).values()) == 3


async def test_a_binding_that_was_made_or_deleted_since_is_left_alone(
    previews: Previews, scheduling: Scheduling
) -> None:
    of_new = await shown(previews)
    await apply(scheduling, replace(WEB, replicas=1))
    assert await refusal(previews, of_new.token) == "PREVIEW_STALE"
    of_known = await shown(previews)
    await scheduling.delete_binding("shop", "web")
    assert await refusal(previews, of_known.token) == "PREVIEW_STALE"
    await apply(scheduling, replace(WEB, replicas=1))
    assert await refusal(previews, of_known.token) == "PREVIEW_STALE"


async def test_a_cluster_that_was_cordoned_since_takes_no_replicas(
    previews: Previews, fleet: FleetOwner
) -> None:
    previewed = await shown(previews)
    fleet.put_cluster(replace(fleet.known("a").cluster, cordoned=True))
    assert await refusal(previews, previewed.token) == "PREVIEW_STALE"


async def test_a_cluster_that_is_gone_takes_no_replicas(
    previews: Previews, fleet: FleetOwner, engine: AsyncEngine
) -> None:
    previewed = await shown(previews)
    fleet.remove("a")
    assert await refusal(previews, previewed.token) == "PREVIEW_STALE"
    assert await rows(engine, "binding") == 0


async def test_a_binding_beside_the_token_must_ask_for_the_same(previews: Previews) -> None:
    previewed = await shown(previews)
    with pytest.raises(PreconditionFailed) as caught:
        await previews.commit(previewed.token, replace(WEB, replicas=8), EVERYTHING)
    assert caught.value.reason == "PREVIEW_OF_ANOTHER_REQUEST"
    elsewhere = (TargetCluster(name="b", replicas=1),)
    same = replace(WEB, clusters=elsewhere)
    assert (await previews.commit(previewed.token, same, EVERYTHING)).record.id


async def test_a_preview_that_would_store_nothing_has_no_token(previews: Previews) -> None:
    much = replace(WEB, replicas=1000)
    previewed = await previews.preview(much, adopt=False, wait=False)
    assert previewed.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert (previewed.token, previewed.expires_at) == ("", None)
    waiting = await previews.preview(much, adopt=False, wait=True)
    committed = await previews.commit(waiting.token, None, EVERYTHING)
    assert committed.record.decision.outcome is Outcome.UNSCHEDULABLE
    assert committed.binding is not None
    assert committed.binding.clusters == ()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"replicas": -1}, InvalidRequest),
        ({"scheduler_name": "nobody"}, InvalidRequest),
        ({"suspended": True}, PreconditionFailed),
    ],
)
async def test_what_cannot_be_decided_cannot_be_previewed(
    previews: Previews, engine: AsyncEngine, change: dict[str, object], error: type[FederationError]
) -> None:
    with pytest.raises(error):
        await shown(previews, **change)
    assert await rows(engine, "preview") == 0
