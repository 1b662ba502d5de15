"""What is exported from a live fleet gives, in files, what the control plane would decide."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from lab.control_planes import RunningControlPlane, running_control_plane
from tests.e2e.test_agent import DUMPS, cluster_where, estimator, flags, has_reported, join_token

MEMBERS = ("member1", "member2", "member3")


@pytest.fixture
async def members(database_url: str, tmp_path: Path) -> AsyncIterator[RunningControlPlane]:
    """A control plane with the agents of three recorded clusters."""
    async with (
        running_control_plane(database_url, tmp_path / "plane") as plane,
        AsyncExitStack() as agents,
    ):
        for member in MEMBERS:
            made = await join_token(plane, member)
            arguments = [
                *flags(plane, member, tmp_path / member),
                *("--from", str(DUMPS / f"{member}.json"), "--join-token", made.token),
            ]
            await agents.enter_async_context(estimator("run", *arguments))
            await cluster_where(plane, member, has_reported)
        yield plane


def binding(name: str, replicas: int, scheduling: dict[str, Any], **spec: Any) -> dict[str, Any]:
    claim = spec.pop("claim", None)
    requirements = {"resourceRequest": {"cpu": "1", "memory": "2Gi"}}
    if claim is not None:
        requirements["nodeClaim"] = claim
    return {
        "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": name},
            "replicas": replicas,
            "replicaRequirements": requirements,
            "placement": {"replicaScheduling": scheduling},
            **spec,
        },
    }


DYNAMIC = {
    "replicaSchedulingType": "Divided",
    "weightPreference": {"dynamicWeight": "AvailableReplicas"},
}
AGGREGATED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
QUESTIONS = [
    binding("dynamic", 20, DYNAMIC),
    binding("aggregated", 9, AGGREGATED, certificate="strict"),
    binding("everywhere", 2, {"replicaSchedulingType": "Duplicated"}),
    binding("chosen", 4, DYNAMIC, claim={"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
    binding("untold", 4, DYNAMIC, claim={"nodeSelector": {"no-such-label": "x"}}),
    binding("too-many", 2000, DYNAMIC),
    binding("too-many-everywhere", 200, {"replicaSchedulingType": "Duplicated"}),
]


async def test_a_simulation_of_what_was_exported_decides_as_the_service(
    members: RunningControlPlane, tmp_path: Path
) -> None:
    connecting = [
        *("--endpoint", str(members.plane.endpoint), "--insecure"),
        *("--token-file", str(members.plane.admin_token_file)),
    ]

    async def run(*arguments: str) -> Any:
        result = await asyncio.to_thread(CliRunner().invoke, fedctl, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    def written(document: dict[str, Any]) -> str:
        path = tmp_path / f"{document['metadata']['name']}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return str(path)

    # Promised to pods that will never come: the dumps stay as they are.
    for number, scheduling in enumerate([DYNAMIC, AGGREGATED, DYNAMIC]):
        held = written(binding(f"held{number}", 7 + number, scheduling))
        await run(*connecting, "schedule", "-f", held, "--node-timeout", "0")
    exported = tmp_path / "fleet.yaml"
    text = await run(*connecting, "get", "clusters", "--for-simulate")
    exported.write_text(text, encoding="utf-8")
    promises = [
        each["binding"]
        for cluster in yaml.safe_load(text)
        for each in cluster["status"]["packable"].get("promises", ())
    ]
    assert {"shop/held0", "shop/held1", "shop/held2"} == set(promises)
    for question in QUESTIONS:
        path = written(question)
        (live,) = json.loads(
            await run(*connecting, "schedule", "-f", path, "--preview", "-o", "json")
        )
        simulating = ("simulate", "-f", str(exported), "-f", path, "--reserve", "-o", "json")
        (simulated,) = json.loads(await run(*simulating))
        expected = live["decision"]
        assert simulated["outcome"] == expected["outcome"]
        assert simulated["clusters"] == expected["clusters"]
        assert simulated["reason"] == expected.get("reason", "")
    for shape in (
        ["cpu=1"],
        ["cpu=500m,memory=1Gi"],
        ["cpu=1", "--selector", "kubernetes.io/arch=amd64"],
    ):
        asked = ["estimate", "--request", *shape, "-o", "json"]
        live = json.loads(await run(*connecting, *asked))
        counted = json.loads(await run(*asked, "--from", str(exported)))
        names = ("cluster", "replicas", "source", "bound", "atMost", "note")
        assert [[row[name] for name in names] for row in counted] == [
            [row[name] for name in names] for row in live
        ]
        assert {row["bound"] for row in live} == {"lower"}
