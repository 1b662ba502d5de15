"""What keeping, replaying and forgetting decisions costs: bytes of each, CPU to pack and to replay
it, what of a decision's CPU that is, and how long rows are locked while a month is pruned.

Prints figures beside their goals; must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from uuid import uuid4

import numpy as np
from sqlalchemy import text

from federation.embedded_postgres.binaries import find_binaries
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.garbage import sparing_the_fleet
from federation.history.kept_reports import OpenPromise, packed_picture
from federation.history.packed_inputs import InputReader, Packed, SharedBodies
from federation.history.recorded import Recorded
from federation.model.cluster import (
    CapacityReport,
    NodeSummary,
    ReportedPool,
    ReportedPools,
    ResourceSummary,
)
from federation.model.estimate import Estimates
from federation.model.grades import DEFAULT_MODEL
from federation.model.reported_pools import pools_of
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
from federation.store.migrate import upgrade
from federation.store.postgres import PostgresStore
from lab.benchmarks import bench_scheduler
from lab.benchmarks.measuring import chosen, family_seconds, median_millis, show

DECISIONS = chosen(100, quick=20)
GOALS = {100: 4096, 1000: 25_600}
MOST_PERCENT = 15
# Of a report that is kept: cells, promises that are on their way, and most bytes.
CELLS, PROMISES, MOST_REPORT = 256, 20, 12_288
RESOURCES = ("cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/gpu")
OLD = chosen(40_000, quick=4000)
BATCHES, TURNS = chosen(5, quick=2), chosen(21, quick=2)
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
    goal = GOALS[clusters]
    print(f"{DECISIONS} decisions of {clusters} clusters")
    print(
        f"  kept of each           {kept:8.0f} bytes, {kept - without:.0f} of them for replays   "
        f"goal <= {goal}: {'kept' if kept <= goal else 'MISSED'}"
    )
    print(f"  kept once              {sum(map(size_of, shared)):8} bytes: fleet and profile")
    print(
        f"  to pack each           {pack:8.0f} us of CPU, {pack - pack_bare:.0f} of them for "
        f"replays; to decide it took {decide:.0f}"
    )
    print(f"  to replay each         {replay:8.0f} us of CPU")


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
    print(f"{OLD} decisions of a day, half of them the newest of a binding, and the day dropped")
    most = max(locked_millis)
    show("anything locked for, at most", f"{most:.0f} ms", goal="<= 100 ms", kept=most <= 100)


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
    print(f"deciding and committing {DECISIONS} at a time on 100 clusters, nothing else")
    with_it, without = (statistics.median(spent[how]) for how in spent)
    cost, percent = with_it - without, 100 * (with_it / without - 1)
    show("traces and inputs cost each", f"{cost:.0f} us of CPU")
    # Of so much less time so many more are decided.
    less = 100 * (1 - without / with_it)
    show("of the throughput", f"{less:.0f} %", goal="<= 15 %", kept=less <= MOST_PERCENT)
    print(
        f"  {percent:.0f} % of {without:.0f} us, PostgreSQL too; a whole decision reserves and "
        "travels, and takes more: see bench_decisions"
    )


def measure_database() -> None:
    with tempfile.TemporaryDirectory() as directory:
        server = EmbeddedPostgres(find_binaries(None, ""), Path(directory))
        server.start()
        try:
            upgrade(server.url)
            measure_cost(server.url, server.process_id or 0)
            asyncio.run(prune(server.url))
        finally:
            server.discard()


def size_of(shared: SharedBodies) -> int:
    return sum(map(len, shared.bodies.values()))


def measure_reports() -> None:
    """One that is kept, of as many cells as an agent reports; amounts are random."""
    chance = np.random.default_rng(7)
    most_r = (64_000, 256 << 20, 110, 1 << 20, 8)
    columns = [chance.integers(0, most, CELLS) for most in most_r]
    unit_r = (1, 1 << 10, 1, 1 << 20, 1)
    amounts = [(each * unit).tolist() for each, unit in zip(columns, unit_r, strict=True)]
    spreads = [chance.integers(0, 500, CELLS).tolist() for _ in RESOURCES]
    pools = pools_of(
        ReportedPools(
            label_keys=("topology.kubernetes.io/zone",),
            pools=tuple(
                ReportedPool(labels={"topology.kubernetes.io/zone": zone}) for zone in "abcd"
            ),
            resources=RESOURCES,
            cell_pools=tuple(chance.integers(0, 4, CELLS).tolist()),
            counts=tuple(chance.integers(1, 20, CELLS).tolist()),
            minimums=tuple(chain.from_iterable(amounts)),
            spreads=tuple(chain.from_iterable(spreads)),
            surpluses=tuple(chain.from_iterable(spreads)),
        )
    )
    wanted = ReplicaRequirements(request={"cpu": 500, "memory": 1 << 30})
    promised = [
        OpenPromise(Outstanding(f"shop/web-{n}", wanted, 3, in_summary=3), str(uuid4()))
        for n in range(PROMISES)
    ]
    report = CapacityReport(
        epoch=1,
        sequence=1,
        snapshot_time=0.0,
        summary=ResourceSummary(allocatable=dict.fromkeys(RESOURCES, 1 << 40)),
        nodes=NodeSummary(total=1000, ready=1000, graded=1000),
    )

    def keep() -> bytes:
        return packed_picture(report, pools, DEFAULT_MODEL, promised, follows_claims=False)[1]

    size = len(keep())
    print(f"a report of {CELLS} cells, with {PROMISES} promises beside it, kept once a minute")
    show("kept", f"{size} bytes", goal=f"<= {MOST_REPORT}", kept=size <= MOST_REPORT)
    show("to pack it", f"{1000 * median_millis(keep, 20):.0f} us of CPU")


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
    for clusters in GOALS:
        measure(clusters)
    measure_reports()
    measure_database()
