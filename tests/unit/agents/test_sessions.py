from __future__ import annotations

import asyncio

import pytest

from federation.agents.messages import goodbye, place_request_to_message
from federation.agents.session import MAX_ASKED, MAX_OUTGOING, Session
from federation.agents.sessions import Sessions
from federation.model.errors import (
    Conflict,
    LimitExceeded,
    PermissionRefused,
    Unavailable,
)
from federation.model.node_plans import NodePlan, PlaceOrder, ShareOrder
from federation.model.workload import ReplicaRequirements
from federation.v1.agents_pb2 import Ack, ConnectResponse, PlaceReply

ORDER = PlaceOrder(
    decision_id="d1",
    binding_key="shop/cart",
    shares=(ShareOrder(replicas=3, requirements=ReplicaRequirements()),),
)


async def sent(session: Session) -> list[ConnectResponse]:
    """Everything queued until now; ends the session."""
    written: list[ConnectResponse] = []

    async def write(message: ConnectResponse) -> None:
        written.append(message)

    session.end()
    await session.write_all(write)
    return written


def asked(session: Session, count: int = 1) -> list[asyncio.Task[NodePlan]]:
    return [asyncio.create_task(session.place(ORDER, 60.0)) for _ in range(count)]


async def turn() -> None:
    """Let every task that can run do so until it waits."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_orders_that_wait_travel_together_to_an_agent_that_takes_them() -> None:
    session = Session("member1", 1, takes_place_requests=True)
    session.send(ConnectResponse(ack=Ack(sequence=1)))
    waiting = asked(session, 3)
    await turn()
    session.send(ConnectResponse(ack=Ack(sequence=2)))
    waiting += asked(session)
    await turn()
    first, together, second, single = await sent(session)
    assert (first.ack.sequence, second.ack.sequence) == (1, 2)
    orders = together.place_requests.requests
    assert [order.request_id for order in orders] == ["1-1", "1-2", "1-3"]
    assert single.place_request.request_id == "1-4"
    for task in waiting:
        with pytest.raises(Unavailable):
            await task


async def test_orders_travel_together_only_as_far_as_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = Session("member1", 1, takes_place_requests=True)
    waiting = asked(session, 3)
    await turn()
    size_bytes = place_request_to_message("1-1", ORDER).ByteSize()
    monkeypatch.setattr("federation.agents.session.TOGETHER_BYTES", 2 * size_bytes)
    together, single = await sent(session)
    assert len(together.place_requests.requests) == 2
    assert single.HasField("place_request")
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_of_answers_that_come_together_a_wrong_one_harms_itself_only() -> None:
    session = Session("member1", 1)
    first, second = asked(session, 2)
    await turn()
    good = PlaceReply(request_id="1-1", unplaced=3)
    assert session.answer_all([good, PlaceReply(request_id="1-2", unplaced=7)]) is False
    assert (await first).unplaced == 3
    with pytest.raises(Unavailable, match="is wrong"):
        await second
    *_, refusal = await sent(session)
    assert refusal.refusal.kind == "place_reply"
    assert not session.answer_all([])
    assert not session.answer_all([good])


async def test_answers_find_who_asked_in_any_order() -> None:
    session = Session("member1", 1)
    first, second = asked(session, 2)
    await turn()
    session.answer(PlaceReply(request_id="1-2", unplaced=3, message="second"))
    session.answer(PlaceReply(request_id="1-1", unplaced=3, message="first"))
    assert (await first).message == "“first”"
    assert (await second).message == "“second”"
    requests = [message.place_request.request_id for message in await sent(session)]
    assert requests == ["1-1", "1-2"]


async def test_questions_are_bounded() -> None:
    session = Session("member1", 1)
    waiting = asked(session, MAX_ASKED)
    await turn()
    with pytest.raises(Unavailable, match="questions to answer already"):
        await session.place(ORDER, 60.0)
    session.end()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_agent_that_does_not_read_loses_its_stream() -> None:
    session = Session("member1", 1)
    for sequence in range(MAX_OUTGOING):
        session.send(ConnectResponse(ack=Ack(sequence=sequence)))
    assert not session.ended.is_set()
    session.send(ConnectResponse(ack=Ack(sequence=-1)))
    assert session.ended.is_set()
    assert isinstance(session.error, LimitExceeded)
    assert len(await sent(session)) == MAX_OUTGOING


async def test_what_was_queued_before_the_goodbye_is_sent_and_nothing_after_it() -> None:
    session = Session("member1", 1)
    session.send(ConnectResponse(ack=Ack(sequence=1)))
    error = PermissionRefused("because")
    session.end(error, farewell=goodbye(error))
    session.send(ConnectResponse(ack=Ack(sequence=2)))
    other = Conflict("the first end counts")
    session.end(other, farewell=goodbye(other))
    ack, last = await sent(session)
    assert ack.ack.sequence == 1
    assert last.goodbye.reason == "because"
    assert isinstance(session.error, PermissionRefused)


async def test_who_sees_no_nodes_is_not_asked_for_fresh_reports_either() -> None:
    sessions = Sessions()
    blind, seeing = Session("member1", 1, sees_nodes=False), Session("member2", 1)
    sessions.open(blind)
    sessions.open(seeing)
    asked = [sessions.refresh(each.cluster, "because") for each in (blind, seeing)]
    assert asked == [sessions.sees_nodes(each.cluster) for each in (blind, seeing)] == [False, True]
    assert sessions.is_connected("member1")
    blind.end()
    assert await sent(blind) == []


async def test_an_older_epoch_does_not_get_in() -> None:
    sessions = Sessions()
    newer = Session("member1", 2)
    sessions.open(newer)
    with pytest.raises(Conflict, match="epoch 2"):
        sessions.open(Session("member1", 1))
    assert not newer.ended.is_set()
