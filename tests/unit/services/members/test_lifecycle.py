from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from federation.model.errors import (
    AlreadyExists,
    FederationError,
    InvalidRequest,
    NotFound,
    PreconditionFailed,
    Unauthenticated,
)
from federation.services.agent_values import AgentHello, Enrollment
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.lifecycle import Membership
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.store.postgres import PostgresStore
from lab.reports import kept
from lab.services import WEB, apply, decided, join, join_and_report, make_report
from tests.unit.services.conftest import StillClock


class Streams:
    """Remembers who was dismissed. Implements agent_ports.AgentStreams."""

    def __init__(self) -> None:
        self.dismissed: dict[str, FederationError] = {}

    def dismiss(self, cluster: str, error: FederationError) -> None:
        self.dismissed[cluster] = error


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
def membership(store: PostgresStore, fleet: FleetOwner, streams: Streams) -> Membership:
    return Membership(store, fleet, streams)


async def test_a_cordoned_cluster_keeps_its_shares_and_gets_no_more(
    membership: Membership, scheduling: Scheduling, store: PostgresStore
) -> None:
    assert decided(await apply(scheduling, replace(WEB, replicas=4)))["a"] == 2
    view = await membership.cordon("a", cordoned=True)
    assert view.cluster.cordoned
    grown = await apply(scheduling, replace(WEB, replicas=7))
    assert decided(grown) == {"a": 2, "b": 3, "c": 2}
    other = await apply(scheduling, replace(WEB, name="api", uid="", replicas=3))
    assert "a" not in decided(other)
    again = FleetOwner(store)
    await again.load(grace_until=2e9)
    assert again.view("a").cluster.cordoned
    assert not (await membership.cordon("a", cordoned=False)).cluster.cordoned
    freed = await apply(scheduling, replace(WEB, name="free", uid="", replicas=3))
    assert "a" in decided(freed)


async def test_a_cordon_outlives_an_update_of_the_spec(
    membership: Membership, registration: Registration
) -> None:
    await join(registration, "a")
    cluster = (await membership.cordon("a", cordoned=True)).cluster
    described = replace(cluster, cordoned=False, region="north")
    assert (await registration.update_cluster(described, None, now=1e6)).cluster.cordoned


async def test_a_cluster_with_replicas_is_deleted_only_by_force(
    membership: Membership, scheduling: Scheduling, fleet: FleetOwner, streams: Streams
) -> None:
    placed = await apply(scheduling, WEB)
    with pytest.raises(PreconditionFailed, match="Bindings shop/web hold replicas") as refused:
        await membership.delete("a", force=False)
    assert refused.value.reason == "STILL_HOLDING"
    assert fleet.snapshot.names == ("a", "b", "c")
    assert not streams.dismissed
    await membership.delete("a", force=True)
    assert fleet.snapshot.names == ("b", "c")
    assert "deleted" in streams.dismissed["a"].message
    # What was there counts as gone.
    assert "a" in decided(placed)
    assert decided(await apply(scheduling, replace(WEB, replicas=6))) == {"b": 3, "c": 3}


async def test_a_deleted_cluster_leaves_nothing_that_lets_its_agent_in(
    membership: Membership, registration: Registration, reporting: Reporting, store: PostgresStore
) -> None:
    await join_and_report(registration, reporting, {"a": make_report()})
    token = await registration.create_join_token("a")
    await membership.delete("a", force=False)
    with pytest.raises(NotFound):
        await registration.get_cluster("a")
    with pytest.raises(Unauthenticated):
        await registration.enroll(Enrollment(cluster="a", token=token.token, cluster_uid="uid-a"))
    async with store.reading() as read:
        assert not await read.clusters.all()
    # And the name is free for any other.
    await join(registration, "a", cluster_uid="uid-other")
    assert (await registration.get_cluster("a")).state.report is None


async def test_what_still_arrives_from_a_deleted_cluster_harms_nothing(
    membership: Membership, registration: Registration, reporting: Reporting, fleet: FleetOwner
) -> None:
    await join_and_report(registration, reporting, {"a": make_report(), "b": make_report()})
    await membership.delete("a", force=False)
    with pytest.raises(NotFound):
        await reporting.accept("a", make_report(2))
    with pytest.raises(NotFound):
        reporting.heartbeat("a", 1, "", 600.0)
    reporting.disconnected("a", 1)
    assert fleet.snapshot.names == ("b",)


async def test_a_replaced_cluster_is_another_one(
    membership: Membership,
    registration: Registration,
    reporting: Reporting,
    streams: Streams,
    store: PostgresStore,
) -> None:
    credentials = await join_and_report(registration, reporting, {"a": make_report(5, epoch=9)})
    token = await registration.create_join_token("a")
    newcomer = Enrollment(cluster="a", token=token.token, cluster_uid="uid-new")
    with pytest.raises(AlreadyExists, match="'uid-new'"):
        await registration.enroll(newcomer)
    view = await membership.replace("a", "uid-new")
    assert (view.cluster.uid, view.state.report, view.newest_epoch) == ("uid-new", None, 0)
    assert "replaced" in streams.dismissed["a"].message
    async with store.reading() as read:
        (stored,) = await read.clusters.all()
    assert (stored.cluster.uid, stored.report) == ("uid-new", None)
    with pytest.raises(Unauthenticated):
        await reporting.connected("a", AgentHello(epoch=10), credentials["a"].id)
    # The refusal did not spend the token, and an epoch below the old one's is a new beginning.
    credential = await registration.enroll(newcomer)
    await reporting.connected("a", AgentHello(epoch=1), credential.id)
    await reporting.accept("a", make_report(1, epoch=1))


async def test_a_report_of_the_cluster_before_is_not_taken_for_the_new_ones(
    membership: Membership,
    registration: Registration,
    store: PostgresStore,
    fleet: FleetOwner,
    clock: StillClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reporting = Reporting(store, fleet, clock)
    await join_and_report(registration, reporting, {"a": make_report(1)})
    collected, replaced = asyncio.Event(), asyncio.Event()
    write = reporting._batches._write

    async def write_later(batch: Sequence[Any]) -> Sequence[Any]:
        collected.set()
        await replaced.wait()
        return await write(batch)

    monkeypatch.setattr(reporting._batches, "_write", write_later)
    late = asyncio.create_task(reporting.accept("a", make_report(2)))
    await collected.wait()
    await membership.replace("a", "uid-new")
    replaced.set()
    with pytest.raises(NotFound):
        await late
    assert fleet.view("a").state.report is None
    async with store.reading() as read:
        (stored,) = await read.clusters.all()
    assert stored.report is None


@pytest.mark.parametrize(("uid", "rule"), [("", "empty"), ("uid-a", "already")])
async def test_a_cluster_is_replaced_by_another_only(
    membership: Membership, registration: Registration, uid: str, rule: str
) -> None:
    await join(registration, "a")
    with pytest.raises(InvalidRequest, match=rule):
        await membership.replace("a", uid)


async def test_revoking_ends_all_credentials_and_tokens_and_nothing_of_others(
    membership: Membership, registration: Registration, reporting: Reporting, streams: Streams
) -> None:
    credentials = await join_and_report(
        registration, reporting, {"a": make_report(), "b": make_report()}
    )
    second = await join(registration, "a")
    token = await registration.create_join_token("a")
    assert await membership.revoke("a") == 2
    assert isinstance(streams.dismissed.pop("a"), Unauthenticated)
    assert not streams.dismissed
    for credential in (credentials["a"], second):
        with pytest.raises(Unauthenticated):
            await reporting.connected("a", AgentHello(epoch=2), credential.id)
    with pytest.raises(Unauthenticated):
        await registration.enroll(Enrollment(cluster="a", token=token.token, cluster_uid="uid-a"))
    await reporting.connected("b", AgentHello(epoch=2), credentials["b"].id)
    # The cluster stays what it was, and may join again.
    assert (await registration.get_cluster("a")).state.report == kept(make_report())
    await reporting.connected("a", AgentHello(epoch=2), (await join(registration, "a")).id)
    assert await membership.revoke("b") == 1
    assert await membership.revoke("b") == 0


async def test_who_is_unknown_is_not_found(membership: Membership, streams: Streams) -> None:
    for refused in (
        membership.cordon("nobody", cordoned=True),
        membership.delete("nobody", force=True),
        membership.replace("nobody", "uid"),
        membership.revoke("nobody"),
    ):
        with pytest.raises(NotFound, match="'nobody'"):
            await refused
    assert not streams.dismissed
