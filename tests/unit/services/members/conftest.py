"""Two control planes on one store that tell each other whom they hear. Clocks stand still."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from federation.agents.session import Session
from federation.agents.sessions import Sessions
from federation.services.agent_values import AgentHello, AgentPresence, AgentSight
from federation.services.fleet.journal_reader import Following
from federation.services.fleet.registry import FleetOwner
from federation.services.journal import ReportAdvanced
from federation.services.members.join import Registration
from federation.services.members.presences import Presences
from federation.services.members.replicas import Replicas
from federation.services.members.reports import Reporting, ReportTimes
from federation.store.postgres import PostgresStore
from lab.services import join

HEARTBEAT_SECONDS = 6.0
GRACE_SECONDS = 30.0
LOST_SECONDS = 100.0


@dataclass
class StillClock:
    """Moves when told to; every control plane has its own. Implements ports.Clock."""

    time: float

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Plane:
    """What of a control plane knows agents."""

    def __init__(self, store: PostgresStore, name: str, time: float) -> None:
        self.store = store
        self.clock = StillClock(time)
        self.fleet = FleetOwner(store)
        self.following = Following(store, self.fleet)
        self.sessions = Sessions()
        self.replicas = Replicas(store, self.clock, name)
        self.replicas.endpoint = f"{name}.example:7443"
        beat = ReportTimes(heartbeat_seconds=HEARTBEAT_SECONDS, batch_seconds=0.0)
        self.reporting = Reporting(store, self.fleet, self.clock, beat)
        self.presences = self.presences_by(self.reporting)
        self.fleet.observe(self.presences.note_report, ReportAdvanced)

    def presences_by(self, reporting: Reporting) -> Presences:
        given = self.store, self.fleet, self.sessions, self.replicas, reporting, self.clock
        return Presences(*given, lost_seconds=LOST_SECONDS)

    async def start(self) -> None:
        await self.fleet.load(grace_until=self.clock.now() + GRACE_SECONDS)
        await self.share()

    async def share(self) -> None:
        await self.presences.share()

    async def connect(self, credential_id: str, *, epoch: int = 1) -> Session:
        """The agent of member1 opens its stream here."""
        ahead = AgentHello(epoch=epoch, agent_time=self.clock.now() + 3)
        await self.reporting.connected("member1", ahead, credential_id)
        session = Session("member1", epoch)
        self.sessions.open(session)
        return session

    def beat(self, content_hash: str = "", sight: AgentSight | None = None) -> None:
        self.reporting.heartbeat("member1", 1, content_hash, self.clock.now(), sight)

    def hang_up(self, session: Session) -> None:
        if self.sessions.close(session):
            self.reporting.disconnected("member1", session.epoch)

    @property
    def seen(self) -> AgentPresence:
        return self.fleet.view("member1").presence

    def is_stale(self) -> bool:
        return not self.fleet.snapshot.fleet_at(self.clock.now()).ready_c[0]


@pytest.fixture
async def credential_id(store: PostgresStore) -> str:
    return (await join(Registration(store, FleetOwner(store)), "member1")).id


@pytest.fixture
async def planes(store: PostgresStore, credential_id: str) -> tuple[Plane, Plane]:
    """``a`` and ``b``, whose clocks are a day apart."""
    a, b = Plane(store, "a", 1_000_000.0), Plane(store, "b", 1_086_400.0)
    for plane in (a, b):
        await plane.start()
    await a.share()
    pass_time(a, b, seconds=GRACE_SECONDS + 1)
    return a, b


def pass_time(*planes: Plane, seconds: float) -> None:
    for plane in planes:
        plane.clock.time += seconds


async def share(*planes: Plane) -> None:
    for plane in planes:
        await plane.share()
