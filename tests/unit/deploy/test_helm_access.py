"""The chart lets callers in by JWTs, certificates and reviewed tokens; the program starts so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from estimator.__main__ import run as estimator_run
from estimator.settings import OPTIONS as AGENT_OPTIONS
from federation.__main__ import serve
from federation.codec.role_rules import read_role_rules
from federation.plugins import read_profiles
from federation.runtime.settings import OPTIONS, check_serving
from lab.charts import TemplateError, merged, render
from tests import kubernetes_schemas
from tests.kubernetes_schemas import json_schemas
from tests.unit.deploy.chart_values import (
    ACCESS,
    AGENT,
    BESIDE,
    CACHE,
    CERTIFICATES,
    CI_RULE,
    OIDC,
    OIDC_RULE,
    POD_RULE,
    PROFILES,
    REVIEW,
    ROOT,
    Values,
    plane,
)
from tests.unit.deploy.manifests import CHART
from tests.unit.deploy.starting import NAME, Objects, by_name, container, pod, started
from tests.unit.deploy.test_manifests import NEWEST, OLDEST


def rendered(values: Values, namespace: str = "fedsched") -> dict[tuple[str, str], Any]:
    """What Kubernetes takes, of values that the schema takes."""
    own = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    json_schemas().validate(merged(own, values), schema)
    objects = by_name(render(CHART, values, namespace=namespace))
    known = (each for each in objects.values() if "monitoring.coreos" not in each["apiVersion"])
    for document in known:
        for version in (OLDEST, NEWEST):
            kubernetes_schemas.validate(document, version, strict=True)
    return objects


def egress(objects: Objects) -> list[list[int]]:
    rules = objects["NetworkPolicy", NAME]["spec"]["egress"]
    return [sorted({each["port"] for each in rule["ports"]}) for rule in rules]


@pytest.mark.parametrize(
    ("values", "variables", "opened"),
    [
        (
            plane(OIDC, rules=[OIDC_RULE]),
            {"ROLE_RULES", "OIDC_ISSUER", "OIDC_AUDIENCE", "OIDC_JWKS", "OIDC_CA"},
            [[8443]],
        ),
        (
            plane(REVIEW, rules=[POD_RULE]),
            {"ROLE_RULES", "TOKEN_REVIEW", "TOKEN_REVIEW_AUDIENCE"},
            [[443, 6443]],
        ),
        (
            plane(CERTIFICATES, rules=[CI_RULE]),
            {"ROLE_RULES", "CLIENT_LISTEN", "CLIENT_CA"},
            [],
        ),
        (
            plane(**BESIDE),
            {"SCHEDULER_CONFIG", "TRACE_ENDPOINT"},
            [[4317], [9999]],
        ),
    ],
    ids=["oidc", "token review", "client certificates", "what is beside access"],
)
def test_the_program_starts_with_it_and_reaches_what_it_asks(
    values: Values, variables: set[str], opened: list[list[int]], tmp_path: Path
) -> None:
    before, objects = rendered({}), rendered(values)
    begun = started(objects, tmp_path)
    check_serving(begun.settings)
    assert not begun.settings.warnings
    names = {name for name in begun.environment if name.startswith("FEDERATION_")}
    assert names <= set(map(OPTIONS.variable, OPTIONS))
    (tmp_path / "before").mkdir()
    added = names - started(before, tmp_path / "before").environment.keys()
    assert added == {f"FEDERATION_{name}" for name in variables}
    assert egress(objects) == [*egress(before), *opened]


def test_files_hold_what_the_values_say(tmp_path: Path) -> None:
    settings = started(rendered(ACCESS), tmp_path).settings.settings
    assert settings.role_rules is not None
    written = yaml.safe_load(settings.role_rules.read_text(encoding="utf-8"))
    assert written["rules"] == [OIDC_RULE, POD_RULE, CI_RULE]
    assert read_role_rules(settings.role_rules)
    assert settings.scheduler_config is not None
    assert yaml.safe_load(settings.scheduler_config.read_text(encoding="utf-8")) == PROFILES
    assert read_profiles(settings.scheduler_config)
    # Another authority than that of servers, as the program wants it, and no key beside it.
    assert settings.client_ca is not None
    for name in ("oidc-ca", "client-ca"):
        (volume,) = (each for each in pod(rendered(ACCESS))["volumes"] if each["name"] == name)
        assert [each["key"] for each in volume["secret"]["items"]] == ["ca.crt"]


def test_callers_with_certificates_come_in_at_a_port_of_their_own(tmp_path: Path) -> None:
    listen = started(rendered(ACCESS), tmp_path).settings.settings.client_listen
    assert str(listen) == "0.0.0.0:7444"
    for values, expected in (({}, False), (plane(CERTIFICATES, rules=[CI_RULE]), True)):
        objects = rendered(values)
        listened = {each["containerPort"] for each in container(objects)["ports"]}
        served = {each["port"] for each in objects["Service", NAME]["spec"]["ports"]}
        (incoming,) = objects["NetworkPolicy", NAME]["spec"]["ingress"]
        let_in = {each["port"] for each in incoming["ports"]}
        assert [7444 in ports for ports in (listened, served, let_in)] == [expected] * 3


def test_who_has_tokens_reviewed_may_do_that_and_nothing_else() -> None:
    objects = rendered(plane(REVIEW, rules=[POD_RULE]), "elsewhere")
    assert pod(objects)["automountServiceAccountToken"] is True
    assert pod(rendered({}))["automountServiceAccountToken"] is False
    (binding,) = (each for (kind, _), each in objects.items() if kind.endswith("Binding"))
    assert binding["roleRef"]["name"] == "system:auth-delegator"
    assert binding["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": pod(objects)["serviceAccountName"],
            "namespace": "elsewhere",
        }
    ]
    assert not any(kind.endswith("Binding") for kind, _ in rendered({}))


def examples(page: str) -> list[Any]:
    """The YAML that a page shows."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [yaml.safe_load(each) for each in re.findall("```yaml\n(.*?)```", text, re.DOTALL)]


def test_the_page_about_access_has_an_example_that_starts_and_a_pod(tmp_path: Path) -> None:
    *_, values, pod_of_shop = examples("access.md")
    begun = started(rendered(values), tmp_path).settings
    check_serving(begun)
    assert begun.settings.oidc_ca is not None
    assert begun.settings.client_ca is not None
    kubernetes_schemas.validate(pod_of_shop, NEWEST, strict=True)
    (token, _) = pod_of_shop["spec"]["volumes"][0]["projected"]["sources"]
    audience = token["serviceAccountToken"]["audience"]
    assert audience == begun.settings.token_review_audience


def test_the_page_about_kubernetes_has_examples_that_start(tmp_path: Path) -> None:
    plane_values, agent_values = examples("how-to/run-in-kubernetes.md")
    objects = rendered(plane_values)
    begun = started(objects, tmp_path).settings
    check_serving(begun)
    assert not begun.warnings
    assert begun.settings.role_rules is not None
    assert read_role_rules(begun.settings.role_rules)
    assert read_profiles(begun.settings.scheduler_config)
    assert {("PodMonitor", NAME), ("PrometheusRule", NAME)} <= objects.keys()
    agent = rendered(agent_values)
    assert ("Deployment", NAME) not in agent
    variables = agent["ConfigMap", "fedsched-agent-settings"]["data"]
    loaded = AGENT_OPTIONS.load(flags={}, environment=variables, document={}, source="")
    assert not loaded.violations
    assert not loaded.warnings
    assert agent["NetworkPolicy", "fedsched-agent"]["spec"]["ingress"]


def test_other_rules_bring_other_pods() -> None:
    def annotations(*rules: Values) -> dict[str, str]:
        objects = rendered(plane(OIDC, rules=rules))
        found: dict[str, str] = objects["Deployment", NAME]["spec"]["template"]["metadata"][
            "annotations"
        ]
        return found

    assert annotations(OIDC_RULE) == annotations(OIDC_RULE)
    assert annotations(OIDC_RULE) != annotations({**OIDC_RULE, "role": "viewer"})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (plane(OIDC), r"access\.roleRules"),
        (plane(REVIEW), r"access\.roleRules"),
        (plane(CERTIFICATES), r"access\.roleRules"),
        (plane(rules=[OIDC_RULE]), "need oidc"),
        (plane({"oidc": {"issuer": "https://a.example"}}, rules=[OIDC_RULE]), "oidc.audience"),
    ],
    ids=str,
)
def test_what_would_not_start_is_not_rendered(values: Values, named: str) -> None:
    with pytest.raises(TemplateError, match=named):
        rendered(values)


@pytest.mark.parametrize(
    "wrong",
    [
        {"access": {"roleRules": "rules.yaml"}},
        {"access": {"roleRules": [{"from": "oidc"}]}},
        {"access": {"oidc": {"issuer": "login.example"}}},
        {"access": {"tokenReview": {"apiServer": "http://10.0.0.1"}}},
        {"access": {"clientCA": "clients"}},
        {"extraArgs": "--no-failover"},
    ],
    ids=str,
)
def test_the_schema_refuses_what_is_none(wrong: Values) -> None:
    with pytest.raises(json_schemas().ValidationError):
        rendered({"controlPlane": wrong})


def test_the_programs_have_every_flag_and_variable_that_is_rendered() -> None:
    agent: Values = {
        "extraArgs": ["--scoring-config", "/scoring/config.yaml"],
        "extraVolumes": [{"name": "scoring", "configMap": {"name": "scoring"}}],
        "extraVolumeMounts": [{"name": "scoring", "mountPath": "/scoring"}],
        "extraEnv": [{"name": "TZ", "value": "UTC"}],
        "traces": {"endpoint": "http://collector.example:4318"},
        "networkPolicy": {"extraEgress": [{"ports": [{"protocol": "TCP", "port": 9999}]}]},
    }
    objects = rendered(
        merged(merged(ACCESS, AGENT), {"controlPlane": {"enabled": True}, "agent": agent})
    )
    assert CACHE in container(objects)["volumeMounts"]
    assert {"name": "cache", "emptyDir": {}} in pod(objects)["volumes"]
    spec = objects["Deployment", "fedsched-agent"]["spec"]["template"]["spec"]
    (running,) = spec["containers"]
    for command, program in (
        (container(objects)["command"], serve),
        (running["command"], estimator_run),
    ):
        known = {flag for parameter in program.params for flag in parameter.opts}
        flags = {word.partition("=")[0] for word in command if word.startswith("--")}
        assert flags
        assert flags <= known
    names = {each["name"] for each in running["env"]} - {"TZ"}
    assert "ESTIMATOR_TRACE_ENDPOINT" in names
    assert names <= set(map(AGENT_OPTIONS.variable, AGENT_OPTIONS))
    mounts = {each["name"] for each in running["volumeMounts"]}
    assert mounts == {each["name"] for each in spec["volumes"]}
    *_, traces, more = objects["NetworkPolicy", "fedsched-agent"]["spec"]["egress"]
    assert [each["ports"][0]["port"] for each in (traces, more)] == [4318, 9999]
