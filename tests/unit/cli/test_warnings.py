"""Files: what they ask for is honoured, warned of or refused by name, and never dropped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl

DIVIDED = {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"}
ANTI_AFFINITY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
        ]
    }
}
DELETED = {"deletionTimestamp": "2027-01-15T08:00:00Z"}


def cluster(name: str, **metadata: Any) -> dict[str, Any]:
    allocatable = {"cpu": "100", "memory": "400Gi", "pods": "1000"}
    status = {"resourceSummary": {"allocatable": allocatable}}
    return {"kind": "Cluster", "metadata": {"name": name, **metadata}, "status": status}


def binding(name: str, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "ResourceBinding",
        "metadata": {"namespace": "shop", "name": name, **(metadata or {})},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "replicas": 2,
            "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
            "placement": {"replicaScheduling": DIVIDED},
            **spec,
        },
    }


def workload(kind: str, spec: dict[str, Any], api: str = "apps/v1") -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "web"}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def policy(kind: str, api: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    return {
        "kind": "PropagationPolicy",
        "metadata": {"namespace": "shop", "name": "all"},
        "spec": {"resourceSelectors": [{"apiVersion": api, "kind": kind}], **spec},
    }


@pytest.fixture
def simulate(tmp_path: Path) -> Any:
    def run(*documents: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
        file = tmp_path / "all.yaml"
        file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        return CliRunner().invoke(fedctl, ["simulate", "-f", str(file), *options])

    return run


def rows(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split()[:3] for line in result.stdout.splitlines()[1:]]


TEMPLATE = {"spec": {"affinity": ANTI_AFFINITY, "containers": [{"name": "a"}]}}


@pytest.mark.parametrize(
    ("kind", "api", "spec"),
    [
        ("Deployment", "apps/v1", {"template": TEMPLATE}),
        ("StatefulSet", "apps/v1", {"template": TEMPLATE}),
        ("Job", "batch/v1", {"template": TEMPLATE}),
        ("Pod", "v1", TEMPLATE["spec"]),
        ("Rollout", "argoproj.io/v1alpha1", {"replicas": 3, "template": TEMPLATE}),
    ],
)
def test_pod_constraints_are_warned_of_in_every_kind(
    simulate: Any, kind: str, api: str, spec: dict[str, Any]
) -> None:
    placement = {"replicaScheduling": DIVIDED}
    documents = [cluster("a"), workload(kind, spec, api), policy(kind, api, placement=placement)]
    shown = simulate(*documents)
    key = f"shop/web-{kind.lower()}"
    sentence = (
        "not judged: affinity.podAntiAffinity (kubernetes.io/hostname); "
        "pods may stay pending where replicas are placed"
    )
    assert shown.stderr.splitlines() == [f"warning: {key}: {sentence}"]
    assert rows(shown)[0][1] == "SCHEDULED"
    for format_name in ("json", "yaml"):
        answer = simulate(*documents, options=("-o", format_name))
        (decision,) = yaml.safe_load(answer.stdout)
        assert decision["warnings"] == [sentence]
    later = simulate(*documents, options=("--lose", "a@60s", "-o", "json"))
    assert json.loads(later.stdout)["warnings"] == {key: [sentence]}
    assert f"{key}: {sentence}" in simulate(*documents, options=("--lose", "a@60s")).stderr


def test_a_warning_of_many_bindings_is_printed_once(simulate: Any) -> None:
    names = [f"b{number:02}" for number in range(12)]
    request = {"resourceRequest": {"memory": "2048m"}}
    result = simulate(cluster("a"), *(binding(name, replicaRequirements=request) for name in names))
    (line,) = result.stderr.splitlines()
    assert line.startswith("warning: shop/b00, shop/b01, ")
    assert " and 2 more: spec.replicaRequirements.resourceRequest[memory]: 2048m is a" in line


def test_warnings_are_printable(simulate: Any) -> None:
    spread = [{"topologyKey": "a\x1b[2Jb\nc", "whenUnsatisfiable": "DoNotSchedule"}]
    spec = {"template": {"spec": {"topologySpreadConstraints": spread}}}
    result = simulate(cluster("a"), workload("Deployment", spec), policy("Deployment"))
    assert "\x1b" not in result.output
    assert len(result.stderr.splitlines()) == 2


@pytest.mark.parametrize(("kind", "api"), [("DaemonSet", "apps/v1"), ("CronJob", "batch/v1")])
def test_what_cannot_be_divided_goes_whole_to_each_cluster(
    simulate: Any, kind: str, api: str
) -> None:
    placement = {"replicaScheduling": DIVIDED}
    result = simulate(
        cluster("c1"),
        cluster("c2"),
        workload(kind, {}, api),
        policy(kind, api, placement=placement),
    )
    line = result.stdout.splitlines()[1]
    assert "SCHEDULED" in line
    assert " c1 c2 " in line
    assert f"a {kind} is not divided" in result.stderr


def test_replicas_of_a_custom_resource_are_not_dropped(simulate: Any) -> None:
    api = "ray.io/v1"
    group = {"replicas": 3, "template": {"spec": {"containers": []}}}
    spec = {"replicas": 7, "workers": [group], "head": {"template": group["template"]}}
    result = simulate(cluster("a"), workload("RayCluster", spec, api), policy("RayCluster", api))
    assert "spec.replicas is not read" in result.stderr
    assert "the RayCluster goes whole to each cluster" in result.stderr
    assert "pods of spec.head.template, spec.workers[0].template are not counted" in result.stderr
    assert "a=0" not in result.stdout


def test_a_suspended_binding_is_not_decided(simulate: Any) -> None:
    paused = binding("paused", suspension={"scheduling": True})
    result = simulate(cluster("a"), paused, binding("free"))
    assert rows(result) == [
        ["shop/paused", "UNSCHEDULABLE", "-"],
        ["shop/free", "SCHEDULED", "a=2"],
    ]
    assert "scheduling is suspended" in result.stdout
    # It takes no room, and the policy of a workload may say it too.
    large = binding("large", replicas=100)
    assert rows(simulate(cluster("a"), {**paused}, large))[1][1] == "SCHEDULED"
    spec = {"template": {"spec": {"containers": []}}}
    suspended = policy("Deployment", placement={}, suspension={"scheduling": True})
    assert rows(simulate(cluster("a"), workload("Deployment", spec), suspended))[0][1:] == [
        "UNSCHEDULABLE",
        "-",
    ]


def test_a_suspended_binding_waits_in_virtual_time_and_holds_nobody_up(simulate: Any) -> None:
    paused = binding("paused", suspension={"scheduling": True}, schedulePriority={"priority": 9})
    gang = {"name": "two", "size": 2}
    pair = [
        binding("one", gang=gang),
        binding("two", gang=gang, suspension={"scheduling": True}),
    ]
    options = ("--arrive", "shop/free@5m", "-o", "json")
    answer = json.loads(
        simulate(cluster("a"), paused, *pair, binding("free"), options=options).stdout
    )
    placed = [each["who"] for each in answer["steps"] if each["what"] == "placed"]
    assert placed == ["shop/free"]
    gates = {each["binding"]: each["gate"] for each in answer["queue"]}
    assert gates["shop/paused"] == gates["shop/two"] == "suspended"
    assert gates["shop/one"] == "1 of 2 members of gang two is here"


def test_a_binding_that_follows_another_is_left_out_by_name(simulate: Any, tmp_path: Path) -> None:
    follower = binding("settings", requiredBy=[{"namespace": "shop", "name": "web"}])
    del follower["spec"]["placement"]
    lacking = binding("lacking")
    del lacking["spec"]["placement"]
    result = simulate(cluster("a"), binding("web"), follower, lacking)
    assert rows(result) == [["shop/web", "SCHEDULED", "a=2"]]
    assert result.stderr.splitlines() == [
        "warning: ResourceBinding/settings follows shop/web (spec.requiredBy), and is not decided",
        "warning: ResourceBinding/lacking has no spec.placement, and is not decided",
    ]
    file = tmp_path / "export.yaml"
    file.write_text(yaml.safe_dump_all([binding("web"), lacking]), encoding="utf-8")
    acting = CliRunner().invoke(fedctl, ["schedule", "-f", str(file)])
    assert acting.exit_code == 1
    assert "ResourceBinding/lacking.spec.placement: is required" in acting.stderr
    alone = simulate(cluster("a"), lacking)
    assert alone.exit_code == 1
    assert "spec.placement: is required: write {} for every cluster" in alone.stderr
    alone = simulate(cluster("a"), follower)
    assert "follows shop/web" in alone.stderr
    assert "hold nothing to schedule" in alone.stderr


def test_a_policy_without_placement_allows_every_cluster(simulate: Any) -> None:
    spec = {"template": {"spec": {"containers": []}}}
    result = simulate(cluster("a"), workload("Deployment", spec), policy("Deployment"))
    assert rows(result) == [["shop/web-deployment", "SCHEDULED", "a=1"]]
    assert "PropagationPolicy/all has no spec.placement: every cluster is allowed" in result.stderr


def test_what_is_being_deleted_is_left_out_by_name(simulate: Any) -> None:
    leaving = binding("leaving", metadata=DELETED)
    moved = binding("moved", clusters=[{"name": "b", "replicas": 2}])
    result = simulate(cluster("a"), cluster("b", **DELETED), leaving, moved)
    assert rows(result) == [["shop/moved", "SCHEDULED", "a=2"]]
    assert result.stderr.splitlines() == [
        "warning: Cluster/b is being deleted, and left out",
        "warning: ResourceBinding/leaving is being deleted, and left out",
    ]
    none = simulate(cluster("b", **DELETED), moved)
    assert none.exit_code == 1
    assert "hold no Cluster that is not being deleted" in none.stderr


def test_a_cluster_that_nobody_has_is_named(simulate: Any) -> None:
    affinity = {"clusterNames": ["a", "nowhere"]}
    result = simulate(cluster("a"), binding("web", placement={"clusterAffinity": affinity}))
    assert "warning: shop/web: no cluster is named nowhere" in result.stderr


def test_a_case_leaves_out_clusters_that_are_being_deleted(tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    clusters = [cluster("a"), cluster("b", **DELETED)]
    spread = {"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}
    case = {"id": 1, "clusters": clusters, "bindings": [binding("web", placement=spread)]}
    file.write_text(json.dumps(case), encoding="utf-8")
    answer = json.loads(CliRunner().invoke(fedctl, ["simulate", "--cases", str(file)]).stdout)
    assert answer["decisions"][0]["clusters"] == [{"name": "a", "replicas": 2}]


@pytest.mark.parametrize(
    ("request_text", "warnings"),
    [
        ("cpu=1,memory=1Gi,pods=1", []),
        (
            "mem=1Gi",
            [
                (
                    "--request[mem]: no node reports a resource of this name; names are cpu, "
                    "memory, ephemeral-storage, hugepages-SIZE or a name with a prefix"
                )
            ],
        ),
        (
            "nvidia.com/gpus=1",
            ["--request[nvidia.com/gpus]: no cluster reports a resource of this name"],
        ),
        ("memory=2048m", ["--request[memory]: 2048m is a fraction and counts as 3 bytes"]),
    ],
)
def test_a_request_that_is_misspelt_is_warned_of(
    tmp_path: Path, request_text: str, warnings: list[str]
) -> None:
    file = tmp_path / "clusters.yaml"
    file.write_text(yaml.safe_dump(cluster("a")), encoding="utf-8")
    asked = ["estimate", "--request", request_text, "--from", str(file)]
    result = CliRunner().invoke(fedctl, asked)
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [f"warning: {each}" for each in warnings]


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_spread_constraints_beside_static_weights_are_named(
    simulate: Any, *, is_dynamic: bool
) -> None:
    weights: dict[str, Any] = {
        "staticWeightList": [
            {"targetCluster": {"clusterNames": [name]}, "weight": weight}
            for name, weight in (("c1", 1), ("c2", 4))
        ]
    }
    if is_dynamic:
        weights = {"dynamicWeight": "AvailableReplicas"}
    strategy = {**DIVIDED, "replicaDivisionPreference": "Weighted", "weightPreference": weights}
    spread = [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]
    placement = {"replicaScheduling": strategy, "spreadConstraints": spread}
    result = simulate(cluster("c1"), cluster("c2"), binding("w", replicas=5, placement=placement))
    assert rows(result)[0][1] == "SCHEDULED"
    if is_dynamic:
        assert "warning" not in result.output
    else:
        assert "c1=1 c2=4" in result.stdout
        sentence = (
            "warning: shop/w: spec.placement.spreadConstraints[0] (cluster 1 to 1) has no effect: "
            "static weights choose the clusters"
        )
        assert result.stderr.splitlines() == [sentence]
