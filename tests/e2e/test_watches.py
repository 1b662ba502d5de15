"""Watches over gRPC and a database: nothing missed, slow ones told, garbage refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from federation.client import Client, Target
from federation.rpc import guards
from federation.services.members import identity
from federation.services.watching.watches import WatchPace
from federation.v1.clusters_pb2 import (
    ListClustersRequest,
    UpdateClusterRequest,
    WatchClustersRequest,
)
from federation.v1.resource_pb2 import (
    EVENT_TYPE_BOOKMARK,
    EVENT_TYPE_DELETED,
    ObjectMeta,
    ObjectReference,
    Placement,
    ResourceBinding,
    ResourceBindingSpec,
)
from federation.v1.scheduling_pb2 import (
    DeleteBindingRequest,
    ListBindingsRequest,
    ScheduleBatchItem,
    ScheduleBatchRequest,
    WatchBindingsRequest,
)
from lab.control_planes import (
    SECONDS,
    AgentStream,
    Refusal,
    RunningControlPlane,
    heartbeat,
    refusal_of,
    report,
    running_control_plane,
)
from lab.databases import connect

BINDINGS = 200
BEAT_SECONDS = 0.1


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


def item(number: int, *, replicas: int = 0, namespace: str = "shop") -> ScheduleBatchItem:
    name = f"b{number:03}"
    return ScheduleBatchItem(
        binding=ResourceBinding(
            metadata=ObjectMeta(namespace=namespace, name=name, labels={"replicas": str(replicas)}),
            spec=ResourceBindingSpec(
                resource=ObjectReference(api_version="apps/v1", kind="Deployment", name=name),
                replicas=replicas,
                placement=Placement(),
            ),
        )
    )


async def change(running: RunningControlPlane, *items: ScheduleBatchItem) -> None:
    admin = running.admin
    await admin.call(admin.scheduling.ScheduleBatch, ScheduleBatchRequest(items=items))


async def listed(running: RunningControlPlane) -> tuple[dict[str, str], str]:
    """Resource versions by name, and where to watch from; in small pages."""
    admin, token, version = running.admin, "", ""
    found: dict[str, str] = {}
    while True:
        request = ListBindingsRequest(page_size=70, page_token=token)
        page = await admin.call(admin.scheduling.ListBindings, request)
        found.update({each.metadata.name: each.metadata.resource_version for each in page.bindings})
        assert version in ("", page.resource_version)
        version, token = page.resource_version, page.next_page_token
        if not token:
            return found, version


class Stream:
    """One open watch."""

    def __init__(self, running: RunningControlPlane, version: str, namespace: str = "") -> None:
        admin = running.admin
        request = WatchBindingsRequest(namespace=namespace, resource_version=version)
        self._call = admin.scheduling.WatchBindings(request, metadata=admin.metadata)

    async def next(self) -> Any:
        async with asyncio.timeout(SECONDS):
            return await self._call.read()

    def cut(self) -> None:
        self._call.cancel()


@asynccontextmanager
async def watching(
    running: RunningControlPlane, version: str, namespace: str = ""
) -> AsyncIterator[Stream]:
    stream = Stream(running, version, namespace)
    try:
        yield stream
    finally:
        stream.cut()


async def test_a_watch_ends_when_its_callers_credential_is_revoked(
    running: RunningControlPlane, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "TRUSTED_SECONDS", 0.0)
    monkeypatch.setattr(guards, "ADMITTED_SECONDS", 0.01)
    async with watching(running, "") as stream:
        assert (await stream.next()).resource_version
        connection = await connect(database_url)
        await connection.execute("UPDATE credential SET revoked_at = now()")
        await connection.close()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.next()
    assert refusal_of(caught.value).code is grpc.StatusCode.UNAUTHENTICATED


def take(known: dict[str, str], response: Any) -> None:
    for event in response.events:
        meta = event.binding.metadata
        if event.type == EVENT_TYPE_DELETED:
            known.pop(meta.name, None)
        elif event.type != EVENT_TYPE_BOOKMARK:
            known[meta.name] = meta.resource_version


async def test_nothing_is_missed_while_bindings_change_and_the_stream_is_cut(
    running: RunningControlPlane,
) -> None:
    async with running.connected("member1", report=report()):
        await change(running, *(item(number) for number in range(BINDINGS)))
        known, version = await listed(running)
        assert len(known) == BINDINGS

        async def churn() -> None:
            for turn in range(1, 6):
                for first in range(0, BINDINGS, 40):
                    await change(
                        running, *(item(n, replicas=turn) for n in range(first, first + 40))
                    )
            admin = running.admin
            for number in range(0, BINDINGS, 50):
                request = DeleteBindingRequest(namespace="shop", name=f"b{number:03}")
                await admin.call(admin.scheduling.DeleteBinding, request)

        churning = asyncio.create_task(churn())
        cuts = 0
        while not churning.done():
            async with watching(running, version) as stream:
                response = await stream.next()
                take(known, response)
                version = response.resource_version
                cuts += 1
        await churning
        async with watching(running, version) as stream:
            async with asyncio.timeout(SECONDS):
                # Listed again each time: one that found no room for a moment is decided again.
                while known != (await listed(running))[0]:
                    take(known, await stream.next())
        assert len(known) == BINDINGS - 4
        assert cuts > 1


async def test_without_a_version_what_is_there_comes_first(running: RunningControlPlane) -> None:
    await change(running, item(1), item(2), item(3, namespace="other"))
    known: dict[str, str] = {}
    async with watching(running, "", "shop") as stream:
        while not (response := await stream.next()).resource_version:
            take(known, response)
        assert [each.type for each in response.events] == [EVENT_TYPE_BOOKMARK]
        assert sorted(known) == ["b001", "b002"]
        await change(running, item(4, namespace="other"), item(2, replicas=5))
        before = known["b002"]
        while known["b002"] == before:
            response = await stream.next()
            take(known, response)
        assert sorted(known) == ["b001", "b002"]
        assert all(each.decision_id for each in response.events)


async def end(stream: Stream) -> Refusal:
    """How a watch ends, after all that it was told."""
    try:
        while await stream.next() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return refusal_of(error)
    raise AssertionError("ended well")


async def test_a_version_of_before_the_database_was_put_back_is_listing_again(
    running: RunningControlPlane,
) -> None:
    async with watching(running, "999999999999.0") as stream:
        refused = await end(stream)
    assert (refused.code, refused.reason) == (grpc.StatusCode.ABORTED, "RELIST")


@pytest.mark.parametrize("version", ["x", "1", "-1.0", "9" * 30])
async def test_a_version_that_was_never_given_out_is_refused(
    running: RunningControlPlane, version: str
) -> None:
    async with watching(running, version) as stream:
        refused = await end(stream)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert list(refused.violations) == ["resourceVersion"]


async def test_a_slow_reader_is_told_to_list_again(database_url: str, tmp_path: Path) -> None:
    """Its messages fill what the network holds of them; then what has changed is not kept."""
    pace = WatchPace(buffer_keys=20)
    async with running_control_plane(database_url, tmp_path, watch_pace=pace) as running:
        _, version = await listed(running)
        async with watching(running, version) as slow, watching(running, version) as reader:
            big = "x" * 60_000
            known: dict[str, str] = {}
            for first in range(0, 600, 10):
                items = [item(number) for number in range(first, first + 10)]
                for each in items:
                    each.binding.metadata.annotations["note"] = big
                await change(running, *items)
                # Who reads is told of everything.
                async with asyncio.timeout(SECONDS):
                    while f"b{first + 9:03}" not in known:
                        take(known, await reader.next())
            told = await end(slow)
            assert (told.code, told.reason) == (grpc.StatusCode.ABORTED, "RELIST")
            assert len(known) == 600


async def test_clusters_are_watched_from_where_they_were_listed(
    running: RunningControlPlane,
) -> None:
    admin = running.admin
    async with running.connected("member1", report=report()):
        page = await admin.call(admin.clusters.ListClusters, ListClustersRequest())
        request = WatchClustersRequest(resource_version=page.resource_version)
        call = admin.clusters.WatchClusters(request, metadata=admin.metadata)
        (cluster,) = page.clusters
        cluster.spec.region = "eu"
        await admin.call(admin.clusters.UpdateCluster, UpdateClusterRequest(cluster=cluster))
        async with asyncio.timeout(SECONDS):
            regions = set()
            while "eu" not in regions:
                regions |= {each.cluster.spec.region for each in (await call.read()).events}
        call.cancel()


async def beat(stream: AgentStream) -> None:
    while True:
        await stream.say(heartbeat=heartbeat(1, "hash-1-1"))
        await asyncio.sleep(BEAT_SECONDS)


async def told_ready(call: Any, status: str) -> None:
    """Reads what a watch tells until a cluster's Ready has this status."""
    async with asyncio.timeout(SECONDS):
        while True:
            for each in (await call.read()).events:
                ready = {condition.status for condition in each.cluster.status.conditions[:1]}
                if status in ready:
                    return


async def test_a_cluster_that_goes_stale_is_told(database_url: str, tmp_path: Path) -> None:
    async with running_control_plane(database_url, tmp_path, heartbeat_seconds="0.5") as running:
        admin = running.admin
        call = admin.clusters.WatchClusters(WatchClustersRequest(), metadata=admin.metadata)
        async with running.connected("member1", report=report()) as stream:
            beating = asyncio.create_task(beat(stream))
            await told_ready(call, "True")
            beating.cancel()
        await told_ready(call, "Unknown")
        call.cancel()


async def test_the_client_goes_on_when_the_control_plane_is_another_one(
    database_url: str, tmp_path: Path
) -> None:
    names: set[str] = set()
    async with running_control_plane(database_url, tmp_path) as first:
        endpoint = str(first.plane.endpoint)
        token = first.plane.admin_token_file.read_text(encoding="ascii").strip()
        target = Target(endpoint=endpoint, token=token, plaintext=True)
        client = Client(target)
        watch = client.watch_bindings()
        await change(first, item(1))
        assert (await anext(watch)).relist
        while "b001" not in names:
            names |= {each.binding.metadata.name for each in (await anext(watch)).events}
    async with (
        running_control_plane(database_url, tmp_path, listen=endpoint) as second,
        aclosing(watch),
    ):
        await change(second, item(2))
        async with asyncio.timeout(3 * SECONDS):
            while "b002" not in names:
                names |= {each.binding.metadata.name for each in (await anext(watch)).events}
        await client.close()
