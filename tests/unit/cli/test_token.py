"""``fedctl token``, and every command of the page about access as it stands there."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from importlib.metadata import version
from pathlib import Path

from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from lab.control_planes import RunningControlPlane
from tests.unit.cli.calling import answered, flags_for, run, shown

PAGE = (Path(__file__).parents[3] / "docs" / "access.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^fedctl (.+)$", PAGE, re.MULTILINE)
SHOWN_ID = "tok-3f1c9a7e5b2d4680"


async def test_every_command_of_the_page_does_what_it_says(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    """With the id of a token that was made in place of the one that is shown."""
    secrets: list[str] = []
    assert len(COMMANDS) == 14
    for command in COMMANDS:
        last = secrets[-1].partition(".")[0] if secrets else ""
        result = await run(running, *shlex.split(command.replace(SHOWN_ID, last)))
        assert result.exit_code == 0, result.output
        if command.startswith("token create"):
            secrets.append(result.stdout.strip())
        for secret in secrets[:-1]:
            assert secret not in result.output
    listed = await run(running, "token", "list", "-o", "json")
    tokens = {token["name"]: token for token in json.loads(listed.stdout)}
    listed_audit = await run(running, "audit", "list", "-o", "json")
    assert listed_audit.exit_code == 0, listed_audit.output
    records = json.loads(listed_audit.stdout)
    assert [record["method"] for record in records[-4:]] == [
        "Access/RevokeToken",
        *["Access/CreateToken"] * 3,
    ]
    assert tokens["shop-ci"]["networks"] == ["10.0.0.0/8", "127.0.0.0/8"]
    assert "revokeTime" in tokens["europe"]
    same = await run(running, "get", "tokens", "-o", "json")
    assert same.stdout == listed.stdout
    europe = tokens["europe"]["id"]
    named = await run(running, "get", "token", europe, "-o", "name")
    assert named.stdout == f"token/{europe}\n"
    unknown = await run(running, "get", "token", "tok-0")
    assert (unknown.exit_code, "tok-0" in unknown.stderr) == (1, True)
    shown = await run(running, "token", "list")
    for text in (
        "namespaces shop-*",
        "clusters eu-*",
        "revoked",
        "in 90d",
        "never",
        "50 calls/s, 10 at once",
    ):
        assert text in " ".join(shown.stdout.split())

    file = tmp_path / "token"
    file.write_text(secrets[1])
    mine = ("--token-file", str(file))
    assert (await run(running, *mine, "get", "bindings")).exit_code == 0
    me = " ".join((await run(running, *mine, "whoami")).stdout.split())
    assert me.startswith("Caller: token shop-ci (tok-"), me
    assert me.endswith("Role: scheduler Scope: namespaces shop-* Limits: -"), me
    refused = await run(running, *mine, "token", "list")
    assert refused.exit_code == 1
    assert "has the role scheduler" in refused.output
    file.write_text(secrets[2])
    ended = await run(running, *mine, "get", "clusters")
    assert "was revoked at" in ended.output


async def test_releases_of_both_sides_are_shown(running: RunningControlPlane) -> None:
    release = version("fedsched")
    assert await answered(running, "version") == {"client": release, "server": release}
    assert await shown(running, "version", "--client") == f"Client:  {release}\n"
    flags = ("--insecure", "--endpoint", "127.0.0.1:1", *flags_for(running)[3:])
    result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, "version"])
    assert (result.exit_code, result.stdout) == (1, f"Client:  {release}\n")
