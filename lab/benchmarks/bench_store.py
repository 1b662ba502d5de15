"""How long the statements of a batch of decisions take on PostgreSQL, and how much CPU of ours.

Prints medians of each statement for 500 decisions, and what it takes to write and read each body;
must not judge them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

from federation.model.cluster import Cluster
from federation.model.placement import Binding
from federation.model.reservations import PromiseCertificate, Reservation, Share
from federation.model.workload import ReplicaRequirements
from federation.services.agent_values import AgentFacts
from federation.services.decision_ports import NewDecision
from federation.services.journal import (
    START,
    BindingChanged,
    ClusterShares,
    StoredReservations,
)
from federation.services.packed_traces import packed_preview, packed_traces, unpacked_trace
from federation.services.packed_traces import unpacked_preview as read_preview
from federation.services.values import ClusterPromise, ReportEvidence, Verdict
from federation.store.engine import create_engine
from federation.store.journal import change_of, packed_change
from federation.store.postgres import PostgresStore, PostgresTransaction
from federation.store.reservations import packed_reservations
from federation.store.reservations import reservations_of as read_all
from lab.benchmarks.measuring import chosen
from lab.decisions import make_decision
from lab.fleet import SMALL_SIZES, cluster_name
from lab.planes import durable_postgres
from lab.programs import own_folder
from lab.verdicts import Verdicts
from lab.workloads import workload

DECISIONS = chosen(500, quick=20)
ROUNDS = chosen(12, quick=2)
FLEET = 100
REQUIREMENTS = ReplicaRequirements(request=SMALL_SIZES[3])
NAMES = [cluster_name(number) for number in range(FLEET)]

FIGURES = Verdicts("bench_store")


class Stopwatch:
    """Milliseconds by the name of what was done: on the clock, and of this process alone."""

    def __init__(self) -> None:
        self.clock: Mapping[str, list[float]] = defaultdict(list)
        self.cpu: Mapping[str, list[float]] = defaultdict(list)

    @asynccontextmanager
    async def of(self, what: str) -> AsyncIterator[None]:
        clock, cpu = time.perf_counter(), time.process_time()
        yield
        self.clock[what].append(1e3 * (time.perf_counter() - clock))
        self.cpu[what].append(1e3 * (time.process_time() - cpu))

    def report(self, title: str) -> None:
        FIGURES.section(title)
        for what in self.clock:
            clock, cpu = statistics.median(self.clock[what]), statistics.median(self.cpu[what])
            FIGURES.row(what, clock, "ms", detail=f"{cpu:.2f} ms of our CPU")


def binding(name: str, targets: list[str]) -> Binding:
    runs = dict.fromkeys(targets, 2)
    size, replicas = REQUIREMENTS.request, 2 * len(targets)
    return workload(name, size, replicas, namespace="shop", labels={"app": name}, runs=runs)


def verdict(targets: list[str]) -> Verdict:
    decision = make_decision(*((each, 2 if each in targets else 0) for each in NAMES))
    return Verdict(
        decision=decision,
        evidence=ReportEvidence(sequences=(7,) * (FLEET + 1), age_seconds=(0.25,) * (FLEET + 1)),
        promises=tuple(
            ClusterPromise(
                cluster=each,
                certificate=PromiseCertificate.CAREFUL,
                report_epoch=1_700_000_000,
                report_sequence=7,
            )
            for each in targets
        ),
    )


def changed(given: Binding, decision: str, version: int) -> BindingChanged:
    share = Share(requirements=REQUIREMENTS, replicas=2)
    return BindingChanged(
        namespace=given.namespace,
        name=given.name,
        uid=given.uid,
        decision=decision,
        clusters={
            each.name: ClusterShares(version=version, shares=(share,)) for each in given.clusters
        },
    )


def reserved(given: Binding, decision: str) -> StoredReservations:
    return StoredReservations(
        namespace=given.namespace,
        name=given.name,
        uid=given.uid,
        reservations=tuple(
            Reservation(
                binding=given.key,
                cluster=each.name,
                requirements=REQUIREMENTS,
                replicas=2,
                decisions=(decision,),
            )
            for each in given.clusters
        ),
    )


async def batch(tx: PostgresTransaction, given: list[Binding], watch: Stopwatch) -> None:
    targets = [each.name for each in given[0].clusters]
    made = verdict(targets)
    (trace,) = packed_traces([made])
    ids = [str(uuid4()) for _ in given]
    keys = [(each.namespace, each.name) for each in given]
    async with watch.of("bindings.lock_all"):
        known = await tx.bindings.lock_all(keys)
    async with watch.of("journal.lock"):
        versions = await tx.journal.lock(targets)
    async with watch.of("decisions.add_all"):
        await tx.decisions.add_all(
            [
                NewDecision(
                    id=id_,
                    binding_id=known[key].id if known else None,
                    binding=replace(each, generation=2) if known else each,
                    verdict=made,
                    trace=trace,
                    placed=True,
                )
                for id_, key, each in zip(ids, keys, given, strict=True)
            ]
        )
    async with watch.of("reservations.put"):
        await tx.reservations.put(
            [reserved(each, id_) for id_, each in zip(ids, given, strict=True)], {}
        )
    async with watch.of("journal.advance"):
        await tx.journal.advance(
            {name: each.version + len(given) for name, each in versions.items()},
            dict.fromkeys(versions, 1),
        )
    async with watch.of("journal.append"):
        await tx.journal.append(
            [changed(each, id_, 1) for id_, each in zip(ids, given, strict=True)]
        )


async def measure(store: PostgresStore, targets: int, decisions: int) -> None:
    watch = Stopwatch()
    position = START
    for number in range(ROUNDS):
        # Every batch of new bindings is decided once more.
        given = [
            binding(f"{targets}-{decisions}-{number // 2}-{place}", NAMES[:targets])
            for place in range(decisions)
        ]
        async with watch.of("the transaction"), store.transaction() as tx:
            await batch(tx, given, watch)
        async with store.reading() as tx, watch.of("journal.read"):
            entries = await tx.journal.read(position, 10_000)
        position = entries[-1].position
    async with store.reading() as tx:
        async with watch.of("journal.read_ahead"):
            await tx.journal.read_ahead(position, 2000)
        async with watch.of("reservations.all"):
            held = await tx.reservations.all()
        async with watch.of("reservations.in_cluster"):
            await tx.reservations.in_clusters([NAMES[-1]])
    watch.report(f"{decisions} decisions of {FLEET} clusters, {targets} targets each")
    FIGURES.note(f"{len(held)} bindings hold something at the end")


def measure_bodies(targets: int) -> None:
    given = binding("bodies", NAMES[:targets])
    change, held = changed(given, str(uuid4()), 1), reserved(given, str(uuid4()))
    made = verdict(NAMES[:targets])
    kind, entry = packed_change(change)
    row = SimpleNamespace(
        namespace="", name="", uid="", body=packed_reservations(held), lease_expires_at=None
    )
    rows = [cast(Any, row)]
    ((trace, _),), (preview, _) = packed_traces([made]), packed_preview(given, made, wait=True)
    FIGURES.section(f"bodies of one decision of {FLEET} clusters, {targets} targets")
    for what, body, write, read in (
        ("journal", entry, lambda: packed_change(change), lambda: change_of(kind, entry, 1)),
        ("reservations", row.body, lambda: packed_reservations(held), lambda: read_all(rows)),
        ("trace", trace, lambda: packed_traces([made]), lambda: unpacked_trace(trace)),
        (
            "preview",
            preview,
            lambda: packed_preview(given, made, wait=True),
            lambda: read_preview(preview),
        ),
    ):
        FIGURES.row(what, len(body), "bytes")
        FIGURES.row(f"{what}, written, CPU", microseconds(write), "us")
        FIGURES.row(f"{what}, read, CPU", microseconds(read), "us")


def microseconds(work: Callable[[], object], times: int = 200) -> float:
    """The least of several rounds: what else runs only adds."""
    rounds = []
    for _ in range(ROUNDS):
        cpu = time.process_time()
        for _ in range(times):
            work()
        rounds.append(1e6 * (time.process_time() - cpu) / times)
    return min(rounds)


async def run(url: str) -> None:
    engine = create_engine(url)
    store = PostgresStore(engine)
    async with store.transaction() as tx:
        for name in NAMES:
            await tx.clusters.add(Cluster(name=name), AgentFacts())
    for targets, decisions in ((3, DECISIONS), (3, 20), (FLEET, 20)):
        await measure(store, targets, decisions)
    await engine.dispose()


def main() -> None:
    for targets in (3, FLEET):
        measure_bodies(targets)
    with own_folder("bench") as folder, durable_postgres(folder) as postgres:
        asyncio.run(run(postgres.url))


if __name__ == "__main__":
    main()
