"""Large fleets are estimated by a process, which answers as the control plane itself would."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from federation.rpc import estimating
from federation.telemetry import page
from lab.control_planes import Plane, refused, report, running_control_plane
from lab.patience import until

CLUSTERS = 5


@pytest_asyncio.fixture(loop_scope="module")
async def both(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Plane, Plane]]:
    """A control plane with the process, and one without; to the first five clusters are many."""
    monkeypatch.setattr(estimating, "WORTH_CLUSTERS", CLUSTERS)
    monkeypatch.setattr(page, "KEPT_SECONDS", 0.0)
    async with (
        running_control_plane(database_url, tmp_path) as made,
        running_control_plane(database_url, tmp_path, no_estimating_process="true") as without,
    ):
        yield made, without


async def measures(plane: Plane) -> dict[str, float]:
    """What is measured of the process."""
    url = f"http://{plane.plane.web_endpoint}/metrics"
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    name = "fedsched_estimating_process_"
    rows = [line.split() for line in text.splitlines() if line.startswith(name) and "{" not in line]
    return {row[0].removeprefix(name): float(row[1]) for row in rows}


def question(*clusters: str, shapes: int = 1, **fields: Any) -> dict[str, Any]:
    asked = [{"resource_request": {"cpu": f"{300 + number}m"}} for number in range(shapes)]
    names = {"include_cluster_names": True, "include_upper_bounds": True}
    return {"shapes": asked, "clusters": clusters, **names, **fields}


async def test_the_process_answers_as_the_control_plane(both: tuple[Plane, Plane]) -> None:
    plane, _ = both

    async def same(*clusters: str, **fields: Any) -> None:
        for each in both:
            await each.follow()
        answers = [
            await each.ask("EstimateReplicas", **question(*clusters, **fields)) for each in both
        ]
        for answer in answers:
            answer.ClearField("age_seconds")
        assert answers[0] == answers[1]

    async def answered() -> float:
        await same()
        return (await measures(plane))["duration_seconds_count"]

    assert set((await measures(plane)).values()) == {0.0}
    for number in range(CLUSTERS - 1):
        async with plane.connected(f"c{number}", report=report(nodes=number + 1)):
            pass
    await same()
    assert (await measures(plane))["starts_total"] == 0
    # Another one makes the fleet large; what is answered at once gives it no time to start.
    async with plane.connected("c4", report=report(nodes=9)):
        pass
    await until(answered, bool)
    found = await measures(plane)
    assert (found["ready"], found["starts_total"], found["waiting"]) == (1, 1, 0)
    assert found["cpu_seconds_total"] > 0
    assert found["resident_memory_bytes"] > 2**20
    await same("c3", "c1")
    await same(shapes=4)
    async with plane.connected("new", report=report(nodes=2)):
        await plane.ask("DeleteCluster", name="c2")
        await same()
        await same("new", "c0")
        for each in both:
            refusal = await refused(each.ask("EstimateReplicas", **question("c2")))
            assert "no cluster 'c2'" in refusal.message
        # Large questions are not for it.
        count = (await measures(plane))["duration_seconds_count"]
        await same(shapes=60)
        assert (await measures(plane))["duration_seconds_count"] == count
        assert count >= 4
