"""Control planes on one database follow each other: whoever commits, all come to the same fleet."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import grpc
import msgspec
import pytest

from federation.model.cluster import CapacityReport
from federation.services.fleet import journal_reader
from federation.v1.agents_pb2 import Echo, EchoShape
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scheduling_pb2 import WatchBindingsRequest
from lab.control_planes import Plane, refused, report
from lab.fake_agents import FakeAgent
from lab.patience import until
from tests.api.calls import binding, in_namespace, scheduled, to_the_end
from tests.api.pairs import (
    Pair,
    cluster_at,
    heard,
    pair,
    readiness,
    shares_often,
    started_pair,
    stream_at,
    until_ready,
)

__all__ = ["pair", "shares_often", "started_pair"]

SHAPES = [ReplicaRequirements(resource_request={"cpu": cpu}) for cpu in ("300m", "1", "3")]
NEWER = msgspec.msgpack.encode({"v": 2, "name": ["of another type"]})
NEWEST_ENTRY = "WHERE id = (SELECT max(id) FROM journal)"


async def fleet_at(plane: Plane) -> Any:
    """All that a control plane knows of clusters, but for its own times, and what fits there."""
    listed = await plane.ask("ListClusters")
    for cluster in listed.clusters:
        cluster.status.agent.Clear()
        for condition in cluster.status.conditions:
            condition.ClearField("last_transition_time")
    estimates = await plane.ask("EstimateReplicas", shapes=SHAPES, include_upper_bounds=True)
    preview = (await scheduled(plane, binding("asked", replicas=5), preview=True)).decision
    for decided in preview.trace.clusters:
        decided.report_age_seconds = 0.0
    return (
        listed.fleet_generation,
        list(listed.clusters),
        (list(estimates.replicas), list(estimates.upper_replicas), list(estimates.sources)),
        (list(preview.clusters), list(preview.trace.clusters)),
    )


async def assert_equal(*planes: Plane) -> None:
    """All have read what was committed, and have told each other whom they hear."""

    async def fleets() -> list[Any]:
        for plane in planes:
            await plane.follow()
        return [await fleet_at(plane) for plane in planes]

    await until(fleets, lambda found: all(each == found[0] for each in found))


async def fits(plane: Plane, cpu: str = "1") -> list[int]:
    shapes = [ReplicaRequirements(resource_request={"cpu": cpu})]
    return list((await plane.ask("EstimateReplicas", shapes=shapes)).replicas)


async def act(pair: Pair, chance: random.Random, agents: dict[str, FakeAgent]) -> None:
    """One of all the things that people and agents do, at one of both control planes."""
    plane, cluster = chance.choice(pair.planes), chance.choice("abcd")
    name, named = f"w{chance.randrange(5)}", {"name": cluster}
    agent = agents.get(cluster)
    match chance.randrange(12):
        case 0 | 1 if agent is not None:
            sees = {f"shop/{name}": chance.randint(0, 3)} if chance.random() < 0.5 else None
            if sees and not sees.keys() <= agent.interest.keys():
                sees = None
            await agent.report(cores=chance.randint(2, 9), sees=sees)
        case 2 if agent is not None:
            await plane.ask("DeleteCluster", **named, force=True)
            await agents.pop(cluster).leave()
        case 3 if agent is not None:
            await plane.ask("ReplaceCluster", **named, cluster_uid=f"uid-{chance.randrange(2**32)}")
            await agents.pop(cluster).leave()
        case 4 if agent is not None:
            cordon = {"cordoned": chance.random() < 0.5}
            await plane.ask("CordonCluster", **named, **cordon)
        case 5 if agent is not None:
            labels = {"n": str(chance.randrange(3))}
            wanted = {"metadata": {**named, "labels": labels}, "spec": {"region": name}}
            await plane.ask("UpdateCluster", cluster=wanted)
        case 6:
            with suppress(grpc.aio.AioRpcError):
                await plane.ask("DeleteBinding", namespace="shop", name=name)
        case _ if agent is None:
            with suppress(grpc.aio.AioRpcError):
                await plane.ask("DeleteCluster", **named, force=True)
            agents[cluster] = await FakeAgent.joined(plane, cluster, cores=chance.randint(2, 9))
        case _:
            wanted_binding = in_namespace("shop", name, chance.randint(1, 4))
            await scheduled(plane, wanted_binding, wait=False)


@pytest.mark.parametrize("seed", range(3))
async def test_any_mixture_leads_all_to_the_same_and_one_that_starts_later_too(
    pair: Pair, seed: int
) -> None:
    chance, agents = random.Random(seed), dict[str, FakeAgent]()
    for number in range(60):
        await act(pair, chance, agents)
        if number % 12 == 11:
            # Where promises lost their room, planes agree from the next report on.
            for agent in agents.values():
                await agent.report(cores=10 + number)
            await assert_equal(*pair.planes)
    # A fleet that was brought up to date again and again equals one that is built anew.
    async with pair.third() as (late, _):
        await assert_equal(*pair.planes, late)
    for agent in agents.values():
        await agent.leave()


@asynccontextmanager
async def unread(pair: Pair, at: int = 1) -> AsyncIterator[None]:
    """Meanwhile b, or the one at this place, reads nothing of the journal by itself."""
    stands_still, goes_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        stands_still.set()
        await goes_on.wait()

    pair.stores[at].before("journal.read", wait)
    await stands_still.wait()
    try:
        yield
    finally:
        goes_on.set()


@pytest.mark.parametrize("most_ahead", [2000, 3])
async def test_who_decides_knows_what_others_decided_before_the_journal_tells(
    pair: Pair,
    most_ahead: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also where so much is ahead that the ledgers are read as a whole."""
    monkeypatch.setattr(journal_reader, "MAX_ENTRIES_AHEAD", most_ahead)
    async with pair.a.connected("member1", report=report()) as stream:
        await until_ready(pair.b)
        await pair.b.follow()
        async with unread(pair):
            for number in range(6):
                await scheduled(pair.a, binding(f"web{number}", replicas=2))
            await stream.say(report=report(sequence=2))
            await heard(stream, "ack")
            late = await scheduled(pair.b, binding("late", replicas=5), wait=False)
            assert not late.decision.clusters
            little = await scheduled(pair.b, binding("little", replicas=4))
            assert little.decision.clusters
        await assert_equal(*pair.planes)
    assert "went back" not in caplog.text


async def test_a_cluster_that_was_made_anew_is_no_older_state_of_the_database(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair.a.connected("member1", report=report()):
        await until_ready(pair.b)
        await scheduled(pair.a, binding("web"))
        await pair.b.follow()
    async with unread(pair):
        await pair.a.ask("DeleteCluster", name="member1", force=True)
        async with pair.a.connected("member1", epoch=2, report=report(2)):
            await scheduled(pair.b, binding("other", replicas=16), wait=False)
    await assert_equal(*pair.planes)
    assert "went back" not in caplog.text


@pytest.mark.parametrize("uid", ["uid-of-member1", "uid-of-another"])
async def test_a_cluster_that_was_made_anew_is_shown_without_what_the_older_one_had(
    pair: Pair, uid: str
) -> None:
    """Although the older one was changed more often, so that its version is higher."""
    await pair.a.enrolled("member1", uid="uid-of-member1")
    for number in range(4):
        labels = {"number": str(number)}
        cluster = {"metadata": {"name": "member1", "labels": labels}, "spec": {"region": "old"}}
        await pair.a.ask("UpdateCluster", cluster=cluster)
    await pair.b.follow()
    async with unread(pair):
        await pair.a.ask("DeleteCluster", name="member1", force=True)
        await pair.a.enrolled("member1", uid=uid)
    await assert_equal(*pair.planes)
    shown = await pair.b.ask("GetCluster", name="member1")
    assert (shown.cluster.spec.region, dict(shown.cluster.metadata.labels)) == ("", {})
    assert shown.cluster.metadata.uid == uid


async def test_clusters_that_join_at_once_do_not_hold_up_the_event_loop_together(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is renewed for a few of them at a time, and calls are served in between."""
    monkeypatch.setattr(journal_reader, "MAX_MOVED_AT_ONCE", 4)
    fleet = pair.b.plane.parts.fleet
    sizes = [len(fleet.snapshot.names)]

    async def watch() -> None:
        while sizes[-1] < sizes[0] + 18:
            sizes.append(len(fleet.snapshot.names))
            await asyncio.sleep(0)

    async with unread(pair):
        for number in range(18):
            await pair.a.enrolled(f"member{number}")
        watching = asyncio.create_task(watch())
    await pair.b.follow()
    await watching
    assert max(later - earlier for earlier, later in pairwise(sizes)) <= 4


async def test_an_agent_of_a_cluster_that_was_made_anew_is_told_of_its_own_ledger(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    """Although the control plane that it dials has not read yet that the older cluster left."""
    async with pair.a.connected("member1", report=report()):
        await until_ready(pair.b)
        for number in range(3):
            await scheduled(pair.a, binding(f"web{number}", replicas=1))
        await pair.b.follow()
    async with AsyncExitStack() as streams:
        async with unread(pair):
            await pair.a.ask("DeleteCluster", name="member1", force=True)
            enrolled = await pair.b.enrolled("member1")
            stream = await streams.enter_async_context(stream_at(pair.b, enrolled, epoch=2))
            told = await heard(stream, "interest")
            assert not told.bindings
        await pair.b.follow()
        await stream.say(report=report(2, interest_version=told.version))
        await heard(stream, "ack")
        await assert_equal(*pair.planes)
    assert "went back" not in caplog.text


async def test_a_report_that_answers_what_is_not_known_here_yet_is_believed(pair: Pair) -> None:
    agent = await pair.a.enrolled("member1")
    async with stream_at(pair.a, agent, sequence=1) as stream:
        await until_ready(pair.b)
        async with unread(pair):
            await scheduled(pair.a, binding("web"))
            told = await heard(stream, "interest")
            while not told.bindings:
                told = await heard(stream, "interest")
            answer = report(
                2,
                interest_version=told.version + 1,
                echo_shapes=[EchoShape(request={"cpu": 1000})],
                echoes=[Echo(binding="shop/web", shape=0, bound=3)],
            )
            async with stream_at(pair.b, agent, 2) as moved:
                await scheduled(pair.a, binding("since", replicas=1))
                await moved.say(report=answer)
                await moved.hear("ack")
    for plane in pair.planes:
        await plane.follow()
        (held,) = (await plane.ask("GetBinding", namespace="shop", name="web")).reservations
        assert (held.bound, held.outstanding) == (3, 0)


async def test_a_commit_whose_answer_is_lost_is_read_as_others_are(pair: Pair) -> None:
    async with pair.a.connected("member1", report=report()):
        await until_ready(pair.b)
        for plane, store, name in zip(pair.planes, pair.stores, ("one", "other"), strict=True):
            store.forget_outcome("decisions.add_all")
            with pytest.raises(grpc.aio.AioRpcError):
                await scheduled(plane, binding(name))
        await assert_equal(*pair.planes)
        assert await fits(pair.a) == [16 - 2 * 3]


async def test_what_is_promised_while_a_report_is_written_is_not_forgotten(pair: Pair) -> None:
    async def promise() -> None:
        await scheduled(pair.a, binding("meanwhile"))

    async with pair.a.connected("member1", report=report()) as stream:
        pair.stores[0].before("reports.advance", promise)
        await stream.say(report=report(sequence=2))
        await heard(stream, "ack")
        await assert_equal(*pair.planes)
        assert await fits(pair.a) == [16 - 3]


async def test_who_slept_longer_than_the_journal_remembers_reads_everything(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_reader, "AWAY_SECONDS", 0.0)
    async with pair.a.connected("member1", report=report()) as stream:
        await until_ready(pair.b)
        metadata = pair.b.admin.metadata
        watch = pair.b.admin.scheduling.WatchBindings(WatchBindingsRequest(), metadata=metadata)
        await watch.read()
        async with unread(pair):
            await scheduled(pair.a, binding("web"))
            async with pair.a.plane.parts.store.transaction() as tx:
                await tx.journal.prune(-1.0, 1000)
        await scheduled(pair.a, binding("other"))
        await assert_equal(*pair.planes)
        # Who watches there cannot be told of everything.
        assert (await refused(to_the_end(watch))).reason == "RELIST"
        # So does the queue, which a keeps.
        async with unread(pair, 0):
            assert (await scheduled(pair.b, binding("waits", replicas=11))).queued
            async with pair.b.plane.parts.store.transaction() as tx:
                await tx.journal.prune(-1.0, 1000)
        await pair.a.follow()
        await stream.say(report=report(sequence=2, nodes=5))
        await heard(stream, "ack")

        async def placed() -> int:
            found = await pair.b.ask("GetBinding", namespace="shop", name="waits")
            return sum(each.replicas for each in found.binding.spec.clusters)

        await until(placed, lambda replicas: replicas == 11)


@pytest.mark.expected_errors("changes of an unknown kind or version")
@pytest.mark.parametrize(
    "change",
    # A kind that is unknown makes a gap in what is known; a version that is newer is in the tables.
    [
        f"UPDATE journal SET kind = 'queue' {NEWEST_ENTRY}",
        f"UPDATE journal SET body = $1 {NEWEST_ENTRY}",
    ],
)
async def test_changes_of_another_release_are_told_and_read_from_the_tables(
    pair: Pair, change: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(journal_reader, "OUT_OF_ORDER_SECONDS", 0.0)
    async with pair.a.connected("member1", report=report()):
        await until_ready(pair.b)
        async with unread(pair):
            await scheduled(pair.a, binding("web"))
            await pair.a.sql(change, *([NEWER] if "$1" in change else []))
        await scheduled(pair.a, binding("other"))
        await until(lambda: fits(pair.b), lambda found: found == [16 - 2 * 3])
        await assert_equal(pair.b, pair.a)
    assert "of an unknown kind or version are passed over" in caplog.text
    assert "went back" not in caplog.text


async def test_who_cannot_read_a_report_is_not_ready_until_one_comes_that_it_can_read(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reader, "MAX_PAUSE_SECONDS", 0.05)
    async with pair.a.connected("member1", report=report()) as stream:
        await until_ready(pair.b)
        async with unread(pair):
            await stream.say(report=report(sequence=2))
            await heard(stream, "ack")
            ((body,),) = await pair.a.sql("SELECT body::text FROM cluster_report")
            await pair.a.sql("""UPDATE cluster_report SET body = '{"v": 2}'""")
        _, why = await until(lambda: readiness(pair.b), lambda page: page[0] == 503)
        assert "reports of version 2" in why
        await pair.a.sql("UPDATE cluster_report SET body = $1", body)
        await stream.say(report=report(sequence=3, nodes=2))
        await heard(stream, "ack")
        await until(lambda: readiness(pair.b), lambda page: page[0] == 200)
        await assert_equal(*pair.planes)


async def test_what_finds_no_room_any_more_is_shown(pair: Pair) -> None:
    async def overcommitted(plane: Plane) -> str:
        conditions = (await cluster_at(plane)).status.conditions
        return "".join(each.message for each in conditions if each.type == "OverCommitted")

    async with pair.a.connected("member1", report=report(nodes=1)) as stream:
        await scheduled(pair.a, binding("web", replicas=4))
        for sequence, cores, said in ((2, 2, "2"), (3, 4, "")):
            smaller = report(sequence=sequence, nodes=1)
            smaller.pools.minimums[0] = 1000 * cores
            await stream.say(report=smaller)
            await heard(stream, "ack")
            for plane in pair.planes:
                await plane.follow()
                assert (said in await overcommitted(plane)) is True
                assert bool(await overcommitted(plane)) is bool(said)


async def test_a_cluster_that_leaves_while_its_report_is_read_is_no_trouble(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal reader logs no error, which would fail this."""
    fleet, has_left = pair.b.plane.parts.fleet, asyncio.Event()
    pack_ahead = fleet.pack_ahead

    async def leave_and_pack(reports: Iterable[tuple[str, CapacityReport]]) -> None:
        if coming := [*reports]:
            await pair.b.ask("DeleteCluster", name="member1", force=True)
            has_left.set()
        await pack_ahead(coming)

    async with pair.a.connected("member1", report=report()) as stream:
        await until_ready(pair.b)
        monkeypatch.setattr(fleet, "pack_ahead", leave_and_pack)
        await stream.say(report=report(sequence=2))
        await has_left.wait()
    for plane in pair.planes:
        await plane.follow()
        assert not (await plane.ask("ListClusters")).clusters
