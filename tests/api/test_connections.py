"""How many connections the API has."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import grpc
import pytest

from federation.rpc.served import connections_left
from federation.serving import raise_limit_of_files
from lab.control_planes import Caller, Plane, running_control_plane
from lab.patience import PATIENCE_SECONDS, until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def dialled(api: Plane) -> Streams:
    """Says nothing, as a stranger would who holds as many connections as possible."""
    host, _, port = str(api.plane.endpoint).rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def is_served(connection: Streams) -> bool:
    """Whether the server says anything, as it does first in HTTP/2."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        try:
            return bool(await connection[0].read(1))
        except ConnectionResetError:
            return False


async def test_a_connection_too_many_is_closed_and_the_others_go_on(
    database_url: str, tmp_path: Path
) -> None:
    async with running_control_plane(database_url, tmp_path, max_connections="2") as api:
        await api.ask("ListClusters")
        held = await dialled(api)
        assert await is_served(held)
        refused = await dialled(api)
        assert not await is_served(refused)
        await api.ask("ListClusters")
        held[1].close()
        refused[1].close()

        async def is_answered() -> bool:
            """By a connection of its own."""
            options = [("grpc.use_local_subchannel_pool", 1)]
            async with grpc.aio.insecure_channel(str(api.plane.endpoint), options) as channel:
                other = Caller(channel, api.admin.metadata[0][1].removeprefix("Bearer "))
                try:
                    await other.ask("ListClusters")
                except grpc.aio.AioRpcError:
                    return False
            return True

        await until(is_answered, bool)


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "left"),
    [
        (1_024, 524_288, 100_000, 99_000),
        (1_024, resource.RLIM_INFINITY, 100_000, 99_000),
        (1_024, 1_024, 1_024, 512),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 2**31 - 1),
        (1_048_576, 1_048_576, 1_048_576, 1_047_576),
    ],
)
def test_as_many_files_are_opened_as_may_be(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int, left: int
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    raise_limit_of_files()
    assert limits == {resource.RLIMIT_NOFILE: (raised, hard)}
    assert connections_left() == left
