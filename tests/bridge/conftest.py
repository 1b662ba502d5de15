"""A control plane a module, a Karmada API a test, and bridges between both in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from lab.control_planes import RunningControlPlane
from lab.karmadas import new_karmada_server
from tests.bridge.worlds import World
from tests.module_planes import flags, module_database_url, plane, running

__all__ = ["flags", "module_database_url", "plane", "running"]


@pytest_asyncio.fixture(loop_scope="module")
async def world(running: RunningControlPlane, tmp_path: Path) -> AsyncIterator[World]:
    """An empty Karmada, and the module's control plane, which is emptied afterwards."""
    with new_karmada_server() as server:
        yield World(server, running, tmp_path)
