from __future__ import annotations

from dataclasses import replace

from federation.model.cluster import Cluster, Taint, TaintEffect
from federation.model.grades import DEFAULT_MODEL, Grade, GradeRange, ResourceModel
from federation.model.resources import CPU, MAX_AMOUNT
from federation.services.agent_values import AgentFacts, Placer
from federation.services.journal import LedgerVersion
from federation.services.member_ports import StoredCluster
from federation.store.postgres import PostgresStore

MODEL = ResourceModel(
    grades=(
        Grade(grade=0, ranges=(GradeRange(name=CPU, min=0, max=4000),)),
        Grade(grade=1, ranges=(GradeRange(name=CPU, min=4000, max=MAX_AMOUNT),)),
    )
)
FULL = Cluster(
    name="member1",
    uid="uid-1",
    labels={"tier": "gold", "ümlaut": "✓"},
    annotations={"note": "a\nb"},
    provider="example",
    region="north",
    zones=("north-1", "north-2"),
    taints=(Taint(key="k", value="v", effect=TaintEffect.NO_EXECUTE, time_added=1.5),),
    model=MODEL,
    modeling_enabled=False,
)
FACTS = AgentFacts(
    agent_version="0.1.0",
    kubernetes_version="v1.33.1",
    placer=Placer.EXTENDER,
    api_enablements=frozenset({("apps/v1", "Deployment"), ("v1", "Pod")}),
)


async def add(store: PostgresStore, cluster: Cluster, facts: AgentFacts) -> StoredCluster | None:
    async with store.transaction() as tx:
        return await tx.clusters.add(cluster, facts)


async def test_a_cluster_comes_back_as_it_was_put(store: PostgresStore) -> None:
    added = await add(store, FULL, FACTS)
    async with store.reading() as read:
        (found,) = await read.clusters.all()
    assert found == added
    assert (found.facts, found.ledger_version) == (FACTS, 1)
    assert found.cluster == replace(
        FULL, api_enablements=FACTS.api_enablements, generation=1, resource_version=1
    )


async def test_the_default_model_is_one_object_for_all(store: PostgresStore) -> None:
    await add(store, Cluster(name="a"), FACTS)
    async with store.reading() as read:
        (found,) = await read.clusters.all()
    assert found.cluster.model is DEFAULT_MODEL


async def test_facts_leave_the_spec_alone(store: PostgresStore) -> None:
    added = await add(store, FULL, AgentFacts())
    assert added is not None
    async with store.transaction() as tx:
        await tx.clusters.put_facts(added.id, FACTS)
    async with store.transaction() as tx:
        stored = await tx.clusters.lock("member1")
    assert stored is not None
    assert stored.facts == FACTS
    assert stored.cluster == replace(added.cluster, api_enablements=FACTS.api_enablements)


async def test_clusters_come_in_the_order_of_their_names_bytes(store: PostgresStore) -> None:
    for name in ("b", "a-2", "a", "B", "a10"):
        await add(store, Cluster(name=name), FACTS)
    async with store.reading() as read:
        names = [each.cluster.name for each in await read.clusters.all()]
    assert names == sorted(names)


async def test_clusters_are_found_by_name_without_their_reports(store: PostgresStore) -> None:
    added = await add(store, FULL, FACTS)
    await add(store, Cluster(name="a"), FACTS)
    async with store.reading() as read:
        assert await read.clusters.find(["member1", "nobody"]) == {"member1": added}
        assert await read.clusters.find([]) == {}


async def test_a_row_that_becomes_another_cluster_keeps_its_spec_alone(
    store: PostgresStore,
) -> None:
    added = await add(store, FULL, FACTS)
    assert added is not None
    async with store.transaction() as tx:
        taken_over = await tx.clusters.put_uid(added.id, "uid-2", 77)
        # What is promised and reported there starts anew, in the same ledger.
        assert await tx.journal.lock(["member1"]) == {"member1": LedgerVersion(2, 77)}
        locked = await tx.clusters.lock("member1")
        assert locked is not None
        assert locked.ledger_version == 2
    async with store.reading() as read:
        (found,) = await read.clusters.all()
    assert found.cluster == taken_over
    assert taken_over == replace(FULL, uid="uid-2", generation=1, resource_version=2)
    assert (found.facts, found.report, found.id) == (AgentFacts(), None, added.id)
    assert found.ledger_version == 2
