"""Prometheus takes the alert rules and what dashboards ask; each alert fires for what it is for.

Names of metrics are held to the code elsewhere (tests/unit/telemetry).
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.deploy.manifests import DEPLOY, MONITORING

ALERTS = [DEPLOY / MONITORING / name for name in ("alerts.yaml", "alerts-agents.yaml")]
DECISION = "fedsched_scheduling_attempt_duration_seconds_bucket"
REFUSED = 'grpc_server_handled_total{grpc_method="EstimateReplicas",grpc_code="ResourceExhausted"}'
LOOP = "fedsched_event_loop_delay_seconds_bucket"
# A fleet of which nothing is to be told, for half an hour, in the notation of promtool.
CERTIFICATE_ENDS = (
    'fedsched_certificate_expiration_timestamp_seconds{instance="cp-1",file="certificate"}'
)
QUIET = {
    'fedsched_failing_duties{duty="keep reports"}': "0x30",
    CERTIFICATE_ENDS: "9000000000x30",
    "fedsched_partition_days": "13x30",
    'up{job="fedsched-bridge",instance="bridge-1"}': "1x30",
    'fedsched_bridge_working{instance="bridge-1"}': "1x30",
    'up{job="fedsched",instance="cp-1"}': "1x30",
    'up{job="fedsched-agents",instance="member1"}': "1x30",
    f'{DECISION}{{le="0.1"}}': "0+60x30",
    f'{DECISION}{{le="2.5"}}': "0+60x30",
    f'{DECISION}{{le="+Inf"}}': "0+60x30",
    'fedsched_schedule_attempts_total{result="scheduled"}': "0+60x30",
    'fedsched_schedule_attempts_total{result="error"}': "0x30",
    "fedsched_report_age_max_seconds": "20x30",
    'fedsched_clusters{ready="true"}': "95x30",
    'fedsched_clusters{ready="false"}': "5x30",
    'fedsched_failover_freezes{scope="fleet",by="people"}': "0x30",
    'fedsched_failover_freezes{scope="fleet",by="breaker"}': "0x30",
    'fedsched_database_connections{state="used",instance="cp-1"}': "3x30",
    'fedsched_database_connections_limit{instance="cp-1"}': "20x30",
    f'{LOOP}{{le="0.01",instance="cp-1"}}': "0+120x30",
    f'{LOOP}{{le="0.5",instance="cp-1"}}': "0+120x30",
    f'{LOOP}{{le="+Inf",instance="cp-1"}}': "0+120x30",
    'grpc_server_handled_total{grpc_code="Unauthenticated"}': "0+6x30",
    REFUSED: "0x30",
    "fedsched_queue_rescued_total": "0x30",
    "fedsched_preemptions_overdue_total": "0x30",
    'fedsched_reported_replicas{state="bound"}': "1000x30",
    'fedsched_reported_replicas{state="late"}': "10x30",
    "fedsched_overcommitted_clusters": "0x30",
    "fedsched_journal_age_seconds": "1x30",
    "fedsched_journal_held_seconds": "0x30",
    'fedsched_agent_blind{instance="member1"}': "0x30",
    'fedsched_agent_connected{instance="member1"}': "1x30",
}
# What makes each of them fire, and it alone.
FIRING: Mapping[str, Mapping[str, str]] = {
    "FedschedDown": {'up{job="fedsched",instance="cp-1"}': "0x30"},
    "FedschedNoTargets": {'up{job="fedsched",instance="cp-1"}': "_x30"},
    "FedschedSlowDecisions": {f'{DECISION}{{le="0.1"}}': "0+50x30"},
    "FedschedDecisionErrors": {'fedsched_schedule_attempts_total{result="error"}': "0+1x30"},
    "FedschedReportsOld": {"fedsched_report_age_max_seconds": "301x30"},
    "FedschedClustersNotReady": {'fedsched_clusters{ready="false"}': "11x30"},
    "FedschedFailoverFrozen": {'fedsched_failover_freezes{scope="fleet",by="breaker"}': "1x30"},
    "FedschedDatabasePoolFull": {
        'fedsched_database_connections{state="used",instance="cp-1"}': "20x30"
    },
    "FedschedEventLoopLate": {f'{LOOP}{{le="0.01",instance="cp-1"}}': "0+100x30"},
    "FedschedEstimatesRefused": {REFUSED: "0+7x30"},
    "FedschedWrongCredentials": {
        'grpc_server_handled_total{grpc_code="Unauthenticated"}': "0+66x30"
    },
    "FedschedQueueRescued": {"fedsched_queue_rescued_total": "0x20 1x10"},
    "FedschedPreemptionOverdue": {"fedsched_preemptions_overdue_total": "0x20 1x10"},
    "FedschedPromisesLate": {'fedsched_reported_replicas{state="late"}': "30x30"},
    "FedschedOvercommitted": {"fedsched_overcommitted_clusters": "1x30"},
    "FedschedJournalBehind": {"fedsched_journal_age_seconds": "20+60x30"},
    "FedschedJournalHeld": {"fedsched_journal_held_seconds": "9x30"},
    "FedschedDutyFailing": {'fedsched_failing_duties{duty="keep reports"}': "1x30"},
    "FedschedDaysEnd": {"fedsched_partition_days": "2x30"},
    "FedschedCertificateEnds": {CERTIFICATE_ENDS: "86400x90"},
    "FedschedBridgeDown": {'up{job="fedsched-bridge",instance="bridge-1"}': "0x30"},
    "FedschedBridgeIdle": {'fedsched_bridge_working{instance="bridge-1"}': "0x30"},
    "FedschedAgentDown": {'up{job="fedsched-agents",instance="member1"}': "0x30"},
    "FedschedAgentBlind": {'fedsched_agent_blind{instance="member1"}': "1x30"},
    "FedschedAgentDisconnected": {'fedsched_agent_connected{instance="member1"}': "0x30"},
}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus"
)


def promtool(*arguments: str | Path) -> str:
    """What it says; it has to be content."""
    run = subprocess.run(["promtool", *arguments], capture_output=True, check=False, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def alerts_of(series: Mapping[str, str], expected: Sequence[str]) -> dict[str, Any]:
    """One of promtool's tests: these fire after 28 minutes, and no others."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": "28m",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in expected
                ],
            }
        ],
    }


def test_every_alert_has_a_case() -> None:
    groups = [yaml.safe_load(path.read_text(encoding="utf-8"))["groups"] for path in ALERTS]
    rules = [rule for (group,) in groups for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == list(FIRING)
    for series in FIRING.values():
        assert series.keys() <= QUIET.keys()


@needs_promtool
def test_each_alert_fires_for_what_it_is_for_and_alone(tmp_path: Path) -> None:
    tests = [alerts_of(QUIET, [])]
    tests += [alerts_of({**QUIET, **series}, [name]) for name, series in FIRING.items()]
    file = tmp_path / "cases.yaml"
    cases = {"rule_files": [*map(str, ALERTS)], "evaluation_interval": "1m", "tests": tests}
    file.write_text(yaml.safe_dump(cases), encoding="utf-8")
    assert "SUCCESS" in promtool("test", "rules", file)


@needs_promtool
@pytest.mark.parametrize("name", ["dashboard.json", "dashboard-agents.json"])
def test_prometheus_reads_what_dashboards_ask(name: str, tmp_path: Path) -> None:
    dashboard = json.loads((DEPLOY / MONITORING / name).read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    # Grafana puts in its variables before it asks.
    rules = [
        {"record": f"asked:{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(asked)
    ]
    file = tmp_path / "rules.yaml"
    groups = {"groups": [{"name": "asked", "rules": rules}]}
    file.write_text(yaml.safe_dump(groups), encoding="utf-8")
    assert f"{len(asked)} rules found" in promtool("check", "rules", file)
