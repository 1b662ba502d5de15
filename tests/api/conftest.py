"""A control plane a module in this process, on a database of its own, with its clock held still.

Its clusters and namespaces are a test's own: they go when the test ends. ``world`` has a
namespace of its own; ``api`` is the whole control plane, which is emptied after the test.
Must not build or name anything inside a control plane.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from federation.scheduler.plugins.profile import DEFAULT_PROFILES, Profiles
from lab.commanded_stores import CommandedStore
from lab.control_planes import (
    AgentStream,
    Plane,
    RunningControlPlane,
    report,
    running_control_plane,
)
from lab.databases import Databases
from lab.held_clocks import HeldClock
from lab.lock_orders import LockOrders
from lab.patience import until
from tests.api.drill import Drill
from tests.api.world import World

HERE = Path(__file__).parent
serial = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of a module share an event loop, as they share a control plane."""
    for item in items:
        if item.path.is_relative_to(HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture(scope="session", autouse=True)
def lock_orders() -> Iterator[LockOrders]:
    """The locks that the control planes of these tests take."""
    watched = LockOrders()
    watched.watch()
    yield watched
    watched.stop()


@pytest.fixture(autouse=True)
def locks_in_order(lock_orders: LockOrders) -> Iterator[None]:
    """Fail where a transaction took a lock too late, because two of them may block each other."""
    lock_orders.violations.clear()
    yield
    assert lock_orders.violations == []


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


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plane")


@pytest.fixture(scope="module")
def profiles() -> Profiles:
    return DEFAULT_PROFILES


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    module_database_url: str,
    module_folder: Path,
    clock: HeldClock,
    commanded: CommandedStore,
    flags: dict[str, str],
    profiles: Profiles,
) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(
        module_database_url,
        module_folder,
        profiles,
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


@pytest.fixture(scope="module")
def commanded_second() -> CommandedStore:
    return CommandedStore()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second_plane(
    plane: RunningControlPlane,
    module_folder: Path,
    clock: HeldClock,
    commanded_second: CommandedStore,
    flags: dict[str, str],
    profiles: Profiles,
) -> AsyncIterator[RunningControlPlane]:
    """Another control plane on the module's database, made as the first one is."""
    async with running_control_plane(
        plane.database_url,
        module_folder,
        profiles,
        clock=clock,
        store=commanded_second,
        **{"heartbeat_seconds": "3600", **flags},
    ) as running:
        yield running


@pytest.fixture
def rival(
    world: World, second_plane: RunningControlPlane, commanded_second: CommandedStore
) -> World:
    """The test's namespace and clusters at the second control plane."""
    return world.at(second_plane, commanded_second)


@pytest_asyncio.fixture(loop_scope="module")
async def drill(
    plane: RunningControlPlane, clock: HeldClock, commanded: CommandedStore
) -> AsyncIterator[Drill]:
    """A world in which agents fall silent."""
    made = Drill(plane, clock, commanded)
    yield made
    await made.end()


@pytest_asyncio.fixture(loop_scope="module")
async def api(plane: Plane) -> AsyncIterator[Plane]:
    """The module's control plane, without clusters, bindings, quotas and freezes."""
    yield plane
    await emptied(plane)


@pytest_asyncio.fixture(loop_scope="module")
async def member1(api: Plane) -> AsyncIterator[AgentStream]:
    """The stream of a cluster that reported four free nodes of four cores."""
    async with api.connected("member1", report=report()) as stream:
        yield stream


@pytest_asyncio.fixture(loop_scope="module")
async def other(api: Plane, module_database_url: str, module_folder: Path) -> AsyncIterator[Plane]:
    """A second control plane beside the module's, on the same database."""
    async with running_control_plane(module_database_url, module_folder) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(database_url: str, tmp_path: Path) -> AsyncIterator[Plane]:
    """A control plane of the test's own, which it may stop, with an audit that is empty."""
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


async def emptied(plane: Plane) -> None:
    admin = plane.admin
    clusters = (await admin.ask("ListClusters", page_size=1000)).clusters
    await asyncio.gather(
        *(
            admin.ask("DeleteCluster", name=cluster.metadata.name, force=True)
            for cluster in clusters
        )
    )

    async def delete_bindings() -> int:
        bindings = (await admin.ask("ListBindings", page_size=1000)).bindings
        await asyncio.gather(
            *(
                admin.ask(
                    "DeleteBinding",
                    namespace=binding.metadata.namespace,
                    name=binding.metadata.name,
                )
                for binding in bindings
            )
        )
        return len(bindings)

    await until(delete_bindings, lambda count: count == 0)
    for quota in (await admin.ask("ListQuotas")).quotas:
        await admin.ask("SetQuota", quota={"namespace": quota.namespace})
    status = (await admin.ask("GetFailover")).status
    if status.HasField("freeze"):
        await admin.ask("ResumeFailover")
    for place in status.places:
        await admin.ask("ResumeFailover", region=place.region)
