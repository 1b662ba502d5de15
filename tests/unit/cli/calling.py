"""``fedctl`` as an admin calls it, at a control plane that runs in the test's process.

Must not judge what it answers but that it ends well.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from lab.control_planes import RunningControlPlane

SPEC: dict[str, Any] = {
    "resource": {"kind": "Deployment", "name": "web", "uid": "u1"},
    "replicas": 5,
    "replicaRequirements": {"resourceRequest": {"cpu": 1}},
    "placement": {
        "replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "weightPreference": {"dynamicWeight": "AvailableReplicas"},
        }
    },
}


def binding(name: str = "web", **spec: Any) -> dict[str, Any]:
    """Five replicas of a core, divided by what is available; ``spec`` has other fields."""
    metadata = {"namespace": "shop", "name": name, "uid": f"uid-{name}"}
    return {"kind": "ResourceBinding", "metadata": metadata, "spec": {**SPEC, **spec}}


def written(folder: Path, *documents: Any) -> str:
    """The path of a file with these."""
    path = folder / f"{len(list(folder.iterdir()))}.yaml"
    path.write_text(yaml.safe_dump_all(documents or [binding()]), encoding="utf-8")
    return str(path)


def flags_for(running: RunningControlPlane) -> list[str]:
    plane = running.plane
    token = ("--token-file", str(plane.admin_token_file))
    return ["--insecure", "--endpoint", str(plane.endpoint), *token]


async def run(running: RunningControlPlane, *arguments: str) -> Result:
    arguments = (*flags_for(running), *arguments)
    return await asyncio.to_thread(CliRunner().invoke, fedctl, [*arguments])


async def shown(running: RunningControlPlane, *arguments: str) -> str:
    result = await run(running, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


async def answered(running: RunningControlPlane, *arguments: str) -> Any:
    return json.loads(await shown(running, *arguments, "-o", "json"))
