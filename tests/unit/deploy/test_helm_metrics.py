"""The chart lets Prometheus in where that is asked for, and tells its operator what there is."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lab.charts import merged, render
from tests.unit.deploy.chart_values import AGENT, BASE, EVERY_PART, METRICS, SCRAPERS, Values
from tests.unit.deploy.manifests import CHART, DEPLOY, MONITORING
from tests.unit.deploy.starting import Objects, by_name

# Where /metrics is: beside the page, or beside health.
SERVED = {"control-plane": 7080, "agent": 8081, "bridge": 8081}


def rendered(metrics: Values, parts: Values = EVERY_PART) -> dict[tuple[str, str], Any]:
    return by_name(render(CHART, merged(parts, {"metrics": metrics}), namespace="fedsched"))


def ingress(objects: Objects, part: str) -> Any:
    return objects["NetworkPolicy", f"fedsched-{part}"]["spec"]["ingress"]


def test_by_default_nobody_is_let_in_to_agent_and_bridge_and_no_operator_is_needed() -> None:
    objects = rendered({})
    assert [ingress(objects, part) for part in ("agent", "bridge")] == [[], []]
    assert not any("monitoring.coreos.com" in each["apiVersion"] for each in objects.values())


def test_prometheus_alone_is_let_in_to_the_port_of_the_metrics() -> None:
    objects = rendered({"enabled": True, "from": SCRAPERS})
    for part in ("agent", "bridge"):
        spec = objects["Deployment", f"fedsched-{part}"]["spec"]["template"]["spec"]
        (port,) = spec["containers"][0]["ports"]
        assert ingress(objects, part) == [
            {"from": SCRAPERS, "ports": [{"protocol": "TCP", "port": port["containerPort"]}]}
        ]
    assert not any("monitoring.coreos.com" in each["apiVersion"] for each in objects.values())


def test_monitors_select_pods_and_ports_that_there_are() -> None:
    objects = rendered(METRICS)
    jobs = {}
    for part, served in SERVED.items():
        monitor = objects["PodMonitor", f"fedsched-{part}"]
        template = objects["Deployment", f"fedsched-{part}"]["spec"]["template"]
        assert monitor["metadata"]["labels"].items() >= {"release": "prometheus"}.items()
        wanted = monitor["spec"]["selector"]["matchLabels"]
        assert wanted.items() <= template["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "15s")
        (container,) = template["spec"]["containers"]
        (open_port,) = (
            each["containerPort"] for each in container["ports"] if each["name"] == endpoint["port"]
        )
        assert open_port == served
        (incoming,) = ingress(objects, part)
        assert open_port in {each["port"] for each in incoming["ports"]}
        (relabeling,) = endpoint["relabelings"]
        assert relabeling["targetLabel"] == "job"
        jobs[part] = relabeling["replacement"]
    # By these names alerts and dashboards ask.
    assert (jobs["control-plane"], jobs["agent"]) == ("fedsched", "fedsched-agents")
    asked = "".join(path.read_text("utf-8") for path in (DEPLOY / MONITORING).iterdir())
    assert 'job="fedsched"' in asked
    assert 'job="fedsched-agents"' in asked


@pytest.mark.parametrize(
    ("part", "name"), [("control-plane", "alerts.yaml"), ("agent", "alerts-agents.yaml")]
)
def test_rules_are_those_of_monitoring_and_lead_to_where_runbooks_are_kept(
    part: str, name: str
) -> None:
    text = (DEPLOY / MONITORING / name).read_text(encoding="utf-8")
    # Helm reads nothing outside of a chart.
    assert (CHART / "files" / name).read_text(encoding="utf-8") == text
    spec = rendered(METRICS)["PrometheusRule", f"fedsched-{part}"]["spec"]
    assert spec == yaml.safe_load(text.replace("docs/runbooks/", BASE))
    for group in spec["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook_url"] == f"{BASE}{rule['alert']}.md"


def test_a_member_has_no_alerts_about_control_planes() -> None:
    kinds = {
        (kind, name)
        for kind, name in rendered(METRICS, AGENT)
        if kind in ("PodMonitor", "PrometheusRule")
    }
    assert kinds == {("PodMonitor", "fedsched-agent"), ("PrometheusRule", "fedsched-agent")}
