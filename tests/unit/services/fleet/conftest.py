from __future__ import annotations

import pytest

from federation.services.agent_values import AgentHello, Placer
from federation.store.postgres import PostgresStore
from lab.services import join
from tests.unit.services.fleet.planes import Plane, settle


@pytest.fixture
async def planes(store: PostgresStore) -> tuple[Plane, Plane]:
    """Both know clusters a and b, which have reported."""
    one, other = Plane(store), Plane(store)
    for each in (one, other):
        await each.fleet.load(grace_until=2000.0)
    for name in ("a", "b"):
        issued = await join(one.registration, name)
        await one.reporting.connected(name, AgentHello(epoch=1, placer=Placer.BINDER), issued.id)
        await one.report(name, 1, {})
    await settle(one, other)
    return one, other
