"""What is exported from a live fleet gives, in files, what the control plane would decide."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from federation.cli.__main__ import fedctl
from lab.agents import DUMPS
from lab.fake_agents import FakeAgent
from lab.fleet import ReportingCluster
from tests.api.world import World

MEMBERS = ("member1", "member2", "member3")


def binding(
    name: str, replicas: int, scheduling: dict[str, Any], claim: Any = None, **spec: Any
) -> dict[str, Any]:
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
DUPLICATED = {"replicaSchedulingType": "Duplicated"}
QUESTIONS = [
    binding("dynamic", 20, DYNAMIC),
    binding("aggregated", 9, AGGREGATED, certificate="strict"),
    binding("everywhere", 2, DUPLICATED),
    binding("chosen", 4, DYNAMIC, claim={"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
    binding("untold", 4, DYNAMIC, claim={"nodeSelector": {"no-such-label": "x"}}),
    binding("too-many", 2000, DYNAMIC),
    binding("too-many-everywhere", 200, DUPLICATED),
]


async def test_a_simulation_of_what_was_exported_decides_as_the_service(
    world: World, tmp_path: Path
) -> None:
    for name in MEMBERS:
        report = ReportingCluster.of((DUMPS / f"{name}.json").read_bytes()).report()
        world.agents[name] = await FakeAgent.joined(world.plane, name, report)
    plane = world.plane.plane
    connecting = [
        *("--endpoint", str(plane.endpoint), "--insecure"),
        *("--token-file", str(plane.admin_token_file)),
    ]

    async def run(*arguments: str) -> Any:
        result = await asyncio.to_thread(CliRunner().invoke, fedctl, list(arguments))
        assert result.exit_code == 0, result.output
        return result.stdout

    def written(document: dict[str, Any]) -> str:
        path = tmp_path / f"{document['metadata']['name']}.yaml"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return str(path)

    # Promised to pods that will never come: reports stay as they are.
    for number, scheduling in enumerate([DYNAMIC, AGGREGATED, DYNAMIC]):
        held = written(binding(f"held{number}", 7 + number, scheduling))
        await run(*connecting, "schedule", "-f", held, "--node-timeout", "0")
    exported = tmp_path / "fleet.yaml"
    text = await run(*connecting, "get", "clusters", "--for-simulate")
    exported.write_text(text, encoding="utf-8")
    promises = {
        each["binding"]
        for cluster in yaml.safe_load(text)
        for each in cluster["status"]["packable"].get("promises", ())
    }
    assert promises == {"shop/held0", "shop/held1", "shop/held2"}
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
