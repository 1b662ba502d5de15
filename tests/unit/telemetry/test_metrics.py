"""Metrics as Prometheus reads them: their names, what they count, and who builds on them."""

from __future__ import annotations

import asyncio
import json
import re
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_metrics

from estimator.measures import AgentMeasures
from estimator.metrics import metrics_page
from estimator.sight import CURRENT
from federation.certificate_ends import ends_of
from federation.certificates import make_certificates
from federation.model.cluster import CapacityReport, NodeSummary, ResourceSummary
from federation.model.shapes import Echo
from federation.services.members.settling import Settling
from federation.telemetry import page as page_module
from federation.v1.resource_pb2 import ReplicaRequirements
from lab.control_planes import RunningControlPlane, refused, report
from tests.api.calls import binding, scheduled
from tests.unit.rpc.conftest import running

__all__ = ["running"]

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RULES = [
    rule
    for path in sorted((ROOT / "deploy" / "monitoring").glob("alerts*.yaml"))
    for group in yaml.safe_load(path.read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARDS = [
    json.loads(path.read_text()) for path in (ROOT / "deploy" / "monitoring").glob("*.json")
]
ROWS = dict[str, str](re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGE, re.MULTILINE))
AGENT_TYPES = {name: kind for name, kind in ROWS.items() if name.startswith("fedsched_agent_")}
AGENT_TYPES.pop("fedsched_agent_sessions")
TYPES = {name: kind for name, kind in ROWS.items() if name not in AGENT_TYPES}
RUNBOOKS = ROOT / "docs" / "runbooks"
REPORTED = CapacityReport(
    epoch=1, sequence=1, snapshot_time=0.0, summary=ResourceSummary(), nodes=NodeSummary()
)
OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.7,text/plain;version=0.0.4;q=0.3"


async def scraped(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Mapping[tuple[str, tuple[str, ...]], float]:
    """Every sample by its name and the values of its labels."""
    monkeypatch.setattr(page_module, "KEPT_SECONDS", 0.0)
    content, kind = await running.plane.parts.metrics_pages().page(OPEN_METRICS)
    assert kind.startswith("application/openmetrics-text")
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in open_metrics(content.decode())
        for sample in family.samples
    }


def names_of(content: str) -> dict[str, str]:
    """What the page of the old form has, by name as samples have it."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family.type
        for family in plain_metrics(content)
    }


async def test_the_documentation_has_every_metric_and_no_other(
    running: RunningControlPlane,
) -> None:
    def ask() -> str:
        url = f"http://{running.plane.web_endpoint}/metrics"
        with urllib.request.urlopen(url) as answer:
            assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
            return str(answer.read().decode())

    served = names_of(await asyncio.to_thread(ask))
    info = {"fedsched_build_info": "info"}
    # There is no certificate where plain text is served.
    certificates = {"fedsched_certificate_expiration_timestamp_seconds": "gauge"}
    assert {**served, **info, **certificates} == TYPES


def expect_one_that_waits(samples: Mapping[tuple[str, tuple[str, ...]], float]) -> None:
    waiting = [
        samples["fedsched_pending_bindings", (queue,)] for queue in ("active", "unschedulable")
    ]
    assert sum(waiting) == 1
    ages = [
        samples["fedsched_pending_bindings_age_max_seconds", (queue,)]
        for queue in ("active", "unschedulable")
    ]
    assert sorted(age > 0 for age in ages) == [False, True]
    assert samples["fedsched_earmarked_bindings", ()] == 0
    assert samples["fedsched_journal_age_seconds", ()] >= 0


async def test_what_happens_is_counted(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running.connected("member1", report=report()):
        await scheduled(running, binding("small"))
        await scheduled(running, binding("large", replicas=1000))
        await refused(scheduled(running, binding("wrong", replicas=-1)))
        shape = ReplicaRequirements(resource_request={"cpu": "1"})
        await running.ask("EstimateReplicas", shapes=[shape] * 3)
        await running.ask("FreezeFailover", reason="network change")
        await refused(scheduled(running.caller("nobody.known"), binding()))
        samples = await scraped(running, monkeypatch)
    service = "federation.v1.Scheduling"
    assert samples["fedsched_schedule_attempts_total", ("scheduled",)] == 1
    # What waits may have been tried again meanwhile.
    assert samples["fedsched_schedule_attempts_total", ("unschedulable",)] >= 1
    ended = sum(
        value for (name, _), value in samples.items() if name == "fedsched_schedule_attempts_total"
    )
    assert samples["fedsched_scheduling_attempt_duration_seconds_count", ()] == ended
    for phase in ("read", "decide", "commit"):
        assert samples["fedsched_scheduling_phase_duration_seconds_count", (phase,)] >= 2
    assert samples["grpc_server_handled_total", ("OK", "Schedule", service)] == 2
    assert samples["grpc_server_handled_total", ("InvalidArgument", "Schedule", service)] == 1
    assert samples["grpc_server_handled_total", ("Unauthenticated", "Schedule", service)] == 1
    assert samples["grpc_server_handling_seconds_count", ("Schedule", service)] == 4
    estimates = {
        labels: count
        for (name, labels), count in samples.items()
        if name == "fedsched_estimates_total" and count
    }
    # Beside what was promised.
    assert estimates == {("lower", "pools"): 3}
    assert samples["fedsched_clusters", ("true",)] == 1
    assert samples["fedsched_clusters", ("false",)] == 0
    assert samples["fedsched_agent_sessions", ()] == 1
    expect_one_that_waits(samples)
    freezes = {labels: value for (name, labels), value in samples.items() if "freezes" in name}
    assert freezes == {
        ("breaker", "fleet"): 0,
        ("people", "fleet"): 1,
        ("breaker", "place"): 0,
        ("people", "place"): 0,
    }
    assert samples["fedsched_silent_clusters", ("false",)] == 0
    assert samples["fedsched_silent_clusters", ("true",)] == 0
    assert samples["fedsched_evictions", ()] == 0
    assert samples["fedsched_database_connections_limit", ()] > 1
    names = " ".join(str(key) for key in samples)
    assert not re.search(r"member1|shop|small|large", names)


async def test_the_page_is_there_while_the_database_is_not(
    running: RunningControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> Any:
        raise TimeoutError

    monkeypatch.setattr(running.plane.parts.store, "reading", away)
    samples = await scraped(running, monkeypatch)
    assert ("fedsched_clusters", ("true",)) in samples
    assert not any(name.startswith("fedsched_pending_bindings") for name, _ in samples)
    assert not any(name == "fedsched_failover_freezes" for name, _ in samples)


def test_alerts_and_dashboards_use_metrics_that_there_are() -> None:
    expressions = [rule["expr"] for rule in RULES]
    panels = [panel for dashboard in DASHBOARDS for panel in dashboard["panels"]]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    samples = set(ROWS)
    for name, kind in ROWS.items():
        if kind == "histogram":
            samples |= {f"{name}_{part}" for part in ("bucket", "sum", "count")}
    used = set(re.findall(r"\b(?:fedsched|grpc_server|process)_\w+", " ".join(expressions)))
    # Those of the bridge have a table on the page about Karmada.
    bridge = set(re.findall(r"`(fedsched_bridge_\w+)", (ROOT / "docs" / "karmada.md").read_text()))
    assert used <= samples | bridge
    assert len(used) > 15
    # Balanced, so that nothing was cut off.
    for expression in expressions:
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), expression


def test_every_alert_leads_to_its_runbook() -> None:
    names = {rule["alert"] for rule in RULES}
    assert names == {path.stem for path in RUNBOOKS.glob("Fedsched*.md")}
    index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
    assert names == set(re.findall(r"\[(Fedsched\w+)\]", index))
    for rule in RULES:
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"


def test_the_documentation_has_every_metric_of_agents_and_no_other() -> None:
    measures = AgentMeasures()
    content, kind = metrics_page(measures, CURRENT)
    assert kind.startswith("text/plain; version=0.0.4")
    served = {
        name: kind
        for name, kind in names_of(content.decode()).items()
        if name.startswith("fedsched")
    }
    served["fedsched_agent_build_info"] = "info"
    assert served == AGENT_TYPES


async def test_promises_whose_pods_wait_are_late_after_a_minute() -> None:
    settling = Settling()
    waits = Echo(binding="shop/cart", shape=(("cpu", 1000),), bound=3, unbound=2)
    settling.note("member1", replace(REPORTED, echoes=(waits,)), 100.0)
    settling.note("member2", replace(REPORTED, echoes=(replace(waits, unbound=0),)), 100.0)
    assert settling.totals(159.0) == {"bound": 6, "pending": 2, "late": 0}
    # A promise that still waits has done so since it was first seen to.
    settling.note("member1", replace(REPORTED, echoes=(replace(waits, unbound=1),)), 150.0)
    assert settling.totals(160.0) == {"bound": 6, "pending": 0, "late": 1}
    settling.note("member1", replace(REPORTED, echoes=(replace(waits, unbound=0),)), 170.0)
    settling.note("member1", replace(REPORTED, echoes=(waits,)), 180.0)
    assert settling.totals(200.0) == {"bound": 6, "pending": 2, "late": 0}
    settling.forget("member1")
    assert settling.totals(1000.0) == {"bound": 3, "pending": 0, "late": 0}


def test_the_first_certificate_of_a_file_that_ends_counts(tmp_path: Path) -> None:
    files = make_certificates(tmp_path, ["localhost"])
    both = tmp_path / "both.pem"
    both.write_bytes(files.ca.read_bytes() + files.cert.read_bytes())
    ends = ends_of({"certificate": files.cert, "authority": both, "oidc-ca": tmp_path / "none"})
    assert ends.keys() == {"certificate", "authority"}
    assert ends["authority"] == ends["certificate"]
    assert time.time() + 390 * 86_400 < ends["certificate"] < time.time() + 398 * 86_400
