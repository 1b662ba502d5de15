from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.node_plans import NodePlan, NodeShare
from federation.model.placement import (
    AffinityGroup,
    Binding,
    Certificate,
    ClusterAffinity,
    EvictionTask,
    Placement,
    ReplicaScheduling,
    SchedulingType,
    SpreadConstraint,
    SpreadField,
    StaticWeight,
)
from federation.model.waiting import WaitState
from federation.model.workload import (
    Component,
    NodeClaim,
    NodeSelectorTerm,
    ObjectReference,
    Operator,
    ReplicaRequirements,
    Requirement,
    TargetCluster,
    Toleration,
    TolerationOperator,
)
from federation.scheduler.decision import Decision, Outcome
from federation.services.binding_ports import BindingStanding, NewWait, Peers, StoredBinding
from federation.services.values import DecisionRecord, ReportEvidence, Verdict
from federation.store.postgres import PostgresStore
from lab.decisions import make_decision
from tests.stores import add_binding, keep_decision, new_decision

FULL = Binding(
    namespace="shop",
    name="web",
    uid="uid-1",
    labels={"app": "web"},
    annotations={"note": "ü\n"},
    resource=ObjectReference(api_version="apps/v1", kind="Deployment", name="web", uid="r"),
    replicas=7,
    requirements=ReplicaRequirements(
        request={"cpu": 250, "memory": 2**40},
        node_claim=NodeClaim(
            node_selector={"disk": "ssd"},
            required_terms=(
                NodeSelectorTerm(
                    match_expressions=(
                        Requirement(key="zone", operator=Operator.IN, values=("a", "b")),
                    )
                ),
            ),
            tolerations=(Toleration(operator=TolerationOperator.EXISTS, toleration_seconds=5),),
        ),
        namespace="shop",
    ),
    components=(Component(name="worker", replicas=2),),
    clusters=(TargetCluster(name="a", replicas=4), TargetCluster(name="b", replicas=0)),
    placement=Placement(
        affinity_groups=(
            AffinityGroup(
                name="near",
                affinity=ClusterAffinity(match_labels={"tier": "gold"}),
                overflow=(ClusterAffinity(cluster_names=("z",)),),
            ),
        ),
        spread_constraints=(SpreadConstraint(by=SpreadField.REGION, min_groups=2, max_groups=3),),
        replica_scheduling=ReplicaScheduling(
            type=SchedulingType.DIVIDED,
            static_weights=(StaticWeight(target=ClusterAffinity(cluster_names=("a",)), weight=2),),
        ),
    ),
    priority=3,
    reschedule_triggered_at=12.5,
    last_scheduled_time=11.25,
    eviction_tasks=(EvictionTask(from_cluster="c", replicas=1),),
    certificate=Certificate.STRICT,
    lease_seconds=60,
)


async def add(store: PostgresStore, binding: Binding) -> StoredBinding | None:
    async with store.transaction() as tx:
        return await add_binding(tx, binding)


async def add_decision(
    store: PostgresStore, binding_id: int, binding: Binding, decision: Decision
) -> DecisionRecord:
    evidence = ReportEvidence(sequences=(7, 0), age_seconds=(0.25, 0.0))
    async with store.transaction() as tx:
        return await keep_decision(
            tx, binding_id, binding, Verdict(decision=decision, evidence=evidence)
        )


async def test_a_binding_comes_back_as_it_was_put(store: PostgresStore) -> None:
    added = await add(store, FULL)
    assert added is not None
    assert added.binding == replace(FULL, resource_version=2)
    assert added.decision_id
    async with store.reading() as read:
        assert await read.bindings.get("shop", "web") == added
        assert await read.bindings.get("shop", "other") is None
        assert await read.bindings.get("", "web") is None


async def test_a_name_is_given_once(store: PostgresStore) -> None:
    added = await asyncio.gather(*(add(store, FULL) for _ in range(6)))
    assert sum(each is not None for each in added) == 1


async def test_pages_follow_namespace_and_name(store: PostgresStore) -> None:
    keys = [("", "x"), ("a", "z"), ("a-b", "a"), ("b", "B"), ("b", "a"), ("b", "a-1")]
    for namespace, name in keys:
        await add(store, Binding(namespace=namespace, name=name))
    async with store.reading() as read:
        everything = await read.bindings.page("", None, 100)
        assert [(each.namespace, each.name) for each in everything] == sorted(keys)
        rest = await read.bindings.page("", ("a-b", "a"), 2)
        assert [(each.namespace, each.name) for each in rest] == sorted(keys)[3:5]
        within = await read.bindings.page("b", ("b", "B"), 100)
        assert [each.name for each in within] == ["a", "a-1"]
        among = await read.bindings.page("", ("a", "a"), 100, among=("a*", "b"))
        assert [(each.namespace, each.name) for each in among] == sorted(keys)[1:]
        outside = await read.bindings.page("b", None, 100, among=("a*", "_", "%"))
        assert outside == []


async def test_pages_may_hold_only_names_with_a_part_and_those_that_stand_so(
    store: PostgresStore,
) -> None:
    here = (TargetCluster(name="member1", replicas=1),)
    for name, clusters in (("web_1", here), ("web-1", ()), ("a-web", here), ("api", ()), ("%", ())):
        await add(store, Binding(namespace="shop", name=name, clusters=clusters))
    async with store.transaction() as tx:
        for name in ("a-web", "api"):
            stored = await tx.bindings.get("shop", name)
            assert stored is not None
            wait = NewWait(
                binding_id=stored.id,
                namespace="shop",
                name=name,
                priority=0,
                remainder=1,
                short_of="cpu",
                state=WaitState.GATED,
                gate="an earlier batch",
            )
            await tx.waiting.gate(wait)

    async def names(part: str = "", standing: BindingStanding | None = None) -> list[str]:
        async with store.reading() as read:
            found = await read.bindings.page("shop", None, 100, part=part, standing=standing)
        return [each.name for each in found]

    assert await names("web") == ["a-web", "web-1", "web_1"]
    assert await names("_") == ["web_1"]
    assert await names("%") == ["%"]
    assert await names(standing=BindingStanding.PLACED) == ["a-web", "web_1"]
    assert await names(standing=BindingStanding.NOWHERE) == ["%", "api", "web-1"]
    assert await names(standing=BindingStanding.WAITING) == ["a-web", "api"]
    assert await names("web", BindingStanding.WAITING) == ["a-web"]


async def test_peers_are_the_placed_bindings_of_the_same_group(store: PostgresStore) -> None:
    def member(name: str, value: str, *, anti: bool = False, clusters: str = "") -> Binding:
        return Binding(
            namespace="shop",
            name=name,
            labels={"group": value},
            clusters=tuple(TargetCluster(name=each, replicas=1) for each in clusters),
            placement=Placement(
                workload_affinity_key="" if anti else "group",
                workload_anti_affinity_key="group" if anti else "",
            ),
        )

    for binding in (
        member("same", "g", clusters="ab"),
        member("unplaced", "g"),
        member("other-value", "h", clusters="c"),
        member("anti", "g", anti=True, clusters="d"),
        replace(member("elsewhere", "g", clusters="e"), namespace="mall"),
    ):
        await add(store, binding)
    async with store.reading() as read:
        asked = member("asked", "g")
        assert await read.bindings.peers(asked) == Peers(affinity=(frozenset("ab"),))
        assert await read.bindings.peers(replace(asked, name="same")) == Peers()
        assert await read.bindings.peers(replace(asked, labels={})) == Peers()
        anti = await read.bindings.peers(member("asked", "g", anti=True))
        assert anti == Peers(anti_affinity=(frozenset("d"),))


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_decision_comes_back_as_it_was_put(store: PostgresStore, outcome: Outcome) -> None:
    added = await add(store, FULL)
    assert added is not None
    decision = make_decision(("a", 4), ("b", 3), outcome=outcome)
    record = await add_decision(store, added.id, FULL, decision)
    async with store.reading() as read:
        stored = await read.decisions.get(record.id)
    assert stored is not None
    found = stored.unpacked()
    assert found.decision.to_plain() == decision.to_plain()
    assert replace(found, decision=decision) == record
    assert (found.binding_key, found.binding_generation) == ("shop/web", 1)


async def test_decisions_outlive_their_binding(store: PostgresStore, engine: AsyncEngine) -> None:
    added = await add(store, FULL)
    assert added is not None
    record = await add_decision(store, added.id, FULL, make_decision(("a", 7)))
    async with store.transaction() as tx:
        await tx.bindings.delete(added.id)
    async with store.reading() as read:
        assert await read.decisions.get(record.id) is not None
        assert await read.bindings.get("shop", "web") is None
    again = await add(store, FULL)
    assert again is not None
    assert again.id != added.id


async def test_a_later_node_plan_replaces_the_earlier_one(store: PostgresStore) -> None:
    added = await add(store, FULL)
    assert added is not None
    record = await add_decision(store, added.id, FULL, make_decision(("a", 4), ("b", 3)))
    late = NodePlan(cluster="b", unplaced=3, message="the agent did not answer")
    placed = NodePlan(
        cluster="a",
        nodes=(NodeShare(node="n1", component="worker", replicas=4, score=80),),
        strategy="MostAllocated",
    )
    answered = NodePlan(cluster="b", nodes=(NodeShare(node="n9", replicas=3),))
    for plans in ([late, placed], [answered]):
        async with store.transaction() as tx:
            # A decision that is not there any more harms no other.
            given = {str(uuid4()): [placed], record.id: plans}
            await tx.decisions.put_node_plans(given)
    async with store.reading() as read:
        found = await read.decisions.get(record.id)
    assert found is not None
    assert found.plans == found.unpacked().node_plans
    assert found.plans == (placed, answered)


async def test_traces_are_kept_small(store: PostgresStore, engine: AsyncEngine) -> None:
    added = await add(store, FULL)
    assert added is not None
    shares = [(f"cluster-{number:03}", number) for number in range(1, 100)]
    await add_decision(store, added.id, FULL, make_decision(*shares))
    async with engine.connect() as connection:
        size = await connection.execute(text("SELECT max(octet_length(trace)) FROM decision"))
        assert size.scalar_one() < 3000


async def test_who_holds_replicas_in_a_cluster_is_told_by_name(store: PostgresStore) -> None:
    for name in ("web", "api", "batch"):
        await add(store, replace(FULL, name=name))
    elsewhere = (TargetCluster(name="a-b", replicas=3), TargetCluster(name="a", replicas=0))
    await add(store, replace(FULL, name="elsewhere", clusters=elsewhere))
    async with store.reading() as read:
        assert await read.bindings.holding("a", 2) == [("shop", "api"), ("shop", "web")]
        assert await read.bindings.holding("b", 9) == []
        assert await read.bindings.holding("a-b", 9) == [("shop", "elsewhere")]
        names = await read.bindings.in_cluster("a")
        assert names == [("shop", name) for name in ("api", "batch", "elsewhere", "web")]


HOT_UPDATES = text("""
    SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'binding'
""")


@pytest.mark.parametrize("labels", [1, 400])
async def test_bindings_that_are_decided_again_are_updated_in_their_pages(
    store: PostgresStore, engine: AsyncEngine, labels: int
) -> None:
    """A large spec lies outside of its row: it is not written anew where it stays."""
    large = {f"label-{number}": f"{number * 7919 % 9973}" for number in range(labels)}
    bindings = [replace(FULL, name=f"web{number}", labels=large) for number in range(40)]
    async with store.transaction() as tx:
        await tx.decisions.add_all([new_decision(binding) for binding in bindings])
    updated, in_page = await hot_updates(engine)
    keys = [(binding.namespace, binding.name) for binding in bindings]
    # A page has space for a row or two; what is not used any more becomes space again.
    for start in range(10):
        async with store.transaction() as tx:
            stored = await tx.bindings.lock_all(keys[start::10])
            clusters = (TargetCluster(name="z", replicas=1),)
            again = [
                new_decision(
                    replace(one.binding, clusters=clusters), binding_id=one.id, placed=True
                )
                for one in stored.values()
            ]
            await tx.decisions.add_all(again)
    updated_later, in_page_later = await hot_updates(engine)
    assert updated_later - updated == 40
    assert in_page_later - in_page >= 30


async def hot_updates(engine: AsyncEngine) -> tuple[int, int]:
    """Return how often bindings were updated, and how often in their page."""
    async with engine.connect() as connection:
        await connection.execute(text("SELECT pg_stat_force_next_flush()"))
        await connection.commit()
        updated, in_page = (await connection.execute(HOT_UPDATES)).one()
        return updated, in_page
