"""``fedctl score``: files of nodes and pods, configurations, and what is said about wrong ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "scoring"
NODES = EXAMPLES / "nodes-and-pod.yaml"
RATIO = EXAMPLES / "requested-to-capacity-ratio.yaml"
MOST = EXAMPLES / "most-allocated.yaml"
POLICY = EXAMPLES / "policy.json"


def run(*arguments: object, text: str | None = None) -> Result:
    return CliRunner().invoke(fedctl, ["score", *map(str, arguments)], input=text)


def answer(*arguments: object, text: str | None = None) -> Any:
    result = run(*arguments, "-o", "json", text=text)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def column(document: Any, name: str) -> list[Any]:
    return [node[name] for node in document["nodes"]]


@pytest.mark.parametrize(
    ("config", "options", "scores"),
    [
        (RATIO, (), [60, 69]),
        (RATIO, ("--scale", "10"), [5, 7]),
        (POLICY, (), [60, 69]),
        (POLICY, ("--scale", "10"), [5, 7]),
        (MOST, (), [59, 69]),
    ],
)
def test_kubernetes_page(config: Path, options: Sequence[str], scores: list[int]) -> None:
    document = answer("--config", config, "-f", NODES, *options)
    assert column(document, "name") == ["node-1", "node-2"]
    assert column(document, "score") == scores
    assert column(document, "insufficient") == [[], []]


def test_volcano_page() -> None:
    config, nodes = EXAMPLES / "volcano-scheduler.conf", EXAMPLES / "volcano-nodes-and-pod.yaml"
    document = answer("--config", config, "-f", nodes)
    assert column(document, "score") == [437.5, 468.75]
    assert column(document, "balanced") == [None, None]
    gpu = document["nodes"][0]["resources"][2]
    assert (gpu["used"], gpu["request"], gpu["allocatable"]) == ("4", "4", "8")


def test_each_resource_says_how_it_counted() -> None:
    foo, memory, cpu = answer("--config", RATIO, "-f", NODES)["nodes"][0]["resources"][:3]
    assert foo == {
        "plugin": "RequestedToCapacityRatio",
        "resource": "intel.com/foo",
        "used": "1",
        "request": "2",
        "allocatable": "4",
        "utilizationPercent": 75,
        "score": 75,
        "weight": 5,
        "skipped": None,
    }
    assert (memory["used"], memory["allocatable"], memory["score"]) == ("256Mi", "1Gi", 50)
    assert (cpu["utilizationPercent"], cpu["weight"]) == (37, 3)


def test_resource_that_no_node_has_is_said_to_be_left_out() -> None:
    nodes = NODES.read_text().replace("intel.com/foo", "other.com/foo")
    document = answer("--config", MOST, "-f", "-", text=nodes)
    assert document["nodes"][0]["resources"][0]["skipped"] == "the replica does not ask for it"


def test_table_shows_the_parts() -> None:
    shown = run("--config", RATIO, "-f", NODES).stdout
    assert "node-1     60        75" in shown
    assert "256Mi  256Mi    1Gi          50%" in shown


def test_pods_of_a_kubectl_list_count_unless_they_have_ended(tmp_path: Path) -> None:
    def pod(name: str, node: str | None, phase: str, cpu: str) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "containers": [{"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}]
        }
        if node is not None:
            spec |= {"nodeName": node}
        return {"kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}

    allocatable = {"cpu": "4", "memory": "4Gi", "pods": "10"}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": allocatable}}
    pods = [pod("a", "n", "Running", "2"), pod("b", "n", "Succeeded", "2")]
    pods += [pod("c", None, "Pending", "1"), pod("d", None, "Pending", "3")]
    listed = tmp_path / "list.json"
    listed.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [node, *pods]}))

    refused = run("--config", MOST, "-f", listed)
    assert refused.exit_code == 1
    assert "--pod: is needed" in refused.stderr
    assert "default/c, default/d" in refused.stderr
    assert answer("--config", MOST, "-f", listed, "--pod", "c")["nodes"][0]["insufficient"] == []
    wide = answer("--config", MOST, "-f", listed, "--pod", "default/d")
    assert wide["nodes"][0]["insufficient"] == ["cpu"]


def test_profile_is_the_pods_or_the_one_named(tmp_path: Path) -> None:
    config = tmp_path / "two.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- {schedulerName: spread}\n- {schedulerName: pack, pluginConfig: [{name: "
        "NodeResourcesFit, args: {scoringStrategy: {type: MostAllocated}}}]}\n"
    )
    assert answer("--config", config, "-f", NODES, "--profile", "pack")["strategy"] == "pack"
    refused = run("--config", config, "-f", NODES)
    assert refused.exit_code == 1
    assert "schedulerName: must be one of spread, pack, not 'default-scheduler'" in refused.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: Node\nmetadata: {name: n}\nstatus: {allocatable: {cpu: x}}", "allocatable[cpu]"),
        ("kind: Node\nmetadata: {name: n}", "hold no Pod without spec.nodeName"),
        ("kind: Pod\nmetadata: {name: p}\nspec: {}", "hold no Node"),
        ("kind: Deployment\nmetadata: {name: d}", "Deployment/d: must be a v1 Node or Pod"),
        (
            "kind: Pod\nmetadata: {name: p}\nspec: {containers: 3}",
            "spec.containers: must be a list",
        ),
        ("a: [", "is not YAML"),
    ],
)
def test_wrong_file_is_refused_by_path(text: str, said: str) -> None:
    refused = run("--config", MOST, "-f", "-", text=text)
    assert refused.exit_code == 1
    assert said in refused.stderr


def test_wrong_configuration_is_refused_by_file_and_path(tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text(RATIO.read_text().replace("weight: 5", "weight: 500"))
    refused = run("--config", config, "-f", NODES)
    assert refused.exit_code == 1
    path = "profiles[0].pluginConfig[0].args.scoringStrategy.resources[0].weight"
    assert f"wrong.yaml: {path}" in refused.stderr

    checked = run("--check-config", config, "-o", "json")
    assert checked.exit_code == 1
    document = json.loads(checked.stdout)
    assert (document["valid"], document["stage"]) == (False, "plugin")
    assert [error["field"] for error in document["errors"]] == [path]


def test_valid_configuration_is_called_valid() -> None:
    document = answer("--check-config", POLICY)
    assert document["valid"] is True
    assert document["errors"] == []
    assert len(document["warnings"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--config", MOST),
        ("-f", NODES),
        ("--config", MOST, "--cases", "-"),
        ("--check-config", MOST, "-f", NODES),
    ],
)
def test_wrong_usage(arguments: Sequence[object]) -> None:
    assert run(*arguments).exit_code == 2


RIGHT: dict[str, Any] = {"strategy": "MostAllocated", "nodes": [], "pod": {"containers": []}}
WRONG_POD = {"containers": [{"requests": {"cpu": "1z"}}]}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nodes": None}, "nodes"),
        ({"pod": None}, "pod"),
        ({"pod": WRONG_POD}, "pod.containers[0].requests[cpu]"),
        ({"nodes": [{"pods": [WRONG_POD]}]}, "nodes[0].pods[0].containers[0].requests[cpu]"),
        ({"nodes": [{"allocatable": {"cpu": "-1"}}]}, "nodes[0].allocatable[cpu]"),
        ({"nodes": [{"name": "n", "allocatable": {"memory": "7Ei"}}]}, "node n"),
        ({"strategy": "Best"}, "strategy"),
        ({"strategy": "RequestedToCapacityRatio"}, "shape"),
        ({"resources": [{"name": "cpu", "weight": 101}]}, "resources[0].weight"),
        ({"conf": "tiers: 3"}, "conf.actions"),
        ({"doc": 7}, "doc"),
        ({"pod_container_requests": {}}, "nonzero_milli_cpu"),
    ],
)
def test_wrong_case_gives_its_error_and_the_next_goes_on(
    changes: dict[str, Any], field: str
) -> None:
    cases = [{"id": [1], **RIGHT, **changes}, {"id": "right", **RIGHT}]
    result = run("--cases", "-", text="".join(f"{json.dumps(case)}\n" for case in cases))
    assert result.exit_code == 0
    wrong, good = map(json.loads, result.stdout.splitlines())
    assert wrong["id"] == [1]
    assert wrong["error"]["code"] == "INVALID_ARGUMENT"
    assert wrong["error"]["field"] == field
    assert good == {"id": "right", "nodes": []}
