"""``fedctl``: what is held is shown, released and prolonged; what changes is followed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.cli.fleet import placed_text
from federation.v1 import resource_pb2
from lab.control_planes import RunningControlPlane, report, running_control_plane

BINDING: dict[str, Any] = {
    "kind": "ResourceBinding",
    "metadata": {"namespace": "shop", "name": "web", "uid": "uid-web"},
    "spec": {
        "resource": {"kind": "Deployment", "name": "web", "uid": "u1"},
        "replicas": 5,
        "replicaRequirements": {"resourceRequest": {"cpu": 1}},
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
    },
}


@pytest.fixture
async def running(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    async with (
        running_control_plane(database_url, tmp_path) as found,
        found.connected("member1", report=report()),
    ):
        yield found


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "binding.yaml"
    path.write_text(yaml.safe_dump(BINDING), encoding="utf-8")
    return str(path)


async def run(running: RunningControlPlane, *arguments: str) -> Result:
    plane = running.plane
    token = ("--token-file", str(plane.admin_token_file))
    flags = ["--insecure", "--endpoint", str(plane.endpoint), *token]
    return await asyncio.to_thread(CliRunner().invoke, fedctl, [*flags, *arguments])


async def shown(running: RunningControlPlane, *arguments: str) -> str:
    result = await run(running, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


async def answered(running: RunningControlPlane, *arguments: str) -> Any:
    return json.loads(await shown(running, *arguments, "-o", "json"))


SCHEDULE = ("schedule", "--node-timeout", "0")


async def test_what_is_stuck_is_listed(database_url: str, tmp_path: Path, file: str) -> None:
    async with (
        running_control_plane(database_url, tmp_path) as running,
        running.connected("member1", report=report()) as stream,
    ):
        assert "Nothing is outstanding." in (await run(running, "get", "reservations")).output
        await shown(running, *SCHEDULE, "-f", file)
        listed = await run(running, "get", "reservations", "--stuck")
        assert "Nothing is stuck." in listed.output
        await stream.hear("place_request")
        # Of four nodes with 4 cores one is left.
        await stream.say(report=report(sequence=2, nodes=1))
        await stream.hear("ack")
        (row,) = await answered(running, "get", "reservations", "--stuck")
        assert (row["cluster"], row["binding"], row["stuck"]) == ("member1", "shop/web", 1)
        assert await answered(running, "get", "reservations", "--cluster", "other") == []
        table = await shown(running, "get", "reservations")
        assert table.splitlines()[1].split()[:5] == ["member1", "shop/web", "-", "5", "1"]


async def test_bindings_are_listed_with_what_of_them_is_placed(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    divided = {"replicaScheduling": {"replicaSchedulingType": "Divided"}}
    parts = [{"name": name, "replicas": count} for name, count in (("ps", 1), ("worker", 2))]
    empty = {"replicas": 0, "replicaRequirements": {}}
    wanted: list[tuple[str, dict[str, Any]]] = [
        ("all", {"replicas": 1}),
        ("config", empty),
        ("lost", {**empty, "placement": {"clusterAffinity": {"clusterNames": ["gone"]}}}),
        ("none", {"placement": {**divided, "clusterAffinity": {"clusterNames": ["gone"]}}}),
        ("sets", {**empty, "components": parts}),
        ("twice", {"replicas": 1, "placement": {}}),
    ]
    async with running.connected("member2", report=report()):
        for name, spec in wanted:
            path = tmp_path / f"{name}.json"
            metadata = {**BINDING["metadata"], "name": name, "uid": name}
            binding = {**BINDING, "metadata": metadata, "spec": {**BINDING["spec"], **spec}}
            path.write_text(json.dumps(binding), encoding="utf-8")
            await shown(running, *SCHEDULE, "-f", str(path))
        listed = await shown(running, "get", "bindings")
    placed = {row.split()[1]: row.split()[4] for row in listed.splitlines()[1:]}
    assert placed == {
        "all": "1/1",
        "config": "yes",
        "lost": "no",
        "none": "0/5",
        "sets": "3/3",
        "twice": "2/2",
    }


def test_what_is_placed_falls_short_of_what_is_asked_since() -> None:
    clusters = [resource_pb2.TargetCluster(name=name, replicas=2) for name in ("a", "b")]
    scaled = resource_pb2.ResourceBindingSpec(replicas=7, clusters=clusters)
    assert placed_text(scaled) == "4/14"
    scaled.placement.replica_scheduling.SetInParent()
    assert placed_text(scaled) == "4/7"


async def test_what_is_promised_is_shown_and_released(
    running: RunningControlPlane, file: str
) -> None:
    text = await shown(running, *SCHEDULE, "-f", file, "--certificate", "strict")
    assert "strict" in text
    assert " 1/1" in text
    described = await shown(running, "describe", "binding", "shop/web")
    assert "OUTSTANDING" in described
    assert "strict" in described
    told = await answered(running, "describe", "binding", "shop/web")
    (held,) = told["reservations"]
    assert (held["cluster"], held["replicas"], held["outstanding"]) == ("member1", 5, 5)
    (gone,) = await answered(running, "release", "shop/web", "--cluster", "member1")
    assert gone == held
    assert "none" in await shown(running, "describe", "binding", "shop/web")
    refused = await run(running, "release", "shop/web")
    assert refused.exit_code == 1
    assert "holds nothing" in refused.stderr


async def test_a_workload_of_components_is_described_by_them(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    one = {"resourceRequest": {"cpu": 1}}
    parts = [
        {"name": "jm", "replicas": 1, "replicaRequirements": one},
        {"name": "tm", "replicas": 2, "replicaRequirements": one},
    ]
    spec = {
        "components": parts,
        "resource": {"kind": "FlinkDeployment", "name": "etl"},
        "placement": {},
    }
    path = tmp_path / "set.yaml"
    metadata = {"namespace": "shop", "name": "etl"}
    written = {"kind": "ResourceBinding", "metadata": metadata, "spec": spec}
    path.write_text(yaml.safe_dump(written), encoding="utf-8")
    await shown(running, *SCHEDULE, "-f", str(path))
    described = await shown(running, "describe", "binding", "shop/etl")
    assert "jm=1, tm=2" in described
    assert "Replicas:" not in described


async def test_who_leaves_out_the_kind_is_told_the_whole_name(
    running: RunningControlPlane, tmp_path: Path
) -> None:
    binding = {**BINDING, "metadata": {"namespace": "shop", "name": "web-deployment"}}
    path = tmp_path / "binding.yaml"
    path.write_text(yaml.safe_dump(binding), encoding="utf-8")
    await shown(running, *SCHEDULE, "-f", str(path))
    # A binding that is gone may have a history.
    for verb, code in (
        *((("explain",), 1), (("describe", "binding"), 1), (("history",), 0)),
        *((("release",), 1), (("delete", "binding"), 1)),
    ):
        refused = await run(running, *verb, "shop/web")
        assert "no binding 'shop/web'. Is it 'shop/web-deployment'?" in refused.stderr, verb
        assert refused.exit_code == code, verb


@pytest.mark.parametrize("name", ["nobody", "No_Name"])
async def test_a_cluster_that_is_not_there_cannot_be_released(
    running: RunningControlPlane, file: str, name: str
) -> None:
    await shown(running, *SCHEDULE, "-f", file)
    refused = await run(running, "release", "shop/web", "--cluster", name)
    assert refused.exit_code == 1
    assert "clusters[0]" in refused.stderr


async def test_a_lease_is_prolonged(running: RunningControlPlane, file: str) -> None:
    refused = await run(running, "renew", "shop/web")
    assert "There is no binding" in refused.stderr
    await shown(running, *SCHEDULE, "-f", file)
    refused = await run(running, "renew", "shop/web", "--lease-seconds", "60")
    assert "has no lease" in refused.stderr
    await shown(running, *SCHEDULE, "-f", file, "--lease-seconds", "60")
    before = (await answered(running, "describe", "binding", "shop/web"))["leaseExpireTime"]
    assert "holds until" in await shown(running, "renew", "shop/web", "--lease-seconds", "3600")
    after = (await answered(running, "describe", "binding", "shop/web"))["leaseExpireTime"]
    assert after > before
    refused = await run(running, "renew", "shop/web", "--lease-seconds", "0")
    assert "leaseSeconds" in refused.stderr


async def test_a_key_decides_once(running: RunningControlPlane, file: str) -> None:
    once = (*SCHEDULE, "-f", file, "--idempotency-key", "k1")
    (first,) = await answered(running, *once)
    (again,) = await answered(running, *once)
    assert again["decision"]["id"] == first["decision"]["id"]
    refused = await run(running, *once, "--certificate", "strict")
    assert refused.exit_code == 1
    assert "another request" in refused.stderr
    assert (await run(running, *once, "--preview")).exit_code == 2
