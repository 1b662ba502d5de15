"""A control plane for each test, on the session's database, and patience with its pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from federation.web import connections
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def patient_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that takes long on a busy machine is no connection that somebody holds."""
    monkeypatch.setattr(connections, "LIFETIME_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found
