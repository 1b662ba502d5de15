"""What connected agents are told to look for: everything once, and then what changed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from federation.agents import interests
from federation.v1.agents_pb2 import InterestUpdate, NodeShare, PlaceReply
from lab.control_planes import AgentStream, Plane, hello, report
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import binding, deleted, scheduled


async def heard(stream: AgentStream) -> InterestUpdate:
    """The next message about interests."""
    while (message := await stream.next()) is not None:
        if message.HasField("interest"):
            interest: InterestUpdate = message.interest
            return interest
    raise AssertionError("the stream ended")


async def promise(api: Plane, name: str, replicas: int = 1, cpu: str = "10m", **fields: Any) -> Any:
    wanted = binding(name, replicas=replicas, uid=f"uid-{name}", **fields)
    wanted.spec.replica_requirements.resource_request["cpu"] = cpu
    return (await scheduled(api, wanted)).decision


def names(interest: InterestUpdate) -> list[str]:
    return [each.binding for each in interest.bindings]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interests, "PAUSE_SECONDS", 0.01)


@pytest.mark.usefixtures("often")
async def test_an_agent_is_told_everything_and_then_what_changed(api: Plane) -> None:
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello())
        assert await heard(stream) == InterestUpdate(whole=True)
        await stream.say(report=report())
        await stream.hear("ack")
        await promise(api, "web")
        await promise(api, "db")
    async with AgentStream(stream.agent, "member1") as again:
        await again.say(hello=hello(2))
        told = await heard(again)
        assert (names(told), told.whole, told.version > 0) == (["shop/db", "shop/web"], True, True)
        web = told.bindings[1]
        assert (web.uid, web.owner.kind, web.owner.name) == ("uid-web", "Deployment", "web")
        await promise(api, "db", cpu="20m")
        changed = await heard(again)
        assert (names(changed), changed.whole) == (["shop/db"], False)
        assert [each.request["cpu"] for each in changed.bindings[0].shapes] == [20, 10]
        assert changed.version > told.version
        await deleted(api, "web")
        gone = await heard(again)
        assert (names(gone), list(gone.removed)) == ([], ["shop/web"])
        # What others hold is no news, nor is a change of what people say of the cluster.
        async with api.connected("member2", report=report()):
            spec = {"metadata": {"name": "member1"}, "spec": {"region": "south"}}
            await api.ask("UpdateCluster", cluster=spec)
            elsewhere = binding("elsewhere")
            elsewhere.spec.placement.cluster_affinity.cluster_names.append("member2")
            await scheduled(api, elsewhere)
            await promise(api, "db", cpu="30m", replicas=2)
            assert names(await heard(again)) == ["shop/db"]


async def test_what_changes_while_an_agent_is_told_comes_together(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interests, "PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(interests, "THREAD_BINDINGS", 10)
    async with api.connected("member1", report=report()) as stream:
        wanted = [f"b{number:02}" for number in range(15)]
        # Longer than all of these decisions take, and shorter than a test's patience.
        await asyncio.gather(*(promise(api, name) for name in (*wanted, "gone")))
        await deleted(api, "gone")
        told: list[str] = []
        removed: list[str] = []
        messages = 0
        while sorted(told) != [f"shop/{name}" for name in wanted]:
            update = await heard(stream)
            messages += 1
            told = sorted({*told, *names(update)} - {*update.removed})
            removed += update.removed
        assert messages < len(wanted) / 2


@pytest.mark.usefixtures("often")
async def test_a_cluster_that_became_another_is_told_anew(api: Plane) -> None:
    async with api.connected("member1", report=report()) as stream:
        await promise(api, "web")
        assert names(await heard(stream)) == ["shop/web"]
        await api.ask("ReplaceCluster", name="member1", cluster_uid="uid-new")
    async with AgentStream(await api.enrolled("member1", uid="uid-new"), "member1") as another:
        await another.say(hello=hello(3))
        told = await heard(another)
        assert (names(told), told.whole) == ([], True)


async def test_an_order_comes_after_what_changed_before_it(
    api: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting for the pause between two updates: it is as long as a test."""
    async with AgentStream(await api.enrolled("member1"), "member1") as stream:
        await stream.say(hello=hello())
        await stream.hear("welcome")
        await stream.say(report=report())
        await stream.hear("ack")
        monkeypatch.setattr(interests, "PAUSE_SECONDS", PATIENCE_SECONDS)
        asking = asyncio.create_task(
            scheduled(api, binding("web", replicas=2), node_timeout_seconds=60)
        )
        before = [each for each in await answered(stream, "shop/web") if each.bindings]
        await asking
        told = before[-1] if before else await heard(stream)
        assert names(told) == ["shop/web"]
        await scheduled(api, binding("web", replicas=0))
        # A new promise frees no nodes: its own order tells the agent of it.
        await scheduled(api, binding("cache", replicas=1))
        asking = asyncio.create_task(
            scheduled(api, binding("db", replicas=2), node_timeout_seconds=60)
        )
        kinds = await answered(stream, "shop/db")
        await asking
        # The order's own binding is told after it, with the next version.
        early = [interest for interest in kinds if isinstance(interest, InterestUpdate)]
        assert [[*names(each), *each.removed] for each in early] == [["shop/web"]]
        assert early[0].version == told.version


async def answered(stream: AgentStream, name: str) -> list[Any]:
    """Answer the order for a binding; what was heard before it of interests."""
    before: list[Any] = []
    while (message := await stream.next()) is not None:
        if message.HasField("interest"):
            before.append(message.interest)
        if message.HasField("place_request"):
            order = message.place_request
            replicas = sum(share.replicas for share in order.shares)
            nodes = [NodeShare(node="n1", replicas=replicas)]
            await stream.say(place_reply=PlaceReply(request_id=order.request_id, nodes=nodes))
            if order.binding == name:
                return before
    raise AssertionError("the stream ended")
