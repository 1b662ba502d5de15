"""A database that is put back to an earlier state, under control planes that know better."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from federation.model.errors import FederationError, InvalidRequest, NotFound, Unavailable
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentHello
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting, ReportTimes
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.databases import Databases, connect
from lab.services import Agents, apply, join, make_deciders, make_report
from tests.unit.services.conftest import StillClock, only

CORES = 4
TRIES = 20


class Plane:
    """A control plane with a pool of its own, as a process has it."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)
        self.store = PostgresStore(self._engine)
        self.fleet = FleetOwner(self.store)
        clock = StillClock()
        deciders = make_deciders(self.store, self.fleet, Agents(), clock)
        self.following, self.scheduling = deciders.following, deciders.scheduling
        self.releases = deciders.releases
        self.registration = Registration(self.store, self.fleet)
        self.reporting = Reporting(
            self.store, self.fleet, clock, ReportTimes(batch_seconds=0.0), following=self.following
        )

    async def close(self) -> None:
        await self._engine.dispose()

    async def schedule(self, name: str, replicas: int) -> bool:
        """Whether replicas of one core each were promised in cluster a."""
        binding = replace(only("a", replicas), name=name, uid=f"uid-{name}")
        scheduled = await apply(self.scheduling, binding)
        return scheduled.record.decision.outcome is Outcome.SCHEDULED

    async def report(self, sequence: int) -> None:
        await self.reporting.accept("a", make_report(sequence, cpu_millis=CORES * 1000))

    async def settle(self) -> None:
        """Follow until nothing is in the way: connections that ended are noticed by using them."""
        for _ in range(TRIES):
            try:
                await self.following.follow()
            except Unavailable:
                continue
            return
        raise AssertionError("the journal cannot be followed")


class World:
    """A database, its copies, and the control planes on it."""

    def __init__(self, databases: Databases, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self._databases = databases
        self._stack = stack
        self._numbers = itertools.count()

    async def plane(self, *, knows_places: bool = True) -> Plane:
        """A control plane that starts; one that is told nothing of where the database is."""
        made = Plane(self.url)
        self._stack.push_async_callback(made.close)
        if knows_places:
            await made.following.load(grace_until=1e12)
        else:
            await made.fleet.load(grace_until=1e12)
        return made

    def copy(self) -> str:
        return self._databases.copy(f"copy{next(self._numbers)}_{id(self)}", self.url)

    def put_back(self, copy: str) -> None:
        self._databases.put_back(self.url, copy)

    async def promised(self) -> dict[str, int]:
        """Replicas by binding, as stored."""
        plane = Plane(self.url)
        async with plane.store.reading() as read:
            rows = await read.reservations.all()
        await plane.close()
        return {row.name: sum(each.replicas for each in row.reservations) for row in rows}


@pytest.fixture
async def world(databases: Databases, fresh_database_url: str) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(databases, fresh_database_url, stack)


async def joined(plane: Plane) -> None:
    """Cluster a, which has reported four free cores."""
    issued = await join(plane.registration, "a")
    await plane.reporting.connected("a", AgentHello(epoch=1), issued.id)
    await plane.report(1)


async def unless_told(plane: Plane, name: str, replicas: int) -> bool:
    """Whether that was promised; a refusal as Unavailable is followed by another try."""
    for _ in range(TRIES):
        try:
            return await plane.schedule(name, replicas)
        except Unavailable:
            await plane.settle()
    raise AssertionError("never answered")


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("has_followed", [False, True])
async def test_a_version_of_another_history_is_not_built_on(
    world: World, later: int, has_followed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one = await world.plane()
    await joined(one)
    other = await world.plane()
    copy = world.copy()
    await other.settle()
    if has_followed:
        assert await unless_told(one, "lost", 1)
        await other.settle()
    else:
        # All that it has read of the journal is in the copy: only its ledger tells.
        assert await unless_told(other, "lost", 1)
    before = other.fleet.version("a")
    world.put_back(copy)
    # It takes the copy for what it was, and promises three cores of four as the same version.
    unaware = await world.plane(knows_places=False)
    async with unaware.store.transaction() as tx:
        await tx.histories.settle()
    assert await unless_told(unaware, "web", 3)
    assert unaware.fleet.version("a").version == before.version
    assert unaware.fleet.version("a") != before
    for number in range(later):
        await unaware.releases.release("shop", "web")
        assert await unless_told(unaware, f"web{number}", 3)
    promised = await world.promised()
    assert not await unless_told(other, "more", 3)
    assert await world.promised() == promised
    assert "the database went back to an earlier state" in caplog.text
    # What the agent says counts again, and what is promised by then.
    await other.report(2)
    await other.settle()
    assert not await unless_told(other, "more", 3)
    assert await unless_told(other, "little", 1)


async def test_nothing_is_promised_after_a_restore_before_the_agent_has_reported(
    world: World,
) -> None:
    one = await world.plane()
    await joined(one)
    copy = world.copy()
    # This one knows nothing that the copy does not know.
    other = await world.plane()
    assert await unless_told(one, "lost", 1)
    world.put_back(copy)
    assert not await unless_told(other, "web", 1)
    assert not await unless_told(one, "web", 1)
    assert other.fleet.view("a").state.report is None
    await other.report(2)
    await one.settle()
    assert await unless_told(one, "web", 4)
    await other.settle()
    assert one.fleet.version("a") == other.fleet.version("a")


async def test_a_restore_while_nothing_runs_is_seen_at_the_start(world: World) -> None:
    one = await world.plane()
    await joined(one)
    copy = world.copy()
    await unless_told(one, "lost", 1)
    await one.close()
    world.put_back(copy)
    late = await world.plane()
    assert not await unless_told(late, "web", 1)
    await late.report(2)
    assert await unless_told(late, "web", 4)
    again = await world.plane()
    assert again.fleet.version("a") == late.fleet.version("a")
    assert again.fleet.view("a").state.report is not None


async def test_another_server_may_lack_what_nobody_here_knows(world: World) -> None:
    one = await world.plane()
    await joined(one)
    await one.settle()
    connection = await connect(world.url)
    # As after the promotion of a standby: nothing that is known here is lost.
    await connection.execute("UPDATE history SET database = database || '0'")
    await connection.close()
    await one.close()
    asked: list[str] = []
    one.following.observe_anew(lambda: asked.append("report"))
    assert not await unless_told(one, "web", 1)
    assert asked == ["report"]
    await one.report(2)
    assert await unless_told(one, "web", 1)
    assert asked == ["report"]


async def test_what_the_copy_does_not_know_is_forgotten(world: World) -> None:
    one = await world.plane()
    copy = world.copy()
    for _ in range(TRIES):
        try:
            await joined(one)
        except Unavailable:
            continue
        break
    world.put_back(copy)
    await one.settle()
    with pytest.raises(NotFound):
        one.fleet.view("a")


async def test_what_an_agent_was_told_before_is_not_too_new(world: World) -> None:
    one = await world.plane()
    await joined(one)
    copy = world.copy()
    for number in range(3):
        await unless_told(one, f"lost{number}", 1)
    told = one.fleet.ledger("a").interest_version
    world.put_back(copy)
    await one.settle()
    report = make_report(7, cpu_millis=CORES * 1000)
    await one.reporting.accept("a", replace(report, interest_version=told))


async def unsuspecting(world: World) -> Plane:
    """A control plane on a copy that nothing but agents can tell from the database it is of."""
    one = await world.plane()
    await joined(one)
    copy = world.copy()
    await unless_told(one, "lost", 1)
    await one.close()
    world.put_back(copy)
    connection = await connect(world.url)
    await connection.execute("UPDATE history SET database = ''")
    await connection.close()
    return await world.plane()


async def test_an_agent_that_knows_of_a_later_report_is_believed_once(world: World) -> None:
    plane = await unsuspecting(world)
    assert plane.fleet.view("a").state.report is not None
    credential = await credential_of_a(world)
    late = AgentHello(epoch=1, acknowledged_sequence=5)
    await plane.reporting.connected("a", late, credential)
    assert not await unless_told(plane, "web", 1)
    # Not again before it has reported.
    await plane.reporting.connected("a", late, credential)
    await plane.report(6)
    assert await unless_told(plane, "web", 1)
    await plane.reporting.connected("a", AgentHello(epoch=1, acknowledged_sequence=99), credential)
    assert await unless_told(plane, "more", 1)


async def test_an_agent_that_was_told_of_a_later_version_is_believed_once(world: World) -> None:
    plane = await unsuspecting(world)
    report = make_report(2, cpu_millis=CORES * 1000)
    told = plane.fleet.ledger("a").version + 1
    with pytest.raises(Unavailable, match="in an earlier state"):
        await plane.reporting.accept("a", replace(report, interest_version=told))
    assert not await unless_told(plane, "web", 1)
    await plane.reporting.accept("a", replace(report, interest_version=told))
    assert await unless_told(plane, "web", 1)
    untold = replace(make_report(3), interest_version=plane.fleet.ledger("a").version + 2**40)
    with pytest.raises(InvalidRequest, match="interestVersion"):
        await plane.reporting.accept("a", untold)


async def credential_of_a(world: World) -> str:
    connection = await connect(world.url)
    found: str = await connection.fetchval("SELECT id FROM credential WHERE kind = 'agent'")
    await connection.close()
    return found


async def test_an_emptied_database_is_told_as_that(world: World) -> None:
    one = await world.plane()
    await joined(one)
    await one.settle()
    connection = await connect(world.url)
    await connection.execute("TRUNCATE history, cluster, reservation, journal CASCADE")
    await connection.close()
    async with one.store.transaction() as tx:
        with pytest.raises(Unavailable, match=r"The database was emptied: restore it"):
            await tx.histories.get()
    # A control plane that starts on it begins anew.
    late = await world.plane()
    await joined(late)
    assert await unless_told(late, "web", 4)


async def test_one_that_went_back_and_was_emptied_is_to_be_restored(world: World) -> None:
    one = await world.plane()
    await joined(one)
    await one.settle()
    assert one.following.believe("an agent knows more")
    connection = await connect(world.url)
    await connection.execute("TRUNCATE history, cluster, reservation, journal CASCADE")
    await connection.close()
    async with one.store.reading() as read:
        with pytest.raises(Unavailable, match=r"The database was emptied: restore it"):
            await one.following.check(read)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_put_back_no_core_is_promised_twice(world: World, seed: int) -> None:
    choices = random.Random(seed)
    planes = [await world.plane()]
    await joined(planes[0])
    planes += [await world.plane(), await world.plane()]
    sequence, names, copies = 1, itertools.count(), list[str]()
    has_reported = True
    for _ in range(40):
        plane = choices.choice(planes)
        match choices.choices(
            ("schedule", "follow", "report", "release", "start", "copy", "put back"),
            (40, 15, 15, 10, 5, 10, 10),
        )[0]:
            case "schedule":
                is_promised = await unless_told(plane, f"b{next(names)}", choices.randint(1, 3))
                assert has_reported or not is_promised
            case "follow":
                await plane.settle()
            case "report":
                sequence += 1
                for _ in range(TRIES):
                    try:
                        await plane.report(sequence)
                    except Unavailable:
                        await plane.settle()
                    except FederationError:
                        break
                    else:
                        break
                has_reported = True
            case "release":
                await release_any(plane, world)
            case "start":
                await plane.close()
                planes[planes.index(plane)] = await world.plane()
            case "copy":
                copies.append(world.copy())
            case _ if copies:
                world.put_back(copies.pop(choices.randrange(len(copies))))
                has_reported = False
            case _:
                continue
        promised = await world.promised()
        assert sum(promised.values()) <= CORES, promised
    for plane in planes:
        await plane.settle()
    for plane in planes[1:]:
        await plane.settle()
        assert plane.fleet.version("a") == planes[0].fleet.version("a")
    for copy in copies:
        world.put_back(copy)


async def release_any(plane: Plane, world: World) -> None:
    promised = await world.promised()
    if not promised:
        return
    name = min(promised)
    for _ in range(TRIES):
        try:
            await plane.releases.release("shop", name)
        except Unavailable:
            await plane.settle()
        except FederationError:
            return
        else:
            return
