"""A control plane that starts makes the days to come, and its decisions carry theirs."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from lab.control_planes import report, running_control_plane
from lab.databases import connected
from tests.api.calls import binding, scheduled

DAYS = """
    SELECT count(*) FROM pg_class
    WHERE relname ~ '_[0-9]{8}$' AND relispartition AND relkind = 'r'
"""
DROP = """
    DO $$
    DECLARE
        late text;
    BEGIN
        FOR late IN SELECT oid::regclass FROM pg_class
            WHERE relname ~ '_[0-9]{8}$' AND relispartition AND relkind = 'r'
                AND to_date(right(relname, 8), 'YYYYMMDD') > (now() AT TIME ZONE 'utc')::date
        LOOP
            EXECUTE 'DROP TABLE ' || late;
        END LOOP;
    END $$
"""
DAY_IN_ID = "SELECT decision_day(id) = day FROM decision"


async def test_days_are_made_before_it_is_ready_and_are_in_the_ids(
    fresh_database_url: str, tmp_path: Path
) -> None:
    async with connected(fresh_database_url) as connection:
        days = await connection.fetchval(DAYS)
        await connection.execute(DROP)
        assert await connection.fetchval(DAYS) < days
    async with running_control_plane(fresh_database_url, tmp_path) as plane:
        assert await plane.sql(DAYS) == [(days,)]
        async with plane.connected("member1", report=report()):
            decision = (await scheduled(plane, binding("web"))).decision
        assert UUID(decision.id).version == 7
        assert await plane.sql(DAY_IN_ID) == [(True,)]
        answer = await plane.admin.ask("GetDecision", id=decision.id)
        assert answer.decision.id == decision.id
