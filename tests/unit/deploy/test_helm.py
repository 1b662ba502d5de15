"""The Helm chart makes the objects that the manifests have, and refuses values that are none."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.charts import TemplateError, merged, render
from lab.manifests import written
from tests import kubernetes_schemas
from tests.kubernetes_schemas import json_schemas
from tests.unit.deploy.chart_values import (
    ACCESS,
    AGENT,
    BRIDGED,
    EVERY_PART,
    EVERYTHING,
    METRICS,
    Values,
)
from tests.unit.deploy.manifests import CHART, documents
from tests.unit.deploy.starting import by_name
from tests.unit.deploy.test_manifests import NEWEST, OLDEST

RENDERED: dict[str, Values] = {
    "control plane": {},
    "agent": AGENT,
    "bridge": BRIDGED,
    "everything": EVERYTHING,
    "access": ACCESS,
    "metrics": {**EVERY_PART, "metrics": METRICS},
}
SETTINGS = "fedsched.io/settings"
Found = dict[tuple[str, str], dict[str, Any]]


def rendered(values: Values, namespace: str = "fedsched") -> Found:
    return by_name(render(CHART, values, namespace=namespace))


def test_the_manifests_are_what_the_chart_makes() -> None:
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run `make manifests`"


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("control-plane", [{"settings": {"FEDERATION_LOST_SECONDS": "99"}}, {"host": "b.example"}]),
        ("agent", [{"settings": {"ESTIMATOR_LOG_FORMAT": "text"}}, {"endpoint": "b.example:1"}]),
    ],
)
def test_changed_settings_roll_the_pods(part: str, changes: list[Values]) -> None:
    key = "controlPlane" if part == "control-plane" else part

    def settings_of(values: Values) -> str:
        template = rendered(values)["Deployment", f"fedsched-{part}"]["spec"]["template"]
        return str(template["metadata"]["annotations"][SETTINGS])

    sums = [settings_of(merged(EVERYTHING, {key: change})) for change in ({}, *changes)]
    assert len(set(sums)) == len(sums)
    assert settings_of(merged(EVERYTHING, {key: {"tolerations": []}})) == sums[0]


def test_a_load_balancer_publishes_neither_the_page_nor_metrics() -> None:
    objects = rendered(EVERYTHING)
    outside = objects["Service", "fedsched-control-plane"]["spec"]
    assert outside["type"] == "LoadBalancer"
    targets = {each["name"]: each["targetPort"] for each in outside["ports"]}
    assert targets == {"api": "api", "ca": "probes"}
    inside = objects["Service", "fedsched-control-plane-web"]["spec"]
    assert "type" not in inside
    assert [each["targetPort"] for each in inside["ports"]] == ["web"]
    policy = objects["NetworkPolicy", "fedsched-control-plane"]["spec"]
    assert {"protocol": "TCP", "port": 7081} in policy["ingress"][0]["ports"]


@pytest.mark.parametrize("part", ["control-plane", "agent", "bridge"])
def test_names_are_asked_for_where_clusters_answer_them(part: str) -> None:
    def names_of(values: Values) -> Values:
        policy = rendered(values)["NetworkPolicy", f"fedsched-{part}"]
        rules: list[Values] = policy["spec"]["egress"]
        return next(rule for rule in rules if {"protocol": "UDP", "port": 53} in rule["ports"])

    usual = names_of(EVERYTHING)
    assert {"ipBlock": {"cidr": "169.254.0.0/16"}} in usual["to"]
    assert "openshift-dns" in str(usual["to"])
    assert {"protocol": "UDP", "port": 5353} in usual["ports"]
    own = [{"ipBlock": {"cidr": "10.0.0.10/32"}}]
    assert names_of({**EVERYTHING, "dns": {"to": own}})["to"] == own


def test_every_value_is_used_and_kubernetes_takes_the_objects() -> None:
    found = rendered(EVERYTHING, "elsewhere")
    for each in found.values():
        for version in (OLDEST, NEWEST):
            kubernetes_schemas.validate(each, version, strict=True)
        assert each["metadata"].get("namespace", "elsewhere") == "elsewhere"
    text = json.dumps(list(found.values()))
    assert "fedsched:0.2.0" not in text
    plane = found["Deployment", "fedsched-control-plane"]["spec"]
    assert plane["replicas"] == 3
    assert plane["template"]["metadata"]["annotations"].items() >= {"team": "fleet"}.items()
    for name in ("control-plane", "agent", "bridge"):
        pod = found["Deployment", f"fedsched-{name}"]["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        assert {each["image"] for each in pod["containers"]} == {"registry.example/fedsched:9.9.9"}
    assert plane["template"]["spec"]["nodeSelector"] == {"pool": "infra"}
    assert plane["template"]["spec"]["tolerations"] == [{"key": "infra", "operator": "Exists"}]
    service = found["Service", "fedsched-control-plane"]
    assert (service["spec"]["type"], service["metadata"]["annotations"]["team"]) == (
        "LoadBalancer",
        "fleet",
    )
    settings = found["ConfigMap", "fedsched-control-plane-settings"]["data"]
    assert settings["FEDERATION_LOST_SECONDS"] == "120"
    assert found["ConfigMap", "fedsched-agent-settings"]["data"]["ESTIMATOR_LOG_FORMAT"] == "json"
    (agent,) = found["Deployment", "fedsched-agent"]["spec"]["template"]["spec"]["containers"]
    assert agent["command"] == ["estimator", "run", "--binder"]
    assert ("Role", "fedsched-binder") in found
    (bridge,) = found["Deployment", "fedsched-bridge"]["spec"]["template"]["spec"]["containers"]
    assert bridge["command"][-1] == "--failover"
    assert {"name": "BRIDGE_ENDPOINT", "value": "far.example:8443"} in bridge["env"]
    rules = found["NetworkPolicy", "fedsched-bridge"]["spec"]["egress"]
    assert rules[-1] == {"ports": [{"protocol": "TCP", "port": 8443}]}


def test_two_releases_share_no_name_and_no_pod() -> None:
    releases = [
        by_name(render(CHART, EVERYTHING, namespace="fedsched", release=name))
        for name in ("fedsched", "blue")
    ]
    # Except what one namespace has once: nothing.
    assert not set(releases[0]) & set(releases[1])
    assert ("Deployment", "blue-fedsched-control-plane") in releases[1]
    selectors = [
        objects["Deployment", name]["spec"]["selector"]["matchLabels"]
        for objects, name in zip(
            releases, ("fedsched-control-plane", "blue-fedsched-control-plane"), strict=True
        )
    ]
    assert selectors[0]["app.kubernetes.io/instance"] == "fedsched"
    assert selectors[1]["app.kubernetes.io/instance"] == "blue"
    named = rendered({"fullnameOverride": "x"})
    assert ("Service", "x-control-plane") in named


def test_every_object_has_the_standard_labels_and_yours() -> None:
    objects = rendered({**EVERYTHING, "commonLabels": {"team": "fleet"}})
    for document in objects.values():
        labels = document["metadata"]["labels"]
        assert labels["helm.sh/chart"] == "fedsched-0.2.0"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert labels["team"] == "fleet"
        assert "app.kubernetes.io/component" in labels


@pytest.mark.parametrize("part", ["control-plane", "agent", "bridge"])
def test_pods_are_placed_and_named_as_values_say(part: str) -> None:
    key = "controlPlane" if part == "control-plane" else part
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    changes = {
        "affinity": affinity,
        "priorityClassName": "high",
        "podLabels": {"cost": "platform"},
        "podAnnotations": {"note": "yes"},
        "serviceAccount": {"create": False, "name": "mine"},
    }
    objects = rendered(merged(EVERYTHING, {key: changes, "revisionHistoryLimit": 3}))
    deployment = objects["Deployment", f"fedsched-{part}"]["spec"]
    template = deployment["template"]
    assert deployment["revisionHistoryLimit"] == 3
    assert template["metadata"]["labels"]["cost"] == "platform"
    assert template["metadata"]["annotations"]["note"] == "yes"
    assert template["spec"]["affinity"] == affinity
    assert template["spec"]["priorityClassName"] == "high"
    assert template["spec"]["serviceAccountName"] == "mine"
    assert ("ServiceAccount", f"fedsched-{part}") not in objects
    subjects = [
        subject["name"]
        for (kind, _), document in objects.items()
        if kind.endswith("Binding")
        for subject in document["subjects"]
    ]
    assert ("mine" in subjects) == (part == "agent")


def test_the_schema_is_migrated_before_pods_change_by_a_role_of_its_own() -> None:
    values = merged(
        EVERYTHING, {"controlPlane": {"migration": {"database": {"secret": "owner", "key": "url"}}}}
    )
    objects = rendered(values)
    job = objects["Job", "fedsched-migrate"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    (migrating,) = job["spec"]["template"]["spec"]["containers"]
    (url,) = migrating["env"]
    assert url["valueFrom"]["secretKeyRef"] == {"name": "owner", "key": "url"}
    pod = objects["Deployment", "fedsched-control-plane"]["spec"]["template"]["spec"]
    assert "initContainers" not in pod
    without = rendered(merged(EVERYTHING, {"controlPlane": {"migration": {"hook": False}}}))
    assert ("Job", "fedsched-migrate") not in without
    pod = without["Deployment", "fedsched-control-plane"]["spec"]["template"]["spec"]
    assert [container["name"] for container in pod["initContainers"]] == ["migrate"]


def test_cert_manager_makes_the_certificate_that_is_mounted() -> None:
    issuer = {"name": "fleet-ca", "kind": "ClusterIssuer"}
    values = {"controlPlane": {"tls": {"certManager": {"enabled": True, "issuerRef": issuer}}}}
    spec = rendered(values)["Certificate", "fedsched-control-plane"]["spec"]
    assert spec["secretName"] == "fedsched-tls"
    assert "fedsched.example" in spec["dnsNames"]
    assert spec["issuerRef"].items() >= issuer.items()
    with pytest.raises(TemplateError, match="issuerRef"):
        rendered({"controlPlane": {"tls": {"certManager": {"enabled": True}}}})


def test_ports_of_the_service_are_those_that_agents_are_told() -> None:
    objects = rendered({"controlPlane": {"service": {"apiPort": 443, "webPort": 80}}})
    service = objects["Service", "fedsched-control-plane"]["spec"]
    assert {port["name"]: port["port"] for port in service["ports"]} == {"api": 443, "web": 80}
    settings = objects["ConfigMap", "fedsched-control-plane-settings"]["data"]
    assert settings["FEDERATION_ADVERTISE_ENDPOINT"] == "fedsched.example:443"
    assert settings["FEDERATION_ADVERTISE_CA_URL"] == "http://fedsched.example:80/ca.pem"


def test_ports_are_open_to_the_peers_that_values_name() -> None:
    peer = [{"ipBlock": {"cidr": "10.1.2.3/32"}}]
    values = merged(
        EVERYTHING,
        {
            "controlPlane": {"networkPolicy": {"database": peer}},
            "agent": {"networkPolicy": {"apiServer": peer, "controlPlane": peer}},
            "bridge": {"networkPolicy": {"karmada": peer, "controlPlane": peer, "extraEgress": []}},
        },
    )
    objects = rendered(values)
    for part in ("control-plane", "agent", "bridge"):
        rules = objects["NetworkPolicy", f"fedsched-{part}"]["spec"]["egress"]
        assert all(rule.get("to") for rule in rules), part


def test_helms_test_asks_a_control_plane_whether_it_is_ready() -> None:
    objects = rendered(EVERYTHING)
    pod = objects["Pod", "fedsched-test"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    (container,) = pod["spec"]["containers"]
    web = objects["Service", "fedsched-control-plane-web"]
    assert f"http://{web['metadata']['name']}.fedsched.svc:7080/readyz" in container["command"][-1]


def test_network_policies_may_be_left_out() -> None:
    kinds = {kind for kind, _ in rendered({**EVERYTHING, "networkPolicies": False})}
    assert "NetworkPolicy" not in kinds


def test_a_digest_names_the_image_and_comes_before_the_tag() -> None:
    digest = f"sha256:{'0f' * 32}"
    objects = rendered(merged(EVERYTHING, {"image": {"digest": digest}}))
    images = {
        container["image"]
        for (kind, _), each in objects.items()
        if kind == "Deployment"
        for spec in [each["spec"]["template"]["spec"]]
        for container in (*spec.get("initContainers", ()), *spec["containers"])
    }
    assert images == {f"registry.example/fedsched@{digest}"}


def test_the_binder_has_the_rights_that_the_manifests_give_it() -> None:
    objects = rendered(EVERYTHING)
    for key, manifest in by_name(documents("binder/rbac.yaml")).items():
        names = ("rules", "roleRef", "subjects")
        assert [manifest.get(name) for name in names] == [objects[key].get(name) for name in names]


def test_what_an_agent_cannot_do_without_is_asked_for() -> None:
    with pytest.raises(TemplateError, match=r"agent\.cluster"):
        rendered({"agent": {"enabled": True}})


def test_the_schema_takes_the_values_and_refuses_what_is_none() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    json_schemas().Draft202012Validator.check_schema(schema)
    own = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for values in (own, merged(own, EVERYTHING)):
        json_schemas().validate(values, schema)
    for wrong in (
        {"replicas": 2},
        {"controlPlane": {"replicas": "two"}},
        {"controlPlane": {"settings": {"FEDERATION_LOST_SECONDS": 120}}},
        {"agent": {"caSha256": "abc"}},
        {"image": {"digest": "sha256:abc"}},
        {"metrics": {"from": []}},
    ):
        with pytest.raises(json_schemas().ValidationError):
            json_schemas().validate(merged(own, wrong), schema)


@pytest.mark.skipif(shutil.which("helm") is None, reason="no helm to compare with")
@pytest.mark.parametrize("values", RENDERED.values(), ids=RENDERED)
def test_helm_makes_the_same(values: Values, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    made = subprocess.run(
        ["helm", "template", "fedsched", str(CHART), "-n", "fedsched", "-f", str(file)],
        capture_output=True,
        check=True,
        text=True,
    )
    assert by_name(filter(None, yaml.safe_load_all(made.stdout))) == rendered(values)


@pytest.fixture(scope="module")
def engine() -> Any:
    """Helm's own code as a library, which the package index has where it has no helm."""
    return pytest.importorskip("helm_python", reason="pip install helm-python-sdk")


@pytest.mark.parametrize("values", RENDERED.values(), ids=RENDERED)
def test_helms_own_code_lints_the_chart_and_makes_the_same(engine: Any, values: Values) -> None:
    report = engine.lint(CHART, values, strict=True)
    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    with engine.Chart.load(CHART) as chart:
        made = chart.render(values, name="fedsched", namespace="fedsched")
    notes = made.pop("fedsched/templates/NOTES.txt")
    assert ("admin-token" in notes) == values.get("controlPlane", {}).get("enabled", True)
    objects = [each for text in made.values() for each in yaml.safe_load_all(text) if each]
    assert by_name(objects) == rendered(values)


def test_helms_own_code_refuses_what_the_schema_refuses(engine: Any) -> None:
    with engine.Chart.load(CHART) as chart:
        chart.validate_schema(EVERYTHING)
        for wrong, named in (
            ({"replicas": 2}, "replicas"),
            ({"controlPlane": {"replicas": "two"}}, "controlPlane/replicas"),
            ({"agent": {"caSha256": "abc"}}, "agent/caSha256"),
        ):
            with pytest.raises(engine.HelmError, match=named):
                chart.validate_schema(wrong)
        with pytest.raises(engine.HelmError, match=r"agent\.cluster"):
            chart.render({"agent": {"enabled": True}})
