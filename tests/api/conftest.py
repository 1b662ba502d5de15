"""A control plane a module in this process, on a database of its own, with its clock held still.

Its clusters and namespaces are a test's own: they go when the test ends.
Must not build or name anything inside a control plane.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.databases import Databases
from lab.held_clocks import HeldClock
from tests.api.world import World

serial = itertools.count(1)


@pytest.fixture(scope="module")
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture(scope="module")
def commanded() -> CommandedStore:
    return CommandedStore()


@pytest.fixture(scope="module")
def module_database_url(databases: Databases, template_url: str) -> str:
    """A migrated database of the module's own."""
    return databases.create(f"module{next(serial)}", template=template_url)


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    """Settings of a module's control plane; heartbeats are seldom, because its clock jumps."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    module_database_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    clock: HeldClock,
    commanded: CommandedStore,
    flags: dict[str, str],
) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(
        module_database_url,
        tmp_path_factory.mktemp("plane"),
        clock=clock,
        store=commanded,
        **{"heartbeat_seconds": "3600", **flags},
    ) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world(
    plane: RunningControlPlane, clock: HeldClock, commanded: CommandedStore
) -> AsyncIterator[World]:
    """A namespace and clusters of the test's own."""
    made = World(plane, clock, commanded)
    yield made
    await made.end()
