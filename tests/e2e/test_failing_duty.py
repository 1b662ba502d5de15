"""A background duty that fails: metrics, the page's About and doctor show it until it succeeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from federation.store.condition import condition_of
from federation.store.engine import create_engine
from lab.browser import Browser
from lab.control_planes import running_control_plane
from lab.patience import until

METRIC = 'fedsched_failing_duties{duty="prune join tokens"} 1.0'


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


@pytest.mark.expected_errors("the database cannot be used")
async def test_a_failing_duty_shows_everywhere_until_it_succeeds(
    fresh_database_url: str, tmp_path: Path
) -> None:
    engine = create_engine(fresh_database_url)
    try:
        await execute(engine, "ALTER TABLE join_token RENAME TO join_token_elsewhere")
        async with running_control_plane(fresh_database_url, tmp_path) as running:
            browser = Browser(address=running.plane.web_endpoint)

            async def metrics() -> str:
                return (await browser.get("/metrics")).body

            await until(metrics, lambda page: METRIC in page)
            about = (await browser.get("/ui/about")).document.text
            assert "prune join tokens" in about
            assert "does not have the schema" in about or "lacks" in about, about
            (failing,) = (await condition_of(engine)).failing_duties
            assert failing.startswith("prune join tokens since ")

            await execute(engine, "ALTER TABLE join_token_elsewhere RENAME TO join_token")
            await until(metrics, lambda page: METRIC not in page)
            assert "Failing duties" not in (await browser.get("/ui/about")).document.text
            assert not (await condition_of(engine)).failing_duties
    finally:
        await engine.dispose()
