"""``fedctl what-if``: tables, documents and pictures, and what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from federation.cli import output as show
from federation.cli.__main__ import fedctl
from federation.cli.pictures import bars
from federation.model.printable import is_printable
from federation.simulation.figures import Pair
from lab.traces import BEGAN, Storm, fleet_of, requests, traced, write_trace
from tests.unit.cli.hostile import HOSTILE

POLICY = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: together, namespace: team1}
spec:
  resourceSelectors: [{apiVersion: apps/v1, kind: Deployment}]
  placement:
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}
"""
CLUSTER = """
apiVersion: cluster.karmada.io/v1alpha1
kind: Cluster
metadata: {name: member002, labels: {tier: tin}}
spec: {taints: [{key: drain, effect: NoSchedule}]}
"""


def what_if(*arguments: object) -> Result:
    return CliRunner().invoke(fedctl, ["what-if", *map(str, arguments)])


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("storm")
    fleet = fleet_of(12)
    storm = Storm(fleet, {each.name: 30 for each in fleet})
    verdicts = [storm.asked(each, BEGAN + 30 * n) for n, each in enumerate(requests(120, 1))]
    return write_trace(folder / "storm.trace", *traced(verdicts), in_chunk=25)


def test_the_same_shards_come_to_the_same_on_one_and_two_workers(trace: Path) -> None:
    cordon = (trace, "--cordon", "member003", "--window", "20m", "-o", "json", "--workers")
    one, two = (what_if(*cordon, workers) for workers in (1, 2))
    assert one.exit_code == two.exit_code == 0, two.output
    assert one.stdout == two.stdout
    document = json.loads(one.stdout)
    assert document["decisions"] == 120
    assert document["different"] > 0
    assert len(document["sha256"]) == 64
    assert {each["cluster"] for each in document["clusters"]} == {e.name for e in fleet_of(12)}


def test_with_nothing_changed_it_is_as_it_was(trace: Path) -> None:
    for arguments in ((), ("--window", "0s"), ("--window", "10m")):
        answer = what_if(trace, "--workers", 1, *arguments)
        assert answer.exit_code == 0, answer.output
        assert "Otherwise:  0" in answer.stdout
    document = json.loads(what_if(trace, "--workers", 1, "-o", "json").stdout)
    assert all(each["recorded"] == each["whatIf"] for each in document["figures"].values())


def test_policies_clusters_and_pictures(trace: Path, tmp_path: Path) -> None:
    policy, clusters = tmp_path / "policy.yaml", tmp_path / "clusters.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    clusters.write_text(CLUSTER, encoding="utf-8")
    changes = ("--policy", policy, "--clusters", clusters, "--without", "member001")
    answer = what_if(trace, *changes, "--svg", tmp_path / "pictures", "-o", "json", "--workers", 1)
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.stdout)
    held = {each["cluster"]: each.get("replicas") for each in document["clusters"]}
    assert held["member001"]["whatIf"] == held["member002"]["whatIf"] == 0
    assert held["member001"]["recorded"] > 0
    drawn = sorted((tmp_path / "pictures").iterdir())
    assert [each.name for each in drawn] == ["cpu.svg", "moved.svg", "replicas.svg", "waited.svg"]
    for each in drawn:
        root = ET.parse(each).getroot()  # noqa: S314 - written by the test's own program
        assert len(root.findall("{*}rect")) > 3


def test_names_of_others_are_escaped_in_pictures() -> None:
    picture = bars("held", [Pair(f"<script>{HOSTILE}", 3, 0), Pair("b" * 60, 0, 1)])
    texts = [each.text or "" for each in ET.fromstring(picture).iter()]  # noqa: S314 - our own
    assert "<script>" not in picture
    assert any(each.startswith("<script>") for each in texts)
    assert all(is_printable(each) for each in texts if each.strip())


@pytest.mark.parametrize("width", [60, 160])
def test_tables_on_a_terminal(
    trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    monkeypatch.setattr(show, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    answer = what_if(trace, "--cordon", "member003", "--workers", 1)
    assert answer.exit_code == 0, answer.output
    assert "FIGURE" in answer.stdout
    assert "By cluster" in answer.stdout
    assert "2 more clusters differ less" in answer.stderr
    # Hashes and paths are never cut.
    lines = answer.stdout.partition("\nFigures")[2].splitlines()
    assert [line for line in lines if len(line) > width] == []


def test_clusters_that_hold_the_same_are_listed_only_where_all_are_asked_for(trace: Path) -> None:
    changed = what_if(trace, "--cordon", "member003", "--workers", 1, "-o", "json")
    held = {each["cluster"]: each["replicas"] for each in json.loads(changed.stdout)["clusters"]}
    assert [each for each in held.values() if each["recorded"] == each["whatIf"]] == []
    same = what_if(trace, "--workers", 1)
    assert "None holds more or less." in same.stderr
    every = what_if(trace, "--workers", 1, "-o", "wide")
    assert all(name in every.stdout for name in held)


def test_what_makes_no_sense(trace: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(POLICY.replace("PropagationPolicy", "Deployment"), encoding="utf-8")
    bad = tmp_path / "bad.yaml"
    bad.write_text(POLICY.replace("Divided,", "Torn,"), encoding="utf-8")
    cut = tmp_path / "cut.trace"
    cut.write_bytes(trace.read_bytes()[:3000])
    for arguments, code, words in (
        ((cut,), 1, "was cut"),
        ((tmp_path / "nowhere",), 1, "cannot be read"),
        ((trace, "--without", "nobody"), 1, "--without: names no cluster of the trace: nobody"),
        ((trace, "--cordon", "nobody"), 1, "--cordon: names no cluster of the trace: nobody"),
        ((trace, "--window", "1x"), 1, "--window: must be a span such as 90s, 1h30m or 7d"),
        ((trace, "--policy", other), 1, "is not a PropagationPolicy"),
        ((trace, "--policy", bad), 1, "replicaSchedulingType"),
        ((trace, "--clusters", other), 1, "is not a Cluster"),
        ((trace, "--scheduler-config", tmp_path / "nowhere"), 1, "nowhere"),
        ((trace, "--svg", trace), 1, "cannot write pictures"),
        ((trace, "--workers", "0"), 2, "--workers"),
        ((trace, "--dask", "tcp://a:1", "--workers", "2"), 1, "--dask: has workers of its own"),
        ((), 2, "FILE"),
    ):
        answer = what_if(*arguments, *(() if "--workers" in arguments else ("--workers", 1)))
        assert answer.exit_code == code, (arguments, answer.output)
        assert words in answer.output, (arguments, answer.output)
