"""``fedctl get clusters`` and ``describe cluster``: what is known of a cluster, and what is not."""

from __future__ import annotations

import asyncio
from pathlib import Path

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from tests.control_planes import report, running_control_plane


async def test_a_report_that_never_came_has_no_age(database_url: str, tmp_path: Path) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("heard", report=report(sequence=7)),
    ):
        await running.enrolled("quiet")
        where = ["--insecure", "--endpoint", str(running.plane.endpoint)]
        flags = [*where, "--token-file", str(running.plane.admin_token_file)]

        async def told(*arguments: str) -> list[str]:
            result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, *arguments])
            assert result.exit_code == 0, result.output
            return result.stdout.splitlines()

        heading, heard, quiet = await told("get", "clusters")
        assert heading.endswith("REPORT AGE")
        assert heard.split()[-1].endswith("s")
        assert quiet.split()[-1] == "-"
        described = await told("describe", "cluster", "quiet")
        assert "Report:         none yet" in described
        described = await told("describe", "cluster", "heard")
        assert any(line.startswith("Report:         sequence 7, ") for line in described)
