"""A control plane for each test, on the session's database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.control_planes import RunningControlPlane, running_control_plane


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as found:
        yield found
