"""``estimator run`` and ``join`` as processes, against a real control plane."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from federation.certificates import ca_fingerprint, make_certificates
from federation.codec.summaries import read_summary
from federation.codec.violations import Violations
from lab.agents import (
    DUMPS,
    ROOT,
    SECONDS,
    cluster_where,
    estimator,
    flags,
    has_reported,
    join_token,
    scheduled,
)
from lab.control_planes import RunningControlPlane, running_control_plane
from tests.vectors.test_clusters import as_usable

# An agent that gets no turn for a while is not silent yet.
FAST = {"heartbeat_seconds": "10", "report_seconds": "0.2"}


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    # Scripted reports have no node pools to promise from.
    flags = {**FAST, "allow_unproven": "true"}
    async with running_control_plane(database_url, tmp_path / "plane", **flags) as running:
        yield running


def truth(member: str) -> dict[str, Any]:
    path = ROOT / "tests" / "vectors" / "clusters" / f"{member}.truth.json"
    summary: dict[str, Any] = json.loads(path.read_text())["summary"]["product_node_set"]
    return as_usable(member, summary)


async def test_three_members_join_and_are_known_exactly(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    for member in ("member1", "member2", "member3"):
        token = (await join_token(plane, member)).token
        source = ("--from", str(DUMPS / f"{member}.json"))
        async with estimator(
            "run", *flags(plane, member, tmp_path), *source, "--join-token", token
        ) as agent:
            cluster = await cluster_where(plane, member, has_reported)
            found = Violations()
            summary = read_summary(cluster.status.resource_summary, "", found)
            expected = truth(member)
            assert summary.allocatable == expected["allocatable"]
            assert summary.allocated == expected["allocated"]
            assert summary.allocating == expected["allocating"]
            modelings = cluster.status.resource_summary.allocatable_modelings
            assert [each.count for each in modelings] == expected["grade_counts"]
            assert cluster.status.kubernetes_version == "v1.36.2"
            code, said = await agent.stop()
            assert code == 0
            assert "Traceback" not in said
    assert cluster.spec.region == "ap-southeast-1"
    assert cluster.spec.provider == "cloud"
    assert list(cluster.spec.zones) == sorted(cluster.spec.zones)


async def test_it_comes_back_without_a_token(plane: RunningControlPlane, tmp_path: Path) -> None:
    token = (await join_token(plane, "member1")).token
    source = ("--from", str(DUMPS / "member1.json"))
    arguments = ("run", *flags(plane, "member1", tmp_path), *source)
    async with estimator(*arguments, "--join-token", token) as agent:
        first = await cluster_where(plane, "member1", has_reported)
        code, _ = await agent.stop(signal.SIGINT)
        assert code == 0
    credential_file = tmp_path / "member1.json"
    assert stat.S_IMODE(credential_file.stat().st_mode) == 0o600
    assert "ca" in json.loads(credential_file.read_text())
    epoch = first.status.agent.report_epoch
    async with estimator(*arguments):
        await cluster_where(
            plane, "member1", lambda cluster: cluster.status.agent.report_epoch > epoch
        )


async def test_settings_come_from_the_environment_and_a_file(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text(
        f"cluster: overridden\nendpoint: {plane.plane.endpoint}\ninsecure: true\n"
        f"credential_file: {tmp_path / 'credential'}\nfrom: {DUMPS / 'member3.json'}\n"
    )
    made = await join_token(plane, "member3")
    async with estimator(
        *("run", "--config", str(config)),
        ESTIMATOR_CLUSTER="member3",
        ESTIMATOR_JOIN_TOKEN=made.token,
    ):
        await cluster_where(plane, "member3", has_reported)


async def test_a_dump_that_is_rewritten_is_reported_anew(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    dump = tmp_path / "cluster.json"
    shutil.copy(DUMPS / "member1.json", dump)
    token = (await join_token(plane, "member1")).token
    arguments = ("run", *flags(plane, "member1", tmp_path), "--from", str(dump))
    async with estimator(*arguments, "--join-token", token):
        await cluster_where(
            plane, "member1", lambda cluster: cluster.status.node_summary.total_num == 14
        )
        replaced = tmp_path / "new.json"
        shutil.copy(DUMPS / "member3.json", replaced)
        replaced.replace(dump)
        await cluster_where(
            plane, "member1", lambda cluster: cluster.status.node_summary.total_num == 9
        )


async def test_scripted_reports_are_stepped_through(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    steps = [
        {
            "resourceSummary": {"allocatable": {"cpu": str(cores), "pods": "110"}},
            "nodeSummary": {"totalNum": cores, "readyNum": cores, "gradedNum": cores},
        }
        for cores in (4, 8)
    ]
    script = tmp_path / "script.json"
    script.write_text(json.dumps(steps))
    token = (await join_token(plane, "scripted")).token
    arguments = ("run", *flags(plane, "scripted", tmp_path), "--report", str(script))
    async with estimator(*arguments, "--join-token", token):
        await cluster_where(
            plane,
            "scripted",
            lambda cluster: cluster.status.resource_summary.allocatable.get("cpu") == "8",
        )
        decision = await scheduled(plane, "scripted", replicas=2)
        (placement,) = decision.node_placements
        assert (placement.unplaced, len(placement.nodes)) == (2, 0)
        assert "there are no nodes" in placement.message


async def test_a_share_is_placed_on_nodes(plane: RunningControlPlane, tmp_path: Path) -> None:
    token = (await join_token(plane, "member1")).token
    source = ("--from", str(DUMPS / "member1.json"))
    async with estimator("run", *flags(plane, "member1", tmp_path), *source, "--join-token", token):
        await cluster_where(plane, "member1", has_reported)
        decision = await scheduled(plane, "member1", replicas=5)
        (placement,) = decision.node_placements
        assert placement.cluster == "member1"
        assert sum(node.replicas for node in placement.nodes) == 5
        assert (placement.unplaced, placement.strategy) == (0, "MostAllocated")
        assert all(0 < node.score <= 100 for node in placement.nodes)


async def test_tls_under_the_pinned_root_alone(database_url: str, tmp_path: Path) -> None:
    files = make_certificates(tmp_path / "tls", ["127.0.0.1"], now=datetime.now(UTC))
    tls = {"tls_cert": str(files.cert), "tls_key": str(files.key), "tls_ca": str(files.ca)}
    async with running_control_plane(database_url, tmp_path / "plane", **tls, **FAST) as plane:
        made = await join_token(plane, "member1")
        credential_file = tmp_path / "credential"
        common = [
            *("--cluster", "member1", "--endpoint", str(plane.plane.endpoint)),
            *("--from", str(DUMPS / "member1.json"), "--credential-file", str(credential_file)),
        ]
        token = {"ESTIMATOR_JOIN_TOKEN": made.token}
        trust = ["--ca-url", f"http://{plane.plane.web_endpoint}/ca.pem", "--ca-sha256"]
        async with estimator("join", *common, *trust, "0" * 64, **token) as agent:
            code, said = await agent.end()
            assert code == 1
            assert said.startswith("estimator: the CA certificate at http://")
            assert "is not the pinned one" in said
            assert said.count("\n") == 1
        assert not credential_file.exists()
        async with estimator("join", *common, *trust, made.ca_sha256, **token) as agent:
            assert (await agent.end())[0] == 0
        assert made.ca_sha256 == ca_fingerprint(files.ca.read_bytes())
        # From now on neither the token nor the page with the certificate is needed.
        async with estimator("run", *common):
            await cluster_where(plane, "member1", has_reported)


async def test_a_used_token_is_refused(plane: RunningControlPlane, tmp_path: Path) -> None:
    token = (await join_token(plane, "member1")).token
    arguments = (*flags(plane, "member1", tmp_path), "--from", str(DUMPS / "member1.json"))
    async with estimator("join", *arguments, ESTIMATOR_JOIN_TOKEN=token) as agent:
        assert (await agent.end())[0] == 0
    async with estimator("join", *arguments, ESTIMATOR_JOIN_TOKEN=token) as agent:
        code, said = await agent.end()
    assert (code, said.count("\n")) == (1, 1)
    assert said.startswith("estimator: cluster member1 could not join:")


async def test_a_credential_that_is_unknown_ends_the_agent(
    plane: RunningControlPlane, tmp_path: Path
) -> None:
    token = (await join_token(plane, "member1")).token
    source = ("--from", str(DUMPS / "member1.json"))
    arguments = flags(plane, "member1", tmp_path)
    async with estimator("join", *arguments, *source, "--join-token", token) as agent:
        assert (await agent.end())[0] == 0
    path = tmp_path / "member1.json"
    forged = json.loads(path.read_text()) | {"credential": "forged"}
    path.write_text(json.dumps(forged))
    async with estimator("run", *arguments, *source) as agent:
        code, said = await agent.end()
    assert code == 1
    assert said.splitlines()[-1].startswith("estimator: the stream to the control plane ended:")


async def test_it_waits_for_a_control_plane_that_is_not_there(tmp_path: Path) -> None:
    async with estimator(
        *("run", "--cluster", "member1", "--endpoint", "127.0.0.1:1", "--insecure"),
        *("--from", str(DUMPS / "member1.json")),
        *("--credential-file", str(tmp_path / "credential")),
        ESTIMATOR_JOIN_TOKEN="x.y",
    ) as agent:
        assert agent.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            line = await agent.process.stderr.readline()
        assert b"could not join" in line
        code, _ = await agent.stop()
        assert code == 0
