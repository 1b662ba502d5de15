"""The agent's side of the stream, over real gRPC; the test plays the control plane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from estimator.agent import Agent
from estimator.control_plane import orders
from estimator.control_plane.channel import Dialler, open_channel
from estimator.control_plane.connecting import keep_connected
from estimator.control_plane.stream import Speaker
from estimator.estimation.capacity import NodeSet
from estimator.nodes import Node, Pod, PodState
from estimator.watched_cluster import WatchedCluster
from federation.codec.models import model_to_messages
from federation.model.echoes import PodOrigin
from federation.model.errors import PermissionRefused, PreconditionFailed, Unauthenticated
from federation.model.grades import DEFAULT_MODEL, ResourceModel, model_hash
from federation.model.resources import CPU, MEMORY, PODS
from federation.runtime.addresses import parse_endpoint
from federation.runtime.backoff import Backoff
from federation.v1.agents_pb2 import (
    Ack,
    BindingInterest,
    Goodbye,
    InterestUpdate,
    NewCredential,
    PlaceRequest,
    PlaceRequests,
    Reconnect,
    Resync,
    Share,
    SoughtShape,
    Welcome,
)
from federation.v1.resource_pb2 import ReplicaRequirements
from tests.unit.estimator.control_plane.lines import Exchange, Line, exchange

EPOCH = 1_700_000_000_000
NEVER_SECONDS = 600.0
SOON_SECONDS = 0.05


class Purse:
    """A credential, kept in memory. Implements Bearer."""

    def __init__(self) -> None:
        self.credential = "id.secret"
        self.expires_at = 0.0
        self.is_full = False

    async def replace(self, credential: str, expires_at: float) -> None:
        if self.is_full:
            raise PreconditionFailed("no space left")
        self.credential, self.expires_at = credential, expires_at


async def apis() -> frozenset[tuple[str, str]]:
    return frozenset({("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service")})


def speaker(purse: Purse) -> Speaker:
    return Speaker(
        cluster="member1",
        bearer=purse,
        agent_version="1.2.3",
        kubernetes_version="v1.36.2",
        apis=apis,
    )


def welcome(
    *,
    model: ResourceModel = DEFAULT_MODEL,
    heartbeat_seconds: float = NEVER_SECONDS,
    report_seconds: float = NEVER_SECONDS,
) -> Welcome:
    return Welcome(
        resource_models=model_to_messages(model),
        model_hash=model_hash(model) if model.grades else "",
        heartbeat_seconds=heartbeat_seconds,
        report_seconds=report_seconds,
    )


def member() -> WatchedCluster:
    cluster = WatchedCluster(NodeSet.SCHEDULABLE)
    cluster.cache.put_node(
        Node(name="a", allocatable={CPU: 4000, MEMORY: 8 << 30, PODS: 10}, labels={"disk": "ssd"})
    )
    return cluster


def pod(uid: str, cpu_millis: int) -> Pod:
    return Pod(
        uid=uid, namespace="shop", name=uid, node="a", state=PodState.BOUND,
        request={CPU: cpu_millis}, nonzero={CPU: cpu_millis, MEMORY: 200 << 20},
    )  # fmt: skip


@asynccontextmanager
async def speaking(
    server: Exchange, cluster: WatchedCluster, purse: Purse | None = None
) -> AsyncIterator[tuple[asyncio.Task[None], asyncio.Event]]:
    """An agent that dials ``server`` at once, and again at once whenever the stream ends."""
    stopping = asyncio.Event()
    agent = Agent(cluster, epoch=EPOCH, clock=lambda: 1_700_000_123.0)
    endpoint = parse_endpoint(server.endpoint)
    task = asyncio.create_task(
        keep_connected(
            lambda: open_channel(endpoint, None),
            agent,
            speaker(purse or Purse()),
            stopping,
            Backoff(lambda _ceiling: 0.0),
        )
    )
    try:
        yield task, stopping
    finally:
        stopping.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def welcomed(server: Exchange, **pace: Any) -> tuple[Line, Any]:
    """A stream past its greeting, and the first report."""
    line = await server.next_line()
    await line.receive_next("hello")
    await line.send(welcome=welcome(**pace))
    return line, (await line.receive_next("report")).report


async def test_it_says_who_it_is_and_reports_once_welcomed() -> None:
    async with exchange() as server, speaking(server, member()):
        line = await server.next_line()
        assert line.metadata["authorization"] == "Bearer id.secret"
        message = await line.receive()
        assert message is not None
        assert message.cluster == "member1"
        assert message.hello.takes_place_requests
        hello = message.hello
        assert (hello.epoch, hello.acknowledged_sequence, hello.placer) == (EPOCH, 0, "none")
        assert (hello.agent_version, hello.kubernetes_version) == ("1.2.3", "v1.36.2")
        assert hello.agent_time.seconds == 1_700_000_123
        enabled = {each.group_version: each.resources for each in hello.api_enablements}
        assert {version: [each.kind for each in kinds] for version, kinds in enabled.items()} == {
            "apps/v1": ["Deployment"],
            "v1": ["Pod", "Service"],
        }
        await line.send(welcome=welcome())
        report = (await line.receive_next("report")).report
        assert (report.epoch, report.sequence) == (EPOCH, 1)
        assert dict(report.allocatable) == {CPU: 4000, MEMORY: 8 << 30, PODS: 10}
        assert (report.total_nodes, report.ready_nodes, report.graded_nodes) == (1, 1, 1)
        assert [each.count for each in report.grade_counts] == [0, 1, 0, 0, 0, 0, 0, 0, 0]
        assert report.model_hash == model_hash(DEFAULT_MODEL)
        assert report.snapshot_time.seconds == 1_700_000_123


async def test_a_heartbeat_stands_for_an_unchanged_report() -> None:
    pace = {"heartbeat_seconds": SOON_SECONDS, "report_seconds": SOON_SECONDS}
    async with exchange() as server, speaking(server, member()):
        line, report = await welcomed(server, **pace)
        for _ in range(3):
            message = await line.receive()
            assert message is not None
            assert message.heartbeat.sequence == report.sequence
            assert message.heartbeat.content_hash == report.content_hash


async def test_a_changed_picture_is_reported_with_a_higher_sequence() -> None:
    cluster = member()
    async with exchange() as server, speaking(server, cluster):
        line, first = await welcomed(server, report_seconds=SOON_SECONDS)
        cluster.cache.put_pod(pod("p", 500))
        second = (await line.receive_next("report")).report
        assert second.sequence > first.sequence
        assert second.content_hash != first.content_hash
        assert dict(second.allocated) == {CPU: 500, PODS: 1}


async def test_a_resync_gets_a_whole_report_though_nothing_changed() -> None:
    async with exchange() as server, speaking(server, member()):
        line, first = await welcomed(server)
        await line.send(resync=Resync(reason="lost it"))
        second = (await line.receive_next("report")).report
        assert second.sequence > first.sequence
        assert second.content_hash == first.content_hash


async def test_another_model_is_graded_by_at_once() -> None:
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server)
        await line.send(welcome=welcome(model=ResourceModel()))
        report = (await line.receive_next("report")).report
        assert not report.grade_counts
        assert (report.model_hash, report.graded_nodes) == ("", 0)


async def test_it_dials_again_and_says_what_was_acknowledged() -> None:
    async with exchange() as server, speaking(server, member()):
        line, report = await welcomed(server)
        await line.send(ack=Ack(sequence=report.sequence))
        await line.send(resync=Resync())
        await line.receive_next("report")
        line.end(grpc.StatusCode.UNAVAILABLE, "restarting")
        line = await server.next_line()
        hello = (await line.receive_next("hello")).hello
        assert (hello.epoch, hello.acknowledged_sequence) == (EPOCH, report.sequence)
        await line.send(welcome=welcome())
        again = (await line.receive_next("report")).report
        assert again.sequence > report.sequence


@pytest.mark.parametrize("code", [grpc.StatusCode.OK, grpc.StatusCode.INTERNAL])
async def test_it_dials_again_before_it_was_ever_welcome(code: grpc.StatusCode) -> None:
    async with exchange() as server, speaking(server, member()):
        (await server.next_line()).end(code, "not now")
        line, _ = await welcomed(server)
        line.end()


async def test_goodbye_is_for_good() -> None:
    async with exchange() as server, speaking(server, member()) as (task, _):
        line, _ = await welcomed(server)
        await line.send(goodbye=Goodbye(reason="the credential was revoked"))
        with pytest.raises(PermissionRefused, match="the credential was revoked"):
            await task


async def test_a_goodbye_for_the_credentials_sake_is_told_apart() -> None:
    async with exchange() as server, speaking(server, member()) as (task, _):
        line, _ = await welcomed(server)
        await line.send(goodbye=Goodbye(reason="it was revoked"))
        line.end(grpc.StatusCode.UNAUTHENTICATED, "revoked")
        with pytest.raises(Unauthenticated, match="it was revoked"):
            await task


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.NOT_FOUND], ids=str
)
async def test_a_credential_that_is_not_taken_is_for_good(code: grpc.StatusCode) -> None:
    async with exchange() as server, speaking(server, member()) as (task, _):
        line = await server.next_line()
        line.end(code, "unknown credential")
        with pytest.raises(Unauthenticated, match="unknown credential"):
            await task


async def test_a_new_credential_is_stored_said_to_be_and_used_from_the_next_stream_on() -> None:
    purse = Purse()
    async with exchange() as server, speaking(server, member(), purse):
        line, _ = await welcomed(server)
        offer = NewCredential(credential="new.secret", expire_time=Timestamp(seconds=99))
        await line.send(new_credential=offer)
        stored = (await line.receive_next("credential_stored")).credential_stored
        assert stored.credential_id == "new"
        assert (purse.credential, purse.expires_at) == ("new.secret", 99.0)
        line.end(grpc.StatusCode.UNAVAILABLE, "restarting")
        line = await server.next_line()
        assert line.metadata["authorization"] == "Bearer new.secret"


async def test_a_credential_that_cannot_be_stored_is_not_said_to_be() -> None:
    purse = Purse()
    async with exchange() as server, speaking(server, member(), purse):
        line, _ = await welcomed(server)
        purse.is_full = True
        await line.send(new_credential=NewCredential(credential="lost.secret"))
        await line.send(resync=Resync())
        message = await line.receive()
        assert message is not None
        assert message.WhichOneof("message") == "report"
        purse.is_full = False
        await line.send(new_credential=NewCredential(credential="new.secret"))
        stored = (await line.receive_next("credential_stored")).credential_stored
        assert stored.credential_id == "new"


async def test_it_dials_again_when_asked_to() -> None:
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server)
        await line.send(reconnect=Reconnect(after_seconds=5.0, reason="of age"))
        again, _ = await welcomed(server)
        again.end()


async def test_it_dials_its_endpoints_in_turn() -> None:
    async with exchange() as first, exchange() as second:
        dialler = Dialler([parse_endpoint(each.endpoint) for each in (first, second)], first=1)
        agent = Agent(member(), epoch=EPOCH, clock=lambda: 1.0)
        backoff = Backoff(lambda _ceiling: 0.0)
        task = asyncio.create_task(
            keep_connected(
                lambda: dialler.open(None), agent, speaker(Purse()), asyncio.Event(), backoff
            )
        )
        for server in (second, first, second):
            (await server.next_line()).end(grpc.StatusCode.UNAVAILABLE, "try the other")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_another_pace_holds_at_once_and_asks_for_no_report() -> None:
    async with exchange() as server, speaking(server, member()):
        line, report = await welcomed(server)
        await line.send(welcome=welcome(heartbeat_seconds=SOON_SECONDS))
        message = await line.receive()
        assert message is not None
        assert message.heartbeat.sequence == report.sequence


async def test_much_of_a_change_is_reported_before_its_time() -> None:
    cluster = member()
    async with exchange() as server, speaking(server, cluster):
        line, first = await welcomed(server)
        cluster.cache.put_pod(pod("p", 500))
        second = (await line.receive_next("report")).report
        assert second.sequence > first.sequence
        assert dict(second.allocated) == {CPU: 500, PODS: 1}


async def test_promises_are_echoed_by_what_there_is_of_them() -> None:
    cluster = member()
    cluster.cache.put_pod(pod("p", 500)._replace(origin=PodOrigin(binding_uid="uid-1")))
    async with exchange() as server, speaking(server, cluster):
        line = await server.next_line()
        await line.receive_next("hello")
        await line.send(welcome=welcome())
        await line.send(interest=interest(7, "uid-1"))
        reports = [(await line.receive_next("report")).report]
        if not reports[-1].interest_version:
            reports.append((await line.receive_next("report")).report)
        (echo,) = reports[-1].echoes
        assert reports[-1].interest_version == 7
        assert (echo.binding, echo.bound, echo.unbound) == ("shop/web", 1, 0)
        assert dict(reports[-1].echo_shapes[echo.shape].request) == {CPU: 250}

        # Another comes to run: that is told within a second or so, without being asked.
        cluster.cache.put_pod(pod("q", 10)._replace(origin=PodOrigin(binding_uid="uid-1")))
        (echo,) = (await line.receive_next("report")).report.echoes
        assert echo.bound == 2


async def test_a_report_of_a_later_stream_answers_what_was_told_before() -> None:
    async with exchange() as server, speaking(server, member()):
        line = await server.next_line()
        await line.receive_next("hello")
        await line.send(welcome=welcome())
        await line.send(interest=interest(7, "uid-1"))
        while not (await line.receive_next("report")).report.interest_version:
            pass
        line.end(grpc.StatusCode.UNAVAILABLE)
        _, report = await welcomed(server)
        assert report.interest_version == 7


async def test_changes_of_what_to_look_for_are_answered_at_the_beat_of_reports() -> None:
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server, report_seconds=SOON_SECONDS)
        for version in (3, 4):
            await line.send(interest=interest(version, f"uid-{version}"))
            assert (await line.receive_next("report")).report.interest_version == version
        await line.send(interest=InterestUpdate(version=5, removed=["shop/web"]))
        assert (await line.receive_next("report")).report.interest_version == 5


async def test_what_cannot_be_looked_for_is_not_said_to_be() -> None:
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server)
        await line.send(interest=InterestUpdate(version=3, bindings=[BindingInterest()]))
        await line.send(resync=Resync())
        assert (await line.receive_next("report")).report.interest_version == 0


@pytest.mark.parametrize("follows_claims", [True, False])
async def test_nodes_are_claimed_for_a_plan_where_somebody_follows_claims(
    *, follows_claims: bool
) -> None:
    cluster = member()
    cluster.follows_claims = follows_claims
    async with exchange() as server, speaking(server, cluster):
        line, _ = await welcomed(server)
        request = place_request("r1", "shop/web", replicas=3)
        request.planned = True
        await line.send(place_request=request)
        reply = (await line.receive_next("place_reply")).place_reply
        assert (reply.claimed, reply.unplaced) == (follows_claims, 0)
        assert bool(reply.message) is not follows_claims
        await line.send(resync=Resync())
        report = (await line.receive_next("report")).report
        taken = 3000 if follows_claims else 0
        assert report.allocated.get(CPU, 0) == taken
        assert [echo.bound for echo in report.echoes] == ([3] if follows_claims else [])


async def test_a_stop_ends_what_was_begun_and_hangs_up() -> None:
    async with exchange() as server, speaking(server, member()) as (task, stopping):
        line, _ = await welcomed(server)
        stopping.set()
        assert await line.receive() is None
        line.end()
        await task


async def test_replicas_are_placed_and_their_room_is_held() -> None:
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server)
        await line.send(place_request=place_request("1", "shop/web", replicas=3))
        reply = (await line.receive_next("place_reply")).place_reply
        assert reply.request_id == "1"
        assert [(each.node, each.replicas) for each in reply.nodes] == [("a", 3)]
        assert (reply.unplaced, reply.strategy) == (0, "MostAllocated")
        await line.send(place_request=place_request("2", "shop/api", replicas=2))
        reply = (await line.receive_next("place_reply")).place_reply
        assert reply.request_id == "2"
        assert [(each.node, each.replicas) for each in reply.nodes] == [("a", 1)]
        assert reply.unplaced == 1
        assert "short of cpu" in reply.message


async def test_orders_that_come_together_are_answered_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orders, "REPLIES_TOGETHER", 2)
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server)
        asked = [place_request(str(n), f"shop/web-{n}", replicas=1) for n in range(1, 4)]
        asked[1] = place_request("2", "shop/web-2", replicas=1, cpu="many")
        await line.send(place_requests=PlaceRequests(requests=asked))
        first, wrong = (await line.receive_next("place_replies")).place_replies.replies
        single = (await line.receive_next("place_reply")).place_reply
        assert [each.request_id for each in (first, wrong, single)] == ["1", "2", "3"]
        assert [each.unplaced for each in (first, wrong, single)] == [0, 1, 0]


async def test_a_question_that_breaks_a_rule_is_answered_with_the_rule() -> None:
    async with exchange() as server, speaking(server, member()):
        line, _ = await welcomed(server)
        await line.send(place_request=place_request("1", "shop/web", replicas=2, cpu="many"))
        reply = (await line.receive_next("place_reply")).place_reply
        assert (reply.request_id, reply.unplaced) == ("1", 2)
        assert "shares[0].replicaRequirements.resourceRequest[cpu]" in reply.message


def place_request(request_id: str, binding: str, *, replicas: int, cpu: str = "1") -> PlaceRequest:
    requirements = ReplicaRequirements(resource_request={CPU: cpu})
    share = Share(replicas=replicas, replica_requirements=requirements)
    return PlaceRequest(request_id=request_id, binding=binding, shares=[share])


def interest(version: int, uid: str) -> InterestUpdate:
    sought = SoughtShape(request={CPU: 250}, decisions=["d"])
    binding = BindingInterest(binding="shop/web", uid=uid, shapes=[sought])
    return InterestUpdate(version=version, whole=True, bindings=[binding])
