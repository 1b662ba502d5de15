"""Many bindings and decisions in a statement: what the statements for one of them do, for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.errors import InvalidRequest
from federation.model.node_plans import NodePlan
from federation.model.placement import Binding, EvictionTask, Placement
from federation.model.reservations import PromiseCertificate
from federation.model.workload import ReplicaRequirements, TargetCluster
from federation.services.binding_ports import StoredBinding
from federation.services.values import ClusterPromise, ReportEvidence, Verdict
from federation.store.postgres import PostgresStore
from lab.decisions import make_decision
from tests.stores import new_decision, until_waiting

Key = tuple[str, str]


def binding(name: str, namespace: str = "shop") -> Binding:
    return Binding(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        labels={"app": name},
        replicas=3,
        requirements=ReplicaRequirements(request={"cpu": 250}),
        clusters=(TargetCluster(name="a", replicas=1),),
        placement=Placement(workload_affinity_key="app"),
        eviction_tasks=(EvictionTask(from_cluster="c", replicas=1),),
        last_scheduled_time=11.25,
        fresh=True,
    )


def key_of(given: Binding) -> Key:
    return given.namespace, given.name


def verdict(*shares: tuple[str, int]) -> Verdict:
    promises = tuple(
        ClusterPromise(
            cluster=name,
            certificate=PromiseCertificate.STRICT,
            report_epoch=2**40,
            report_sequence=7,
            note="no placer of ours",
        )
        for name, _ in shares
    )
    return Verdict(
        decision=make_decision(*shares),
        evidence=ReportEvidence(sequences=(7, 0), age_seconds=(0.25, 0.0)),
        promises=promises,
    )


async def add(store: PostgresStore, *bindings: Binding) -> dict[Key, StoredBinding]:
    async with store.transaction() as tx:
        settled = await tx.decisions.add_all([new_decision(each) for each in bindings])
        return dict(settled.bindings)


async def find(store: PostgresStore, *keys: Key) -> dict[Key, StoredBinding]:
    async with store.reading() as read:
        return dict(await read.bindings.find(keys))


@asynccontextmanager
async def statements(engine: AsyncEngine) -> AsyncIterator[list[str]]:
    """What is sent to the database meanwhile."""
    sent: list[str] = []

    def remember(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    event.listen(engine.sync_engine, "before_cursor_execute", remember)
    yield sent
    event.remove(engine.sync_engine, "before_cursor_execute", remember)


async def test_added_bindings_are_answered_as_they_are_stored(store: PostgresStore) -> None:
    given = [binding("b"), binding("a"), binding("a", namespace=""), binding("ümlaut")]
    added = await add(store, *given)
    assert added == {
        key_of(each): StoredBinding(
            id=added[key_of(each)].id,
            binding=replace(each, resource_version=2, fresh=False),
            decision_id=added[key_of(each)].decision_id,
        )
        for each in given
    }
    assert await find(store, *map(key_of, given), ("shop", "nobody")) == added
    assert await find(store) == {}


async def test_taken_names_are_left_out_and_stay(store: PostgresStore) -> None:
    first = await add(store, binding("a"))
    again = await add(store, replace(binding("a"), replicas=9), binding("b"))
    assert list(again) == [("shop", "b")]
    taken = new_decision(replace(binding("a"), replicas=9), verdict(("a", 9)), placed=True)
    async with store.transaction() as tx:
        assert (await tx.decisions.add_all([taken])).bindings == {}
        assert await tx.decisions.get(taken.id) is None
    assert await find(store, ("shop", "a"), ("shop", "b")) == first | again
    assert await add(store) == {}


async def test_new_and_known_bindings_are_settled_together(store: PostgresStore) -> None:
    known = await add(store, binding("b"), binding("c"))
    kept = replace(binding("b"), generation=2, labels={})
    moved = verdict(("b", 3))
    given = [
        new_decision(kept, verdict(("a", 3)), binding_id=known["shop", "b"].id),
        new_decision(binding("a"), moved, placed=True, observed_affinity="near"),
        new_decision(binding("c"), moved, binding_id=known["shop", "c"].id, placed=True),
        new_decision(binding("d"), moved),
    ]
    async with store.transaction() as tx:
        settled = await tx.decisions.add_all(given)
        assert (await tx.decisions.add_all([])).bindings == {}
    assert await find(store, *(("shop", name) for name in "abcd")) == settled.bindings
    for new in given:
        stored = settled.bindings[key_of(new.binding)]
        is_new = new.binding_id is None
        assert is_new or stored.id == new.binding_id
        assert (stored.decision_id, stored.observed_affinity) == (new.id, new.observed_affinity)
        assert stored.binding == replace(
            new.binding,
            clusters=moved.decision.clusters if new.placed else new.binding.clusters,
            resource_version=2 if is_new else 3,
            last_scheduled_time=settled.at if new.placed else 11.25,
            fresh=False,
        )


async def test_decisions_are_kept_under_their_ids_with_their_promises(
    store: PostgresStore,
) -> None:
    given = [new_decision(binding(name), verdict(("a", share))) for share, name in enumerate("abc")]
    async with store.transaction() as tx:
        settled = await tx.decisions.add_all(given)
    async with store.reading() as read:
        for new in given:
            stored = await read.decisions.get(new.id)
            assert stored is not None
            record = stored.unpacked()
            assert (record.id, record.created_at) == (new.id, settled.at)
            assert record.name == new.binding.name
            assert record.decision.to_plain() == new.verdict.decision.to_plain()
            assert record.evidence == new.verdict.evidence
            assert record.promises == new.verdict.promises


async def test_several_decisions_are_read_together_as_each_alone(store: PostgresStore) -> None:
    given = [new_decision(binding(name), verdict(("a", share))) for share, name in enumerate("abc")]
    plan = NodePlan(cluster="a", nodes=(), unplaced=1, message="full")
    async with store.transaction() as tx:
        await tx.decisions.add_all(given)
        await tx.decisions.put_node_plans({given[1].id: [plan]})
    ids = [new.id for new in given]
    async with store.reading() as read:
        found = await read.decisions.find([*ids[:2], "nonsense", ""])
        assert found.keys() == set(ids[:2])
        for decision_id, together in found.items():
            stored = await read.decisions.get(decision_id)
            assert stored is not None
            record, alone = together.unpacked(), stored.unpacked()
            assert record.decision.to_plain() == alone.decision.to_plain()
            assert replace(record, decision=alone.decision) == alone
        assert found[ids[1]].plans == (plan,)
        assert await read.decisions.find([]) == {}


async def test_what_cannot_be_stored_is_a_bad_request(store: PostgresStore) -> None:
    with pytest.raises(InvalidRequest):
        await add(store, binding("a"), replace(binding("b"), annotations={"note": "\0"}))
    assert await find(store, ("shop", "a")) == {}


async def test_locked_bindings_are_held_until_the_end(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    added = await add(store, binding("a"), binding("b"))

    async def lock() -> dict[Key, StoredBinding]:
        async with store.transaction() as tx:
            return dict(await tx.bindings.lock_all([("shop", "b"), ("shop", "nobody")]))

    async with store.transaction() as tx:
        assert await tx.bindings.lock_all([*added]) == added
        waiting = asyncio.create_task(lock())
        await until_waiting(engine)
        await tx.bindings.delete(added["shop", "b"].id)
    assert await waiting == {}


@pytest.mark.parametrize("count", [1, 50])
async def test_a_batch_is_one_statement_however_large(
    store: PostgresStore, engine: AsyncEngine, count: int
) -> None:
    given = [new_decision(binding(f"binding-{number:02}")) for number in range(count)]
    keys = [key_of(each.binding) for each in given]
    async with store.transaction() as tx, statements(engine) as sent:
        await tx.bindings.lock_all(keys)
        await tx.decisions.add_all(given)
    assert [statement.split()[0] for statement in sent] == ["SELECT", "WITH"]
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT count(*) FROM decision"))
    assert rows.scalar_one() == count
