"""A control plane a module, for the tests that ask one."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import NamedTuple

import pytest
import pytest_asyncio

from federation.certificates import CertificateFiles, make_certificates
from lab.control_planes import AgentStream, RunningControlPlane, report, running_control_plane
from lab.databases import Databases
from tests.module_planes import flags, module_database_url, plane, running

__all__ = ["flags", "module_database_url", "plane", "running"]

serial = itertools.count(1)


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
