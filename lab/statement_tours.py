"""Every statement of the store once, on a filled database, each with the plan that the server has.

Must not leave anything behind: all of it is rolled back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.failover.breaker import Breaker
from federation.history.packed_inputs import SharedBodies
from federation.model.access import Role, Scope
from federation.model.audit import AuditRecord
from federation.model.cluster import Cluster
from federation.model.namespace_quotas import NamespaceQuota
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding, EvictionTask, Gang, Placement
from federation.model.shapes import request_shape
from federation.model.waiting import WaitState
from federation.plans.plan import PlanState, StepState
from federation.scheduler.decision import Outcome
from federation.services.agent_values import AgentFacts
from federation.services.binding_ports import BindingStanding, GangWait, NewWait, QueuePlace
from federation.services.decision_ports import DecisionFilter, NewDecision, NewPreview
from federation.services.journal import Position
from federation.services.journal_ports import Finished, Replica, StoredPresence
from federation.services.member_ports import NamedReport
from federation.services.packed_traces import packed_preview, packed_traces
from federation.services.ports import AuditFilter, NewToken, TokenUse
from federation.services.scheduling.decision_ids import uuid7
from federation.services.values import PrincipalKind, ReportEvidence, Verdict
from federation.store.postgres import PostgresStore, PostgresTransaction
from lab.decisions import make_decision
from lab.filled_databases import SMALL, binding_name, cluster_name
from lab.lock_orders import name_of
from lab.services import make_report
from lab.stored_values import ADVANCED

NOW: Final = datetime.now(UTC).timestamp()
HASH: Final = hashlib.sha256(b"1").digest()
DAY_SECONDS: Final = 86_400.0
# Bindings of a database of the size ``SMALL``: the last ones are placed, the first ones wait.
LAST: Final = SMALL.bindings
PLACED, WAITING = binding_name(LAST), binding_name(2)
NEW: Final = Binding(name="new", namespace="space000", replicas=2, placement=Placement())
VERDICT: Final = Verdict(decision=make_decision(("a", 2)), evidence=ReportEvidence())
# Statements whose plans say what was run of them: partitions are left out only then.
RUN: Final = frozenset({"decisions.find", "decisions.put_node_plans"})
Tour = Callable[[PostgresTransaction], Coroutine[Any, Any, None]]


class _RolledBackError(Exception):
    """Ends a tour; nothing of it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A statement by its name, and the server's plan of it, as EXPLAIN prints it as JSON."""

    name: str
    statement: str
    plan: Mapping[str, Any]

    def nodes(self) -> Iterator[tuple[Mapping[str, Any], bool]]:
        """Yield the nodes of the plan, each with whether a limit stands above it."""
        yield from _nodes(self.plan, is_limited=False)


def _nodes(
    node: Mapping[str, Any], *, is_limited: bool
) -> Iterator[tuple[Mapping[str, Any], bool]]:
    yield node, is_limited
    # A sort reads all rows before it returns the first one.
    is_limited = node["Node Type"] == "Limit" or (is_limited and node["Node Type"] != "Sort")
    for below in node.get("Plans", ()):
        yield from _nodes(below, is_limited=is_limited)


async def planned_statements(engine: AsyncEngine) -> list[Planned]:
    """Return the plans of all statements of all tours."""
    captured: list[tuple[str, str, Any]] = []

    def capture(_: Connection, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        captured.append((name_of(statement) or "", statement, parameters))

    store = PostgresStore(engine)
    planned: list[Planned] = []
    for tour in TOURS:
        captured.clear()
        event.listen(engine.sync_engine, "before_cursor_execute", capture)
        async with _rolled_back(store) as tx:
            await tour(tx)
        event.remove(engine.sync_engine, "before_cursor_execute", capture)
        planned += [
            Planned(
                name=name,
                statement=statement,
                plan=await _plan(engine, statement, values, is_run=name in RUN),
            )
            for name, statement, values in captured
            if name and statement.split()[0] in {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}
        ]
    return planned


@asynccontextmanager
async def _rolled_back(store: PostgresStore) -> AsyncIterator[PostgresTransaction]:
    async with AsyncExitStack() as stack:
        stack.enter_context(suppress(_RolledBackError))
        tx = await stack.enter_async_context(store.transaction())
        yield tx
        _roll_back()


def _roll_back() -> None:
    raise _RolledBackError


async def _plan(
    engine: AsyncEngine, statement: str, values: Any, *, is_run: bool
) -> Mapping[str, Any]:
    options = "ANALYZE, FORMAT JSON" if is_run else "FORMAT JSON"
    async with engine.connect() as connection:
        # One plan for all values, as sessions that run a statement often have it.
        await connection.execute(text("SET LOCAL plan_cache_mode = force_generic_plan"))
        rows = await connection.exec_driver_sql(f"EXPLAIN ({options}) {statement}", values)
        answer = rows.scalar_one()
        await connection.rollback()
    explained: Mapping[str, Any] = (json.loads(answer) if isinstance(answer, str) else answer)[0]
    plan: Mapping[str, Any] = explained["Plan"]
    return plan


async def _bindings(tx: PostgresTransaction) -> None:
    keys = [binding_name(LAST - number) for number in range(20)]
    await tx.bindings.lock_groups([replace(NEW, gang=Gang(name="gang1", size=5))])
    stored = (await tx.bindings.lock_all(keys))[PLACED]
    await tx.bindings.find(keys)
    await tx.bindings.to_decide(keys)
    await tx.bindings.preemptible(keys, 5, 100)
    grouped = replace(
        NEW,
        labels={"app": "1"},
        placement=Placement(workload_affinity_key="app", workload_anti_affinity_key="app"),
    )
    await tx.bindings.peers(grouped)
    await tx.bindings.of_gang("space000", "gang1")
    await tx.bindings.page("space000", None, 100)
    await tx.bindings.page("", PLACED, 100, standing=BindingStanding.PLACED)
    await tx.bindings.names("", PLACED, 100)
    await tx.bindings.waiting(0, 100)
    await tx.bindings.earmarked(100, 100)
    await tx.bindings.first_waiting(["default-scheduler"])
    await tx.bindings.holding(cluster_name(5), 10)
    await tx.bindings.in_cluster(cluster_name(5))
    await tx.bindings.touch(stored.id)
    await tx.bindings.delete(stored.id)


async def _quotas(tx: PostgresTransaction) -> None:
    await tx.quotas.find(["space000"])
    await tx.quotas.find(["space000"], lock=True)
    await tx.quotas.count()
    await tx.quotas.page("", 10)
    await tx.quotas.namespaces()
    await tx.quotas.version()
    await tx.quotas.used(["space000", "space001"])
    await tx.quotas.held([PLACED])
    await tx.quotas.put(NamespaceQuota(namespace="space000", limits={"": 1}))
    await tx.quotas.put(NamespaceQuota(namespace="space000", limits={}))


async def _clusters(tx: PostgresTransaction) -> None:
    stored = await tx.clusters.lock(cluster_name(1))
    assert stored is not None
    await tx.clusters.all()
    await tx.clusters.find([cluster_name(1)])
    await tx.clusters.add(Cluster(name="new", uid="uid"), AgentFacts())
    await tx.clusters.put(stored.id, stored.cluster)
    await tx.clusters.put_facts(stored.id, AgentFacts())
    await tx.clusters.put_uid(stored.id, "uid")
    await tx.clusters.delete(stored.id)


async def _reports(tx: PostgresTransaction) -> None:
    report = NamedReport(cluster=cluster_name(1), cluster_uid="", report=make_report(9))
    await tx.reports.advance([report])
    await tx.reports.get([cluster_name(1)])


async def _credentials(tx: PostgresTransaction) -> None:
    stored = (await tx.clusters.find([cluster_name(1)]))[cluster_name(1)]
    token, name = {"token_id": "new", "secret_hash": HASH}, cluster_name(1)
    await tx.credentials.add_join_token(**token, cluster=name, ttl_seconds=60)
    await tx.credentials.spend_join_token("new", name)
    await tx.credentials.join_tokens("", 10)
    await tx.credentials.cancel_join_token(f"join{name}1")
    await tx.credentials.cancel_join_tokens(name)
    await tx.credentials.add(
        credential_id="new",
        secret_hash=HASH,
        kind=PrincipalKind.AGENT,
        cluster_id=stored.id,
        ttl_seconds=60,
    )
    await tx.credentials.find("new")
    await tx.credentials.settle(stored.id, "new")
    await tx.credentials.ages(["new"])
    await tx.credentials.keep_newest(stored.id, 2)
    await tx.credentials.keep_only(stored.id, "new")
    await tx.credentials.revoke_all(name)
    await tx.credentials.lock_admin()
    await tx.credentials.revoke_admins()
    await tx.credentials.discard(["new"])
    await tx.credentials.prune(100)
    await tx.credentials.prune_join_tokens(100)


async def _tokens(tx: PostgresTransaction) -> None:
    token = NewToken(
        name="n",
        role=Role.VIEWER,
        scope=Scope(),
        networks=(),
        ttl_seconds=60,
        created_by="someone",
    )
    await tx.tokens.add("new", HASH, token)
    await tx.tokens.count()
    await tx.tokens.find("new")
    await tx.tokens.page("", 10)
    await tx.tokens.unrevoked(["new"])
    await tx.tokens.put_uses({"new": TokenUse(NOW, "10.0.0.1")})
    await tx.tokens.revoke("new")
    await tx.tokens.prune(100)


async def _decisions(tx: PostgresTransaction) -> None:
    stored = await tx.bindings.get(*PLACED)
    assert stored is not None
    await tx.bodies.put([SharedBodies(name=HASH, bodies={HASH: b""})])
    (trace,) = packed_traces([VERDICT])
    decided = NewDecision(
        id=str(uuid7(NOW, 1)),
        binding_id=stored.id,
        binding=stored.binding,
        verdict=VERDICT,
        trace=trace,
        placed=True,
    )
    await tx.decisions.add_all([decided])
    await tx.decisions.find([decided.id, stored.decision_id])
    await tx.decisions.shared([HASH])
    anywhere, after = DecisionFilter(), (round(NOW * 1e6), str(uuid4()))
    await tx.decisions.page(anywhere, after, 100)
    await tx.decisions.page(replace(anywhere, namespace="space000"), after, 100)
    await tx.decisions.page(replace(anywhere, outcomes=frozenset({Outcome.PARTIAL})), None, 9)
    await tx.decisions.recorded_after(
        replace(anywhere, since=NOW - DAY_SECONDS), (round((NOW - 60) * 1e6), str(uuid4())), 1
    )
    await tx.decisions.deletions_between(round((NOW - 60) * 1e6), round(NOW * 1e6))
    await tx.decisions.put_node_plans({decided.id: [NodePlan(cluster="a")]})


async def _previews(tx: PostgresTransaction) -> None:
    body = packed_preview(NEW, VERDICT, wait=False)
    await tx.previews.add(NewPreview(id="new", secret_hash=HASH, base=None, body=body), 60)
    await tx.previews.lock("new")
    await tx.previews.settle("new", str(uuid4()))


async def _journal(tx: PostgresTransaction) -> None:
    await tx.journal.lock([cluster_name(number) for number in range(3)])
    await tx.journal.read(Position(200), 1000)
    await tx.journal.read_ahead(Position(200), 1000)
    await tx.journal.oldest()
    await tx.journal.holder_of(Position(200))
    await tx.journal.advance({cluster_name(0): 7})
    await tx.journal.append([ADVANCED])
    await tx.journal.append([ADVANCED], {cluster_name(0): 8})
    await tx.journal.prune(3600.0, 1000)


async def _reservations(tx: PostgresTransaction) -> None:
    await tx.reservations.in_clusters([cluster_name(3)])
    row = await tx.reservations.of(*PLACED)
    assert row is not None
    await tx.reservations.holdings([PLACED])
    await tx.reservations.put([row], {})
    key = "/".join(PLACED)
    shape = request_shape({})
    finished = Finished(binding=key, cluster=cluster_name(3), component="", shape=shape, finished=1)
    await tx.reservations.finish([finished])
    await tx.reservations.renew(key, 60)
    await tx.reservations.expired(100)
    await tx.reservations.has_expired(*PLACED)
    await tx.reservations.put([replace(row, reservations=())], {})
    await tx.reservations.leave(cluster_name(3))


async def _reading_all(tx: PostgresTransaction) -> None:
    await tx.reservations.all()


async def _queue(tx: PostgresTransaction) -> None:
    stored = await tx.bindings.get(*WAITING)
    assert stored is not None
    wait = NewWait(
        binding_id=stored.id,
        namespace=WAITING[0],
        name=WAITING[1],
        priority=3,
        remainder=2,
        short_of="cpu",
    )
    await tx.waiting.put([wait])
    await tx.waiting.gate(replace(wait, gate="suspended", state=WaitState.GATED))
    await tx.waiting.open(stored.id)
    await tx.waiting.put_together(
        GangWait(binding_ids=[stored.id], gang="gang", entry=WAITING[1], priority=3)
    )
    ids = {stored.id: "cpu"}
    await tx.waiting.note(ids, {stored.id: 1.0}, ids, [stored.id], {stored.id: NOW})
    await tx.waiting.gangs("space000", None, 100)
    await tx.waiting.tallies()
    place = QueuePlace(priority=5, since=NOW - 1000, namespace="space000", name="web")
    await tx.waiting.page("", None, None, 100)
    await tx.waiting.page("", None, place, 100)
    await tx.waiting.page("space000", None, place, 100)
    await tx.waiting.position(place)
    await tx.waiting.remove([stored.id])


async def _preemptions(tx: PostgresTransaction) -> None:
    await tx.preemptions.add({"space000": 1})


async def _failover(tx: PostgresTransaction) -> None:
    await tx.failover.get()
    await tx.failover.lock()
    await tx.failover.put(Breaker())
    stored = await tx.bindings.get(*PLACED)
    assert stored is not None
    await tx.failover.in_clusters([cluster_name(3)], PLACED, 100)
    await tx.failover.evicted(None, 100)
    await tx.failover.evictions()
    task = EvictionTask(
        from_cluster=cluster_name(3), replicas=1, reason="", producer="", created_at=0.0
    )
    await tx.failover.put_evictions({stored.id: [task]})
    await tx.failover.leave(cluster_name(3), [stored.id])
    await tx.failover.replicas()


async def _plans(tx: PostgresTransaction) -> None:
    plan = await tx.plans.get(1)
    assert plan is not None
    steps = await tx.plans.steps(1, limit=100)
    await tx.plans.lock_running()
    await tx.plans.lock(1)
    await tx.plans.put(replace(plan, state=PlanState.STOPPED), steps)
    await tx.plans.add(plan, steps)
    await tx.plans.active()
    await tx.plans.page(None, 10)
    await tx.plans.page(100, 10)
    await tx.plans.steps(1, states=[StepState.DONE], after=1, limit=10)
    await tx.plans.steps_since(1, 1, 10)
    await tx.plans.away(PLACED, 100)
    await tx.plans.prune(DAY_SECONDS, 100)


async def _planes(tx: PostgresTransaction) -> None:
    heard = StoredPresence(cluster=cluster_name(1), replica="one", epoch=1, heard_at=NOW)
    await tx.duties.hold(["duty1", "new"], "one", 10.0)
    await tx.duties.check("duty1", 1)
    await tx.duties.record_failure("duty1", 1, "why")
    await tx.duties.failures()
    await tx.duties.leave("duty1", "one")
    await tx.presences.put([heard])
    await tx.presences.leave([cluster_name(1)], "one")
    await tx.presences.all(NOW - 60)
    await tx.presences.unheard_seconds()
    await tx.replicas.put(Replica(id="one", endpoint=""))
    await tx.replicas.all(10.0)
    await tx.replicas.remove("one")


async def _requests(tx: PostgresTransaction) -> None:
    await tx.requests.add("caller1", "new", HASH, b"")
    await tx.requests.get("caller1", "new")
    await tx.requests.prune(100)


async def _audit(tx: PostgresTransaction) -> None:
    await tx.audit.add([AuditRecord(actor="someone", method="Scheduling/Schedule")])
    await tx.audit.page(AuditFilter(), None, 100)
    await tx.audit.page(AuditFilter(since=NOW - 60), (round(NOW * 1e6), 5), 100)
    await tx.audit.head()
    await tx.audit.chain(100, 100)
    await tx.audit.seal(100)
    await tx.audit.chain((await tx.audit.head()).seal - 1, 100)
    # Today's partition has records that are not sealed, and stays.
    await tx.audit.prune(-2 * DAY_SECONDS)


async def _kept_reports(tx: PostgresTransaction) -> None:
    now = await tx.kept_reports.now()
    await tx.kept_reports.add(now.day, b"", {HASH: b""})
    await tx.kept_reports.rounds(now.at - 60_000_000, now.at)
    await tx.kept_reports.size([HASH], [now.day])
    await tx.kept_reports.pictures([HASH], [now.day])
    await tx.kept_reports.prune(30 * DAY_SECONDS)


async def _keeping(tx: PostgresTransaction) -> None:
    await tx.decisions.prune(DAY_SECONDS, 100)


async def _pruning(tx: PostgresTransaction) -> None:
    await tx.decisions.prune(40 * DAY_SECONDS, 100)
    await tx.decisions.prune_shared(60.0, 100)
    await tx.decisions.prune_deletions(DAY_SECONDS, 100)


async def _history(tx: PostgresTransaction) -> None:
    await tx.histories.ensure()
    await tx.histories.check()
    await tx.histories.get()
    await tx.histories.lock()
    await tx.histories.settle()
    bookmark = await tx.histories.bookmark(Position(200))
    assert bookmark is not None
    await tx.histories.holds(bookmark)


TOURS: Final[tuple[Tour, ...]] = (
    _bindings,
    _quotas,
    _clusters,
    _reports,
    _credentials,
    _tokens,
    _decisions,
    _previews,
    _journal,
    _reservations,
    _reading_all,
    _queue,
    _preemptions,
    _failover,
    _plans,
    _planes,
    _requests,
    _audit,
    _kept_reports,
    _keeping,
    _pruning,
    _history,
)
