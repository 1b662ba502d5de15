"""Calls that are too late or that fail in a way that no one foresaw, behind a gate of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import grpc
import pytest

from federation.model.errors import DeadlineMissed, Unauthenticated
from federation.parts import SystemClock
from federation.rpc.calls import ROUNDED_UP_SECONDS, refuse_late
from federation.rpc.guards import Guard
from federation.rpc.interceptors import Gate
from federation.rpc.large_requests import LargeRequests
from federation.rpc.measures import CallMeasures
from federation.rpc.strangers import CallLimits, Strangers
from federation.services.members.identity import Identity
from lab.control_planes import refused
from lab.patience import PATIENCE_SECONDS

OPEN = ("grpc.health.v1.Health", "Check")


@pytest.mark.parametrize("left", [-1.0, 0.0, ROUNDED_UP_SECONDS])
def test_a_deadline_that_has_passed_is_one_also_when_it_is_rounded_up(left: float) -> None:
    with pytest.raises(DeadlineMissed):
        refuse_late(left)


@pytest.mark.parametrize("left", [None, 2 * ROUNDED_UP_SECONDS])
def test_who_can_still_hear_the_answer_is_served(left: float | None) -> None:
    refuse_late(left)


@asynccontextmanager
async def behind(gate: Gate, service: str, method: str, behaviour: Any) -> AsyncIterator[Any]:
    """A unary method behind a gate of its own, ready to be called."""
    server = grpc.aio.server(interceptors=[gate])
    handlers = {method: grpc.unary_unary_rpc_method_handler(behaviour)}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_unary(f"/{service}/{method}")
    finally:
        await server.stop(None)


async def served(behaviour: Any, *, deadline_seconds: float) -> Any:
    """One open method, called without a deadline."""
    nobody: Any = object()
    async with behind(Gate(nobody, deadline_seconds=deadline_seconds), *OPEN, behaviour) as call:
        return await call(b"")


async def test_a_call_without_a_deadline_gets_one() -> None:
    async def never(_: bytes, __: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    refusal = await refused(served(never, deadline_seconds=0.05))
    assert refusal.code is grpc.StatusCode.DEADLINE_EXCEEDED


class TooLate:
    """The context of a call whose deadline passed on the way."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {}

    def time_remaining(self) -> float:
        return 0.0

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"

    def code(self) -> grpc.StatusCode:
        code: grpc.StatusCode = self.said["code"]
        return code

    def set_trailing_metadata(self, metadata: object) -> None:
        self.said["metadata"] = metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self.said["code"] = code

    def set_details(self, details: str) -> None:
        self.said["details"] = details


async def test_nothing_is_done_for_a_call_whose_deadline_has_passed() -> None:
    async def asked(_: bytes, __: object) -> bytes:
        pytest.fail("nobody would hear of it")

    handler: Any = grpc.unary_unary_rpc_method_handler(asked)
    guard: Any = Guard(
        handler=handler,
        method="/s/M",
        deadline_seconds=PATIENCE_SECONDS,
        entered=lambda _: pytest.fail("it is too late to come in"),
        admit=lambda _: pytest.fail("it is no stream"),
        revocation=lambda: pytest.fail("it is no stream"),
        refused=lambda *_, **__: None,
        measures=CallMeasures(),
        large=LargeRequests(),
        clock=lambda: 0.0,
    )
    context = TooLate()
    assert await guard.guarded().stream_unary(iter(()), context) is None
    assert context.code() is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("error", [RuntimeError("secret detail"), TimeoutError("secret detail")])
async def test_what_nobody_expected_is_logged_under_an_id_and_not_told(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def broken(_: bytes, __: object) -> bytes:
        raise error

    refusal = await refused(served(broken, deadline_seconds=PATIENCE_SECONDS))
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert "secret" not in refusal.message
    (record,) = [each for each in caplog.records if each.message == "unexpected error"]
    assert vars(record)["fields"]["error_id"] in refusal.message
    assert record.exc_info


async def test_a_flood_of_wrong_credentials_is_not_looked_up() -> None:
    reads, mistakes = list[int](), 5
    few = CallLimits(calls=100, reads=1, mistakes=mistakes, mistakes_per_second=0.0)
    strangers = partial(Strangers, in_all=few, per_address=few, pause_seconds=0.0)

    class Store:
        def reading(self) -> Any:
            reads.append(1)
            raise Unauthenticated

    store: Any = Store()

    async def never(_: bytes, __: object) -> bytes:
        return pytest.fail("nobody is to be served")

    gate = Gate(Identity(store, SystemClock()), strangers=strangers)
    async with behind(gate, "federation.v1.Scheduling", "Schedule", never) as call:
        for number in range(20):
            await refused(call(b"", metadata=(("authorization", f"Bearer id{number}.secret"),)))
    assert len(reads) == mistakes
