"""``federation bridge --shadow`` beside another scheduler: it compares, and only reads."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from federation.bridge.agreement import TIES
from federation.model.access import Role
from lab.control_planes import RunningControlPlane, running_control_plane
from lab.karmadas import (
    DYNAMIC,
    PLACEMENT,
    Karmada,
    binding,
    health_address,
    is_served,
    member,
    new_karmada_server,
)
from lab.patience import PATIENCE_SECONDS
from lab.servers import ROOT, environment, federation


@pytest.fixture
def karmada() -> Iterator[Karmada]:
    with new_karmada_server() as server:
        yield Karmada(server)


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with running_control_plane(database_url, tmp_path) as running:
        yield running


def theirs(name: str, **spec: Any) -> dict[str, Any]:
    return binding(name, schedulerName="default-scheduler", **spec)


def first_of_equals(uid: str, *names: str) -> str:
    """Karmada's order of ties: by name, downwards where the uid's FNV-1a hash is odd."""
    hashed = 2_166_136_261
    for byte in uid.encode():
        hashed = (hashed ^ byte) * 16_777_619 % 2**32
    return max(names) if hashed % 2 else min(names)


async def said(process: subprocess.Popen[str], words: str) -> str:
    """The next line of its log that has these words."""

    def read() -> str:
        assert process.stderr is not None
        for line in process.stderr:
            if words in line:
                return line
        raise AssertionError(f"it ended without {words!r}")

    async with asyncio.timeout(PATIENCE_SECONDS):
        return await asyncio.to_thread(read)


async def test_agreement_is_told_with_the_cause_of_each_difference(
    karmada: Karmada, plane: RunningControlPlane, tmp_path: Path
) -> None:
    near = {"clusterAffinity": {"clusterNames": ["m1"]}, "replicaScheduling": DYNAMIC}
    karmada.put(
        member("m1"),
        member("m2"),
        theirs("same", clusters=[{"name": "m1", "replicas": 1}, {"name": "m2", "replicas": 3}]),
        theirs("short", replicas=40, placement=near, clusters=[{"name": "m1", "replicas": 8}]),
        theirs("odd", replicas=3, placement=PLACEMENT),
        binding("ours", clusters=[{"name": "m1", "replicas": 1}]),
    )
    config = karmada.kubeconfig(tmp_path)
    token = tmp_path / "viewer.token"
    token.write_text(await plane.token(Role.VIEWER), encoding="ascii")
    arguments = [
        *("--karmada-kubeconfig", str(config), "--endpoint", str(plane.plane.endpoint)),
        *("--token-file", str(token), "--insecure"),
        *("--shadow", "--for", "3600", "-o", "json", "--health-listen", "127.0.0.1:0"),
    ]
    with subprocess.Popen(  # noqa: ASYNC220 - it begins at once, and is read in threads
        [sys.executable, "-m", "federation", "bridge", *arguments],
        cwd=ROOT,
        env=environment({}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        line = await said(process, "health and metrics at")
        health = await health_address(lambda: line)
        await said(process, "1 of 2 placed bindings")
        for number in range(4):
            name = f"tied-{number}"
            karmada.put(theirs(name, replicas=1, placement=PLACEMENT))
            first = first_of_equals(f"uid-of-{name}", "m1", "m2")
            karmada.edit(name, clusters=[{"name": first, "replicas": 1}])
        karmada.edit("odd", clusters=[{"name": "m7", "replicas": 3}])
        await said(process, "m7 is not among Karmada's clusters")
        counted = 'shadow_comparisons_total{occasion="decided",result="unknown_cluster"} 1.0'
        await is_served(health, "/metrics", counted)
        await is_served(health, "/readyz", "200 OK")
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        report = json.loads(await asyncio.to_thread(process.stdout.read))
        assert process.wait(PATIENCE_SECONDS) == 0
    assert report["compared"] == 7
    found = {each["binding"]: each for each in report["differences"]}
    assert found["default/short"]["occasion"] == "standing"
    assert found["default/short"]["fedsched"] is None
    assert "cpu" in found["default/short"]["why"]
    assert found["default/odd"]["occasion"] == "decided"
    tied = [each for name, each in found.items() if "tied" in name]
    assert {each["why"] for each in tied} == {TIES.why}
    assert report["agreed"] == 7 - len(found)
    causes = {"same": 7 - len(found), "ties": len(tied), "not_placed": 1, "unknown_cluster": 1}
    assert report["causes"] == {cause: count for cause, count in causes.items() if count}
    verbs = {each.verb for each in karmada.server.requests}
    assert verbs <= {"list", "watch", "get"}


def test_an_address_that_is_none_is_told_with_its_option(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("some.token", encoding="ascii")
    result = federation("bridge", "--token-file", str(token), "--health-listen", "8081")
    assert result.returncode == 2, result.stderr
    assert "--health-listen: must be HOST:PORT" in result.stderr


def test_a_kubeconfig_that_is_none_ends_the_program_at_once(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("some.token", encoding="ascii")
    missing = tmp_path / "karmada.config"
    arguments = ("--karmada-kubeconfig", str(missing), "--token-file", str(token), "--insecure")
    result = federation("bridge", *arguments)
    assert result.returncode == 1, result.stderr
    assert f"error: no access to Kubernetes by {missing}" in result.stderr
