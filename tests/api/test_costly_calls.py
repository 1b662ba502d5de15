"""Calls that cost much: strangers' mistakes, large requests, late calls, errors nobody expected."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from federation.model.errors import DeadlineMissed, InvalidRequest
from federation.rpc import guards, large_requests, strangers
from federation.rpc.guards import GuardedCall, release_frames
from federation.rpc.large_requests import LARGE_BYTES
from federation.rpc.strangers import PER_ADDRESS
from federation.services.members.identity import OUTAGE_SECONDS
from federation.v1.scheduling_pb2 import ListBindingsRequest
from lab.commanded_stores import CommandedStore
from lab.control_planes import Caller, Plane, refused, report, running_control_plane
from lab.held_clocks import HeldClock
from lab.patience import PATIENCE_SECONDS, until
from tests.api.calls import VIEWER, binding, header_of, made, raw, scheduled, to_the_end
from tests.api.world import code_of

LIST = "/federation.v1.Clusters/ListClusters"
ESTIMATE = "/federation.v1.Estimates/EstimateReplicas"
ENROLL = "/federation.v1.Clusters/EnrollCluster"
UNAUTHENTICATED, EXHAUSTED = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED
OK, INVALID = grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT
DEADLINE, UNAVAILABLE = grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE


@pytest_asyncio.fixture(loop_scope="module")
async def strict(database_url: str, tmp_path: Path) -> AsyncIterator[tuple[Plane, CommandedStore]]:
    """A control plane of the test's own, which may hold mistakes against it, and its store."""
    store = CommandedStore()
    async with running_control_plane(database_url, tmp_path, store=store) as plane:
        yield plane, store


def wrong(plane: Plane, number: int) -> Any:
    return refused(raw(plane, LIST, b"", f"Bearer id{number}.secret"))


def half_a_request(plane: Plane, path: str, *headers: str) -> Any:
    """A call whose request never arrives."""
    metadata = tuple(("authorization", header) for header in headers)
    call: Any = plane.channel.stream_unary(path)
    return call(metadata=metadata, timeout=PATIENCE_SECONDS)


async def test_a_flood_of_wrong_credentials_is_not_looked_up(
    strict: tuple[Plane, CommandedStore],
) -> None:
    plane, store = strict
    before, count = store.statements["credentials.find"], PER_ADDRESS.mistakes + 100
    refusals = await asyncio.gather(*(wrong(plane, number) for number in range(count)))
    codes = [each.code for each in refusals]
    assert set(codes) == {UNAUTHENTICATED, EXHAUSTED}
    # Time passes meanwhile, and a few more are allowed with it.
    looked_up = store.statements["credentials.find"] - before
    assert PER_ADDRESS.mistakes <= looked_up == codes.count(UNAUTHENTICATED)
    said = [each.message for each in refusals if each.code is EXHAUSTED]
    assert "too many wrong credentials from 127.0.0.1" in said[0]
    # Others are heard again when time has passed.
    await until(lambda: wrong(plane, 0), lambda refusal: refusal.code is UNAUTHENTICATED)


async def test_strangers_have_few_calls_at_once_and_may_send_little_and_not_slowly(
    strict: tuple[Plane, CommandedStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, _ = strict
    monkeypatch.setattr(strangers, "READ_SECONDS", PATIENCE_SECONDS)
    calls = [half_a_request(plane, ENROLL) for _ in range(PER_ADDRESS.calls + 1)]
    ended = [asyncio.create_task(refused(call)) for call in calls]
    done, waiting = await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result().code for task in done] == [EXHAUSTED]
    assert "too many calls at once" in done.pop().result().message
    for call in calls:
        call.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    monkeypatch.setattr(strangers, "READ_SECONDS", 0.01)

    async def slow() -> grpc.StatusCode:
        return (await refused(half_a_request(plane, ENROLL))).code

    # The cancelled ones leave their places soon.
    await until(slow, lambda code: code is DEADLINE)
    # One that is slow, or too large, costs as much as many mistakes.
    # Some are forgiven meanwhile, how many depends on the machine.
    rounds = 0
    while "too many wrong" not in (await refused(raw(plane, ENROLL, b""))).message:
        rounds += 1
        assert rounds < PER_ADDRESS.mistakes // 2
        await refused(raw(plane, ENROLL, bytes(1 << 20)))


def estimate(plane: Plane, shapes: int) -> asyncio.Task[Any]:
    """The call with so many shapes, of about twenty bytes each."""
    asked = [{"resource_request": {"cpu": "1000m"}}] * shapes
    return asyncio.create_task(plane.ask("EstimateReplicas", shapes=asked))


LARGE_SHAPES = LARGE_BYTES // 10


async def test_others_are_served_between_two_large_requests_and_few_wait_for_their_turn(
    fresh: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    # After each nothing large is decoded for an hour.
    monkeypatch.setattr(large_requests, "SECONDS_PER_BYTE", 400 / LARGE_BYTES)
    monkeypatch.setattr(fresh.plane.parts.gate.large.shares, "limit", 1)
    # It asks for more shapes than are looked at, which is seen once it is decoded.
    assert await code_of(estimate(fresh, LARGE_SHAPES)) is INVALID
    second = estimate(fresh, LARGE_SHAPES)
    await fresh.ask("WhoAmI")
    third = await until(lambda: code_of(estimate(fresh, LARGE_SHAPES)), EXHAUSTED.__eq__)
    assert third is EXHAUSTED
    assert not second.done()
    await estimate(fresh, 1)
    second.cancel()


async def test_large_requests_are_given_back_and_one_that_is_none_keeps_nobody_waiting(
    fresh: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_back, may_end = queue.SimpleQueue[None](), threading.Event()

    def give_back() -> None:
        given_back.put(None)
        may_end.wait(PATIENCE_SECONDS)

    async def send() -> None:
        garbage = raw(fresh, ESTIMATE, b"\xff" * (LARGE_BYTES + 1), header_of(fresh.admin))
        assert (await refused(garbage)).code is INVALID
        too_large = raw(fresh, ENROLL, bytes(1 << 20))
        assert (await refused(too_large)).code is EXHAUSTED

    monkeypatch.setattr(large_requests, "give_back_now", give_back)
    await send()
    await asyncio.to_thread(given_back.get, timeout=PATIENCE_SECONDS)
    # Once for all that come meanwhile.
    for _ in range(2):
        await send()
    assert given_back.empty()
    may_end.set()
    await asyncio.to_thread(given_back.get, timeout=PATIENCE_SECONDS)
    assert given_back.empty()


async def test_a_connection_holds_few_requests_and_another_its_own(api: Plane) -> None:
    held = [
        half_a_request(api, LIST, header_of(api.admin))
        for _ in range(large_requests.READS_PER_CONNECTION)
    ]
    ended = [asyncio.create_task(code_of(call)) for call in held]
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(str(api.plane.endpoint), options) as channel:
        another = Caller(channel, None)
        another.metadata = api.admin.metadata

        async def waiting() -> asyncio.Task[Any]:
            # The other requests may not have come that far yet.
            late = asyncio.create_task(api.ask("WhoAmI"))
            for _ in range(3):
                await another.ask("WhoAmI")
            return late

        late = await until(waiting, lambda asked: not asked.done())
    held[0].cancel()
    await late
    for call in held:
        call.cancel()
    await asyncio.gather(*ended, return_exceptions=True)


async def calls_known() -> int:
    await asyncio.sleep(0.01)
    return sum(isinstance(tracked, GuardedCall) for tracked in gc.get_objects())


async def test_refused_calls_leave_nothing_for_the_collector(api: Plane) -> None:
    """A cycle that is in use while the collector looks is spared for ever, so none is made."""
    await until(calls_known, lambda known: known == 0)
    gc.collect()
    gc.disable()
    try:
        for path, header, code in (
            (LIST, "Bearer wrong", UNAUTHENTICATED),
            (ESTIMATE, header_of(api.admin), INVALID),
        ):
            for _ in range(20):
                assert (await refused(raw(api, path, b"", header))).code is code
            await until(calls_known, lambda known: known == 0)
    finally:
        gc.enable()


async def test_who_handed_an_error_on_goes_on_working() -> None:
    """What decides for many tells one of them of an error, and still has the others to serve."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    is_told = asyncio.Event()

    async def serve() -> str:
        try:
            raise InvalidRequest.of("field", "is wrong")
        except InvalidRequest as error:
            answer.set_exception(error)
        await is_told.wait()
        return "served the others"

    serving = asyncio.create_task(serve())
    with pytest.raises(InvalidRequest) as refusal:
        await answer
    release_frames(refusal.value)
    is_told.set()
    assert await serving == "served the others"


async def test_nothing_is_done_for_a_call_whose_deadline_has_passed(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(_: object) -> None:
        raise DeadlineMissed

    async with api.connected("member1", report=report()):
        with monkeypatch.context() as patch:
            patch.setattr(guards, "refuse_late", late)
            refusal = await refused(scheduled(api, binding()))
        assert refusal.code is DEADLINE
        assert not (await api.ask("ListBindings")).bindings


async def test_a_call_without_a_deadline_gets_one(
    api: Plane, commanded: CommandedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.plane.parts.gate, "deadline_seconds", 0.05)
    commanded.stall()
    method = api.admin.scheduling.ListBindings
    assert await code_of(method(ListBindingsRequest(), metadata=api.admin.metadata)) is DEADLINE
    commanded.go_on()


@pytest.mark.expected_errors("unexpected error")
@pytest.mark.parametrize("error", [RuntimeError("secret detail"), KeyError("secret detail")])
async def test_what_nobody_expected_is_logged_under_an_id_and_not_told(
    api: Plane, commanded: CommandedStore, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    commanded.before("bindings.get", fail)
    refusal = await refused(api.ask("GetBinding", namespace="shop", name="cart"))
    assert refusal.code is grpc.StatusCode.INTERNAL
    assert "secret" not in refusal.message
    (record,) = [each for each in caplog.records if each.message == "unexpected error"]
    assert vars(record)["fields"]["error_id"] in refusal.message
    assert record.exc_info


@pytest.mark.parametrize("is_long", [True, False])
async def test_a_stream_ends_once_nobody_could_tell_of_its_caller_for_long(
    api: Plane,
    clock: HeldClock,
    commanded: CommandedStore,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_long: bool,
) -> None:
    monkeypatch.setattr(guards, "ADMITTED_SECONDS", 0.01)
    if is_long:
        monkeypatch.setattr(guards, "OUTAGE_SECONDS", 0.0)
    caller, _ = await made(api, VIEWER)
    watch = caller.watch("WatchClusters")
    await watch.read()
    commanded.is_reachable = False
    clock.advance(OUTAGE_SECONDS + 1)
    ended = asyncio.create_task(code_of(to_the_end(watch)))
    if is_long:
        assert await ended is UNAVAILABLE
        commanded.is_reachable = True
        return
    asked = asyncio.create_task(code_of(caller.ask("ListClusters")))
    assert await asked is UNAVAILABLE
    assert not ended.done()
    commanded.is_reachable = True
    await caller.ask("ListClusters")
    assert not ended.done()
    watch.cancel()
    await asyncio.gather(ended, return_exceptions=True)
