"""``fedctl get clusters`` and ``describe cluster``: what is known of a cluster, and what is not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.cli.fleet import free_amounts
from federation.v1.resource_pb2 import ClusterStatus, ResourceSummary
from lab.control_planes import report, running_control_plane


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
        assert "Kept back:      up to 2 replicas of a careful promise" in described


async def test_a_silent_cluster_is_told_with_the_freeze_that_holds_it(
    database_url: str, tmp_path: Path
) -> None:
    async with running_control_plane(database_url, tmp_path) as running:
        await running.enrolled("quiet")
        where = ["--insecure", "--endpoint", str(running.plane.endpoint)]
        flags = [*where, "--token-file", str(running.plane.admin_token_file)]

        async def told(*arguments: str) -> str:
            result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, *arguments])
            assert result.exit_code == 0, result.output
            return result.stdout

        await told("failover", "freeze", "--reason", "network change")
        assert "AgentSilent,FailoverFrozen" in await told("get", "clusters")
        described = (await told("describe", "cluster", "quiet")).splitlines()
        (note,) = [line for line in described if "failover is frozen by" in line]
        assert note.startswith("Note:")
        assert note.endswith("network change”")
        await told("failover", "resume")
        assert "FailoverFrozen" not in await told("get", "clusters")


async def test_one_is_got_by_name_and_in_the_singular(database_url: str, tmp_path: Path) -> None:
    async with running_control_plane(database_url, tmp_path) as running:
        where = ["--insecure", "--endpoint", str(running.plane.endpoint)]
        flags = [*where, "--token-file", str(running.plane.admin_token_file)]

        async def asked(*arguments: str) -> Result:
            return await asyncio.to_thread(CliRunner().invoke, fedctl, [*arguments, *flags])

        none = await asked("get", "clusters")
        assert none.stdout.split()[0] == "NAME"
        assert none.stderr.startswith("No clusters. Let one join: fedctl join-token create")
        assert (await asked("get", "bindings")).stderr.startswith("No bindings. ")
        await running.enrolled("member1")
        await running.enrolled("member2")
        for kind in ("cluster", "clusters"):
            one = await asked("get", kind, "member2")
            assert [line.split()[0] for line in one.stdout.splitlines()] == ["NAME", "member2"]
            document = json.loads((await asked("get", kind, "member2", "-o", "json")).stdout)
            assert document["metadata"]["name"] == "member2"
            assert (await asked("describe", kind, "member2")).exit_code == 0
        listed = json.loads((await asked("get", "cluster", "-o", "json")).stdout)
        assert [each["metadata"]["name"] for each in listed] == ["member1", "member2"]
        for missing in (["get", "cluster", "x"], ["get", "binding", "shop/x"]):
            refused = await asked(*missing)
            assert refused.exit_code == 1
            assert "x" in refused.stderr
        assert (await asked("get", "binding", "x", "-n", "shop")).exit_code == 1
        assert (await asked("get", "nosuch")).exit_code == 2


async def test_after_a_restart_no_age_is_told_before_the_agent_is_heard(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("member1", report=report(sequence=7)),
    ):
        pass
    async with running_control_plane(database_url, tmp_path) as running:
        where = ["--insecure", "--endpoint", str(running.plane.endpoint)]
        flags = [*where, "--token-file", str(running.plane.admin_token_file)]

        async def told(*arguments: str) -> str:
            result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, *arguments])
            assert result.exit_code == 0, result.output
            return result.stdout

        assert (await told("get", "clusters")).splitlines()[1].split()[-1] == "restored"
        described = await told("describe", "cluster", "member1")
        assert "sequence 7, restored: its agent was not heard since" in described


def test_free_is_what_pods_on_nodes_and_promises_leave() -> None:
    summary = ResourceSummary(
        allocatable={"cpu": "8"}, allocated={"cpu": "3"}, allocating={"cpu": "20"}
    )
    assert free_amounts(ClusterStatus(resource_summary=summary)) == {"cpu": "5"}
    status = ClusterStatus(resource_summary=summary, promised={"cpu": "1500m", "memory": "1Gi"})
    assert free_amounts(status) == {"cpu": "3.5"}


async def test_free_leaves_out_what_is_promised(database_url: str, tmp_path: Path) -> None:
    binding = {
        "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "replicas": 2,
            "replicaRequirements": {"resourceRequest": {"cpu": "500m"}},
            "placement": {},
        },
    }
    file = tmp_path / "binding.json"
    file.write_text(json.dumps(binding), encoding="utf-8")
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("member1", report=report(nodes=2)),
    ):
        where = ["--insecure", "--endpoint", str(running.plane.endpoint)]
        flags = [*where, "--token-file", str(running.plane.admin_token_file)]

        async def told(*arguments: str) -> str:
            result = await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, *arguments])
            assert result.exit_code == 0, result.output
            return result.stdout

        assert (await told("get", "clusters")).splitlines()[1].split()[5:8] == ["8", "32Gi", "220"]
        await told("schedule", "-f", str(file))
        assert (await told("get", "clusters")).splitlines()[1].split()[5:8] == ["7", "32Gi", "218"]
        (document,) = json.loads(await told("get", "clusters", "-o", "json"))
        assert document["status"]["promised"] == {"cpu": "1", "pods": "2"}
        described = (await told("describe", "cluster", "member1")).splitlines()
        assert [line.split()[-2:] for line in described if line.startswith("cpu ")] == [["1", "7"]]
