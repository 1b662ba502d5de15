"""What ends or weakens promises: release, leases, deletion, plans that nobody keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from federation.capacity.ledger import ClusterLedger
from federation.model.errors import (
    Unavailable,
)
from federation.services.agent_values import AgentHello, Placer
from federation.services.fleet.registry import FleetOwner
from federation.services.members.join import Registration
from federation.services.members.reports import Reporting
from federation.services.scheduling.bindings import Scheduling
from federation.services.scheduling.release import ReleaseService
from federation.services.values import DecisionRecord, Scheduled
from federation.store.postgres import PostgresStore
from lab.services import (
    WEB,
    Agents,
    Deciders,
    apply,
    join,
)

# It takes all that the three clusters have.
LARGE = replace(WEB, replicas=12)


@pytest.fixture
def releases(deciders: Deciders) -> ReleaseService:
    return deciders.releases


def ledgers(fleet: FleetOwner) -> Sequence[ClusterLedger]:
    return fleet.snapshot.ledgers


@pytest.fixture
async def planned(
    scheduling: Scheduling, registration: Registration, reporting: Reporting
) -> Scheduled:
    """A decision over the three clusters, of which `a` and `b` follow plans."""
    for name, placer in (("a", Placer.EXTENDER), ("b", Placer.BINDER)):
        credential = await join(registration, name)
        await reporting.connected(name, AgentHello(epoch=1, placer=placer), credential.id)
    return await apply(scheduling, LARGE)


async def placed_while_away(
    planned: Scheduled, scheduling: Scheduling, agents: Agents
) -> DecisionRecord:
    """Asked for nodes while no agent is there."""
    assert planned.binding is not None
    agents.errors = {name: Unavailable() for name in ("a", "b", "c")}
    return await scheduling.node_plans.place(planned.record, planned.binding, 5.0)


async def certificates(scheduling: Scheduling, store: PostgresStore) -> dict[str, str]:
    """By cluster; the fleet and the store say the same."""
    view = await scheduling.get_binding("shop", "web")
    async with store.reading() as read:
        row = await read.reservations.of("shop", "web")
    assert row is not None
    known = {each.cluster: each.certificate.value for each in view.held}
    assert known == {each.cluster: each.certificate.value for each in row.reservations}
    return known


async def test_nobody_is_asked_for_a_plan_that_was_made_again_meanwhile(
    planned: Scheduled, scheduling: Scheduling, store: PostgresStore, agents: Agents
) -> None:
    assert planned.binding is not None
    placed = await placed_while_away(planned, scheduling, agents)
    await apply(scheduling, replace(LARGE, replicas=11))
    agents.errors = {}
    await scheduling.node_plans.place_once_back(placed, planned.binding, 60.0)
    assert agents.orders == {}
    assert (await certificates(scheduling, store))["a"] == "planned"


async def test_what_was_careful_already_is_not_weakened(
    planned: Scheduled,
    releases: ReleaseService,
    fleet: FleetOwner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await releases.downgrade("shop", "web", planned.record.id, "a", "no room")
    assert caplog.messages == ["planned promise is careful now"]
    caplog.clear()
    before = ledgers(fleet)
    for cluster in ("a", "c", "gone"):
        await releases.downgrade("shop", "web", planned.record.id, cluster, "no room")
    assert ledgers(fleet) == before
    assert caplog.messages == []
