"""What keeping, replaying and forgetting decisions costs: bytes of each, CPU to pack and to replay
it, what of a decision's CPU that is, and how long rows are locked while a month is pruned.

Prints figures beside their goals; must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from uuid import uuid4

import numpy as np
from sqlalchemy import text

from federation.garbage import sparing_the_fleet
from federation.history.kept_reports import OpenPromise, packed_picture
from federation.history.packed_inputs import InputReader, Packed, SharedBodies
from federation.history.recorded import Recorded
from federation.model.estimate import Estimates
from federation.model.grades import DEFAULT_MODEL
from federation.model.reservations import Outstanding
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.scheduler.fleet import Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, DEFAULT_PROFILES
from federation.scheduler.replay import DecisionInputs
from federation.scheduler.state import Surroundings
from federation.services.decision_ports import NewDecision
from federation.services.duties import DECISIONS_PRUNED_AT_ONCE as PRUNED_AT_ONCE
from federation.services.packed_traces import packed_traces
from federation.services.values import ReportEvidence, Verdict
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.benchmarks import bench_scheduler
from lab.benchmarks.measuring import chosen, median_millis
from lab.benchmarks.members import PLAN, capacity_report
from lab.fleet import stored_pools
from lab.planes import durable_postgres
from lab.processes import family_seconds
from lab.programs import own_folder
from lab.verdicts import Verdicts, at_most

DECISIONS = chosen(100, quick=10)
GOALS = {100: 4096, 1000: 25_600}
MAX_PERCENT = 15
FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
# Of a report that is kept: promises that are on their way, and most bytes.
PROMISES, MAX_REPORT_BYTES = 20, 12_288
OLD = chosen(40_000, quick=4000)
BATCHES, TURNS = chosen(5, quick=2), chosen(21, quick=2)
FIGURES = Verdicts("bench_history")
OLD_DECISIONS = text("""
    INSERT INTO decision (binding_id, namespace, name, binding_generation, outcome, clusters,
        remainder, reason, algorithm_revision, trace, triggers, created_at, day)
    SELECT n, 'shop', 'web-' || n, 1, 'SCHEDULED', '[]', 0, '', 1, :trace, '{}',
        now() - interval '31 d' - interval '1 d' * (n % 2), '2001-01-01'
    FROM generate_series(0, :count - 1) AS n
""")
OLD_BINDINGS = text("""
    INSERT INTO binding (namespace, name, uid, generation, version, spec, clusters, decision_id,
        observed_affinity, affinity_group, anti_affinity_group)
    SELECT namespace, name, '', 1, 1, '{}', '[]', id, '', '', ''
    FROM decision WHERE created_at < now() - interval '31 d 1 h'
""")


@lru_cache
def fleet_and_estimates(clusters: int) -> tuple[Fleet, Estimates]:
    """A control plane's fleet stays the same until a cluster itself changes."""
    return bench_scheduler.fleet(clusters), bench_scheduler.availability(clusters)


def verdicts(clusters: int) -> list[Verdict]:
    """As of a storm: most decisions are about another binding, on estimates that are alike."""
    chance = np.random.default_rng(5)
    fleet, known = fleet_and_estimates(clusters)
    evidence = ReportEvidence(
        sequences=tuple(chance.integers(1, 5000, clusters).tolist()),
        age_seconds=tuple(chance.random(clusters).round(3).tolist()),
    )
    made = []
    for number in range(DECISIONS):
        wanted = replace(
            bench_scheduler.binding(5 + number % 90, ()),
            name=f"web-{number}",
            uid=f"0195a4f2-0000-4000-8000-{number:012}",
            clusters=(TargetCluster(name=f"member{number % clusters:05d}", replicas=3),),
        )
        taken_c = chance.integers(0, 20, clusters)
        inputs = DecisionInputs(
            binding=wanted,
            fleet=fleet,
            profile=DEFAULT_PROFILE,
            surroundings=Surroundings(triggers=("replicas changed",)),
        )
        decision = inputs.decide(replace(known, replicas_c=known.replicas_c - taken_c), 1e9 + 0.25)
        made.append(Verdict(decision=decision, evidence=evidence, inputs=inputs))
    return made


def measure(clusters: int) -> None:
    made = verdicts(clusters)
    bare = [replace(each, inputs=None) for each in made]
    packed = packed_traces(made)
    kept = statistics.median(len(each.body) for each in packed)
    without = statistics.median(len(each.body) for each in packed_traces(bare))
    shared = {each.name: each for one in packed for each in one.shared}.values()
    decide, pack, pack_bare, replay = (
        1000 * milliseconds / DECISIONS
        for milliseconds in (
            median_millis(lambda: verdicts(clusters), 3),
            median_millis(lambda: packed_traces(made), 9),
            median_millis(lambda: packed_traces(bare), 9),
            median_millis(lambda: replay_all(made, shared), 3),
        )
    )
    FIGURES.section(f"{DECISIONS} decisions of {clusters:,} clusters")
    detail = f"{kept - without:.0f} of them for replays"
    goal = at_most(GOALS[clusters]) if clusters in GOALS else None
    FIGURES.row("kept of each", kept, "bytes", goal=goal, detail=detail)
    FIGURES.row("kept once, fleet and profile", sum(map(size_of, shared)), "bytes")
    detail = f"{pack - pack_bare:.0f} of them for replays; to decide it took {decide:.0f}"
    FIGURES.row("to pack each, CPU", pack, "us", detail=detail)
    FIGURES.row("to replay each, CPU", replay, "us")


async def prune(url: str) -> None:
    """The older half are the newest of their bindings, and stay."""
    engine = create_engine(url)
    store = PostgresStore(engine)
    async with engine.begin() as connection:
        await connection.execute(OLD_DECISIONS, {"count": OLD, "trace": bytes(range(250)) * 12})
        await connection.execute(OLD_BINDINGS)
        await connection.execute(text("ANALYZE"))
    locked_millis: list[float] = []
    done = PRUNED_AT_ONCE
    while done == PRUNED_AT_ONCE:
        began = time.perf_counter()
        async with store.transaction() as tx:
            done = await tx.decisions.prune(1.0, PRUNED_AT_ONCE)
        locked_millis.append(1000 * (time.perf_counter() - began))
    await engine.dispose()
    FIGURES.section(
        f"{OLD} decisions of a day, half of them the newest of a binding, and the day dropped"
    )
    FIGURES.row("anything locked for, at most", max(locked_millis), "ms", goal=at_most(100))


def without_history(made: Sequence[Verdict]) -> list[Packed]:
    return [Packed(b"") for _ in made]


async def kept(url: str, pack: Callable[[Sequence[Verdict]], list[Packed]], name: str) -> None:
    """Decide and commit, a batch after the other."""
    engine = create_engine(url)
    store = PostgresStore(engine)
    for batch in range(BATCHES):
        made = verdicts(100)
        rows = []
        for number, (verdict, packed) in enumerate(zip(made, pack(made), strict=True)):
            assert isinstance(verdict.inputs, DecisionInputs)
            binding = replace(verdict.inputs.binding, name=f"{name}-{batch}-{number}")
            new = NewDecision(
                id=str(uuid4()),
                binding_id=None,
                binding=binding,
                verdict=verdict,
                trace=packed,
                placed=True,
            )
            rows.append(new)
        async with store.transaction() as tx:
            await tx.decisions.add_all(rows)
    await engine.dispose()


def measure_cost(url: str, postgres: int) -> None:
    """By turns with and without, so that whatever else the machine does comes to both; garbage is
    collected as a control plane does it.
    """
    spent: dict[str, list[float]] = {"with": [], "without": []}
    with sparing_the_fleet():
        pass
    for turn in range(TURNS):
        for how, pack in (("with", packed_traces), ("without", without_history)):
            before = time.process_time() + family_seconds(postgres)
            asyncio.run(kept(url, pack, f"{how}-{turn}"))
            after = time.process_time() + family_seconds(postgres)
            spent[how].append(1e6 * (after - before) / (BATCHES * DECISIONS))
    FIGURES.section(f"deciding and committing {DECISIONS} at a time on 100 clusters, nothing else")
    with_it, without = (statistics.median(spent[how]) for how in spent)
    cost, percent = with_it - without, 100 * (with_it / without - 1)
    FIGURES.row("traces and inputs cost each, CPU", cost, "us")
    # Of so much less time so many more are decided.
    less = 100 * (1 - without / with_it)
    FIGURES.row("of the throughput", less, "%", goal=at_most(MAX_PERCENT))
    FIGURES.note(
        f"{percent:.0f} % of {without:.0f} us, PostgreSQL too; a whole decision reserves and "
        "travels, and takes more: see bench_decisions"
    )


def measure_database() -> None:
    with own_folder("bench") as folder, durable_postgres(folder) as postgres:
        measure_cost(postgres.url, postgres.pid)
        asyncio.run(prune(postgres.url))


def size_of(shared: SharedBodies) -> int:
    return sum(map(len, shared.bodies.values()))


def measure_reports() -> None:
    """A report that is kept, as an agent makes it of 500 nodes."""
    report, pools = capacity_report(0), stored_pools(0, PLAN)
    wanted = ReplicaRequirements(request={"cpu": 500, "memory": 1 << 30})
    promised = [
        OpenPromise(Outstanding(f"shop/web-{n}", wanted, 3, in_summary=3), str(uuid4()))
        for n in range(PROMISES)
    ]

    def keep() -> bytes:
        return packed_picture(report, pools, DEFAULT_MODEL, promised, follows_claims=False)[1]

    size = len(keep())
    FIGURES.section(
        f"a report of {len(pools.cells)} cells with {PROMISES} promises, kept once a minute"
    )
    FIGURES.row("kept", size, "bytes", goal=at_most(MAX_REPORT_BYTES))
    FIGURES.row("to pack it, CPU", 1000 * median_millis(keep, 20), "us")


def replay_all(made: Sequence[Verdict], shared: Sequence[SharedBodies]) -> None:
    bodies = {name: body for each in shared for name, body in each.bodies.items()}
    for verdict, packed in zip(made, packed_traces(made), strict=True):
        decision = verdict.decision
        replay = Recorded(
            outcome=decision.outcome,
            clusters=decision.clusters,
            remainder=decision.remainder,
            reason=decision.reason,
            trace=packed.body,
            bodies=bodies,
        ).replayed(InputReader(DEFAULT_PROFILES))
        assert replay.difference is None, replay


if __name__ == "__main__":
    for clusters in FLEETS:
        measure(clusters)
    measure_reports()
    measure_database()
