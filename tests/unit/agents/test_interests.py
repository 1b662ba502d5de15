"""What connected agents are told to look for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from federation.agents import interests as module
from federation.agents.interests import THREAD_BINDINGS, Interests
from federation.agents.session import Session
from federation.capacity.ledger import ClusterLedger
from federation.codec.interests import interests_from_message
from federation.model.echoes import InterestUpdate, Owner
from federation.model.node_plans import PlaceOrder
from federation.model.reservations import Share
from federation.model.workload import ReplicaRequirements
from federation.services.journal import (
    BindingChanged,
    ClusterChanged,
    ClusterShares,
    ReportAdvanced,
)
from federation.v1.agents_pb2 import ConnectResponse
from lab.patience import PATIENCE_SECONDS

CLUSTER = "member1"


class Promises:
    """Ledgers by cluster, and who they are for. Implements the room's port."""

    def __init__(self) -> None:
        self.ledgers = {CLUSTER: ClusterLedger(cluster=CLUSTER)}
        self.owners: dict[str, Owner] = {}
        self.uids: dict[str, str] = {}

    def ledger(self, name: str) -> ClusterLedger:
        return self.ledgers[name]


class Fleet:
    """One cluster whose promises change, and the agent that hears of it."""

    def __init__(self) -> None:
        self.promises = Promises()
        self.interests = Interests(self.promises)
        self.session = Session(CLUSTER, 1)
        self._heard: asyncio.Queue[ConnectResponse] = asyncio.Queue()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(self.interests.tell(self.session)),
            asyncio.create_task(self.session.write_all(self._hear)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _hear(self, message: ConnectResponse) -> None:
        self._heard.put_nowait(message)

    async def next_message(self) -> ConnectResponse:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._heard.get()

    async def heard(self) -> InterestUpdate:
        message = await self.next_message()
        assert message.HasField("interest")
        return interests_from_message(message.interest)

    async def heard_order(self) -> str:
        """The binding that nodes are asked for."""
        message = await self.next_message()
        assert message.HasField("place_request")
        return message.place_request.binding

    @property
    def heard_all(self) -> bool:
        return self._heard.empty()

    def decide(self, binding: str, replicas: int = 1, cpu: int = 100) -> None:
        requirements = ReplicaRequirements(request={"cpu": cpu})
        share = Share(requirements=requirements, replicas=replicas)
        ledger = self.promises.ledgers[CLUSTER].decided(binding, "d", [share])
        self._changed(binding, ledger, (share,))

    def release(self, binding: str) -> None:
        self._changed(binding, self.promises.ledgers[CLUSTER].released(binding), ())

    def _changed(self, binding: str, ledger: ClusterLedger, shares: tuple[Share, ...]) -> None:
        self.promises.ledgers[CLUSTER] = ledger
        given = ClusterShares(version=ledger.version, shares=shares)
        self.interests.changed(
            BindingChanged(namespace="", name=binding, clusters={CLUSTER: given, "other": given})
        )

    @property
    def version(self) -> int:
        return self.promises.ledgers[CLUSTER].interest_version


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.01)
    return Fleet()


async def test_an_agent_is_told_everything_and_then_what_changed(fleet: Fleet) -> None:
    fleet.decide("web")
    fleet.decide("db")
    web = Owner("apps/v1", "Deployment", "shop", "web")
    fleet.promises.owners, fleet.promises.uids = {"web": web}, {"db": "uid-2"}
    async with fleet.connected():
        told = await fleet.heard()
        assert (told.version, told.whole) == (fleet.version, True)
        found = {each.binding: (each.owner, each.uid) for each in told.interests}
        assert found == {"web": (web, ""), "db": (None, "uid-2")}

        fleet.decide("db", cpu=200)
        told = await fleet.heard()
        assert (told.version, told.whole) == (fleet.version, False)
        (db,) = told.interests
        assert [dict(each.shape) for each in db.shapes] == [{"cpu": 200}, {"cpu": 100}]

        fleet.release("web")
        told = await fleet.heard()
        assert (told.version, told.interests, told.removed) == (fleet.version, (), ("web",))


async def test_an_agent_is_told_even_that_there_is_nothing(fleet: Fleet) -> None:
    async with fleet.connected():
        assert await fleet.heard() == InterestUpdate(version=0, whole=True)


async def test_what_changes_while_an_agent_is_told_comes_together(fleet: Fleet) -> None:
    async with fleet.connected():
        await fleet.heard()
        names = [f"b{number:03}" for number in range(THREAD_BINDINGS + 5)]
        for name in (*names, "gone"):
            fleet.decide(name)
        fleet.release("gone")
        told = await fleet.heard()
        assert [each.binding for each in told.interests] == names
        assert told.removed == ("gone",)
        assert told.version == fleet.version


async def test_other_clusters_changes_are_not_told(fleet: Fleet) -> None:
    async with fleet.connected():
        await fleet.heard()
        elsewhere = {"other": ClusterShares(version=1)}
        fleet.interests.changed(BindingChanged(namespace="", name="web", clusters=elsewhere))
        fleet.interests.changed(ClusterChanged(cluster="other", emptied=4))
        fleet.interests.changed(ReportAdvanced(cluster="other", version=1, epoch=1, sequence=1))
        fleet.decide("db")
        assert [each.binding for each in (await fleet.heard()).interests] == ["db"]
        assert fleet.heard_all


async def test_a_cluster_that_became_another_is_told_anew(fleet: Fleet) -> None:
    fleet.decide("web")
    async with fleet.connected():
        await fleet.heard()
        fleet.promises.ledgers[CLUSTER] = ClusterLedger(cluster=CLUSTER)
        fleet.interests.changed(ClusterChanged(cluster=CLUSTER, emptied=3))
        assert await fleet.heard() == InterestUpdate(version=0, whole=True)


async def test_a_ledger_that_was_read_anew_is_told_anew(fleet: Fleet) -> None:
    report = ReportAdvanced(cluster=CLUSTER, version=9, epoch=1, sequence=1)
    async with fleet.connected():
        await fleet.heard()
        fleet.interests.changed(report)
        ledger = fleet.promises.ledgers[CLUSTER].decided(
            "web", "d", [Share(requirements=ReplicaRequirements(), replicas=1)]
        )
        fleet.promises.ledgers[CLUSTER] = ledger
        fleet.interests.changed(report)
        told = await fleet.heard()
        assert (told.version, told.whole) == (ledger.interest_version, True)
        assert fleet.heard_all


async def test_an_order_comes_after_what_changed_before_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without waiting for the pause between two updates: it is as long as a test."""
    monkeypatch.setattr(module, "PAUSE_SECONDS", PATIENCE_SECONDS)
    fleet.decide("web")
    async with fleet.connected():
        await fleet.heard()
        told = fleet.version
        fleet.decide("web", replicas=0)
        fleet.decide("db")
        order = PlaceOrder(binding_key="db", shares=())
        asking = [
            asyncio.create_task(fleet.session.place(order, PATIENCE_SECONDS)) for _ in range(2)
        ]
        early = await fleet.heard()
        (web,) = early.interests
        assert [each.promised for each in web.shapes] == [0]
        assert web.has_ended("d")
        # What nodes are chosen for is told after its order, and with it the version.
        assert (early.version, early.whole) == (told, False)
        assert [await fleet.heard_order() for _ in asking] == ["db", "db"]
        assert fleet.heard_all
        for each in asking:
            each.cancel()


async def test_what_was_told_before_an_order_is_told_again_with_the_version(fleet: Fleet) -> None:
    fleet.decide("web")
    async with fleet.connected():
        await fleet.heard()
        fleet.decide("web", replicas=0)
        fleet.decide("db")
        order = PlaceOrder(binding_key="db", shares=())
        asking = asyncio.create_task(fleet.session.place(order, PATIENCE_SECONDS))
        updates = []
        while not updates or updates[-1].version != fleet.version:
            message = await fleet.next_message()
            if message.HasField("interest"):
                updates.append(interests_from_message(message.interest))
        assert [each.binding for each in updates[-1].interests] == ["db", "web"]
        asking.cancel()
