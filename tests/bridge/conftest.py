"""A control plane a module, a Karmada API a test, and bridges between both in this process."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from lab.control_planes import RunningControlPlane, running_control_plane
from lab.databases import Databases
from lab.karmadas import new_karmada_server
from tests.api.conftest import emptied
from tests.bridge.worlds import World

HERE = Path(__file__).parent
serial = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of a module share an event loop, as they share a control plane."""
    for item in items:
        if item.path.is_relative_to(HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture(scope="module")
def module_database_url(databases: Databases, template_url: str) -> Iterator[str]:
    """A migrated database of the module's own."""
    url = databases.create(f"bridge{next(serial)}", template=template_url)
    yield url
    databases.drop(url)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningControlPlane]:
    folder = tmp_path_factory.mktemp("plane")
    async with running_control_plane(module_database_url, folder) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def world(plane: RunningControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    """An empty Karmada, and the module's control plane, which is emptied afterwards."""
    with new_karmada_server() as server:
        yield World(server, plane, tmp_path)
    await emptied(plane)
    # Another cluster of the same name must not be taken for the one that is deleted.
    await plane.follow()
