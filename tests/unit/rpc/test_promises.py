"""Promises over the wire: every broken rule is told by its field, and what is held is shown."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.v1.agents_pb2 import Echo, EchoShape
from federation.v1.clusters_pb2 import DeleteClusterRequest
from federation.v1.estimates_pb2 import EstimateReplicasRequest
from federation.v1.resource_pb2 import ReplicaRequirements
from federation.v1.scheduling_pb2 import (
    ListBindingsRequest,
    ReleaseReservationRequest,
    RenewLeaseRequest,
    ScheduleRequest,
)
from lab.control_planes import RunningControlPlane, refused, report
from tests.stores import engine
from tests.unit.rpc.test_scheduling import binding, got, scheduled

__all__ = ["engine"]


async def release(running: RunningControlPlane, **fields: Any) -> Any:
    request = ReleaseReservationRequest(namespace="shop", **fields)
    return await running.admin.call(running.admin.scheduling.ReleaseReservation, request)


async def renew(running: RunningControlPlane, **fields: Any) -> Any:
    request = RenewLeaseRequest(namespace="shop", **fields)
    return await running.admin.call(running.admin.scheduling.RenewLease, request)


async def test_what_is_held_is_shown_and_what_is_released_is_told(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        answer = await scheduled(running, binding(uid="one"))
        (promise,) = answer.decision.promises
        assert (promise.cluster, promise.certificate, promise.note) == ("member1", "careful", "")
        assert (promise.report_epoch, promise.report_sequence) == (1, 1)
        found = await got(running)
        (held,) = found.reservations
        assert (held.cluster, held.replicas, held.outstanding) == ("member1", 3, 3)
        assert held.decision_id == answer.decision.id
        assert not found.HasField("lease_expire_time")
        refusal = await refused(release(running, name="cart", uid="other"))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        released = (await release(running, name="cart", uid="one")).released
        assert list(released) == [held]
        assert not (await got(running)).reservations
        refusal = await refused(release(running, name="cart"))
        assert refusal.code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "violations"),
    [
        ({}, {"name"}),
        ({"name": "a\0b"}, {"name"}),
        ({"name": "cart", "clusters": ["member1", "No Name"]}, {"clusters[1]"}),
        ({"name": "cart", "clusters": [""]}, {"clusters[0]"}),
        ({"name": "cart", "clusters": ["member1", "member1"]}, {"clusters[1]"}),
        ({"name": "cart", "clusters": ["member1", "nobody"]}, {"clusters[1]"}),
    ],
)
async def test_a_bad_release_is_told_by_its_fields(
    running: RunningControlPlane, fields: dict[str, Any], violations: set[str]
) -> None:
    async with running.connected("member1", report=report()):
        await scheduled(running, binding())
        refusal = await refused(release(running, **fields))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == violations


@pytest.mark.parametrize(
    ("fields", "violations"),
    [
        ({"name": "cart", "lease_seconds": 0}, {"leaseSeconds"}),
        ({"lease_seconds": 315_360_001}, {"name", "leaseSeconds"}),
        ({"name": "cart", "lease_seconds": -1}, {"leaseSeconds"}),
    ],
)
async def test_a_bad_renewal_is_told_by_its_fields(
    running: RunningControlPlane, fields: dict[str, Any], violations: set[str]
) -> None:
    refusal = await refused(renew(running, **fields))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert set(refusal.violations) == violations


async def test_a_lease_is_renewed_while_it_lasts(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        await scheduled(running, binding(lease_seconds=60))
        before = (await got(running)).lease_expire_time
        renewed = (await renew(running, name="cart", lease_seconds=3600)).lease_expire_time
        assert renewed.seconds > before.seconds
        assert (await got(running)).lease_expire_time == renewed
        await scheduled(running, binding("other"))
        refusal = await refused(renew(running, name="other"))
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.FAILED_PRECONDITION,
            "NO_LEASE",
        )


async def test_a_key_stands_for_one_request(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()):
        first = await scheduled(running, binding(), idempotency_key="k1")
        again = await scheduled(running, binding(), idempotency_key="k1")
        assert again.decision.id == first.decision.id
        refusal = await refused(scheduled(running, binding(replicas=4), idempotency_key="k1"))
        assert refusal.code is grpc.StatusCode.FAILED_PRECONDITION
        assert refusal.reason == "IDEMPOTENCY_KEY_REUSED"


@pytest.mark.parametrize(
    "fields",
    [
        {"idempotency_key": "x" * 129},
        {"idempotency_key": "a\nb"},
        {"idempotency_key": "k", "preview": True},
        {"idempotency_key": "k", "preview_token": "t"},
    ],
)
async def test_a_bad_key_is_told(running: RunningControlPlane, fields: dict[str, Any]) -> None:
    refusal = await refused(scheduled(running, binding(), **fields))
    assert refusal.code is grpc.StatusCode.INVALID_ARGUMENT
    assert list(refusal.violations) == ["idempotencyKey"]


async def test_all_pages_of_a_list_are_watched_from_the_first(running: RunningControlPlane) -> None:
    admin = running.admin
    for name in ("a", "b"):
        await scheduled(running, binding(name))
    first = await admin.call(admin.scheduling.ListBindings, ListBindingsRequest(page_size=1))
    await scheduled(running, binding("c"))
    request = ListBindingsRequest(page_size=1, page_token=first.next_page_token)
    second = await admin.call(admin.scheduling.ListBindings, request)
    assert first.resource_version
    assert second.resource_version == first.resource_version


async def state(running: RunningControlPlane) -> tuple[list[Any], list[int]]:
    """What is held, and how many more replicas fit beside it."""
    shapes = [ReplicaRequirements(resource_request={"cpu": "1"})]
    answer = await running.admin.call(
        running.admin.estimates.EstimateReplicas, EstimateReplicasRequest(shapes=shapes)
    )
    return list((await got(running)).reservations), list(answer.replicas)


async def test_what_is_refused_leaves_the_promises_as_they_were(
    running: RunningControlPlane, engine: AsyncEngine
) -> None:
    async with running.connected("member1", report=report()):
        preview = await scheduled(running, binding("shown"), preview=True)
        async with engine.begin() as connection:
            await connection.execute(
                text("UPDATE preview SET expires_at = now() - interval '1 second'")
            )
        await scheduled(running, binding(lease_seconds=60), idempotency_key="k1")
        await scheduled(running, binding("free"))
        await release(running, name="free")
        before = await state(running)
        token = ScheduleRequest(preview_token=preview.preview_token)
        again = scheduled(running, binding(replicas=1), idempotency_key="k1")
        leased = scheduled(running, binding(lease_seconds=-1))
        for call, code, told in (
            (release(running, name="free"), grpc.StatusCode.NOT_FOUND, "holds nothing"),
            (
                running.admin.call(running.admin.scheduling.Schedule, token),
                grpc.StatusCode.FAILED_PRECONDITION,
                "expired",
            ),
            (again, grpc.StatusCode.FAILED_PRECONDITION, "idempotency key"),
            (leased, grpc.StatusCode.INVALID_ARGUMENT, "spec.leaseSeconds"),
            (
                renew(running, name="cart", lease_seconds=-1),
                grpc.StatusCode.INVALID_ARGUMENT,
                "leaseSeconds",
            ),
            (
                release(running, name="cart", clusters=["gone"]),
                grpc.StatusCode.INVALID_ARGUMENT,
                "no cluster 'gone'",
            ),
        ):
            refusal = await refused(call)
            assert refusal.code is code
            assert told in f"{refusal.message} {refusal.violations}"
        assert await state(running) == before


async def test_echoes_of_what_nobody_holds_change_nothing(running: RunningControlPlane) -> None:
    async with running.connected("member1", report=report()) as stream:
        await scheduled(running, binding())
        await stream.hear("place_request")
        (held,) = (await got(running)).reservations
        shape = EchoShape(request={"cpu": 1000})
        echoes = [
            Echo(binding=name, shape=0, bound=9, unbound=9, finished=9)
            for name in ("shop/nobody", "nobody", "shop/cart/more")
        ]
        await stream.say(report=report(sequence=2, echo_shapes=[shape], echoes=echoes))
        assert (await stream.hear("ack")).sequence == 2
        assert list((await got(running)).reservations) == [held]
        refusal = await refused(release(running, name="nobody"))
        assert refusal.code is grpc.StatusCode.NOT_FOUND


async def test_what_was_held_in_a_deleted_cluster_is_gone_with_it(
    running: RunningControlPlane,
) -> None:
    admin = running.admin
    async with running.connected("member1", report=report()):
        await scheduled(running, binding())
        await admin.call(
            admin.clusters.DeleteCluster, DeleteClusterRequest(name="member1", force=True)
        )
    found = await got(running)
    assert not found.reservations
    # What is placed and what is held agree: it waits for another cluster.
    assert not found.binding.spec.clusters
    refusal = await refused(release(running, name="cart", clusters=["member1"]))
    assert (refusal.code, list(refusal.violations)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        ["clusters[0]"],
    )
    assert (await refused(release(running, name="cart"))).code is grpc.StatusCode.NOT_FOUND
    # Another one of that name owes it nothing.
    async with running.connected("member1", epoch=2, report=report(2)):
        answer = await scheduled(running, binding())
        assert [(each.name, each.replicas) for each in answer.decision.clusters] == [("member1", 3)]
        (held,) = (await got(running)).reservations
        assert held.decision_id == answer.decision.id


async def test_no_nodes_are_asked_for_by_an_answer_that_is_given_again_too_late(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()) as stream:
        first = await scheduled(running, binding(), idempotency_key="k1")
        assert (await stream.hear("place_request")).decision_id == first.decision.id
        preview = await scheduled(running, binding(replicas=4), preview=True)
        token = ScheduleRequest(preview_token=preview.preview_token)
        second = await running.admin.call(running.admin.scheduling.Schedule, token)
        assert (await stream.hear("place_request")).decision_id == second.decision.id
        third = await scheduled(running, binding(replicas=2))
        assert (await stream.hear("place_request")).decision_id == third.decision.id
        again = await scheduled(running, binding(), idempotency_key="k1")
        assert again.decision.id == first.decision.id
        again = await running.admin.call(running.admin.scheduling.Schedule, token)
        assert again.decision.id == second.decision.id
        await stream.say(report=report(sequence=2))
        await stream.hear("ack")
