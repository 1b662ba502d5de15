"""Watches at the border: nothing is missed whatever happens meanwhile, and what they may cost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.client import Client, Target
from federation.v1.clusters_pb2 import WatchClustersRequest
from federation.v1.resource_pb2 import EVENT_TYPE_BOOKMARK, EVENT_TYPE_DELETED, Placement
from federation.v1.scheduling_pb2 import WatchBindingsRequest
from lab.commanded_stores import CommandedStore
from lab.control_planes import (
    RunningControlPlane,
    refusal_of,
    refused,
    running_control_plane,
)
from lab.held_clocks import HeldClock
from lab.patience import PATIENCE_SECONDS, until
from tests.api.calls import SCHEDULER, made, paged, to_the_end
from tests.api.drill import Drill
from tests.api.world import World

# Messages are small, and bookmarks come as soon as there is nothing else to tell.
PACE = {
    "interval_seconds": 0.0,
    "bookmark_seconds": 0.01,
    "events": 3,
    "round_events": 6,
    "buffer_keys": 12,
    "watchers": 8,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    module_database_url: str, module_folder: Path, clock: HeldClock, commanded: CommandedStore
) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(
        module_database_url,
        module_folder,
        clock=clock,
        store=commanded,
        watch_pace=PACE,
        heartbeat_seconds="30",
    ) as running:
        yield running


class Watch:
    """A client that keeps what it is told of, and resumes from the last version it was told."""

    def __init__(self, world: World, version: str = "", caller: Any = None) -> None:
        self.known: dict[str, str] = {}
        self.version = version
        self.messages = 0
        self._world = world
        self._caller = caller or world.plane.admin
        self._call: Any = None

    async def next(self) -> Any:
        """The next message; raises how the watch ended."""
        if self._call is None:
            if not self.version:
                self.known.clear()
            request = WatchBindingsRequest(
                namespace=self._world.namespace, resource_version=self.version
            )
            metadata = self._caller.metadata
            self._call = self._caller.scheduling.WatchBindings(request, metadata=metadata)
        async with asyncio.timeout(PATIENCE_SECONDS):
            message = await self._call.read()
        assert message is not grpc.aio.EOF
        for event in message.events:
            meta = event.binding.metadata
            if event.type == EVENT_TYPE_DELETED:
                self.known.pop(meta.name, None)
            elif event.type != EVENT_TYPE_BOOKMARK:
                assert meta.namespace == self._world.namespace
                self.known[meta.name] = meta.resource_version
        self.messages += any(each.type != EVENT_TYPE_BOOKMARK for each in message.events)
        self.version = message.resource_version or self.version
        return message

    async def until_it_knows(self, wanted: dict[str, str]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.known != wanted or not self.version:
                await self.next()

    async def end(self) -> tuple[str, str]:
        """How the control plane ends it, after all that it tells."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while True:
                    await self.next()
        except grpc.aio.AioRpcError as error:
            refusal = refusal_of(error)
            return refusal.code.name, ", ".join(refusal.violations) or refusal.reason

    def cut(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None


async def listed(world: World) -> dict[str, str]:
    """Resource versions by name."""
    found = await paged(
        world.plane.admin, "ListBindings", "bindings", 100, namespace=world.namespace
    )
    return {each.metadata.name: each.metadata.resource_version for each in found}


async def change(world: World, *names: str) -> None:
    """Make these, or change them: another label each time. They ask for nothing."""
    await world.batch(*(labelled(world, name) for name in names))


def labelled(world: World, name: str, annotation: str = "") -> Any:
    made = world.workload(name, 0, placement={"replica_scheduling": None})
    made.spec.placement.CopyFrom(Placement())
    made.metadata.labels["turn"] = str(random.getrandbits(60))
    if annotation:
        made.metadata.annotations["note"] = annotation
    return made


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_missed_in_any_order(world: World, seed: int) -> None:
    """Transactions commit in another order than they began, and streams are cut and resumed."""
    draw = random.Random(seed)
    names = [f"b{number}" for number in range(8)]
    await change(world, *names)
    watches = [Watch(world), Watch(world)]
    held: list[tuple[asyncio.Event, asyncio.Task[Any]]] = []
    hearing: dict[Watch, asyncio.Task[None]] = {}

    async def hear(watch: Watch) -> None:
        while True:
            await watch.next()

    async def cut(watch: Watch) -> None:
        if task := hearing.pop(watch, None):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        watch.cut()

    async def hold() -> None:
        """A transaction that has written and does not commit for now."""
        goes_on, writes = asyncio.Event(), asyncio.Event()

        async def wait() -> None:
            writes.set()
            await goes_on.wait()

        name = f"held{len(held)}"
        await change(world, name)
        world.store.after("journal.append", wait)
        call = world.plane.ask("SuspendBinding", namespace=world.namespace, name=name)
        held.append((goes_on, asyncio.create_task(call)))
        await writes.wait()

    for _ in range(30):
        match draw.choice(["change", "change", "delete", "hold", "commit", "hear", "cut"]):
            case "change":
                await change(world, *draw.sample(names, draw.randint(1, 4)))
            case "delete":
                await world.delete(draw.choice(names)) if draw.random() < 0.5 else None
            case "hold" if len(held) < 4:
                await hold()
            case "commit" if held:
                draw.choice(held)[0].set()
            case "hear":
                watch = draw.choice(watches)
                if watch not in hearing:
                    hearing[watch] = asyncio.create_task(hear(watch))
                await asyncio.sleep(0)
            case "cut":
                await cut(draw.choice(watches))
    for goes_on, call in held:
        goes_on.set()
        await call
    for watch in watches:
        await cut(watch)
        await watch.until_it_knows(await listed(world))
        watch.cut()


async def test_what_is_there_comes_first_then_a_bookmark_then_changes(world: World) -> None:
    await change(world, "a", "b", "c", "d")
    watch, sizes = Watch(world), []
    while not (message := await watch.next()).resource_version:
        sizes.append(len(message.events))
    assert sizes == [3, 1]
    assert [each.type for each in message.events] == [EVENT_TYPE_BOOKMARK]
    assert watch.known == await listed(world)
    watch.cut()
    # Several changes of one object while nobody listens are one event, and deletions are told.
    for _ in range(4):
        await change(world, "a", "b")
    await world.delete("c")
    before = watch.messages
    await watch.until_it_knows(await listed(world))
    assert watch.messages == before + 1
    # A message that cannot tell all is resumed from before it.
    watch.cut()
    version = watch.version
    await change(world, "a", "b", "d", "e")
    while len(message.events) != 3:
        message = await watch.next()
    assert message.resource_version == version
    await watch.until_it_knows(await listed(world))
    watch.cut()


async def test_all_who_begin_or_resume_share_what_is_read(world: World) -> None:
    await change(world, *(f"b{number}" for number in range(9)))
    wanted, statements = await listed(world), world.store.statements

    async def reads(*watches: Watch) -> int:
        """Statements while all of these come to know everything."""
        before = sum(statements.values())
        await asyncio.gather(*(watch.until_it_knows(wanted) for watch in watches))
        return sum(statements.values()) - before

    alone, crowd = Watch(world), [Watch(world) for _ in range(3)]
    most = await reads(alone)
    assert await reads(*crowd) <= 2 * most
    # What changes is read once for all of them.
    await change(world, "b0")
    wanted = await listed(world)
    assert await reads(alone, *crowd) <= 6
    # One that goes away while it lists, or is told, harms nobody.
    goes = Watch(world)
    going = asyncio.create_task(goes.until_it_knows(wanted))
    await change(world, "b1")
    going.cancel()
    await asyncio.gather(going, return_exceptions=True)
    goes.cut()
    wanted = await listed(world)
    await reads(alone, *crowd)
    for watch in (alone, *crowd):
        watch.cut()


async def test_what_changes_while_it_is_read_is_told_the_next_time(world: World) -> None:
    await change(world, "a", "b")
    watch = Watch(world)
    await watch.until_it_knows(await listed(world))
    is_writing, changes = True, 0

    async def meanwhile() -> None:
        """Change what is being read: three times, and not what a caller reads to write it."""
        nonlocal is_writing, changes
        if not is_writing:
            is_writing = True
            await change(world, "a", "b")
            is_writing, changes = False, changes + 1
        if changes < 3:
            world.store.before("bindings.find", meanwhile)

    world.store.before("bindings.find", meanwhile)
    await change(world, "a")
    is_writing = False

    async def known_as_listed() -> bool:
        # From the version of each message it is resumed, also of one that was read meanwhile.
        await watch.next()
        watch.cut()
        return changes == 3 and watch.known == await listed(world)

    await until(known_as_listed, bool)


@pytest.mark.parametrize(
    ("version", "ending"),
    [
        ("x", ("INVALID_ARGUMENT", "resourceVersion")),
        ("1", ("INVALID_ARGUMENT", "resourceVersion")),
        ("-1.0", ("INVALID_ARGUMENT", "resourceVersion")),
        ("1-", ("INVALID_ARGUMENT", "resourceVersion")),
        ("01-00000000", ("INVALID_ARGUMENT", "resourceVersion")),
        ("1-00000000-0", ("INVALID_ARGUMENT", "resourceVersion")),
        ("01.2", ("INVALID_ARGUMENT", "resourceVersion")),
        ("1.2.3", ("INVALID_ARGUMENT", "resourceVersion")),
        ("1.2\n", ("INVALID_ARGUMENT", "resourceVersion")),
        ("٣.٤", ("INVALID_ARGUMENT", "resourceVersion")),
        ("9" * 30, ("INVALID_ARGUMENT", "resourceVersion")),
        # Given out before the database was put back, or by an earlier release.
        ("1-00000000", ("ABORTED", "RELIST")),
        ("1.0", ("ABORTED", "RELIST")),
        ("1.0.00000000", ("ABORTED", "RELIST")),
    ],
)
async def test_a_version_that_cannot_be_resumed_from_is_refused(
    world: World, version: str, ending: tuple[str, str]
) -> None:
    assert await Watch(world, version).end() == ending


async def test_a_version_of_later_than_anything_is_listing_again(world: World) -> None:
    await change(world, "a")
    watch = Watch(world)
    await watch.until_it_knows(await listed(world))
    watch.cut()
    _, history = watch.version.split("-")
    assert await Watch(world, f"999999999999-{history}").end() == ("ABORTED", "RELIST")


async def test_a_version_of_before_what_was_pruned_is_listing_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await change(world, "a")
    watch = Watch(world)
    await watch.until_it_knows(await listed(world))
    watch.cut()
    await change(world, "b")
    # What is pruned before it was read is missed, which would be another reason.
    await world.plane.follow()
    monkeypatch.setattr("federation.services.duties.JOURNAL_SECONDS", 0.0)

    async def ending() -> tuple[str, str]:
        world.clock.advance(61)
        again = Watch(world, watch.version)
        try:
            await again.next()
        except grpc.aio.AioRpcError as error:
            return refusal_of(error).code.name, refusal_of(error).reason
        finally:
            again.cut()
        return "", ""

    assert await until(ending, lambda found: found != ("", "")) == ("ABORTED", "RELIST")


async def test_resuming_over_more_than_is_kept_is_listing_again(world: World) -> None:
    await change(world, "a")
    watch = Watch(world)
    await watch.until_it_knows(await listed(world))
    watch.cut()
    await change(world, *(f"b{number}" for number in range(13)))
    assert await watch.end() == ("ABORTED", "RELIST")


async def test_a_slow_reader_is_told_to_list_again_and_others_hear_everything(
    world: World,
) -> None:
    """Its messages fill what the network holds of them; then what has changed is not kept."""
    slow, reader = Watch(world), Watch(world)
    for watch in (slow, reader):
        await change(world, "first")
        await watch.until_it_knows(await listed(world))
    for first in range(0, 400, 10):
        names = [f"b{number}" for number in range(first, first + 10)]
        await world.batch(*(labelled(world, name, "x" * 60_000) for name in names))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not reader.known.keys() >= set(names):
                await reader.next()
    assert await slow.end() == ("ABORTED", "RELIST")
    assert len(reader.known) == 401
    reader.cut()


async def test_a_caller_takes_half_of_what_others_leave(world: World) -> None:
    watches = []

    async def begun(caller: Any) -> str:
        """Why another watch of the caller is refused; empty: it has begun."""
        watch = Watch(world, caller=caller)
        try:
            await watch.next()
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        watches.append(watch)
        return ""

    for count in (4, 2, 1, 1):
        caller, _ = await made(world.plane, SCHEDULER, name=f"caller-{count}-{len(watches)}")
        for _ in range(count):
            # The control plane may not have heard yet that watches of other tests are cut.
            await until(partial(begun, caller), lambda refusal: not refusal)
        assert (await begun(caller)).startswith("RESOURCE_EXHAUSTED: ")
        # Another token of the same name is the same actor, and has no further share.
        again, _ = await made(world.plane, SCHEDULER, name=f"caller-{count}-{len(watches) - count}")
        assert (await begun(again)).startswith("RESOURCE_EXHAUSTED: ")
    for watch in watches:
        watch.cut()

    await until(lambda: begun(world.plane.admin), lambda refusal: not refusal)
    watches[-1].cut()


async def test_a_store_that_fails_ends_the_watch_which_can_be_resumed(world: World) -> None:
    await change(world, "a")
    watch = Watch(world)
    await watch.until_it_knows(await listed(world))
    # It reads what b has become, and cannot.
    world.store.fail_at("bindings.find")
    await change(world, "b")
    assert (await watch.end())[0] == "UNAVAILABLE"
    watch.cut()
    await watch.until_it_knows(await listed(world))
    watch.cut()


async def test_clusters_are_watched_from_where_they_were_listed_and_told_when_stale(
    drill: Drill,
) -> None:
    admin = drill.plane.admin
    await drill.clusters(a=2)
    page = await drill.plane.ask("ListClusters")
    request = WatchClustersRequest(resource_version=page.resource_version)
    call = admin.clusters.WatchClusters(request, metadata=admin.metadata)

    async def until_told(words: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                for event in (await call.read()).events:
                    told = {each.status for each in event.cluster.status.conditions[:1]}
                    if words in told | {event.cluster.spec.region}:
                        return

    await drill.change("a", region="eu")
    await until_told("eu")
    await drill.fall_silent("a")
    await until_told("Unknown")
    call.cancel()


async def test_the_client_goes_on_when_the_control_plane_is_another_one(
    fresh_database_url: str, tmp_path: Path, world: World
) -> None:
    names: set[str] = set()
    async with running_control_plane(fresh_database_url, tmp_path) as first:
        endpoint = str(first.plane.endpoint)
        token = first.plane.admin_token_file.read_text(encoding="ascii").strip()
        client = Client(Target(endpoint=endpoint, token=token, plaintext=True))
        watch = client.watch_bindings()
        await first.ask("Schedule", binding=labelled(world, "one"))
        metadata = first.admin.metadata
        stopped = first.admin.scheduling.WatchBindings(WatchBindingsRequest(), metadata=metadata)
        await stopped.read()
        assert (await anext(watch)).relist
        while "one" not in names:
            names |= {each.binding.metadata.name for each in (await anext(watch)).events}
        await first.plane.stop()
        assert "is stopping; watch again" in (await refused(to_the_end(stopped))).message
    async with running_control_plane(fresh_database_url, tmp_path, listen=endpoint) as second:
        await second.ask("Schedule", binding=labelled(world, "two"))
        async with asyncio.timeout(3 * PATIENCE_SECONDS):
            while "two" not in names:
                names |= {each.binding.metadata.name for each in (await anext(watch)).events}
        await watch.aclose()
        await client.close()
