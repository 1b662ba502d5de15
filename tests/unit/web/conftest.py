"""A control plane a module, and patience with its pages."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from federation.web import connections
from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.databases import Databases
from lab.held_clocks import HeldClock
from lab.patience import PATIENCE_SECONDS
from tests.api.conftest import emptied

HERE = Path(__file__).parent
serial = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of a module share an event loop, as they share a control plane."""
    for item in items:
        if item.path.is_relative_to(HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that takes long on a busy machine is no connection that somebody holds."""
    monkeypatch.setattr(connections, "LIFETIME_SECONDS", PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def module_database_url(databases: Databases, template_url: str) -> Iterator[str]:
    """A migrated database of the module's own."""
    url = databases.create(f"page{next(serial)}", template=template_url)
    yield url
    databases.drop(url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(module_database_url, tmp_path_factory.mktemp("p")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def running(plane: RunningControlPlane) -> AsyncIterator[RunningControlPlane]:
    """The module's control plane, without clusters, bindings and freezes."""
    yield plane
    await emptied(plane)
    # Another cluster of the same name must not be taken for the one that is deleted.
    await plane.follow()


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    """A control plane of the test's own, of which nothing is remembered."""
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def guarded(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    """One whose page takes a token, with an audit that is empty."""
    async with running_control_plane(database_url, tmp_path, ui="token") as found:
        yield found


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def commanded() -> CommandedStore:
    return CommandedStore()


@pytest_asyncio.fixture(loop_scope="module")
async def held(
    database_url: str, tmp_path: Path, clock: HeldClock, commanded: CommandedStore
) -> AsyncIterator[RunningControlPlane]:
    """One whose clock and store are the test's."""
    handles = {"clock": clock, "store": commanded}
    flags = {"heartbeat_seconds": "3600", "probe_listen": "127.0.0.1:0"}
    async with running_control_plane(database_url, tmp_path, **handles, **flags) as found:  # type: ignore[arg-type]  # of two kinds
        yield found
