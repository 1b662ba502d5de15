"""Decisions in memory: dividing, selecting, whole ones, and what keeping and replaying them costs.

Availability is what fits into clusters as shipped agents report them. Prints figures beside their
goals; must not judge anything else.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from uuid import uuid4

import numpy as np
from sqlalchemy import text

from federation.capacity.cluster_room import ReportId, Room
from federation.capacity.reserve import FleetRooms, packable_c
from federation.garbage import sparing_the_fleet
from federation.history.kept_reports import OpenPromise, packed_picture
from federation.history.packed_inputs import InputReader, Packed, SharedBodies
from federation.history.recorded import Recorded
from federation.model.arrays import IntArray, UintArray
from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.estimate import Bound, Estimates, Source
from federation.model.grades import DEFAULT_MODEL
from federation.model.placement import (
    Binding,
    Certificate,
    ClusterAffinity,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
)
from federation.model.reason_codes import ReasonCode
from federation.model.reasons import Reason
from federation.model.reservations import Outstanding
from federation.model.workload import (
    ObjectReference,
    ReplicaRequirements,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.cycle import schedule
from federation.scheduler.decision_inputs import DecisionInputs
from federation.scheduler.division.apportion import apportion
from federation.scheduler.fleet import Column, Fleet
from federation.scheduler.plugins.profile import DEFAULT_PROFILE, DEFAULT_PROFILES
from federation.scheduler.selection.search import UNLIMITED, Level, SearchProblem, search
from federation.scheduler.selection.spread import Region, choose_regions
from federation.scheduler.state import BindingContext
from federation.services.decision_ports import NewDecision
from federation.services.duties import DECISIONS_PRUNED_AT_ONCE as PRUNED_AT_ONCE
from federation.services.packed_traces import packed_traces
from federation.services.values import ReportEvidence, Verdict
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.benchmarks.measuring import chosen, median_millis, run_named
from lab.benchmarks.members import PLAN, capacity_report
from lab.fleet import SMALL_SIZES, stored_pools
from lab.planes import durable_postgres
from lab.processes import family_seconds
from lab.programs import own_folder
from lab.verdicts import Verdicts, at_most

DYNAMIC = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
REGION_THEN_CLUSTER = (
    SpreadConstraint(by=SpreadField.REGION, min_groups=2, max_groups=3),
    SpreadConstraint(by=SpreadField.CLUSTER, min_groups=3, max_groups=20),
)
SCHEDULER = Verdicts("bench_scheduler")
APIS = frozenset(("apps/v1", f"Kind{number}") for number in range(29)) | {("apps/v1", "Deployment")}


def fleet(clusters: int, regions: int = 10) -> Fleet:
    """Clusters with labels, 30 APIs each and a taint on every tenth."""
    taint = Taint(key="dedicated", value="infra", effect=TaintEffect.NO_SCHEDULE)
    return Fleet.of(
        Cluster(
            name=f"member{number:05d}",
            labels={"tier": "abc"[number % 3], "serial": str(number)},
            provider=f"provider{number % 3}",
            region=f"region{number % regions:03d}",
            zones=(f"zone{number % (3 * regions):03d}",),
            taints=(taint,) if number % 10 == 0 else (),
            api_enablements=APIS,
        )
        for number in range(clusters)
    )


@cache
def packable() -> IntArray:
    """How many replicas of a size each distinct cluster of the fleet takes, 500 at most."""
    report = ReportId(1, 1)
    own_rooms = [Room.of(report, stored_pools(number, PLAN)) for number in range(PLAN.distinct)]
    size = ReplicaRequirements(request=SMALL_SIZES[3])
    most_c = packable_c(FleetRooms.of(own_rooms), size, Certificate.CAREFUL)
    return np.clip(most_c // 10, 1, 500)


def availability(clusters: int) -> Estimates:
    """What a size gets in clusters of 500 nodes as agents report them, nearly all of it taken."""
    return Estimates(
        # Clusters that report alike have promised more or less.
        replicas_c=(
            np.resize(packable(), clusters) * np.random.default_rng(9).uniform(0.5, 1, clusters)
        ).astype(np.int64),
        source_c=np.full(clusters, Source.POOLS, dtype=np.int8),
        bound_c=np.full(clusters, Bound.LOWER, dtype=np.int8),
        reasons={},
    )


def binding(replicas: int, spread: tuple[SpreadConstraint, ...]) -> Binding:
    return Binding(
        namespace="shop",
        name="web",
        replicas=replicas,
        resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web", uid="6f1c"),
        clusters=(TargetCluster(name="member00003", replicas=replicas // 10),),
        placement=Placement(
            affinity=ClusterAffinity(match_labels={"tier": "a"}),
            tolerations=(Toleration(key="other", operator=TolerationOperator.EXISTS),),
            replica_scheduling=DYNAMIC,
            spread_constraints=spread,
        ),
    )


def by_position(position_k: IntArray) -> UintArray:
    return position_k.astype(np.uint64)


def report(what: str, work: Callable[[], object]) -> None:
    SCHEDULER.row(what, median_millis(work), "ms")


def time_apportion() -> None:
    random = np.random.default_rng(3)
    for clusters, seats in ((100, 10_000), (5_000, 10_000), (10_000, 1_000_000)):
        weights = random.integers(1, 500, clusters)
        report(
            f"divide {seats:,} replicas over {clusters:,} clusters",
            partial(apportion, weights, seats, by_position),
        )


def time_regions() -> None:
    random = np.random.default_rng(4)
    for count, least, most, clusters in ((20, 5, 10, 40), (200, 20, 20, 100), (200, 10, 20, 600)):
        regions = [
            Region(name=f"region{number:03d}", clusters=size, score=score)
            for number, (size, score) in enumerate(
                zip(
                    random.integers(1, 60, count).tolist(),
                    random.integers(0, 9_000, count).tolist(),
                    strict=True,
                )
            )
        ]
        report(
            f"choose {least} to {most} of {count} regions with {clusters} clusters",
            partial(
                choose_regions,
                regions,
                min_regions=least,
                max_regions=most,
                min_clusters=clusters,
            ),
        )


def time_search() -> None:
    """What runs when Karmada's choice of regions is too small, or zones and providers matter."""
    values = np.random.default_rng(5).integers(0, 500, 10_000)
    regions: Column[tuple[str, ...]] = Column.of(
        (f"region{number % 200:03d}",) for number in range(10_000)
    )
    for most in (100, UNLIMITED):
        problem = SearchProblem(
            value_k=values,
            levels=(Level(groups=regions, least=10, most=20),),
            least=20,
            most=most,
        )
        clusters = "any number of" if most == UNLIMITED else f"at most {most}"
        report(
            f"search {clusters} clusters in 10 to 20 of 200 regions, 10,000 clusters",
            partial(search, problem),
        )


def time_decisions() -> None:
    for clusters in (100, 1_000, 10_000):
        members, fits = fleet(clusters), availability(clusters)
        for what, spread in (("region and cluster spread", REGION_THEN_CLUSTER), ("no spread", ())):
            asked = binding(500, spread)
            report(
                f"decide with trace, {clusters:,} clusters, 500 replicas, {what}",
                partial(schedule, asked, members, fits, now=0.0),
            )
    wide = (
        SpreadConstraint(by=SpreadField.REGION, min_groups=20, max_groups=20),
        SpreadConstraint(by=SpreadField.CLUSTER, min_groups=200, max_groups=400),
    )
    members, fits = fleet(10_000, regions=200), availability(10_000)
    asked = binding(5_000, wide)
    report(
        "decide with trace, 10,000 clusters, 20 of 200 regions",
        partial(schedule, asked, members, fits, now=0.0),
    )
    everywhere = Binding(
        name="web",
        replicas=1_000_000,
        resource=asked.resource,
        placement=Placement(replica_scheduling=DYNAMIC),
    )
    report(
        "decide with trace, 10,000 clusters, 1,000,000 replicas on all of them",
        partial(schedule, everywhere, members, fits, now=0.0),
    )


def bench_scheduler() -> None:
    time_apportion()
    time_regions()
    time_search()
    time_decisions()


DECISIONS = chosen(100, quick=10)
GOALS = {100: 4096, 1000: 25_600}
MAX_PERCENT = 15
FLEETS = chosen((100, 1000), quick=(100,), full=(100, 1000, 10_000))
# Of a report that is kept: promises that are on their way, and most bytes.
PROMISES, MAX_REPORT_BYTES = 20, 12_288
OLD = chosen(40_000, quick=4000)
BATCHES, TURNS = chosen(5, quick=2), chosen(21, quick=2)
HISTORY = Verdicts("bench_history")
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
    return fleet(clusters), availability(clusters)


def verdicts(clusters: int) -> list[Verdict]:
    """As of a storm: most decisions are about another binding, on estimates that are alike."""
    chance = np.random.default_rng(5)
    known_fleet, known = fleet_and_estimates(clusters)
    evidence = ReportEvidence(
        sequences=tuple(chance.integers(1, 5000, clusters).tolist()),
        age_seconds=tuple(chance.random(clusters).round(3).tolist()),
    )
    made = []
    for number in range(DECISIONS):
        wanted = replace(
            binding(5 + number % 90, ()),
            name=f"web-{number}",
            uid=f"0195a4f2-0000-4000-8000-{number:012}",
            clusters=(TargetCluster(name=f"member{number % clusters:05d}", replicas=3),),
        )
        taken_c = chance.integers(0, 20, clusters)
        inputs = DecisionInputs(
            binding=wanted,
            fleet=known_fleet,
            profile=DEFAULT_PROFILE,
            surroundings=BindingContext(triggers=(Reason(ReasonCode.REPLICAS_CHANGED),)),
        )
        decision = inputs.schedule(
            replace(known, replicas_c=known.replicas_c - taken_c), 1e9 + 0.25
        )
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
    HISTORY.section(f"{DECISIONS} decisions of {clusters:,} clusters")
    detail = f"{kept - without:.0f} of them for replays"
    goal = at_most(GOALS[clusters]) if clusters in GOALS else None
    HISTORY.row("kept of each", kept, "bytes", goal=goal, detail=detail)
    HISTORY.row("kept once, fleet and profile", sum(map(size_of, shared)), "bytes")
    detail = f"{pack - pack_bare:.0f} of them for replays; to decide it took {decide:.0f}"
    HISTORY.row("to pack each, CPU", pack, "us", detail=detail)
    HISTORY.row("to replay each, CPU", replay, "us")


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
    HISTORY.section(
        f"{OLD} decisions of a day, half of them the newest of a binding, and the day dropped"
    )
    HISTORY.row("anything locked for, at most", max(locked_millis), "ms", goal=at_most(100))


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
            asked = replace(verdict.inputs.binding, name=f"{name}-{batch}-{number}")
            new = NewDecision(
                id=str(uuid4()),
                binding_id=None,
                binding=asked,
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
    HISTORY.section(f"deciding and committing {DECISIONS} at a time on 100 clusters, nothing else")
    with_it, without = (statistics.median(spent[how]) for how in spent)
    cost, percent = with_it - without, 100 * (with_it / without - 1)
    HISTORY.row("traces and inputs cost each, CPU", cost, "us")
    # Of so much less time so many more are decided.
    less = 100 * (1 - without / with_it)
    HISTORY.row("of the throughput", less, "%", goal=at_most(MAX_PERCENT))
    HISTORY.note(
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
    HISTORY.section(
        f"a report of {len(pools.cells)} cells with {PROMISES} promises, kept once a minute"
    )
    HISTORY.row("kept", size, "bytes", goal=at_most(MAX_REPORT_BYTES))
    HISTORY.row("to pack it, CPU", 1000 * median_millis(keep, 20), "us")


def replay_all(made: Sequence[Verdict], shared: Sequence[SharedBodies]) -> None:
    bodies = {name: body for each in shared for name, body in each.bodies.items()}
    for verdict, packed in zip(made, packed_traces(made), strict=True):
        decision = verdict.decision
        replay = Recorded(
            outcome=decision.outcome,
            clusters=decision.clusters,
            remainder=decision.remainder,
            reason=str(decision.reason),
            trace=packed.body,
            bodies=bodies,
        ).replayed(InputReader(DEFAULT_PROFILES))
        assert replay.difference is None, replay


def bench_history() -> None:
    for clusters in FLEETS:
        measure(clusters)
    measure_reports()
    measure_database()


if __name__ == "__main__":
    run_named(globals())
