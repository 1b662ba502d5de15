"""The control plane's manifests agree with each other, and with the program that they run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from federation.codec.role_rules import read_role_rules
from federation.doctor import PLANE_CONNECTIONS
from federation.runtime.settings import OPTIONS, check_serving
from tests import kubernetes_schemas
from tests.unit.deploy.kustomizing import kustomized, without_sums
from tests.unit.deploy.manifests import CLOUDNATIVE_PG, CONTROL_PLANE, KUSTOMIZATION
from tests.unit.deploy.starting import NAME, POD_IP, by_name, container, environment, pod, started
from tests.unit.deploy.test_manifests import NEWEST, OLDEST

OBJECTS = kustomized(CONTROL_PLANE)
ACCESS = [
    CONTROL_PLANE / "access" / name
    for name in ("role-rules", "oidc", "token-review", "client-certificates")
]


def found(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = OBJECTS[kind, NAME]
    return document


def ports(rules: Any) -> list[list[int]]:
    return [[each["port"] for each in rule["ports"]] for rule in rules]


def test_the_program_starts_with_this_environment(tmp_path: Path) -> None:
    begun = started(OBJECTS, tmp_path)
    check_serving(begun.settings)
    assert not begun.settings.warnings
    assert str(begun.settings.settings.peer_endpoint) == f"{POD_IP}:7443"
    assert {name for name in begun.environment if name.startswith("FEDERATION_")} <= set(
        map(OPTIONS.variable, OPTIONS)
    )


def test_it_starts_with_each_way_in_that_is_added_and_with_all(tmp_path: Path) -> None:
    rules, *ways = ACCESS
    for number, added in enumerate([*([way] for way in ways), ways]):
        folder = tmp_path / str(number)
        folder.mkdir()
        objects = kustomized(CONTROL_PLANE, [rules, *added])
        for document in objects.values():
            for version in (OLDEST, NEWEST):
                kubernetes_schemas.validate(document, version, strict=True)
        begun = started(objects, folder)
        check_serving(begun.settings)
        assert not begun.settings.warnings
        assert begun.settings.settings.role_rules is not None
        assert read_role_rules(begun.settings.settings.role_rules)
    # The last of them has all.
    settings = begun.settings.settings
    assert settings.oidc_issuer
    assert settings.token_review
    assert settings.client_ca is not None


def test_what_is_added_gets_out_and_its_callers_in() -> None:
    before = kustomized(CONTROL_PLANE)["NetworkPolicy", NAME]["spec"]
    objects = kustomized(CONTROL_PLANE, ACCESS)
    policy = objects["NetworkPolicy", NAME]["spec"]
    # The issuer's keys, and the API server.
    assert ports(policy["egress"]) == [*ports(before["egress"]), [443], [443, 6443]]
    assert ports(policy["ingress"]) == [[7443, 7080, 7444]]
    assert {each["port"]: each["targetPort"] for each in objects["Service", NAME]["spec"]["ports"]}[
        7444
    ] == "clients"
    assert {"name": "clients", "containerPort": 7444} in container(objects)["ports"]
    # Its own token asks for the reviews, and may do that alone.
    assert pod(objects)["automountServiceAccountToken"]
    assert not pod(OBJECTS)["automountServiceAccountToken"]
    binding = objects["ClusterRoleBinding", f"{NAME}-token-review"]
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    (subject,) = binding["subjects"]
    account = objects[subject["kind"], subject["name"]]["metadata"]
    assert (account["name"], account["namespace"]) == (
        pod(objects)["serviceAccountName"],
        subject["namespace"],
    )


def test_on_cloudnative_pg_nothing_is_acknowledged_that_one_server_alone_has() -> None:
    objects = kustomized(CONTROL_PLANE, [CONTROL_PLANE / CLOUDNATIVE_PG])
    cluster = objects["Cluster", "fedsched-db"]
    spec = cluster["spec"]
    synchronous = spec["postgresql"]["synchronous"]
    # With one away there is still one that vouches.
    assert spec["instances"] >= synchronous["number"] + 2
    assert (synchronous["number"], synchronous["dataDurability"]) == (1, "required")
    assert synchronous["failoverQuorum"]
    # Those that run, one more while they are replaced, and one more still.
    planes = objects["Deployment", NAME]["spec"]["replicas"] + 2
    assert int(spec["postgresql"]["parameters"]["max_connections"]) > planes * PLANE_CONNECTIONS
    # The operator's Secret for the database's owner, with the URL.
    where = {"name": f"{cluster['metadata']['name']}-app", "key": "uri"}
    for each in (*pod(objects)["initContainers"], container(objects)):
        (given,) = (each for each in each["env"] if each["name"] == "FEDERATION_DATABASE_URL")
        assert given["valueFrom"] == {"secretKeyRef": where}
    assert cluster["metadata"]["namespace"] == objects["Deployment", NAME]["metadata"]["namespace"]
    assert spec["bootstrap"]["initdb"]["database"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to try kustomize with")
def test_kustomize_adds_the_same(tmp_path: Path) -> None:
    shutil.copytree(CONTROL_PLANE, tmp_path / "plane")
    components = [CONTROL_PLANE / CLOUDNATIVE_PG, *ACCESS]
    names = [str(path.relative_to(CONTROL_PLANE)) for path in components]
    with (tmp_path / "plane" / KUSTOMIZATION).open("a", encoding="utf-8") as file:
        yaml.safe_dump({"components": names}, file)
    run = subprocess.run(
        ["kubectl", "kustomize", str(tmp_path / "plane")],
        capture_output=True,
        check=True,
        text=True,
    )
    assert by_name(yaml.safe_load_all(without_sums(run.stdout))) == kustomized(
        CONTROL_PLANE, components
    )


def test_every_port_is_the_one_that_is_listened_on() -> None:
    listened = {
        name: int(environment(OBJECTS)[f"FEDERATION_{variable}"].rpartition(":")[2])
        for name, variable in (
            ("api", "LISTEN"),
            ("web", "WEB_LISTEN"),
            ("probes", "PROBE_LISTEN"),
        )
    }
    assert {each["name"]: each["containerPort"] for each in container(OBJECTS)["ports"]} == listened
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container(OBJECTS)[probe]["httpGet"]["port"] == "probes"
    for port in found("Service")["spec"]["ports"]:
        assert listened[port["targetPort"]] == port["port"]
    (incoming,) = found("NetworkPolicy")["spec"]["ingress"]
    assert {each["port"] for each in incoming["ports"]} == {listened["api"], listened["web"]}
    advertised = int(environment(OBJECTS)["FEDERATION_ADVERTISE_ENDPOINT"].rpartition(":")[2])
    assert advertised == listened["api"]


def test_everything_selects_the_pods() -> None:
    labels = found("Deployment")["spec"]["template"]["metadata"]["labels"]
    spreads = pod(OBJECTS)["topologySpreadConstraints"]
    for selector in (
        found("Service")["spec"]["selector"],
        found("Deployment")["spec"]["selector"]["matchLabels"],
        found("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        found("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in spreads),
    ):
        assert selector == labels
    assert found("Deployment")["spec"]["replicas"] >= 2


def test_what_is_written_to_is_mounted() -> None:
    mounts = {each["name"]: each["mountPath"] for each in container(OBJECTS)["volumeMounts"]}
    assert mounts["state"] == environment(OBJECTS)["FEDERATION_DATA_DIR"]
    assert mounts["tmp"] == "/tmp"  # noqa: S108 - the pod's own
    assert mounts.keys() == {each["name"] for each in pod(OBJECTS)["volumes"]}


def test_kustomize_sets_the_image_that_runs() -> None:
    kustomization = yaml.safe_load((CONTROL_PLANE / KUSTOMIZATION).read_text(encoding="utf-8"))
    (image,) = kustomization["images"]
    spec = pod(OBJECTS)
    run = {each["image"] for each in (*spec["initContainers"], *spec["containers"])}
    assert run == {f"{image['name']}:{image['newTag']}"}
