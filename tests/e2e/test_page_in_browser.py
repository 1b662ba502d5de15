"""The page in a real browser, where one is found: Chromium without a screen.

FEDERATION_CHROMIUM names it, or the PATH has it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from federation.codec.bindings import binding_to_message
from federation.model.placement import Binding, Placement, ReplicaScheduling, SchedulingType
from federation.model.workload import ReplicaRequirements
from federation.v1.scheduling_pb2 import ScheduleRequest
from lab.browser import CHROMIUM, Browser
from lab.control_planes import report, running_control_plane
from lab.patience import PATIENCE_SECONDS, until

# A page that is told of changes never ends to load.
LOADED_MILLIS = 2000
DRAWN = re.compile("<(?:td|rect|dd|a|h[1-3]|button)[ >]")

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: set FEDERATION_CHROMIUM")


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A folder that the browser may fill."""
    return tmp_path / "profile"


async def shown(url: str, profile: Path) -> tuple[str, list[str]]:
    """The page as the browser has it in the end, and what its console says."""
    command = [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
        *(f"--user-data-dir={profile}", f"--timeout={LOADED_MILLIS}", "--dump-dom", url),
    ]
    ended = await asyncio.to_thread(
        subprocess.run,
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return ended.stdout, re.findall(r"CONSOLE.*", ended.stderr)


async def test_views_are_quiet_and_need_no_script(
    database_url: str, tmp_path: Path, profile: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("alpha", report=report()),
    ):
        await running.admin.call(running.admin.scheduling.Schedule, request())
        browser = Browser(address=running.plane.web_endpoint)
        for view in ("", "cluster?name=alpha", "bindings", "queue", "plans", "ask", "about"):
            url = f"http://{running.plane.web_endpoint}/ui/{view}"
            # A slow machine's browser may end before the script has run.
            page, said = await until(partial(shown, url, profile), has_run)
            assert said == [], view
            # Without scripts there is as much to see.
            sent = (await browser.get(f"/ui/{view}")).body
            assert len(DRAWN.findall(sent)) == len(DRAWN.findall(page)), view


def has_run(answer: tuple[str, list[str]]) -> bool:
    """Whether the script shows what only it can do."""
    return '<button class="plain" id="help-button" title' in answer[0]


def request() -> ScheduleRequest:
    dynamic = ReplicaScheduling(type=SchedulingType.DIVIDED, dynamic=True)
    wanted = Binding(
        namespace="shop",
        name="web",
        replicas=3,
        requirements=ReplicaRequirements(request={"cpu": 1000}),
        placement=Placement(replica_scheduling=dynamic),
    )
    return ScheduleRequest(binding=binding_to_message(wanted))
