"""Large requests are decoded one at a time, and others have their turn in between."""

from __future__ import annotations

import asyncio
import threading

import pytest

from federation.model.errors import LimitExceeded
from federation.rpc import large_requests
from federation.rpc.decoding import Unread, bounded
from federation.rpc.large_requests import (
    LARGE_BYTES,
    MOST_WAITING,
    READS_PER_CONNECTION,
    LargeRequests,
    Undecoded,
    is_large_request,
)

HERE, ELSEWHERE = "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:2"


def request(done: list[str], name: str) -> Undecoded:
    return Undecoded(
        payload=name.encode(),
        received_bytes=0,
        decode=lambda payload: done.append(payload.decode()),
    )


async def settled() -> None:
    """Everything that can go on now has."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_others_are_served_between_two_large_requests() -> None:
    large, done = LargeRequests(rest=1e9), list[str]()
    first, second = (
        asyncio.create_task(large.decoded(request(done, name))) for name in ("first", "second")
    )
    await first
    await settled()
    assert done == ["first"]
    second.cancel()


async def test_the_next_is_decoded_when_others_have_been_served() -> None:
    large, done = LargeRequests(), list[str]()
    await asyncio.gather(*(large.decoded(request(done, name)) for name in "abc"))
    assert done == ["a", "b", "c"]


async def test_nothing_is_decoded_while_another_one_is_checked() -> None:
    large, done, checked = LargeRequests(rest=0), list[str](), threading.Event()
    first = Undecoded(payload=b"", received_bytes=0, decode=bytes, check=lambda _: checked.wait())
    waiting = asyncio.gather(large.decoded(first), large.decoded(request(done, "second")))
    try:
        await settled()
        assert not done
    finally:
        checked.set()
    await waiting
    assert done == ["second"]


async def test_what_cannot_be_decoded_keeps_nobody_waiting() -> None:
    def refuse(_: bytes) -> None:
        raise ValueError("no message")

    large, done = LargeRequests(), list[str]()
    with pytest.raises(ValueError, match="no message"):
        await large.decoded(Undecoded(payload=b"", received_bytes=0, decode=refuse))
    await large.decoded(request(done, "next"))
    assert done == ["next"]


async def test_few_wait_for_their_turn() -> None:
    large, done = LargeRequests(rest=1e9), list[str]()
    await large.decoded(request(done, "first"))
    waiting = [
        asyncio.create_task(large.decoded(request(done, str(number))))
        for number in range(MOST_WAITING)
    ]
    await settled()
    with pytest.raises(LimitExceeded):
        await large.decoded(request(done, "late"))
    waiting.pop().cancel()
    await settled()
    waiting.append(asyncio.create_task(large.decoded(request(done, "in its place"))))
    await settled()
    assert not waiting[-1].done()
    for task in waiting:
        task.cancel()


async def test_a_connection_holds_few_requests_and_another_its_own() -> None:
    large, leave, inside = LargeRequests(), asyncio.Event(), list[str]()

    async def read(connection: str) -> None:
        async with large.reading(connection):
            inside.append(connection)
            await leave.wait()

    tasks = [asyncio.create_task(read(HERE)) for _ in range(READS_PER_CONNECTION + 1)]
    await settled()
    tasks.append(asyncio.create_task(read(ELSEWHERE)))
    await settled()
    assert inside == [*[HERE] * READS_PER_CONNECTION, ELSEWHERE]
    leave.set()
    await asyncio.gather(*tasks)
    assert inside.count(HERE) == READS_PER_CONNECTION + 1


@pytest.mark.parametrize("waits", [True, False])
async def test_only_what_is_large_and_may_wait_is_left_undecoded(*, waits: bool) -> None:
    decode = bounded(len, 2 * LARGE_BYTES, waits=waits)
    assert decode is not None
    assert decode(bytes(LARGE_BYTES)) == LARGE_BYTES
    assert isinstance(decode(bytes(LARGE_BYTES + 1)), Undecoded) == waits


async def test_who_sends_too_much_waits_for_a_turn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_requests, "SECONDS_PER_BYTE", 1.0)
    decode = bounded(len, LARGE_BYTES, waits=True)
    assert decode is not None
    too_large = decode(bytes(2 * LARGE_BYTES))
    assert isinstance(too_large, Undecoded)
    assert (too_large.payload, too_large.received_bytes) == (b"", 2 * LARGE_BYTES)
    large = LargeRequests(rest=60 / (2 * LARGE_BYTES))
    unread = await large.decoded(too_large)
    assert isinstance(unread, Unread)
    assert "at most" in str(unread.error)
    second = asyncio.create_task(large.decoded(too_large))
    await asyncio.sleep(0.05)
    assert not second.done(), "for a minute"
    second.cancel()


async def test_a_call_knows_that_its_request_is_large() -> None:
    large, done = LargeRequests(), list[str]()

    async def call(*, is_large: bool) -> bool:
        if is_large:
            await large.decoded(request(done, "large"))
        return is_large_request()

    assert await asyncio.create_task(call(is_large=True))
    assert not await asyncio.create_task(call(is_large=False))
