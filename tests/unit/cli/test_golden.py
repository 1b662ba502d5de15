"""What each verb shows on terminals of 60, 80 and 160 columns, in a pipe, and as JSON.

After a change, ``FEDCTL_GOLDEN=write`` writes the files anew: look at each as a user would.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from federation.cli import output, workloads
from federation.cli.__main__ import fedctl
from federation.cli.history import NOT_EQUAL
from federation.cli.layouts import width_of
from tests.unit.cli.canned import DECIDED, DECISION, answer_with
from tests.unit.cli.canned_events import CALLS_MADE, GANG, SILENT

BESIDE = "--- said beside it"
GOLDEN = Path(__file__).with_name("golden")
BINDING = "shop/checkout-deployment"
CALLS = {
    "get-clusters": "get clusters",
    "get-bindings": "get bindings",
    "get-queue": "get queue",
    "get-reservations": "get reservations",
    "get-decisions": "get decisions",
    "get-joiners": "get joiners",
    "get-gangs": "get gangs",
    "events": "events",
    "events-binding": f"events binding {BINDING}",
    "events-cluster": "events cluster member3",
    "get-contexts": "get contexts",
    "describe-cluster": "describe cluster member2",
    "describe-binding": f"describe binding {BINDING}",
    "explain": f"explain {DECISION}1",
    "history": f"history {BINDING}",
    "replay-from-reports": f"replay {DECISION}1 --from-reports",
    "estimate": "estimate --request cpu=500m,memory=1Gi",
    "top-clusters": "top clusters",
    "top-namespaces": "top namespaces",
    "token-list": "token list",
    "join-token-list": "join-token list",
    "whoami": "whoami",
    "quota-list": "quota list",
    "audit-list": "audit list",
    "failover-status": "failover status",
    "plan-list": "plan list",
    "plan-show": "plan show 7",
    "simulate": "simulate -f examples/fleet.yaml -f examples/deployment.yaml "
    "-f examples/policy.yaml",
}
# How it ends, where that is told of.
CODES = {"replay-from-reports": NOT_EQUAL}
# Answers that differ from those of all calls.
ANSWERS: dict[str, dict[str, Any]] = {
    "get-gangs": GANG,
    "events": {"list_audit": CALLS_MADE, "list_clusters": SILENT},
    "events-binding": {"list_audit": CALLS_MADE, "list_decisions": [DECIDED]},
    "events-cluster": {
        "list_audit": CALLS_MADE,
        "list_decisions": [DECIDED],
        "get_cluster": SILENT[0],
    },
}
CONTEXTS = """
current-context: prod
contexts:
  here: {endpoint: "127.0.0.1:7443", token-file: /var/lib/fedsched/admin.token, insecure: true}
  prod:
    endpoint: "cp-0.example:7443,cp-1.example:7443"
    ca: /etc/fedctl/ca.pem
    token-file: /etc/fedctl/prod.token
"""
# How wide the terminal is, None in a pipe.
FORMS = {
    **{str(width): (width, ()) for width in (60, 80, 160)},
    "pipe": (None, ()),
    "json": (80, ("-o", "json")),
}


@pytest.fixture(autouse=True)
def _steady(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contexts = tmp_path / "contexts.yaml"
    contexts.write_text(CONTEXTS)
    monkeypatch.setenv("FEDCTL_CONFIG", str(contexts))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.chdir(Path(__file__).parents[3])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CALLS)
def test_as_it_was_looked_at(name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    width, options = FORMS[form]
    answer_with(monkeypatch, **ANSWERS.get(name, {}))
    monkeypatch.setattr(output, "is_terminal", lambda: width is not None)
    monkeypatch.setattr(workloads, "can_draw", lambda: width is not None)
    monkeypatch.setenv("COLUMNS", str(width or 80))
    result = CliRunner().invoke(fedctl, [*CALLS[name].split(), *options])
    assert result.exit_code == CODES.get(name, 0), result.output
    shown = f"{result.stdout}{BESIDE}\n{result.stderr}" if result.stderr else result.stdout
    shown = "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"
    file = GOLDEN / f"{name}.{form}.txt"
    if os.environ.get("FEDCTL_GOLDEN") == "write":
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", [form for form in FORMS if form.isdecimal()])
@pytest.mark.parametrize("name", CALLS)
def test_nothing_runs_over_the_edge(name: str, form: str) -> None:
    lines = (GOLDEN / f"{name}.{form}.txt").read_text(encoding="utf-8").splitlines()
    shown = lines[: lines.index(BESIDE)] if BESIDE in lines else lines
    assert [line for line in shown if width_of(line) > int(form)] == []


def test_no_golden_file_is_left_over() -> None:
    known = {f"{name}.{form}.txt" for name in CALLS for form in FORMS}
    assert {file.name for file in GOLDEN.iterdir()} == known
