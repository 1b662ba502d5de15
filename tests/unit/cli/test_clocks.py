"""Ages that fedctl shows, where its machine's clock differs from the control plane's."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from federation import parts
from federation.client import Client, Target
from lab.control_planes import RunningControlPlane, report, running_control_plane
from lab.patience import PATIENCE_SECONDS
from tests.api.calls import binding, scheduled
from tests.unit.cli.calling import shown

BEHIND_SECONDS = 3 * 3600
AGES = re.compile(r"\b[0-9.]+(?:s|m|h|d)\b")


@pytest_asyncio.fixture(loop_scope="module")
async def behind(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RunningControlPlane]:
    """A control plane whose clock is three hours behind that of fedctl."""
    monkeypatch.setattr(
        parts.SystemClock, "now", staticmethod(lambda: time.time() - BEHIND_SECONDS)
    )
    async with running_control_plane(database_url, tmp_path) as found:
        yield found


async def test_ages_are_by_the_control_planes_clock(behind: RunningControlPlane) -> None:
    async with behind.connected("member1", report=report()):
        await scheduled(behind, binding("large", replicas=10_000))
        for arguments in ("get clusters", "describe cluster member1", "get queue"):
            text = await shown(behind, *arguments.split())
            ages = AGES.findall(text)
            assert ages, text
            assert not [age for age in ages if age in ("2h", "3h", "180m")], text
    target = Target(
        endpoint=str(behind.plane.endpoint),
        token=behind.plane.admin_token_file.read_text(encoding="ascii").strip(),
        plaintext=True,
        timeout_seconds=PATIENCE_SECONDS,
    )
    async with Client(target) as client:
        assert client.server_ahead_seconds is None
        await client.list_clusters()
        ahead_seconds = client.server_ahead_seconds
    assert ahead_seconds is not None
    assert -BEHIND_SECONDS - PATIENCE_SECONDS < ahead_seconds <= -BEHIND_SECONDS
