from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    Unauthenticated,
)
from federation.model.grades import DEFAULT_MODEL, Grade, GradeRange, ResourceModel
from federation.model.resources import CPU, MAX_AMOUNT
from federation.services.agent_values import Enrollment
from federation.services.fleet.registry import FleetOwner
from federation.services.members.identity import Identity
from federation.services.members.join import MAX_TOKEN_SECONDS, Registration
from federation.store.postgres import PostgresStore
from lab.services import join
from tests.unit.services.conftest import StillClock

MODEL = ResourceModel(
    grades=(
        Grade(grade=0, ranges=(GradeRange(name=CPU, min=0, max=4000),)),
        Grade(grade=1, ranges=(GradeRange(name=CPU, min=4000, max=MAX_AMOUNT),)),
    )
)
COUNTS = text("""
    SELECT (SELECT count(*) FROM cluster), (SELECT count(*) FROM credential),
           (SELECT count(*) FROM join_token WHERE used_at IS NOT NULL)
""")


def enrollment(token: str, *, cluster: str = "member1", uid: str = "uid-member1") -> Enrollment:
    return Enrollment(
        cluster=cluster,
        token=token,
        cluster_uid=uid,
        kubernetes_version="v1.33.1",
        agent_version="0.1.0",
        provider="example",
        region="north",
        zones=("north-2", "north-1", "north-2"),
    )


async def counts(engine: AsyncEngine) -> tuple[int, ...]:
    async with engine.connect() as connection:
        return tuple((await connection.execute(COUNTS)).one())


async def test_a_new_cluster_starts_with_what_its_agent_found(
    registration: Registration,
) -> None:
    token = await registration.create_join_token("member1")
    issued = await registration.enroll(enrollment(token.token))
    view = await registration.get_cluster("member1")
    assert view.cluster == Cluster(
        name="member1",
        uid="uid-member1",
        provider="example",
        region="north",
        zones=("north-1", "north-2"),
        resource_version=1,
    )
    assert view.presence.kubernetes_version == "v1.33.1"
    assert not view.presence.connected
    assert issued.expires_at > token.expires_at


@pytest.mark.parametrize("ttl_seconds", [0, -1, MAX_TOKEN_SECONDS + 1])
async def test_tokens_live_from_a_second_to_a_week(
    registration: Registration, ttl_seconds: int
) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await registration.create_join_token("member1", ttl_seconds)
    assert [violation.field for violation in raised.value.violations] == ["ttlSeconds"]
    await registration.create_join_token("member1", 1)
    await registration.create_join_token("member1", MAX_TOKEN_SECONDS)


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a.b", "a" * 49, "a\n", "é"])
async def test_names_are_dns_labels(registration: Registration, name: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        await registration.create_join_token(name)
    assert [violation.field for violation in raised.value.violations] == ["cluster"]


async def test_whatever_is_wrong_with_a_join_token_is_not_said(
    registration: Registration, engine: AsyncEngine
) -> None:
    used = await registration.create_join_token("member2")
    await registration.enroll(enrollment(used.token, cluster="member2", uid="uid-2"))
    foreign = await registration.create_join_token("member3")
    good = await registration.create_join_token("member1")
    before = await counts(engine)
    messages = set()
    for token in ("", "x", "x.y", used.token, foreign.token, good.token[:-1], good.token + "x"):
        with pytest.raises(Unauthenticated) as raised:
            await registration.enroll(enrollment(token))
        messages.add(raised.value.message)
    assert len(messages) == 1
    assert await counts(engine) == before
    with pytest.raises(NotFound):
        await registration.get_cluster("member1")


async def test_of_many_who_enrol_with_one_token_one_gets_in(
    registration: Registration, engine: AsyncEngine
) -> None:
    token = await registration.create_join_token("member1")

    async def try_it(number: int) -> bool:
        try:
            await registration.enroll(enrollment(token.token, uid=f"uid-{number}"))
        except Unauthenticated:
            return False
        return True

    assert sum(await asyncio.gather(*map(try_it, range(10)))) == 1
    assert await counts(engine) == (1, 1, 1)


async def test_two_clusters_racing_for_a_new_name_do_not_share_it(
    registration: Registration,
) -> None:
    tokens = [await registration.create_join_token("member1") for _ in range(4)]

    async def try_it(number: int) -> str:
        try:
            await registration.enroll(enrollment(tokens[number].token, uid=f"uid-{number}"))
        except AlreadyExists:
            return ""
        return f"uid-{number}"

    winners = [uid for uid in await asyncio.gather(*map(try_it, range(4))) if uid]
    assert winners == [(await registration.get_cluster("member1")).cluster.uid]


async def test_a_name_is_not_given_to_another_cluster_and_its_token_stays_good(
    registration: Registration, engine: AsyncEngine
) -> None:
    await join(registration, "member1")
    token = await registration.create_join_token("member1")
    before = await counts(engine)
    with pytest.raises(AlreadyExists, match=r"cluster_uid.*ReplaceCluster"):
        await registration.enroll(enrollment(token.token, uid="other"))
    assert await counts(engine) == before
    await registration.enroll(enrollment(token.token))


async def test_joining_again_keeps_the_spec_and_one_older_credential(
    registration: Registration, store: PostgresStore
) -> None:
    first = await join(registration, "member1")
    view = await registration.get_cluster("member1")
    await registration.update_cluster(replace(view.cluster, region="south"), None, now=1e6)
    second = await join(registration, "member1")
    third = await join(registration, "member1")
    assert (await registration.get_cluster("member1")).cluster.region == "south"
    identity = Identity(store, StillClock())
    for credential in (second, third):
        assert (await identity.identify(credential.credential)).cluster == "member1"
    with pytest.raises(Unauthenticated):
        await identity.identify(first.credential)


async def test_an_empty_uid_is_refused(registration: Registration) -> None:
    token = await registration.create_join_token("member1")
    with pytest.raises(InvalidRequest, match="clusterUid"):
        await registration.enroll(enrollment(token.token, uid=""))


async def test_clusters_are_listed_by_name_in_pages(registration: Registration) -> None:
    for name in ("c", "a", "b", "a-2"):
        await join(registration, name)
    first = await registration.list_clusters("", 2)
    assert [view.cluster.name for view in first.views] == ["a", "a-2"]
    second = await registration.list_clusters(first.next_after, 2)
    assert [view.cluster.name for view in second.views] == ["b", "c"]
    assert second.next_after == ""
    assert first.fleet_generation == second.fleet_generation != ""


async def test_an_update_replaces_what_people_say_and_nothing_else(
    registration: Registration,
) -> None:
    await join(registration, "member1")
    before = (await registration.get_cluster("member1")).cluster
    wanted = Cluster(
        name="member1",
        uid="ignored",
        labels={"tier": "gold"},
        annotations={"note": "x"},
        provider="p",
        region="r",
        zones=("z",),
        taints=(Taint(key="k", effect=TaintEffect.NO_SCHEDULE),),
        model=MODEL,
        modeling_enabled=False,
        ready=False,
        generation=77,
        resource_version=77,
    )
    after = (await registration.update_cluster(wanted, before.resource_version, now=1e6)).cluster
    assert after == replace(wanted, uid="uid-member1", ready=True, generation=2, resource_version=2)
    assert (await registration.get_cluster("member1")).cluster == after


async def test_labels_move_the_version_and_not_the_generation(
    registration: Registration,
) -> None:
    await join(registration, "member1")
    before = (await registration.get_cluster("member1")).cluster
    after = (
        await registration.update_cluster(replace(before, labels={"a": "b"}), None, now=1e6)
    ).cluster
    assert (after.generation, after.resource_version) == (1, 2)
    again = (await registration.update_cluster(after, after.resource_version, now=1e6)).cluster
    assert again == after


async def test_of_two_updates_of_one_version_one_wins(registration: Registration) -> None:
    await join(registration, "member1")
    before = (await registration.get_cluster("member1")).cluster

    async def update(region: str) -> str:
        try:
            await registration.update_cluster(
                replace(before, region=region), before.resource_version, now=1e6
            )
        except Conflict:
            return ""
        return region

    winners = [region for region in await asyncio.gather(*map(update, "abcd")) if region]
    assert winners == [(await registration.get_cluster("member1")).cluster.region]


async def test_an_invalid_model_or_an_unknown_cluster_is_refused(
    registration: Registration,
) -> None:
    await join(registration, "member1")
    broken = replace(MODEL, grades=MODEL.grades[1:])
    with pytest.raises(InvalidRequest, match="resourceModels"):
        await registration.update_cluster(Cluster(name="member1", model=broken), None, now=1e6)
    with pytest.raises(NotFound):
        await registration.update_cluster(Cluster(name="nobody"), None, now=1e6)
    assert (await registration.get_cluster("member1")).cluster.model == DEFAULT_MODEL


async def test_observers_hear_of_models_in_force_and_of_nothing_else(
    registration: Registration, fleet: FleetOwner
) -> None:
    heard: list[str] = []
    fleet.observe_models(heard.append)
    await join(registration, "member1")
    base = (await registration.get_cluster("member1")).cluster
    await registration.update_cluster(replace(base, region="south"), None, now=1e6)
    assert heard == []
    await registration.update_cluster(replace(base, model=MODEL), None, now=1e6)
    assert heard == ["member1"]
    await registration.update_cluster(
        replace(base, model=MODEL, modeling_enabled=False), None, now=1e6
    )
    assert heard == ["member1"] * 2
    # Switched off, another model is not in force.
    await registration.update_cluster(replace(base, modeling_enabled=False), None, now=1e6)
    assert heard == ["member1"] * 2


async def test_no_failure_leaves_anything_behind(fresh_engine: AsyncEngine) -> None:
    """Enrolment that fails at its last step has not spent the token."""
    store = PostgresStore(fresh_engine)
    registration = Registration(store, FleetOwner(store))
    token = await registration.create_join_token("member1")
    async with fresh_engine.begin() as connection:
        await connection.execute(
            text("ALTER TABLE credential ADD CONSTRAINT never CHECK (kind <> 'agent')")
        )
    with pytest.raises(IntegrityError, match="never"):
        await registration.enroll(enrollment(token.token))
    assert await counts(fresh_engine) == (0, 0, 0)
    with pytest.raises(NotFound):
        await registration.get_cluster("member1")
    async with fresh_engine.begin() as connection:
        await connection.execute(text("ALTER TABLE credential DROP CONSTRAINT never"))
    await registration.enroll(enrollment(token.token))
