"""A control plane a module, and patience with its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from federation.web import server
from lab.commanded_stores import CommandedStore
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.held_clocks import HeldClock
from lab.patience import PATIENCE_SECONDS
from tests.module_planes import flags, module_database_url, plane, running

__all__ = ["flags", "module_database_url", "plane", "running"]


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that takes long on a busy machine is no connection that somebody holds."""
    monkeypatch.setattr(server, "LIFETIME_SECONDS", PATIENCE_SECONDS)


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
