"""``fedctl get clusters`` and ``describe cluster``: what is known of a cluster, and what is not."""

from __future__ import annotations

import json
from pathlib import Path

from lab.control_planes import RunningControlPlane, report, running_control_plane
from tests.unit.cli.calling import answered, binding, run, shown, written


async def test_a_report_that_never_came_has_no_age(running: RunningControlPlane) -> None:
    async with running.connected("heard", report=report(sequence=7)):
        await running.enrolled("quiet")
        heading, heard, quiet = (await shown(running, "get", "clusters")).splitlines()
        assert heading.endswith("REPORT AGE")
        assert heard.split()[-1].endswith("s")
        assert quiet.split()[-1] == "-"
        described = await shown(running, "describe", "cluster", "quiet")
        assert "\nReport:         none yet\n" in described
        described = await shown(running, "describe", "cluster", "heard")
        assert "\nReport:         sequence 7, " in described
        assert "\nKept back:      up to 2 replicas of a careful promise\n" in described


async def test_a_silent_cluster_is_told_with_the_freeze_that_holds_it(
    running: RunningControlPlane,
) -> None:
    await running.enrolled("quiet")
    await shown(running, "failover", "freeze", "--reason", "network change")
    assert "AgentSilent,FailoverFrozen" in await shown(running, "get", "clusters")
    described = (await shown(running, "describe", "cluster", "quiet")).splitlines()
    (note,) = [line for line in described if "failover is frozen by" in line]
    assert note.startswith("Note:")
    assert note.endswith("network change”")
    await shown(running, "failover", "resume")
    assert "FailoverFrozen" not in await shown(running, "get", "clusters")


async def test_one_is_got_by_name_and_in_the_singular(running: RunningControlPlane) -> None:
    none = await run(running, "get", "clusters")
    assert none.stdout.split()[0] == "NAME"
    assert none.stderr.startswith("No clusters. Let one join: fedctl join-token create")
    assert (await run(running, "get", "bindings")).stderr.startswith("No bindings. ")
    await running.enrolled("member1")
    await running.enrolled("member2")
    for kind in ("cluster", "clusters"):
        one = await shown(running, "get", kind, "member2")
        assert [line.split()[0] for line in one.splitlines()] == ["NAME", "member2"]
        assert (await answered(running, "get", kind, "member2"))["metadata"]["name"] == "member2"
        assert (await run(running, "describe", kind, "member2")).exit_code == 0
    listed = await answered(running, "get", "cluster")
    assert [each["metadata"]["name"] for each in listed] == ["member1", "member2"]
    for missing in (["get", "cluster", "x"], ["get", "binding", "shop/x"]):
        refused = await run(running, *missing)
        assert refused.exit_code == 1
        assert "x" in refused.stderr
    assert (await run(running, "get", "binding", "x", "-n", "shop")).exit_code == 1
    assert (await run(running, "get", "nosuch")).exit_code == 2


async def test_after_a_restart_no_age_is_told_before_the_agent_is_heard(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("member1", report=report(sequence=7)),
    ):
        pass
    async with running_control_plane(database_url, tmp_path) as running:
        row = (await shown(running, "get", "clusters")).splitlines()[1]
        assert row.split()[-1] == "restored"
        described = await shown(running, "describe", "cluster", "member1")
        assert "sequence 7, restored: its agent was not heard since" in described


async def test_free_leaves_out_what_is_promised(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    half = {"replicas": 2, "replicaRequirements": {"resourceRequest": {"cpu": "500m"}}}
    async with running.connected("member1", report=report(nodes=2)):

        async def amounts() -> list[str]:
            return (await shown(running, "get", "clusters")).splitlines()[1].split()[5:8]

        assert await amounts() == ["8", "32Gi", "220"]
        await shown(running, "schedule", "-f", written(tmp_path, binding(**half)))
        assert await amounts() == ["7", "32Gi", "218"]
        (document,) = json.loads(await shown(running, "get", "clusters", "-o", "json"))
        assert document["status"]["promised"] == {"cpu": "1", "pods": "2"}
        described = (await shown(running, "describe", "cluster", "member1")).splitlines()
        assert [line.split()[-2:] for line in described if line.startswith("cpu ")] == [["1", "7"]]
