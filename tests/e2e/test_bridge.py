"""Karmada's bindings decided through the bridge: a real control plane, and a fake Karmada API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from federation.client import Target
from tests.control_planes import RunningControlPlane, running_control_plane
from tests.karmadas import Karmada, binding, bridging, member, new_karmada_server, until


@pytest.fixture
def karmada() -> Iterator[Karmada]:
    with new_karmada_server() as server:
        yield Karmada(server)


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path, allow_unproven="true") as running:
        yield running


def target_of(plane: RunningControlPlane) -> Target:
    token = plane.plane.admin_token_file.read_text(encoding="ascii").strip()
    return Target(endpoint=str(plane.plane.endpoint), token=token, plaintext=True)


async def test_bindings_are_decided_and_written_as_karmada_scheduler_writes(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    karmada.put(member("m1"), member("m2", cpu="30"), binding("web"))
    async with bridging(karmada, target_of(plane), tmp_path):
        await until(lambda: karmada.is_settled("web"))
        assert karmada.targets("web") == {"m1": 1, "m2": 3}
