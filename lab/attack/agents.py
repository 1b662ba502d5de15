"""An agent with a credential of its own that harms others: by how much it says, and what.

Must not use any credential but that of its cluster.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import grpc

from federation.v1.agents_pb2 import ConnectRequest, Report
from federation.v1.agents_pb2_grpc import AgentsStub
from lab.attack.attack import GOALS, Attack
from lab.attack.target import Target
from lab.callers import bearer
from lab.control_planes import heartbeat, hello, report

CLUSTER = "malicious"
FLOOD_SECONDS = 10.0
BEATS_PER_SECOND = 4_000
REPORTS_PER_SECOND = 500
BURSTS_PER_SECOND = 100
REDIAL_SECONDS = 0.1

Speak = Callable[[int], ConnectRequest]


def flood_of_heartbeats(target: Target, force: float) -> None:
    """All of them confirm the one report, which is the most work."""
    told = report()
    beat = heartbeat(told.sequence, told.content_hash)

    def speak(number: int) -> ConnectRequest:
        message = {"heartbeat": beat} if number else {"report": told}
        return ConnectRequest(cluster=CLUSTER, **message)

    asyncio.run(_flood(target, speak, BEATS_PER_SECOND, FLOOD_SECONDS * force))


def flood_of_reports(target: Target, force: float) -> None:
    first = report()

    def speak(number: int) -> ConnectRequest:
        told = Report()
        told.CopyFrom(first)
        told.sequence = number + 1
        told.content_hash = f"hash-{number}"
        return ConnectRequest(cluster=CLUSTER, report=told)

    asyncio.run(_flood(target, speak, REPORTS_PER_SECOND, FLOOD_SECONDS * force))


def flood_of_connections(target: Target, force: float) -> None:
    """Hello, and gone again."""
    asyncio.run(_flood(target, None, BURSTS_PER_SECOND, FLOOD_SECONDS * force))


async def _flood(target: Target, speak: Speak | None, per_second: int, seconds: float) -> None:
    """Dials again whenever it is sent away."""
    credential = await asyncio.to_thread(target.enrolled, CLUSTER)
    until = time.monotonic() + seconds
    async with target.aio_channel() as channel:
        stub: Any = AgentsStub(channel)
        while time.monotonic() < until:
            call = stub.Connect(metadata=bearer(credential), timeout=2 * FLOOD_SECONDS)
            listening = asyncio.create_task(_listen(call))
            try:
                await call.write(ConnectRequest(cluster=CLUSTER, hello=hello()))
                if speak is not None:
                    await _speak(call, speak, per_second, until)
                else:
                    await asyncio.sleep(1 / per_second)
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await asyncio.sleep(REDIAL_SECONDS)
            finally:
                call.cancel()
                await listening


async def _speak(call: Any, speak: Speak, per_second: int, until: float) -> None:
    """As fast as told, or as the control plane takes it."""
    begun, said = time.monotonic(), 0
    while time.monotonic() < until:
        await call.write(speak(said))
        said += 1
        ahead = begun + said / per_second - time.monotonic()
        if ahead > 1 / BURSTS_PER_SECOND:
            await asyncio.sleep(ahead)


async def _listen(call: Any) -> None:
    try:
        async for _ in call:
            pass
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        return


ATTACKS = (
    Attack(name="flood of heartbeats", run=flood_of_heartbeats, goals=GOALS),
    Attack(name="flood of reports", run=flood_of_reports, goals=GOALS),
    Attack(name="flood of connections", run=flood_of_connections, goals=GOALS),
)
