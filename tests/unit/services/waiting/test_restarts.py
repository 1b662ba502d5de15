"""L3: a restart at any point loses no waiting binding, backoff, earmark or eviction.

A state machine over virtual time, on a real store. Control planes end in the middle of what they
do, and the next one knows nothing but what is in the database.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import event

from federation.failover.breaker import BreakerLimits
from federation.model.errors import Conflict
from federation.model.placement import Binding, ClusterAffinity
from federation.model.waiting import Wait, WaitState
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, Profiles
from federation.scheduler.waiting.queue import LONGEST_BACKOFF_SECONDS
from federation.services.failover.watching import FailoverSettings
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting, ReportTimes
from federation.services.waiting.keeper import QueueKeeper
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.databases import Databases
from lab.services import Agents, apply, join_and_report, make_deciders, make_report
from tests.unit.services.conftest import StillClock, only
from tests.unit.services.failover.conftest import Drill
from tests.unit.services.waiting.conftest import World

CORES = {"a": 3, "b": 2, "c": 1}
# Long after the end of every example.
EVICTION_SECONDS = 100_000.0
SETTINGS = FailoverSettings(
    lost_seconds=20.0,
    eviction_seconds=EVICTION_SECONDS,
    breaker=BreakerLimits(clusters=3, percent=90),
    percent_a_minute=100.0,
)
STARVING = Profiles.of([replace(DEFAULT_PROFILE, starvation_seconds=3.0)])
# None: it is not killed; else before that statement.
MOMENTS = st.none() | st.integers(0, 30)

_T = TypeVar("_T")


class Wish(NamedTuple):
    """A binding: where it may go, how many replicas, and how urgent they are."""

    clusters: str
    replicas: int
    priority: int


WISHES = st.builds(
    Wish, st.sampled_from(["a", "b", "ab", "bc", "abc"]), st.integers(1, 3), st.integers(0, 1)
)


class Kept(NamedTuple):
    """What the database says of a binding."""

    binding: Binding
    wait: Wait | None


class Restarts(RuleBasedStateMachine):
    """One control plane after the other, over one database."""

    databases: ClassVar[Databases]
    url: ClassVar[str]
    happened: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.databases.reset(self.url)
        self.runner = asyncio.Runner()
        self.clock = StillClock()
        self.asked: dict[str, Binding] = {}
        # How it stood when it was looked at last.
        self.before: dict[str, Kept] = {}
        self.silent: str | None = None
        self.sequence, self.serial = 10, 0
        self.cores = dict(CORES)

    def teardown(self) -> None:
        self.run(self._close())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        self.run(self._begin())

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=4), until=MOMENTS)
    def ask(self, wishes: list[Wish], until: int | None) -> None:
        """What was answered is kept; what was not may be."""
        for wish in wishes:
            self.serial += 1
            wanted = replace(
                only("a", wish.replicas), name=f"w{self.serial}", uid="", priority=wish.priority
            )
            affinity = ClusterAffinity(cluster_names=tuple(wish.clusters))
            wanted = replace(wanted, placement=replace(wanted.placement, affinity=affinity))
            answered = self.run(self._cut_off(self._ask(wanted), until))
            if answered or wanted.name in self.run(self._read([wanted.name])):
                self.asked[wanted.name] = wanted
            until = None
        self.run(self.world.settle())

    @rule(until=MOMENTS)
    def overtake(self, until: int | None) -> None:
        """Somebody is overtaken for so long that room is kept for it."""
        self.ask([Wish("abc", 20, 1)], None)
        self.run(self._report("b" if self.silent == "a" else "a", 2))
        self.ask([Wish("ab", 1, 0)], None)
        self.pass_time(4, until)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.asked)))
        del self.asked[name]
        self.before.pop(name, None)
        self.run(self.world.deciders.scheduling.delete_binding("shop", name))
        self.run(self.world.settle())

    @rule(
        cluster=st.sampled_from("abc"),
        cores=st.integers(0, 4),
        until=MOMENTS,
    )
    def report(self, cluster: str, cores: int, until: int | None) -> None:
        """Room shows, and who may have it is tried."""
        if cluster != self.silent:
            self.run(self._report(cluster, cores))
        self.run(self._cut_off(self.world.settle(), until))
        self.run(self.world.settle())

    @rule(is_busy=st.booleans())
    def be_busy(self, is_busy: bool) -> None:
        """Who is tried meanwhile fails, for a passing reason."""
        self.is_busy = self.world.tries.is_busy = is_busy

    @rule(seconds=st.integers(1, 12), until=MOMENTS)
    def pass_time(self, seconds: int, until: int | None) -> None:
        self.run(self._cut_off(self.drill.pass_time(seconds), until))
        self.run(self.world.settle())

    @rule(cluster=st.sampled_from("ab"), until=MOMENTS)
    def fall_silent(self, cluster: str, until: int | None) -> None:
        """For what moves there is room elsewhere."""
        if self.silent is None:
            self.ask([Wish("ab", 1, 1)], None)
            self.silent = cluster
            self.drill.speaking.discard(cluster)
            self.run(self._report("b" if cluster == "a" else "a", 3))
            self.run(self.drill.pass_time(38))
            self.run(self._cut_off(self.drill.pass_time(5), until))
            self.run(self.world.settle())

    @precondition(lambda self: self.silent is not None)
    @rule()
    def speak(self) -> None:
        self.drill.speaking.add(cast(str, self.silent))
        self.silent = None
        # What runs nowhere else returns.
        self.before.clear()
        self.run(self.drill.pass_time(5))
        self.run(self.world.settle())

    @rule()
    def restart(self) -> None:
        self.run(self._restart())
        self.run(self.world.settle())

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "world"):
            return
        now = self.run(self._read(self.asked))
        for name, wanted in self.asked.items():
            binding, wait = now[name]
            have = sum(each.replicas for each in binding.clusters)
            # Who fits nowhere else stays on paper, and is tried by failover.
            assert wait is not None or have == wanted.replicas
            assert have in {0, wanted.replicas}
        for name, (binding, wait) in self.before.items():
            self._count_what_happens(binding, wait)
            self._compare(binding, wait, now[name])
        self.before = {name: now[name] for name in self.asked}
        assert self.world.keeper.rescued == 0

    def _count_what_happens(self, binding: Binding, wait: Wait | None) -> None:
        self.happened["evictions"] += len(binding.eviction_tasks)
        if wait is not None:
            self.happened["waiting"] += 1
            self.happened["backoffs"] += wait.state is WaitState.BACKOFF
            self.happened["earmarks"] += wait.earmarked_since is not None

    def _compare(self, binding: Binding, wait: Wait | None, now: Kept) -> None:
        gone = {each.from_cluster for each in binding.eviction_tasks}
        assert gone <= {each.from_cluster for each in now.binding.eviction_tasks}
        if wait is None or now.wait is None:
            return
        assert now.wait.since == wait.since
        assert now.wait.attempts >= wait.attempts
        if wait.overtaken_since is not None:
            assert now.wait.overtaken_since == wait.overtaken_since
        if wait.earmarked_since is not None:
            assert now.wait.earmarked_since == wait.earmarked_since

    @invariant()
    def the_new_one_knows_all_that_wait(self) -> None:
        """In order; with what is kept for whom, and who is not tried yet."""
        if not hasattr(self, "world"):
            return
        now = self.run(self._read(self.asked))
        waiting = {name for name, each in now.items() if each.wait is not None}
        queue = self.world.keeper._queue
        assert {name for _, name in queue._waiters} == waiting
        for name in waiting:
            wait = cast(Wait, now[name].wait)
            assert queue.since(("shop", name)) == wait.since
            is_kept = ("shop", name) in self.world.keeper._earmarked
            assert is_kept or wait.earmarked_since is None
            if wait.state is WaitState.BACKOFF:
                not_before = queue._waiters["shop", name].not_before
                assert self.clock.time < not_before <= self.clock.time + LONGEST_BACKOFF_SECONDS

    async def _begin(self) -> None:
        self.engine = create_engine(self.url)
        self.store = PostgresStore(self.engine)
        self.is_busy = False
        self.statements = 0
        self.reached = asyncio.Event()
        event.listen(self.engine.sync_engine, "before_cursor_execute", self._count)
        fleet = FleetOwner(self.store)
        registration = Registration(self.store, fleet)
        reporting = self._reporting(fleet)
        reports = {name: make_report(5, cpu_millis=1000 * cores) for name, cores in CORES.items()}
        await join_and_report(registration, reporting, reports)
        await self._start(fleet, reporting)

    def _reporting(self, fleet: FleetOwner) -> Reporting:
        return Reporting(self.store, fleet, self.clock, ReportTimes(batch_seconds=0.0))

    async def _start(self, fleet: FleetOwner, reporting: Reporting) -> None:
        deciders = make_deciders(self.store, fleet, Agents(), self.clock, STARVING)
        self.world = World(
            store=self.store,
            fleet=fleet,
            deciders=deciders,
            reporting=reporting,
            clock=self.clock,
            tries=cast(Any, None),
            keeper=cast(QueueKeeper, None),
            placed=[],
            profiles=STARVING,
        )
        registration = Registration(self.store, fleet)
        self.drill = Drill(self.clock, self.store, fleet, reporting, deciders, registration)
        self.drill.start("one", SETTINGS)
        if self.silent is not None:
            self.drill.speaking.discard(self.silent)
        await self.drill.pass_time(1)
        await self.world.take_over()

    async def _restart(self) -> None:
        """With nothing in memory, and before it was heard of anybody nobody is stale."""
        await self._stop()
        fleet = FleetOwner(self.store)
        await fleet.load(grace_until=self.clock.now() + 15)
        await self._start(fleet, self._reporting(fleet))
        self.world.tries.is_busy = self.is_busy

    async def _stop(self) -> None:
        """What goes on is cut off."""
        me = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not me]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        self.world.keeper.close()
        del others
        # Connections that were being returned are found now, and not in another test.
        gc.collect()

    async def _close(self) -> None:
        if hasattr(self, "world"):
            await self._stop()
            await self.engine.dispose()

    def _count(self, *_: object) -> None:
        self.statements -= 1
        if self.statements <= 0:
            self.reached.set()

    async def _cut_off(self, work: Coroutine[Any, Any, object], until: int | None) -> bool:
        """Whether it has ended; else the control plane is killed before a statement of it."""
        if until is None:
            await work
            return True
        self.statements = until
        self.reached.clear()
        task = asyncio.create_task(cast(Any, work))
        killing = asyncio.create_task(self.reached.wait())
        await asyncio.wait({task, killing}, return_when=asyncio.FIRST_COMPLETED)
        has_ended = task.done() and task.exception() is None
        self.happened["killed"] += not has_ended
        await self._restart()
        return has_ended

    async def _ask(self, wanted: Binding) -> None:
        with suppress(Conflict):
            await apply(self.world.deciders.scheduling, wanted)

    async def _report(self, cluster: str, cores: int) -> None:
        """So many more than before."""
        self.sequence += 1
        self.cores[cluster] += cores
        shown = make_report(self.sequence, cpu_millis=1000 * self.cores[cluster])
        await self.world.reporting.accept(cluster, shown)

    async def _read(self, names: Iterable[str]) -> dict[str, Kept]:
        async with self.store.reading() as read:
            stored = await read.bindings.find([("shop", name) for name in names])
        return {name: Kept(each.binding, each.wait) for (_, name), each in stored.items()}


# Who is killed returns no connection.
@pytest.mark.filterwarnings("ignore:The garbage collector is trying to clean up non-checked-in")
def test_a_restart_at_any_point_loses_nothing(databases: Databases, database_url: str) -> None:
    Restarts.databases, Restarts.url, Restarts.happened = databases, database_url, Counter()
    run_state_machine_as_test(
        Restarts,
        settings=settings(
            max_examples=8,
            stateful_step_count=15,
            deadline=None,
            # Each example takes seconds.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    # It would prove nothing if nothing had happened.
    happened = Restarts.happened
    assert all(happened[each] for each in ("waiting", "backoffs", "earmarks", "evictions"))
    assert happened["killed"]
