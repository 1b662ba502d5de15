"""A control plane a module, for the tests that ask one."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from federation.certificates import CertificateFiles, make_certificates
from lab.control_planes import AgentStream, RunningControlPlane, report, running_control_plane
from lab.databases import Databases
from tests.api.conftest import emptied

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
    url = databases.create(f"fedctl{next(serial)}", template=template_url)
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
    """The module's control plane, without clusters and bindings."""
    yield plane
    await emptied(plane)
    # Another cluster of the same name must not be taken for the one that is deleted.
    await plane.follow()


class Secure(NamedTuple):
    """A control plane with TLS, and what it shows."""

    running: RunningControlPlane
    files: CertificateFiles

    @property
    def endpoint(self) -> str:
        return str(self.running.plane.endpoint)

    @property
    def token_file(self) -> str:
        return str(self.running.plane.admin_token_file)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secure(
    databases: Databases, template_url: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Secure]:
    folder = tmp_path_factory.mktemp("secure")
    files = make_certificates(folder / "certs", ["127.0.0.1"])
    tls = {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}
    url = databases.create(f"secure{next(serial)}", template=template_url)
    async with running_control_plane(url, folder / "state", **tls) as running:
        yield Secure(running, files)
    databases.drop(url)


@pytest_asyncio.fixture(loop_scope="module")
async def member1(running: RunningControlPlane) -> AsyncIterator[AgentStream]:
    """The stream of a cluster that reported four free nodes of four cores."""
    async with running.connected("member1", report=report()) as stream:
        yield stream
