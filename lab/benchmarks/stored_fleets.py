"""A fleet that a control plane finds in its database: clusters, reports, bindings with promises.

Must not know what is measured.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar
from uuid import uuid4

from federation.model.cluster import Cluster
from federation.model.echoes import Owner
from federation.model.placement import Binding
from federation.model.reservations import Reservation
from federation.model.shapes import Echo
from federation.model.workload import ObjectReference
from federation.services.agent_values import AgentFacts
from federation.services.decision_ports import NewDecision
from federation.services.journal import StoredReservations
from federation.services.member_ports import NamedReport
from federation.services.packed_traces import packed_traces
from federation.services.ports import Transaction
from federation.services.values import ReportEvidence, Verdict
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore
from lab.benchmarks.members import PLAN
from lab.decisions import make_decision
from lab.fleet import cluster_name, report_of, varied_size
from lab.workloads import workload

MAX_TARGETS = 5
SIZES = 500
# Of every so many shares one is not seen by any agent yet.
OPEN_EVERY = 20
AT_ONCE = 1000

T = TypeVar("T")


def bindings(count: int, clusters: int) -> Iterator[Binding]:
    """Each in a few clusters, of one of many sizes."""
    choices = random.Random(1)
    for number in range(count):
        name = f"workload-{number:06}"
        targets = choices.sample(range(clusters), min(choices.randint(1, MAX_TARGETS), clusters))
        yield workload(
            name,
            varied_size(choices.randrange(SIZES)),
            2 * len(targets),
            namespace=f"team-{number % 100:02}",
            uid=str(uuid4()),
            resource=ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
            runs={cluster_name(each): 2 for each in sorted(targets)},
        )


def reserved(binding: Binding, decision: str) -> StoredReservations:
    return StoredReservations(
        namespace=binding.namespace,
        name=binding.name,
        uid=binding.uid,
        owner=Owner("apps/v1", "Deployment", binding.namespace, binding.name),
        reservations=tuple(
            Reservation(
                binding=binding.key,
                cluster=each.name,
                requirements=binding.requirements,
                replicas=each.replicas,
                decisions=(decision,),
                interest_version=1,
                grown_version=1,
            )
            for each in binding.clusters
        ),
    )


def verdict(binding: Binding) -> Verdict:
    decision = make_decision(*((each.name, each.replicas) for each in binding.clusters))
    size = len(binding.clusters)
    return Verdict(
        decision=decision,
        evidence=ReportEvidence(sequences=(1,) * size, age_seconds=(0.25,) * size),
    )


async def put_bindings(tx: Transaction, given: Sequence[Binding]) -> list[StoredReservations]:
    decided = [(str(uuid4()), binding) for binding in given]
    await tx.decisions.add_all(
        [
            NewDecision(
                id=each,
                binding_id=None,
                binding=binding,
                verdict=(made := verdict(binding)),
                trace=packed_traces([made])[0],
                placed=True,
            )
            for each, binding in decided
        ]
    )
    rows = [reserved(binding, each) for each, binding in decided]
    await tx.reservations.put(rows, {})
    return rows


async def fill(url: str, clusters: int, count: int) -> None:
    """Store the clusters, their reports, and bindings with reservations in a new database."""
    engine = create_engine(url)
    store = PostgresStore(engine)
    for numbers in parts(range(clusters)):
        async with store.transaction() as tx:
            for number in numbers:
                name = cluster_name(number)
                await tx.clusters.add(Cluster(name=name, uid=f"uid-{name}"), AgentFacts())
    echoes: dict[str, list[Echo]] = defaultdict(list)
    shares = 0
    for some in parts(list(bindings(count, clusters))):
        async with store.transaction() as tx:
            rows = await put_bindings(tx, some)
        for each in (held for row in rows for held in row.reservations):
            shares += 1
            if shares % OPEN_EVERY:
                echo = Echo(binding=each.binding, shape=each.shape, bound=each.replicas)
                echoes[each.cluster].append(echo)
    for numbers in parts(range(clusters)):
        async with store.transaction() as tx:
            await tx.reports.advance([reported(number, echoes) for number in numbers])
    await engine.dispose()


def reported(number: int, echoes: Mapping[str, Sequence[Echo]]) -> NamedReport:
    name = cluster_name(number)
    report = report_of(number, plan=PLAN, interest_version=1, echoes=echoes.get(name, ()))
    return NamedReport(cluster=name, cluster_uid=f"uid-{name}", report=report)


def parts(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), AT_ONCE):
        yield items[start : start + AT_ONCE]
