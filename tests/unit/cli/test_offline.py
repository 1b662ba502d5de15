"""``fedctl estimate`` and ``fedctl simulate`` on files, as people use them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl

FLEET = """
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member1}
status:
  resourceSummary:
    allocatable: {cpu: 100, memory: 1Ti, pods: 1000}
    allocatableModelings: [{grade: 2, count: 1}, {grade: 3, count: 6}]
---
kind: Cluster
metadata: {name: member2}
status:
  resourceSummary:
    allocatable: {cpu: 100, memory: 1Ti, pods: 1000}
    allocatableModelings: [{grade: 2, count: 4}, {grade: 3, count: 4}]
---
kind: Cluster
metadata: {name: member3-with-a-name-as-long-as-a-name-may-be-000}
status:
  resourceSummary:
    allocatable: {cpu: 100, memory: 1Ti, pods: 1000}
    allocatableModelings: [{grade: 6, count: 1}]
"""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 5
  template:
    spec:
      containers: [{name: web, resources: {requests: {cpu: 3, memory: 20Gi}}}]
"""
POLICY = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: policy, namespace: shop}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment, name: web}]
  placement:
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Aggregated
"""


def run(*arguments: str, standard_input: str | None = None) -> Result:
    return CliRunner().invoke(fedctl, arguments, input=standard_input)


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    file = tmp_path / "clusters.yaml"
    file.write_text(FLEET, encoding="utf-8")
    return str(file)


@pytest.fixture
def workload(tmp_path: Path) -> str:
    file = tmp_path / "workload.yaml"
    file.write_text(f"{WORKLOAD}---{POLICY}", encoding="utf-8")
    return str(file)


def test_selectors_are_not_ignored_in_silence(fleet: str) -> None:
    asked = ["estimate", "--request", "cpu=1", "--selector", "disk=nosuch", "--from", fleet]
    lines = run(*asked).output.splitlines()
    assert lines[1].split()[1:4] == ["unknown", "unknown", "none"]
    assert lines[1].endswith("models and summary cannot see node selectors and affinity")
    (row, *_) = json.loads(run(*asked, "-o", "json").output)
    assert (row["replicas"], row["ignoresNodeClaim"]) == (None, False)
    for source in ("models", "summary"):
        named = run(*asked, "--source", source)
        assert f"{source}, ignores the node claim" in named.output.splitlines()[1]
        (row, *_) = json.loads(run(*asked, "--source", source, "-o", "json").output)
        assert row["replicas"] > 0
        assert row["ignoresNodeClaim"] is True
    (row, *_) = json.loads(
        run(*asked[:3], "--from", fleet, "--source", "models", "-o", "json").output
    )
    assert row["ignoresNodeClaim"] is False


@pytest.mark.parametrize(
    ("request_text", "rule", "replicas"),
    [
        ("cpu=3,memory=20Gi", "documented", [7, 8, 10]),
        ("cpu=3,memory=60Gi", "documented", [6, 4, 4]),
        ("cpu=3,memory=20Gi", "simulated", [6, 4, 10]),
    ],
)
def test_estimates_from_a_file(
    fleet: str, request_text: str, rule: str, replicas: list[int]
) -> None:
    arguments = ["estimate", "--request", request_text, "--from", fleet, "--model-rule", rule]
    rows = json.loads(run(*arguments, "-o", "json").stdout)
    assert [row["replicas"] for row in rows] == replicas
    assert {row["source"] for row in rows} == {"models"}
    assert yaml.safe_load(run(*arguments, "-o", "yaml").stdout) == rows


def test_simulating_a_workload_with_its_policy(fleet: str, workload: str) -> None:
    (decision,) = json.loads(run("simulate", "-f", fleet, "-f", workload, "-o", "json").stdout)
    assert decision["binding"] == "shop/web-deployment"
    assert decision["outcome"] == "SCHEDULED"
    assert sum(each["replicas"] for each in decision["clusters"]) == 5
    assert decision["remainder"] == 0
    plain = run("simulate", "-f", fleet, "-f", workload).stdout
    assert "shop/web-deployment" in plain
    assert "SCHEDULED" in plain
    wide = run("simulate", "-f", fleet, "-f", workload, "-o", "wide").stdout
    assert "AVAILABLE" in wide
    assert "Aggregated" in wide


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["estimate", "--request", "cpu=1,cpu=2"], "cpu is there twice"),
        (["estimate", "--request", "cpu=1", "--cases", "x"], "--cases"),
        (["simulate"], "-f"),
        (["simulate", "-f", "x", "--cases", "y"], "--cases"),
        (["simulate", "--reserve", "--cases", "y"], "--cases"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            "kind: Cluster\nmetadata: {name: m}\nspec: {taint: []}",
            "Cluster/m.spec.taint: ClusterSpec",
        ),
        ("kind: ConfigMap", "hold no Cluster"),
    ],
)
def test_refusals_end_with_1(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(content, encoding="utf-8")
    for arguments in (["estimate", "--request=cpu=1", "--from"], ["simulate", "-f"]):
        result = run(*arguments, str(file))
        assert result.exit_code == 1
        assert said in result.stderr


def test_a_workload_that_no_policy_selects(fleet: str) -> None:
    result = run("simulate", "-f", fleet, "-f", "-", standard_input=WORKLOAD)
    assert result.exit_code == 1
    assert "Deployment/web: no PropagationPolicy" in result.stderr
