"""The manifests are what Kubernetes takes, and no looser than they need be."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from estimator.settings import OPTIONS
from federation.bridge.__main__ import bridge
from tests import kubernetes_schemas
from tests.unit.deploy.kustomizing import kustomized, without_sums
from tests.unit.deploy.manifests import (
    AGENT_FOLDER,
    BRIDGE,
    CLOUDNATIVE_PG,
    CONTROL_PLANE,
    DEPLOY,
    KUSTOMIZATION,
    documents,
    files,
    one,
    settings,
)
from tests.unit.deploy.starting import by_name

OLDEST, NEWEST = "1.30", "1.37"
NAMESPACE = "fedsched"
CLUSTER_SCOPED = frozenset({"Namespace", "ClusterRole", "ClusterRoleBinding"})


def agent_pod() -> dict[str, Any]:
    spec: dict[str, Any] = one("Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("path", files(DEPLOY), ids=lambda path: str(path.relative_to(DEPLOY)))
def test_kubernetes_takes_it(path: Path, version: str) -> None:
    for document in documents(path.name, within=path.parent):
        kubernetes_schemas.validate(document, version, strict=True)


def test_a_wrong_field_is_found() -> None:
    deployment = one("Deployment")
    deployment["spec"]["replicaz"] = 2
    with pytest.raises(kubernetes_schemas.package().ValidationError):
        kubernetes_schemas.validate(deployment, NEWEST, strict=True)


def test_kustomize_is_given_every_file_but_the_template() -> None:
    templates: dict[Path, set[str]] = {
        AGENT_FOLDER: {"join-token.yaml"},
        AGENT_FOLDER / "binder": set(),
        AGENT_FOLDER / "metrics": set(),
        CONTROL_PLANE: set(),
        CONTROL_PLANE / CLOUDNATIVE_PG: set(),
        **{path.parent: set() for path in CONTROL_PLANE.glob(f"access/*/{KUSTOMIZATION}")},
        BRIDGE: set(),
        BRIDGE / "karmada": set(),
    }
    for directory, left_out in templates.items():
        kustomization = yaml.safe_load((directory / KUSTOMIZATION).read_text(encoding="utf-8"))
        there = {path.name for path in directory.glob("*.yaml")} - {KUSTOMIZATION}
        assert set(kustomization.get("resources", ())) == there - left_out
    assert {path.parent for path in DEPLOY.rglob(KUSTOMIZATION)} == templates.keys()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to try kustomize with")
def test_kustomize_makes_what_the_files_have(tmp_path: Path) -> None:
    def made(directory: Path) -> dict[tuple[str, str], dict[str, Any]]:
        run = subprocess.run(
            ["kubectl", "kustomize", str(directory)], capture_output=True, check=True, text=True
        )
        return by_name(yaml.safe_load_all(without_sums(run.stdout)))

    for directory in (AGENT_FOLDER, CONTROL_PLANE, BRIDGE, BRIDGE / "karmada"):
        # It gives the image a name; that it is the one that runs is another test's.
        assert made(directory) == kustomized(directory), directory
    # Binder and metrics are parts that are added, and an agent with the binder binds.
    shutil.copytree(AGENT_FOLDER, tmp_path / "agent")
    with (tmp_path / "agent" / KUSTOMIZATION).open("a", encoding="utf-8") as file:
        file.write("\ncomponents: [binder, metrics]\n")
    binding = made(tmp_path / "agent")
    assert binding == kustomized(AGENT_FOLDER, [AGENT_FOLDER / "binder", AGENT_FOLDER / "metrics"])
    pod = binding["Deployment", "fedsched-agent"]["spec"]["template"]["spec"]
    assert "--binder" in pod["containers"][0]["command"]


def test_everything_is_in_one_namespace() -> None:
    for document in documents(within=DEPLOY):
        expected = None if document["kind"] in CLUSTER_SCOPED else NAMESPACE
        assert document["metadata"].get("namespace") == expected


@pytest.mark.parametrize("within", [AGENT_FOLDER, BRIDGE], ids=lambda path: path.name)
def test_bindings_name_roles_and_accounts_that_there_are(within: Path) -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in documents(within=within)}
    for binding in documents(within=within):
        if not binding["kind"].endswith("RoleBinding"):
            continue
        assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) in there
        for subject in binding["subjects"]:
            assert (subject["kind"], subject["name"]) in there
            assert subject["namespace"] == NAMESPACE


@pytest.mark.parametrize(
    "within", [AGENT_FOLDER, CONTROL_PLANE, BRIDGE], ids=lambda path: path.name
)
def test_pods_are_confined(within: Path) -> None:
    pod = one("Deployment", within=within)["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for volume in pod["volumes"]:
        assert volume.keys() & {"secret", "emptyDir"}, "nothing of the node's"
    assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_probes_ask_where_the_agent_answers() -> None:
    (container,) = agent_pod()["containers"]
    (port,) = container["ports"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment["ESTIMATOR_HEALTH_LISTEN"].endswith(f":{port['containerPort']}")
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}


def test_there_is_one_agent_at_a_time() -> None:
    spec = one("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_network_policy_lets_nobody_in_and_names_every_port() -> None:
    policy = one("NetworkPolicy")["spec"]
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert policy["ingress"] == []
    assert all(rule["ports"] for rule in policy["egress"])
    control_plane_port = int(settings(AGENT_FOLDER)["ESTIMATOR_ENDPOINT"].rpartition(":")[2])
    open_ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert open_ports == {53, 5353, 443, 6443, control_plane_port, 7080}


def test_prometheus_is_let_in_to_the_metrics_alone_where_that_is_asked_for() -> None:
    objects = kustomized(AGENT_FOLDER, [AGENT_FOLDER / "metrics"])
    (incoming,) = objects["NetworkPolicy", "fedsched-agent"]["spec"]["ingress"]
    assert all(peer["namespaceSelector"]["matchLabels"] for peer in incoming["from"])
    (container,) = agent_pod()["containers"]
    assert {each["port"] for each in incoming["ports"]} == {
        each["containerPort"] for each in container["ports"]
    }
    for version in (OLDEST, NEWEST):
        kubernetes_schemas.validate(
            objects["NetworkPolicy", "fedsched-agent"], version, strict=True
        )


def test_the_environment_holds_settings_that_there_are() -> None:
    (container,) = agent_pod()["containers"]
    names = {variable["name"] for variable in container["env"]} | settings(AGENT_FOLDER).keys()
    assert names <= set(map(OPTIONS.variable, OPTIONS))


def test_the_credential_and_the_token_are_where_the_agent_looks() -> None:
    pod = agent_pod()
    (container,) = pod["containers"]
    environment = {each["name"]: each["value"] for each in container["env"]}
    secret = one("Secret", "secret.yaml")
    assert "data" not in secret, "applying it again must not undo what the agent wrote"
    assert environment["ESTIMATOR_CREDENTIAL_SECRET"] == f"{NAMESPACE}/{secret['metadata']['name']}"
    (volume,) = (each for each in pod["volumes"] if "secret" in each)
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == volume["name"])
    template = one("Secret", "join-token.yaml")
    (key,) = template["stringData"]
    assert volume["secret"]["secretName"] == template["metadata"]["name"]
    assert environment["ESTIMATOR_JOIN_TOKEN_FILE"] == f"{mount['mountPath']}/{key}"


def test_the_bridge_is_given_its_secret_by_variables_that_it_reads() -> None:
    pod = one("Deployment", within=BRIDGE)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    said = {option.envvar for option in bridge.params} - {None}
    environment = {each["name"]: each["value"] for each in container["env"]}
    assert environment.keys() == said
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "bridge")
    addresses = {"BRIDGE_ENDPOINT", "BRIDGE_HEALTH_LISTEN"}
    files = [value for name, value in environment.items() if name not in addresses]
    assert {str(Path(each).parent) for each in files} == {mount["mountPath"]}
    (port,) = container["ports"]
    assert environment["BRIDGE_HEALTH_LISTEN"] == f"0.0.0.0:{port['containerPort']}"
    assert container["command"][:2] == ["federation", "bridge"]
    assert bridge.make_context("bridge", container["command"][2:], resilient_parsing=True)
