from __future__ import annotations

import asyncio

from estimator.agent.answers import MAX_REPLIES, Outbox
from federation.v1.agents_pb2 import ConnectRequest, Heartbeat, PlaceReply, Report


def report(sequence: int) -> ConnectRequest:
    return ConnectRequest(report=Report(sequence=sequence))


def heartbeat(sequence: int) -> ConnectRequest:
    return ConnectRequest(heartbeat=Heartbeat(sequence=sequence))


def reply(request_id: int) -> ConnectRequest:
    return ConnectRequest(place_reply=PlaceReply(request_id=str(request_id)))


async def drained(outbox: Outbox) -> list[ConnectRequest]:
    outbox.close()
    messages = []
    while (message := await outbox.take()) is not None:
        messages.append(message)
    return messages


async def test_a_newer_report_replaces_an_unsent_one() -> None:
    outbox = Outbox()
    outbox.put_report(report(1))
    outbox.put_report(report(2))
    assert await drained(outbox) == [report(2)]


async def test_replies_first_and_heartbeats_after_the_report_they_name() -> None:
    outbox = Outbox()
    outbox.put_heartbeat(heartbeat(1))
    outbox.put_report(report(1))
    outbox.put_reply(reply(1))
    outbox.put_reply(reply(2))
    assert await drained(outbox) == [reply(1), reply(2), report(1), heartbeat(1)]


async def test_replies_are_bounded_and_the_oldest_goes() -> None:
    outbox = Outbox()
    for number in range(MAX_REPLIES + 1):
        outbox.put_reply(reply(number))
    left = await drained(outbox)
    assert len(left) == MAX_REPLIES
    assert left[0] == reply(1)


async def test_taking_waits_for_the_next_message() -> None:
    outbox = Outbox()
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put_report(report(1))
    assert await taking == report(1)
