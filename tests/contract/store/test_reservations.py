from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.model.echoes import Owner
from federation.model.reservations import Reservation
from federation.model.shapes import request_shape
from federation.model.workload import ReplicaRequirements
from federation.services.journal import StoredReservations
from federation.services.journal_ports import Finished, Holding
from federation.store.postgres import PostgresStore

SMALL = ReplicaRequirements(request={"cpu": 250})
RUN_OUT = text("""
    UPDATE reservation SET lease_expires_at = now() - make_interval(hours => :hours)
    WHERE name = :name
""")
LARGE = ReplicaRequirements(request={"cpu": 4000})


def held(name: str, *clusters: str, namespace: str = "shop") -> StoredReservations:
    """One replica in each cluster."""
    bare = StoredReservations(namespace=namespace, name=name)
    return replace(
        bare,
        uid=f"uid-{name}",
        owner=Owner("apps/v1", "Deployment", namespace, name),
        reservations=tuple(
            Reservation(
                binding=bare.key,
                cluster=cluster,
                requirements=SMALL,
                replicas=1,
                decisions=("d1",),
                interest_version=3,
            )
            for cluster in clusters
        ),
    )


async def put(store: PostgresStore, *rows: StoredReservations, **lease_seconds: int | None) -> None:
    leases = {f"shop/{name}": seconds for name, seconds in lease_seconds.items()}
    async with store.transaction() as tx:
        await tx.reservations.put(rows, leases)


async def everything(store: PostgresStore) -> list[StoredReservations]:
    async with store.reading() as read:
        return list(await read.reservations.all())


async def lease_of(store: PostgresStore, name: str) -> float | None:
    async with store.reading() as read:
        found = await read.reservations.of("shop", name)
    assert found is not None
    return found.lease_expires_at


async def test_what_is_held_comes_back_as_it_was_put(store: PostgresStore) -> None:
    web, api, bare = held("web", "a", "b"), held("api", "b"), held("agent", "a", namespace="")
    await put(store, web, api, replace(bare, owner=None))
    assert await everything(store) == [replace(bare, owner=None), api, web]
    async with store.reading() as read:
        assert await read.reservations.of("shop", "web") == web
        assert await read.reservations.of("shop", "nobody") is None
        assert await read.reservations.in_clusters(["b"]) == [api, web]
        assert await read.reservations.in_clusters(["nowhere"]) == []


async def test_where_something_is_held_is_told_without_what(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await put(store, held("web", "b", "a"), held("api", "b"), held("job", "c"), web=60, api=60)
    async with engine.begin() as connection:
        await connection.execute(RUN_OUT, {"hours": 1, "name": "api"})
    keys = [("shop", name) for name in ("web", "api", "nobody")]
    async with store.reading() as read:
        assert await read.reservations.holdings(keys) == {
            ("shop", "web"): Holding(clusters=("a", "b")),
            ("shop", "api"): Holding(clusters=("b",), has_expired=True),
        }
        assert await read.reservations.holdings([]) == {}


async def test_a_row_is_replaced_as_a_whole_and_deleted_when_empty(store: PostgresStore) -> None:
    await put(store, held("web", "a", "b"), held("api", "a"), held("batch", "a"))
    await put(store, replace(held("web", "c"), uid="another"), held("api"), held("never"))
    assert await everything(store) == [held("batch", "a"), replace(held("web", "c"), uid="another")]
    await put(store)
    assert len(await everything(store)) == 2


async def test_who_leaves_a_cluster_keeps_the_others(store: PostgresStore) -> None:
    await put(store, held("web", "a", "b"), held("api", "a"), held("batch", "b"), web=60)
    lease = await lease_of(store, "web")
    async with store.transaction() as tx:
        await tx.reservations.leave("a")
    assert await everything(store) == [
        held("batch", "b"),
        replace(held("web", "b"), lease_expires_at=lease),
    ]


async def test_finished_pods_only_grow_and_belong_to_one_shape(store: PostgresStore) -> None:
    (kept,) = held("web", "a").reservations
    row = replace(
        held("web"),
        reservations=(
            kept,
            kept._replace(requirements=LARGE),
            kept._replace(component="worker"),
            kept._replace(cluster="b"),
        ),
    )
    await put(store, row, held("api", "a"))

    async def finish(*counts: int) -> list[int]:
        async with store.transaction() as tx:
            await tx.reservations.finish(
                [
                    Finished(
                        binding=binding,
                        cluster="a",
                        component="",
                        shape=request_shape(SMALL.request),
                        finished=count,
                    )
                    for binding, count in zip(("shop/web", "nobody"), counts, strict=False)
                ]
            )
        found = {each.name: each for each in await everything(store)}
        assert found["api"] == held("api", "a")
        return [each.finished for each in found["web"].reservations]

    assert await finish() == [0, 0, 0, 0]
    assert await finish(2, 9) == [2, 0, 0, 0]
    assert await finish(1) == [2, 0, 0, 0]


async def test_a_lease_stays_until_it_is_started_anew_renewed_or_ended(
    store: PostgresStore,
) -> None:
    await put(store, held("web", "a"), held("api", "a"), web=60)
    first = await lease_of(store, "web")
    assert first is not None
    assert await lease_of(store, "api") is None
    await put(store, held("web", "b"))
    assert await lease_of(store, "web") == first
    await put(store, held("web", "b"), web=600)
    second = await lease_of(store, "web")
    assert second is not None
    assert second >= first + 540
    async with store.transaction() as tx:
        renewed = await tx.reservations.renew("shop/web", 6000)
        assert await tx.reservations.renew("shop/api", 6000) is None
        assert await tx.reservations.renew("nobody", 6000) is None
    assert renewed == await lease_of(store, "web")
    assert renewed is not None
    assert renewed >= second + 5400
    await put(store, held("web", "b"), held("api", "a"), web=None, api=60)
    assert await lease_of(store, "web") is None
    assert await lease_of(store, "api") is not None


async def test_leases_that_ran_out_are_told_longest_first_and_not_renewed(
    store: PostgresStore, engine: AsyncEngine
) -> None:
    await put(store, held("a", "a"), held("b", "a"), held("c", "a"), held("d", "a"), a=9, b=9, c=9)
    async with engine.begin() as connection:
        for name, hours in (("a", 1), ("b", 2)):
            await connection.execute(RUN_OUT, {"name": name, "hours": hours})
    async with store.transaction() as tx:
        assert await tx.reservations.expired(10) == [("shop", "b"), ("shop", "a")]
        assert await tx.reservations.expired(1) == [("shop", "b")]
        has_expired = [await tx.reservations.has_expired("shop", name) for name in ("a", "c", "d")]
        assert has_expired == [True, False, False]
        assert await tx.reservations.renew("shop/a", 60) is None


@pytest.mark.parametrize("clusters", [1, 100])
async def test_a_binding_is_one_row_and_small(
    store: PostgresStore, engine: AsyncEngine, clusters: int
) -> None:
    await put(store, held("web", *(f"member-{number:03}" for number in range(clusters))))
    async with engine.connect() as connection:
        sizes = await connection.execute(text("SELECT octet_length(body) FROM reservation"))
    assert sizes.scalar_one() < 400 + 32 * clusters
