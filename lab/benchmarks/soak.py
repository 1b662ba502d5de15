"""One control plane for a long while: whether it stays as large, as quick and as right as it was.

Agents report, callers watch, estimate and schedule, bindings are deleted after a while, clusters
join and leave. Prints how long calls take minute by minute, how much memory came to be needed after
the first fifth of the time, and what the database keeps of a decision. Ends with 1 when a call
failed, a binding got less than it asked for, an agent's or a watcher's stream ended, tables kept
what is gone, or memory grew by more than a fiftieth.

    soak.py [--seconds 600] [--agents 1000] [--estimates 180] [--schedules 20] [--watchers 50]

Estimates are of 500 sizes, as callers ask again and again for what they run; with ``--unseen`` of
shapes that nobody asked for before: 180 a second of these, over 1,000 clusters, take more than one
core.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from federation.codec.requirements import quantities_of
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scheduling_pb2 import OUTCOME_SCHEDULED, Outcome
from lab.benchmarks.bench_mixed import NAMES, REPLICAS, SIZES, Asker, Calls
from lab.benchmarks.members import CALL_SECONDS, Agent, agents_there, federation
from lab.callers import Caller, calling, enrolled
from lab.databases import connected
from lab.fleet import cluster_name
from lab.planes import Planes
from lab.processes import Meter, metered
from lab.programs import Beside, beside, clean_up_when_ended, own_folder, parser
from lab.verdicts import Verdicts, at_most

# As control planes tell their agents: not more often than a fleet's heartbeats, 50 a second.
REPORT_SECONDS, REPORTS_A_SECOND = 10.0, 50
# A cluster joins, reports and leaves.
CHURN_SECONDS = 5.0
# How many bindings of ours there are before the oldest is deleted.
KEPT_BINDINGS = 400
WARM, MOST_GROWTH = 0.2, 0.02
ROWS = "SELECT relname, n_live_tup FROM pg_stat_user_tables ORDER BY n_live_tup DESC LIMIT 5"
# Tables that are as large as what there is; others keep for a time what there was.
OF_CLUSTERS = ("cluster", "cluster_capacity", "cluster_report")
OF_BINDINGS = ("binding", "reservation")
OF_NOBODY = ("waiting", "preemption", "preview")
FIGURES = Verdicts("soak")
KEPT = "SELECT pg_database_size(current_database()), (SELECT count(*) FROM decision)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What is done, and for how long."""

    seconds: float
    agents: int
    estimates: float
    schedules: float
    watchers: int
    unseen: bool

    @property
    def report_seconds(self) -> float:
        return max(REPORT_SECONDS, self.agents / REPORTS_A_SECOND)


class DeletingAsker(Asker):
    """Deletes the oldest of its bindings when there are many. ``wrong`` are decisions that did not
    give what there was room for.
    """

    def __init__(self, caller: Caller, names: Sequence[str]) -> None:
        super().__init__(caller, names)
        self.wrong = Counter[str]()
        self._made: deque[Any] = deque()
        self._sizes = cycle([ReplicaRequirements(resource_request=quantities_of(s)) for s in SIZES])

    async def estimate_again(self) -> None:
        await self.caller.ask("EstimateReplicas", shapes=[next(self._sizes)])

    async def schedule(self) -> None:
        made = self.binding()
        decision = (await self.caller.ask("Schedule", binding=made)).decision
        replicas = sum(each.replicas for each in decision.clusters)
        if (decision.outcome, replicas) != (OUTCOME_SCHEDULED, REPLICAS):
            outcome = Outcome.Name(decision.outcome)
            self.wrong[f"{outcome} with {replicas} of {REPLICAS} replicas"] += 1
        self._made.append(made.metadata)
        if len(self._made) > KEPT_BINDINGS:
            gone = self._made.popleft()
            await self.caller.ask("DeleteBinding", namespace=gone.namespace, name=gone.name)


@dataclass(slots=True, eq=False)
class Minutes:
    """Calls of one kind, by the minute in which they began."""

    calls: list[Calls] = field(default_factory=lambda: [Calls()])

    def of(self, second: float) -> Calls:
        while len(self.calls) <= second // 60:
            self.calls.append(Calls())
        return self.calls[int(second // 60)]


async def keep_calling(minutes: Minutes, call: Any, pace: float, seconds: float) -> None:
    """At its times, whatever became of those before."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as under_way:
        for number in range(int(seconds * pace)):
            second = number / pace
            await asyncio.sleep(began + second - loop.time())
            under_way.create_task(minutes.of(second).one(call, began + second))


async def churn(planes: Planes, seconds: float, ended: Counter[str]) -> int:
    """How many clusters came and went; ``ended`` are streams of theirs that they did not end."""

    def complain(what: str) -> None:
        ended[what] += 1

    endpoint, token = planes.endpoints[0], planes.token
    until, came = time.monotonic() + seconds, 0
    async with calling(endpoint, token, CALL_SECONDS) as caller:
        while time.monotonic() < until:
            name = f"guest-{came}"
            credentials = await enrolled(endpoint, token, [name])
            is_known = asyncio.Event()
            is_known.set()
            guest = Agent(0, endpoint, credentials[name], name=name, complain=complain)
            await guest.report_once(is_known)
            await caller.ask("DeleteCluster", name=name)
            came += 1
            await asyncio.sleep(CHURN_SECONDS)
    return came


def grown(meter: Meter, began: float, seconds: float) -> tuple[float, float]:
    """MiB after the first fifth, and at the end: medians of a tenth of the time each."""

    def median(start: float) -> float:
        inside = [
            each.rss_mib
            for each in meter.samples
            if start <= (each.at - began) / seconds <= start + 0.1
        ]
        return statistics.median(inside or [meter.samples[-1].rss_mib])

    return median(WARM), median(0.9)


def show_minutes(name: str, minutes: Minutes) -> Counter[str]:
    """What became of the calls that failed."""
    for number, calls in enumerate(minutes.calls):
        if len(calls.millis) > 1:
            for percent in (50, 99):
                title = f"{name}, minute {number + 1}, p{percent}"
                FIGURES.row(title, calls.percentile(percent), "ms")
    return sum((calls.errors for calls in minutes.calls), Counter[str]())


async def kept(url: str) -> tuple[int, int, Sequence[Mapping[str, Any]]]:
    """Bytes of the database, decisions in it, and its largest tables."""
    async with connected(url) as connection:
        size, decisions = (await connection.fetch(KEPT))[0]
        return size, decisions, await connection.fetch(ROWS)


async def oversized(url: str, given: Soak) -> Counter[str]:
    """Tables with more rows than there is to tell of, and by how many."""
    bounds = {
        **dict.fromkeys(OF_CLUSTERS, given.agents),
        **dict.fromkeys(OF_BINDINGS, KEPT_BINDINGS),
        **dict.fromkeys(OF_NOBODY, 0),
    }
    async with connected(url) as connection:
        rows = {each: await connection.fetchval(f"SELECT count(*) FROM {each}") for each in bounds}
    return Counter({f"row too many in {each}": rows[each] - most for each, most in bounds.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Soaked:
    """``wrong``: whatever was not as it should be, and how often; ``growth``: a share of memory."""

    wrong: Counter[str]
    growth: float

    def is_kept(self) -> bool:
        return not self.wrong and self.growth <= MOST_GROWTH


async def soak(given: Soak, planes: Planes, url: str, agents: Beside) -> Soaked:
    (plane,), endpoint = planes.all, planes.endpoints[0]
    estimates, schedules, wrong = Minutes(), Minutes(), Counter[str]()
    async with calling(endpoint, planes.token, CALL_SECONDS) as caller:
        # No binding of the mixed load names more clusters than these.
        names = [cluster_name(number) for number in range(min(given.agents, len(NAMES)))]
        asker = DeletingAsker(caller, names)
        asking = asker.estimate if given.unseen else asker.estimate_again
        before = await kept(url)
        watching = [endpoint, planes.token, given.watchers]
        with (
            beside("lab.benchmarks.bench_mixed", "--watch", given=watching) as watchers,
            metered(plane.pid) as meter,
        ):
            began = meter.now().at
            # Many who dialled at once were sent away at first.
            agents.forget()
            async with asyncio.TaskGroup() as doing:
                coming = doing.create_task(churn(planes, given.seconds, wrong))
                for minutes, call, pace in (
                    (estimates, asking, given.estimates),
                    (schedules, asker.schedule, given.schedules),
                ):
                    doing.create_task(keep_calling(minutes, call, pace, given.seconds))
            warm, last = grown(meter, began, given.seconds)
            wrong += watchers.complaints() + agents.complaints()
    wrong += show_minutes("estimates", estimates) + show_minutes("schedules", schedules)
    wrong += asker.wrong + await oversized(url, given)
    FIGURES.row("clusters that came and went", coming.result())
    result = Soaked(wrong=wrong, growth=last / warm - 1)
    show_result(result, warm, last)
    size, decisions, largest = await kept(url)
    made = decisions - before[1]
    FIGURES.row("the database, by decision", (size - before[0]) / max(made, 1) / 1024, "KiB")
    FIGURES.note("rows: " + ", ".join(f"{row['relname']} {row['n_live_tup']}" for row in largest))
    return result


def show_result(result: Soaked, warm: float, last: float) -> None:
    FIGURES.row("what went wrong", result.wrong.total(), goal=at_most(0))
    for what, times in result.wrong.most_common(9):
        FIGURES.note(f"{times} x {what}")
    goal = at_most((1 + MOST_GROWTH) * warm)
    FIGURES.row("memory", last, "MiB", goal=goal, detail=f"{result.growth:+.1%}")


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser("benchmarks.soak", __doc__)
    options.add_argument("--seconds", type=float, default=600.0)
    options.add_argument("--agents", type=int, default=1000)
    options.add_argument("--estimates", type=float, default=180.0, help="a second")
    options.add_argument("--schedules", type=float, default=20.0, help="a second")
    options.add_argument("--watchers", type=int, default=50)
    options.add_argument("--unseen", action="store_true", help="only shapes never asked for before")
    given = Soak(**vars(options.parse_args(arguments)))
    FIGURES.section(f"{given.agents} agents for {given.seconds:g} s")
    with (
        own_folder("soak") as folder,
        federation(folder, 1, given.agents) as (planes, postgres, credentials),
        agents_there(planes, credentials, given.report_seconds) as agents,
    ):
        return int(not asyncio.run(soak(given, planes, postgres.url, agents)).is_kept())


if __name__ == "__main__":
    clean_up_when_ended()
    sys.exit(main())
