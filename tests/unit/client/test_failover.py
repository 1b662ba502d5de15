"""Several endpoints: whoever is away is passed over, and nothing that changes is sent twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import Thread
from typing import Any

import grpc
import grpc.aio
import pytest

from federation.client import BlockingClient, Client, Target
from federation.model.errors import InvalidRequest, Unavailable
from federation.v1 import (
    clusters_pb2,
    clusters_pb2_grpc,
    resource_pb2,
    scheduling_pb2_grpc,
)
from lab.patience import PATIENCE_SECONDS, until

NOBODY = "127.0.0.1:1"


class Fleet(clusters_pb2_grpc.ClustersServicer):
    """Answers with its own name, or not at all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_away = False
        self.calls: list[str] = []

    async def answer(self, call: str, context: Any) -> None:
        self.calls.append(call)
        if self.is_away:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the database is away")

    async def GetCluster(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        await self.answer("GetCluster", context)
        names = resource_pb2.ObjectMeta(name=self.name)
        return clusters_pb2.GetClusterResponse(cluster=resource_pb2.Cluster(metadata=names))

    async def DeleteCluster(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        await self.answer("DeleteCluster", context)
        return clusters_pb2.DeleteClusterResponse()

    async def WatchClusters(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        await self.answer(f"WatchClusters {request.resource_version}", context)
        cluster = resource_pb2.Cluster(metadata=resource_pb2.ObjectMeta(name=self.name))
        event = clusters_pb2.ClusterEvent(type=resource_pb2.EVENT_TYPE_UPDATED, cluster=cluster)
        yield clusters_pb2.WatchClustersResponse(events=[event], resource_version=self.name)
        await asyncio.Event().wait()


class Decisions(scheduling_pb2_grpc.SchedulingServicer):
    """Counts what it is asked, and is away."""

    def __init__(self) -> None:
        self.calls = 0

    async def Schedule(self, request: Any, context: Any) -> Any:  # noqa: N802 - gRPC's name
        self.calls += 1
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the database is away")


@asynccontextmanager
async def served(*servicers: Any) -> AsyncIterator[tuple[str, grpc.aio.Server]]:
    server = grpc.aio.server()
    for each in servicers:
        if isinstance(each, Fleet):
            clusters_pb2_grpc.add_ClustersServicer_to_server(each, server)
        else:
            scheduling_pb2_grpc.add_SchedulingServicer_to_server(each, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", server
    finally:
        await server.stop(0)


def target(*endpoints: str, retries: int = 0) -> Target:
    return Target(
        endpoint=",".join(endpoints),
        plaintext=True,
        timeout_seconds=PATIENCE_SECONDS,
        retries=retries,
    )


async def connection(client: Client, at: int) -> grpc.ChannelConnectivity:
    await asyncio.sleep(0)
    state: grpc.ChannelConnectivity = client._channels._channels[at].get_state()
    return state


async def test_the_first_that_can_be_reached_is_asked() -> None:
    first, second = Fleet("first"), Fleet("second")
    async with served(first) as (one, server), served(second) as (two, _):
        async with Client(target(NOBODY, one, two)) as client:
            assert (await client.get_cluster("x")).metadata.name == "first"
            assert (await client.get_cluster("x")).metadata.name == "first"
            await server.stop(0)
            ready = grpc.ChannelConnectivity.READY
            await until(lambda: connection(client, 1), lambda state: state is not ready)
            # Also what changes something: it was not sent to who is away.
            await client.delete_cluster("x")
            assert (await client.get_cluster("x")).metadata.name == "second"
        assert second.calls == ["DeleteCluster", "GetCluster"]


async def test_what_was_never_sent_is_sent_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection breaks after it was looked at, and before the call goes out."""

    async def always(*_: object) -> bool:
        return True

    second = Fleet("second")
    async with served(second) as (two, _), Client(target(NOBODY, two)) as client:
        monkeypatch.setattr("federation.client.channels._is_reached", always)
        await client.delete_cluster("x")
        assert second.calls == ["DeleteCluster"]


async def test_reads_are_repeated_elsewhere_and_changes_are_not() -> None:
    first, second = Fleet("first"), Fleet("second")
    async with (
        served(first) as (one, _),
        served(second) as (two, _),
        Client(target(one, two)) as client,
    ):
        first.is_away = True
        assert (await client.get_cluster("x")).metadata.name == "second"
        second.is_away, first.is_away = True, False
        with pytest.raises(Unavailable):
            await client.delete_cluster("x")
        assert second.calls.count("DeleteCluster") == 1
        # The next call goes to the other one.
        await client.delete_cluster("x")
        first.is_away = True
        with pytest.raises(Unavailable, match="the database is away"):
            await client.get_cluster("x")


async def test_retries() -> None:
    fleet, decisions = Fleet("only"), Decisions()
    async with served(fleet, decisions) as (endpoint, _):
        fleet.is_away = True
        async with Client(target(endpoint, retries=2)) as client:
            with pytest.raises(Unavailable):
                await client.get_cluster("x")
            assert len(fleet.calls) == 3
            binding = resource_pb2.ResourceBinding()
            with pytest.raises(Unavailable):
                await client.schedule(binding)
            assert decisions.calls == 1
            for repeatable in (
                client.schedule(binding, idempotency_key="k"),
                client.preview(binding),
                client.commit_preview("t"),
            ):
                decisions.calls = 0
                with pytest.raises(Unavailable):
                    await repeatable
                assert decisions.calls == 3


async def test_a_watch_goes_on_elsewhere() -> None:
    first, second = Fleet("first"), Fleet("second")
    async with served(first) as (one, server), served(second) as (two, _):
        async with Client(target(NOBODY, one, two)) as client:
            watch = client.watch_clusters()
            assert (await anext(watch)).relist
            assert (await anext(watch)).resource_version == "first"
            await server.stop(0)
            assert (await anext(watch)).resource_version == "second"
            await watch.aclose()
        assert second.calls == ["WatchClusters first"]


def test_the_blocking_client_fails_over_too() -> None:
    with _running(Fleet("second")) as endpoint, BlockingClient(target(NOBODY, endpoint)) as client:
        assert client.call(lambda api: api.get_cluster("x")).metadata.name == "second"


@contextmanager
def _running(fleet: Fleet) -> Iterator[str]:
    """The servicer behind a server on another thread's loop."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    context = served(fleet)

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_SECONDS)

    endpoint, _ = run(context.__aenter__())
    try:
        yield endpoint
    finally:
        run(context.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()


async def test_nobody_is_there() -> None:
    async with Client(target(NOBODY, "127.0.0.1:2")) as client:
        with pytest.raises(Unavailable, match="Connection refused"):
            await client.delete_cluster("x")


@pytest.mark.parametrize("endpoint", ["a:1,", ",a:1", "a:1,,b:2"])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    with pytest.raises(InvalidRequest, match="between two commas"):
        Target(endpoint=endpoint)


def test_endpoints_are_told_apart() -> None:
    assert Target(endpoint="a:1, b:2,a:1").endpoints == ("a:1", "b:2")
