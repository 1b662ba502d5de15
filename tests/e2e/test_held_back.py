"""A transaction that may append to the journal stays open: control planes say so, and go on.

Meanwhile no cluster falls silent, and nothing moves: what others hear is not seen.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from lab.commanded_stores import CommandedStore
from lab.control_planes import running_control_plane
from lab.databases import connect
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.drill import FLAGS, LOST_SECONDS, Drill
from tests.api.world import HOLD_JOURNAL
from tests.e2e.test_impaired_database import page, readiness
from tests.e2e.test_server_outage import scheduled


async def test_who_holds_the_journal_back_is_named_and_promises_go_on(
    fresh_database_url: str, tmp_path: Path
) -> None:
    clock, store = HeldClock(), CommandedStore()
    flags: Any = FLAGS
    async with running_control_plane(
        fresh_database_url, tmp_path, clock=clock, store=store, **flags
    ) as running:
        drill = Drill(running, clock, store)
        await drill.clusters(a=6, b=9)
        await drill.run_in("a", web=3)
        writer = await connect(fresh_database_url)
        await writer.execute(f"SET application_name = 'slow'; {HOLD_JOURNAL}")
        assert (await scheduled(running)).decision.clusters
        ready = partial(readiness, running)
        _, why = await until(ready, lambda told: told[0] == 503)
        assert f"server process {writer.get_server_pid()}" in why
        assert "'slow'" in why
        url = f"http://{running.plane.web_endpoint}/metrics"
        metrics = (await asyncio.to_thread(page, url))[1]
        line = next(
            line
            for line in metrics.splitlines()
            if line.startswith("fedsched_journal_held_seconds ")
        )
        assert float(line.split()[-1]) > 0
        await drill.say_nothing("a")
        await drill.pass_time(2 * LOST_SECONDS, 8)
        assert (await drill.lost(), list((await drill.status()).silent)) == (set(), [])
        await writer.close()
        await until(ready, lambda told: told[0] == 200)
        # It is silent for long enough once it was listened to.
        await drill.pass_time(LOST_SECONDS - 20, 8)
        assert await drill.lost() == set()
        await drill.lose("a")
        await drill.until_moved("web", b=3)
        await drill.end()
