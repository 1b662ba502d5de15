"""The control plane's manifests agree with each other, and with the program that they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from federation.certificates import make_certificates
from federation.runtime.serving_rules import check_serving
from federation.runtime.setting_options import OPTIONS
from federation.runtime.settings import load_settings
from tests.unit.deploy.manifests import CONTROL_PLANE, KUSTOMIZATION, one

DATABASE_URL = "postgresql://fedsched@db.example/fedsched"
POD_IP = "10.0.0.7"


def found(kind: str) -> dict[str, Any]:
    return one(kind, within=CONTROL_PLANE)


def pod() -> dict[str, Any]:
    template: dict[str, Any] = found("Deployment")["spec"]["template"]
    return template


def container() -> dict[str, Any]:
    (serving,) = pod()["spec"]["containers"]
    spec: dict[str, Any] = serving
    return spec


def environment() -> dict[str, str]:
    """What the container is given, on a pod with that address."""
    values = dict(found("ConfigMap")["data"])
    for variable in container()["env"]:
        known = {"FEDERATION_DATABASE_URL": DATABASE_URL, "POD_IP": POD_IP}
        value = variable.get("value", known.get(variable["name"]))
        values[variable["name"]] = value.replace("$(POD_IP)", POD_IP)
    return values


def test_the_program_starts_with_this_environment(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path, ["fedsched.example"])
    files = {"tls.crt": certificates.cert, "tls.key": certificates.key, "ca.crt": certificates.ca}
    (mount,) = (each for each in container()["volumeMounts"] if each["name"] == "tls")
    values = environment()
    for name, value in values.items():
        if value.startswith(mount["mountPath"]):
            values[name] = str(files[Path(value).name])
    loaded = load_settings(
        flags={}, environment=values, document={}, source="", data_dir=tmp_path / "unused"
    )
    check_serving(loaded)
    assert not loaded.warnings
    assert str(loaded.settings.peer_endpoint) == f"{POD_IP}:7443"
    assert {name for name in values if name.startswith("FEDERATION_")} <= set(
        map(OPTIONS.variable, OPTIONS)
    )


def test_every_port_is_the_one_that_is_listened_on() -> None:
    listened = {
        name: int(environment()[f"FEDERATION_{variable}"].rpartition(":")[2])
        for name, variable in (
            ("api", "LISTEN"),
            ("web", "WEB_LISTEN"),
            ("probes", "PROBE_LISTEN"),
        )
    }
    assert {each["name"]: each["containerPort"] for each in container()["ports"]} == listened
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container()[probe]["httpGet"]["port"] == "probes"
    for port in found("Service")["spec"]["ports"]:
        assert listened[port["targetPort"]] == port["port"]
    (incoming,) = found("NetworkPolicy")["spec"]["ingress"]
    assert {each["port"] for each in incoming["ports"]} == {listened["api"], listened["web"]}
    advertised = int(environment()["FEDERATION_ADVERTISE_ENDPOINT"].rpartition(":")[2])
    assert advertised == listened["api"]


def test_everything_selects_the_pods() -> None:
    labels = pod()["metadata"]["labels"]
    spreads = pod()["spec"]["topologySpreadConstraints"]
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
    mounts = {each["name"]: each["mountPath"] for each in container()["volumeMounts"]}
    assert mounts["state"] == environment()["FEDERATION_DATA_DIR"]
    assert mounts["tmp"] == "/tmp"  # noqa: S108 - the pod's own
    assert mounts.keys() == {each["name"] for each in pod()["spec"]["volumes"]}


def test_kustomize_sets_the_image_that_runs() -> None:
    kustomization = yaml.safe_load((CONTROL_PLANE / KUSTOMIZATION).read_text(encoding="utf-8"))
    (image,) = kustomization["images"]
    spec = pod()["spec"]
    run = {each["image"] for each in (*spec["initContainers"], *spec["containers"])}
    assert run == {f"{image['name']}:{image['newTag']}"}
