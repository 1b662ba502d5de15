"""A control plane a module, on a database of its own, and empty again after each test.

Folders whose conftest takes these are in ``SHARED_LOOPS`` of tests/conftest.py.
Must not check anything.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from lab.control_planes import RunningControlPlane, running_control_plane
from lab.databases import Databases
from tests.api.conftest import emptied

__all__ = ["flags", "module_database_url", "plane", "running"]

serial = itertools.count(1)


@pytest.fixture(scope="module")
def module_database_url(databases: Databases, template_url: str) -> Iterator[str]:
    """A migrated database of the module's own."""
    url = databases.create(f"own{next(serial)}", template=template_url)
    yield url
    databases.drop(url)


@pytest.fixture(scope="module")
def flags() -> dict[str, str]:
    """Settings of a module's control plane."""
    return {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    module_database_url: str, tmp_path_factory: pytest.TempPathFactory, flags: dict[str, str]
) -> AsyncIterator[RunningControlPlane]:
    folder = tmp_path_factory.mktemp("plane")
    async with running_control_plane(module_database_url, folder, **flags) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def running(plane: RunningControlPlane) -> AsyncIterator[RunningControlPlane]:
    """The module's control plane, without clusters, bindings and freezes."""
    yield plane
    await emptied(plane)
    # Another cluster of the same name must not be taken for the one that is deleted.
    await plane.follow()
