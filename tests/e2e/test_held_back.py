"""A stranger holds a transaction open in another database: control planes say so, and go on.

Meanwhile no cluster falls silent, and nothing moves: what others hear is not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.commanded_stores import CommandedStore
from lab.control_planes import running_control_plane
from lab.databases import Databases, connect
from lab.held_clocks import HeldClock
from lab.patience import until
from tests.api.drill import FLAGS, LOST_SECONDS, Drill
from tests.e2e.test_impaired_database import page, readiness
from tests.e2e.test_server_outage import scheduled


@pytest.fixture
def elsewhere(databases: Databases) -> Iterator[str]:
    url = databases.create("elsewhere")
    yield url
    databases.drop(url)


async def test_who_holds_the_journal_back_is_named_and_promises_go_on(
    fresh_database_url: str, elsewhere: str, tmp_path: Path
) -> None:
    clock, store = HeldClock(), CommandedStore()
    async with running_control_plane(
        fresh_database_url, tmp_path, clock=clock, store=store, **FLAGS
    ) as running:
        drill = Drill(running, clock, store)
        await drill.clusters(a=6, b=9)
        await drill.run_in("a", web=3)
        stranger = await connect(elsewhere)
        await stranger.execute("SET application_name = 'wiki'; BEGIN; SELECT pg_current_xact_id()")
        ready = partial(readiness, running)
        _, why = await until(ready, lambda told: told[0] == 503)
        assert f"server process {stranger.get_server_pid()}" in why
        assert "'wiki'" in why
        url = f"http://{running.plane.web_endpoint}/metrics"
        metrics = (await asyncio.to_thread(page, url))[1]
        line = next(
            each
            for each in metrics.splitlines()
            if each.startswith("fedsched_journal_held_seconds ")
        )
        assert float(line.split()[-1]) > 0
        assert (await scheduled(running)).decision.clusters
        await drill.say_nothing("a")
        await drill.pass_time(2 * LOST_SECONDS, 8)
        assert (await drill.lost(), list((await drill.status()).silent)) == (set(), [])
        await stranger.close()
        await until(ready, lambda told: told[0] == 200)
        # It is silent for long enough once it was listened to.
        await drill.pass_time(LOST_SECONDS - 20, 8)
        assert await drill.lost() == set()
        await drill.lose("a")
        await drill.until_moved("web", b=3)
        await drill.end()
