"""Rows of older commits in the tables, and rows that only a newer release can read."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.history.bodies import UnknownKey
from federation.model.placement import (
    EVICTION_PRODUCER,
    AffinityGroup,
    Binding,
    ClusterAffinity,
    EvictionTask,
    Placement,
)
from federation.model.waiting import WaitState
from federation.model.workload import TargetCluster
from federation.services.binding_ports import NewWait
from federation.store.postgres import PostgresStore
from federation.store.readable_rows import UNREAD
from tests.rows.filled_values import filled
from tests.stores import add_binding, put_binding

ROWS = Path(__file__).parents[2] / "rows" / "rows_of_before.json"
OLDEST: dict[str, Any] = json.loads(ROWS.read_text(encoding="utf-8"))["fe7cb724"]["documents"]
PUT_SPEC = text(
    "UPDATE binding SET spec = CAST(:spec AS jsonb), clusters = CAST(:clusters AS jsonb)"
)
ADD_KEY = text("""
    UPDATE binding SET spec = jsonb_set(spec, '{placement,colour}', '"red"')
    WHERE name = :name
""")
# All that SQL finds bindings by: two groups, of which the second is observed, and an eviction.
WEB = Binding(
    namespace="shop",
    name="web",
    replicas=2,
    clusters=(TargetCluster(name="a", replicas=2),),
    placement=Placement(
        affinity_groups=(
            AffinityGroup(name="first", affinity=ClusterAffinity()),
            AffinityGroup(name="second", affinity=ClusterAffinity()),
        )
    ),
    eviction_tasks=(EvictionTask(from_cluster="b", producer=EVICTION_PRODUCER),),
)
COUNT = 100
NAMES = [f"web-{number:03}" for number in range(COUNT)]
UNREADABLE = NAMES[41]


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Forget what was logged, so that each test sees its own errors."""
    UNREAD.over()
    yield
    UNREAD.over()


async def test_a_binding_of_the_oldest_commit_is_found_and_read(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    whole = filled(Binding, "binding")
    async with store.transaction() as tx:
        stored = await add_binding(tx, Binding(namespace="shop", name="web", uid="u"))
        assert stored is not None
    async with engine.begin() as connection:
        documents = {"spec": OLDEST["binding.spec"], "clusters": OLDEST["binding.clusters"]}
        await connection.execute(
            PUT_SPEC, {name: json.dumps(document) for name, document in documents.items()}
        )
    async with store.reading() as read:
        binding = await read.bindings.get("shop", "web")
        gang = await read.bindings.of_gang("shop", whole.gang.name)
        evicted = await read.failover.evicted(None, 10)
        victims = await read.bindings.preemptible([("shop", "web")], whole.priority + 1, 10)
    assert binding is not None
    assert binding.binding == replace(
        whole,
        namespace="shop",
        name="web",
        uid="u",
        generation=1,
        resource_version=stored.binding.resource_version,
        fresh=False,
        last_scheduled_time=None,
        observed_affinity="",
        is_unsettled=False,
        clusters_are_stated=False,
    )
    assert gang == [binding]
    # Its eviction is of another producer, and it may not be preempted.
    assert (evicted, victims) == ([], {})


async def add_many(store: PostgresStore, engine: AsyncEngine) -> None:
    """Add bindings that wait; a newer release writes one of them once more."""
    async with store.transaction() as tx:
        waits = []
        for name in NAMES:
            stored, _ = await put_binding(tx, None, replace(WEB, name=name), group="second")
            assert stored is not None
            waits.append(
                NewWait(
                    binding_id=stored.id,
                    namespace="shop",
                    name=name,
                    priority=0,
                    state=WaitState.UNSCHEDULABLE,
                    remainder=1,
                    short_of="",
                )
            )
        await tx.waiting.put(waits)
        await tx.waiting.note({}, {}, {}, [wait.binding_id for wait in waits])
    async with engine.begin() as connection:
        await connection.execute(ADD_KEY, {"name": UNREADABLE})


async def test_one_unreadable_binding_is_named_and_hides_no_other(
    store: PostgresStore, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    await add_many(store, engine)
    keys = [("shop", name) for name in NAMES]
    readable = [name for name in NAMES if name != UNREADABLE]
    message = f"binding 'shop/{UNREADABLE}' with the key 'placement.colour'"
    async with store.reading() as read:
        with pytest.raises(UnknownKey, match=message) as error:
            await read.bindings.page("", None, COUNT)
        assert error.value.reason == "SCHEMA_AHEAD"
        with pytest.raises(UnknownKey, match=message):
            await read.bindings.find(keys)
        with pytest.raises(UnknownKey, match=message):
            await read.bindings.lock_all(keys)
        assert await read.bindings.get("shop", NAMES[40]) is not None

        unread = set[tuple[str, str]]()
        stored = await read.bindings.find(keys, unread)
        assert stored.keys() == {("shop", name) for name in readable}
        assert unread == {("shop", UNREADABLE)}
        to_decide = await read.bindings.to_decide(keys)
        assert to_decide.known.keys() == {("shop", name) for name in readable}
        assert message in str(to_decide.unread["shop", UNREADABLE])

        for page in (
            await read.failover.in_clusters(["a"], None, COUNT),
            await read.failover.evicted(None, COUNT),
            await read.plans.away(None, COUNT),
            [one.binding for one in await read.bindings.waiting(0, COUNT)],
            [one.binding for one in await read.bindings.earmarked(COUNT)],
        ):
            assert [binding.name for binding in page] == readable
        victims = await read.bindings.preemptible(keys, 1, COUNT)
        assert [name for _, name in victims] == readable
    (logged,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert message in str(logged.__dict__)


@pytest.mark.parametrize("limit", [1, 41, 42, 50, 99])
async def test_a_full_page_is_full_although_one_is_left_out(
    store: PostgresStore, engine: AsyncEngine, limit: int
) -> None:
    await add_many(store, engine)
    read_names: list[str] = []
    place: tuple[str, str] | None = None
    async with store.reading() as read:
        while True:
            page = await read.failover.in_clusters(["a"], place, limit)
            read_names += [binding.name for binding in page]
            if len(page) < limit:
                break
            place = page[-1].namespace, page[-1].name
    assert read_names == [name for name in NAMES if name != UNREADABLE]


async def test_keys_that_older_planes_look_for_are_written(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    async with store.transaction() as tx:
        await add_binding(tx, Binding(namespace="shop", name="web"))
    async with engine.begin() as connection:
        spec = (await connection.execute(text("SELECT spec FROM binding"))).scalar_one()
    assert (
        spec.items()
        >= {
            "v": 1,
            "replicas": 0,
            "scheduler_name": "",
            "priority": 0,
            "preemptible": True,
            "eviction_tasks": [],
            "gang": None,
            "is_unsettled": False,
        }.items()
    )
    assert spec["placement"]["affinity_groups"] == []
