"""The example plugin, installed as its users would and run in both programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from federation.codec.strict import message_from_document
from federation.v1.resource_pb2 import Cluster, ResourceBinding
from federation.v1.scheduling_pb2 import OUTCOME_NO_FIT
from lab.control_planes import refusal_of
from lab.patience import PATIENCE_SECONDS
from lab.servers import ROOT, federation
from tests.e2e.planes import Served

EXAMPLE = ROOT / "examples" / "plugin"
PROFILES = EXAMPLE / "profiles.yaml"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with the plugin, as PYTHONPATH: nothing else of the machine changes."""
    target = tmp_path_factory.mktemp("plugin")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *quiet, "--target", str(target), str(EXAMPLE)],
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    return str(target)


def cluster(name: str, green: str | None) -> dict[str, Any]:
    labels = {} if green is None else {"example.com/green-power-percent": green}
    return {"kind": "Cluster", "metadata": {"name": name, "labels": labels}}


def binding(scheduler_name: str) -> dict[str, Any]:
    """Wants one cluster; by default the first by name."""
    return {
        "kind": "ResourceBinding",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "schedulerName": scheduler_name,
            "placement": {"spreadConstraints": [{"minGroups": 1, "maxGroups": 1}]},
        },
    }


FLEET = [cluster("a", None), cluster("b", "30"), cluster("c", "90")]


def simulate(
    folder: Path, documents: list[dict[str, Any]], python_path: str, *options: str
) -> subprocess.CompletedProcess[str]:
    file = folder / "objects.yaml"
    file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    arguments = ["simulate", "-f", str(file), "-o", "json", *options]
    return subprocess.run(
        [sys.executable, "-m", "federation.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": python_path},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def chosen(answer: subprocess.CompletedProcess[str]) -> list[str]:
    assert answer.returncode == 0, answer.stderr
    (decision,) = json.loads(answer.stdout)
    return [each["name"] for each in decision["clusters"]]


def test_the_example_decides_in_fedctl(installed: str, tmp_path: Path) -> None:
    options = ("--scheduler-config", str(PROFILES))
    green = simulate(tmp_path, [*FLEET, binding("green")], installed, *options)
    assert chosen(green) == ["c"]
    default = simulate(tmp_path, [*FLEET, binding("")], installed, *options)
    assert chosen(default) == ["a"]


def test_a_plugin_that_raises_fails_its_binding_by_name(installed: str, tmp_path: Path) -> None:
    options = ("--scheduler-config", str(PROFILES))
    fleet = [cluster("a", "much")]
    green = simulate(tmp_path, [*fleet, binding("green")], installed, *options)
    assert green.returncode == 1
    assert green.stderr.startswith(
        "error: The scheduler plugin GreenPower failed: it raised ValueError"
    )
    assert chosen(simulate(tmp_path, [*fleet, binding("")], installed, *options)) == ["a"]


def test_a_score_beyond_its_range_fails_by_name(installed: str, tmp_path: Path) -> None:
    documents = [cluster("a", "101"), binding("green")]
    answer = simulate(tmp_path, documents, installed, "--scheduler-config", str(PROFILES))
    assert answer.stderr == (
        "error: The scheduler plugin GreenPower failed: it scored cluster a 101; "
        "scores are from 0 to 100.\n"
    )


def test_a_plugin_that_is_not_installed_is_told(tmp_path: Path) -> None:
    answer = simulate(tmp_path, [*FLEET, binding("green")], "", "--scheduler-config", str(PROFILES))
    assert answer.returncode == 1
    path = f"{PROFILES}: profiles[0].plugins.score.enabled[0].name"
    assert f"error: {path}: there is no plugin 'GreenPower'; plugins are" in answer.stderr
    served = federation("serve", "--insecure", "--scheduler-config", str(PROFILES))
    assert served.returncode == 2
    assert path in served.stderr


def test_its_arguments_are_checked(installed: str, tmp_path: Path) -> None:
    config = yaml.safe_load(PROFILES.read_text(encoding="utf-8"))
    config["profiles"][0]["pluginConfig"][0]["args"] = {"unknownPercent": 200, "colour": 1}
    file = tmp_path / "profiles.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    options = ("--scheduler-config", str(file))
    args = f"{file}: profiles[0].pluginConfig[0].args"
    answer = simulate(tmp_path, [*FLEET, binding("green")], installed, *options)
    assert f"error: {args}.colour: there is no such argument" in answer.stderr
    del config["profiles"][0]["pluginConfig"][0]["args"]["colour"]
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    answer = simulate(tmp_path, [*FLEET, binding("green")], installed, *options)
    assert answer.stderr == f"error: {args}: unknownPercent must be from 0 to 100\n"


@pytest.mark.expected_errors(r"scheduler/plugins/run\.py")
def test_the_example_decides_in_a_server(installed: str, tmp_path: Path) -> None:
    options = f"--scheduler-config={PROFILES}"
    with Served.on(tmp_path, options, PYTHONPATH=installed) as plane:
        green = message_from_document(binding("green"), ResourceBinding)
        fleet = [message_from_document(each, Cluster) for each in FLEET]
        (decision,) = plane.ask("Simulate", clusters=fleet, bindings=[green]).decisions
        assert [each.name for each in decision.clusters] == ["c"]
        fleet[0].metadata.labels["example.com/green-power-percent"] = "much"
        with pytest.raises(grpc.RpcError) as caught:
            plane.ask("Simulate", clusters=fleet, bindings=[green])
        refusal = refusal_of(caught.value)
        assert refusal.reason == "PLUGIN_FAILED"
        assert "GreenPower" in refusal.message
        # The server and its own fleet, which is empty, are none the worse.
        answer = plane.ask("Schedule", binding=green)
        assert answer.decision.outcome == OUTCOME_NO_FIT
        plane.server.await_line("scheduler plugin failed")
        assert plane.server.stop() == 0


def test_the_documentation_shows_the_example_as_it_is() -> None:
    page = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    for path in ("green_power/__init__.py", "pyproject.toml", "profiles.yaml"):
        assert (EXAMPLE / path).read_text(encoding="utf-8").strip() in page, path
