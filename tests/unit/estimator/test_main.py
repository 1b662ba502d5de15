from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from estimator.__main__ import cli, main

ROOT = Path(__file__).parents[3]
MEMBER1 = str(ROOT / "examples" / "clusters" / "member1.json")
PLANE = ("--cluster", "m", "--endpoint", "cp:1")
RUN = ("run", "--cluster", "c")
EXTENDER, OPEN = ("--extender-listen", "127.0.0.1:9"), ("--extender-listen", "0.0.0.0:9")
MEMBER2 = str(ROOT / "examples" / "clusters" / "member2.json")


def invoked(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    "command", [(), ("run",), ("join",), ("show-config",), ("report",), ("estimate",)]
)
def test_every_help_page_has_an_example(command: tuple[str, ...]) -> None:
    shown = invoked(*command, "--help")
    assert shown.exit_code == 0
    assert f"estimator {' '.join(command)}" in shown.output.split("Example:")[1]


def test_a_report_is_printed_as_json_and_yaml() -> None:
    printed = invoked("report", "--from", MEMBER2, "-o", "json").output
    document = json.loads(printed)
    assert document["nodeSummary"] == {"totalNum": 24, "readyNum": 23, "gradedNum": 21}
    assert document["resourceSummary"]["allocatable"]["cpu"] == "293574m"
    assert yaml.safe_load(invoked("report", "--from", MEMBER2, "-o", "yaml").output) == document


@pytest.mark.parametrize(
    "command", [("report", "--from", MEMBER1), ("estimate", "--from", MEMBER1), ("show-config",)]
)
def test_output_has_a_long_name(command: tuple[str, ...]) -> None:
    shown = invoked(*command, "--output", "json")
    assert (shown.exit_code, bool(json.loads(shown.output))) == (0, True)


def test_the_version_is_shown() -> None:
    shown = invoked("--version")
    assert (shown.exit_code, shown.output.split()[0]) == (0, "estimator,")


def test_karmadas_node_set_counts_every_node() -> None:
    shown = invoked("report", "--from", MEMBER2, "-o", "json", "--count-unschedulable-nodes")
    document = json.loads(shown.output)
    assert document["nodeSummary"]["gradedNum"] == 24
    assert document["resourceSummary"]["allocatable"]["cpu"] == "325284m"


def test_a_report_is_a_table_for_people() -> None:
    lines = invoked("report", "--from", MEMBER2).output.splitlines()
    assert lines[0] == "nodes: 24, ready 23, graded 21"
    assert lines[1].split() == ["resource", "allocatable", "allocated", "allocating"]
    assert ["cpu", "293574m", "185884m", "125224m"] in [line.split() for line in lines]


def test_a_report_describes_free_nodes_by_pools() -> None:
    def pools(*options: str) -> dict[str, Any]:
        printed = invoked("report", "--from", MEMBER2, "-o", "json", *options).output
        described: dict[str, Any] = json.loads(printed)["pools"]
        return described

    usual = pools()
    assert sum(usual["counts"]) == 21
    assert len(usual["minimums"]) == len(usual["counts"]) * len(usual["resources"])
    # What the cluster's own pods select nodes by comes first.
    assert usual["labelKeys"][0] == "fleet.example/lifecycle"
    assert "kubernetes.io/arch" in usual["labelKeys"]
    assert len(pools("--pool-budget", "16")["counts"]) == 16
    assert "fleet.example/rack" not in usual["labelKeys"]
    named = pools("--pool-labels", "fleet.example/rack")
    assert "fleet.example/rack" in named["labelKeys"]
    assert invoked("report", "--from", MEMBER2, "--pool-budget", "8").exit_code == 2


def test_estimates_are_exact() -> None:
    asked = ("estimate", "--from", MEMBER1, "--request", "cpu=500m,memory=1Gi")
    assert invoked(*asked).output == "27\n"
    assert json.loads(invoked(*asked, "-o", "json").output) == {"replicas": 27}
    assert invoked(*asked, "--selector", "kubernetes.io/arch=arm64").output == "0\n"


def test_what_works_on_files_alone_loads_no_client_of_kubernetes() -> None:
    """Loading it took as long as all the rest."""
    code = "import sys, estimator.__main__; print(*sys.modules)"
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "estimator.sources" in loaded
    assert "kubernetes" not in loaded


def test_cases_are_answered_line_by_line(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    node = {"name": "a", "allocatable": {"cpu": "4", "pods": "10"}}
    cases.write_text(json.dumps({"id": "x", "nodes": [node], "request": {"cpu": "1"}}) + "\n")
    assert invoked("estimate", "--cases", str(cases)).output == '{"id": "x", "replicas": 4}\n'


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("estimate",), 2, "give --from FILE, or --cases FILE"),
        (("estimate", "--from", MEMBER1, "--request", "cpu"), 2, "write KEY=VALUE, not 'cpu'"),
        (("estimate", "--from", MEMBER1, "--request", "cpu=x"), 1, "--request[cpu]: 'x' is not"),
        (("report", "--from", str(ROOT / "pyproject.toml")), 1, "pyproject.toml: not what"),
        (("report",), 2, "Missing option '--from'"),
        (("nonsense",), 2, "No such command"),
        (("run", *PLANE, "--insecure"), 2, "loopback addresses only"),
        (("run", *PLANE, "--ca-url", "http://x"), 2, "go together"),
        (("run", *PLANE, "--ca-sha256", "00"), 2, "SHA-256 in hex"),
        (("run", "--cluster", "A", "--endpoint", "cp:1"), 2, "--cluster: must be"),
        (("run", "--nonsense"), 2, "No such option"),
        (("run", *PLANE, "--endpoint", "cp"), 2, "'cp'"),
        (("run", "--credential-file", "f", "--credential-secret", "n/s"), 2, "exclude each other"),
        (("run", "--credential-secret", "fedsched-agent"), 2, "must be NAMESPACE/NAME"),
        (("run", "--join-token", "t", "--join-token-file", "f"), 2, "exclude each other"),
        (("run", "--karmada-client-ca", "ca.pem"), 2, "needs --karmada-tls-cert"),
        (("run", "--karmada-tls-cert", "c.pem"), 2, "go together"),
        (("run", "--cluster", "c"), 2, "--endpoint: is required"),
        ((*RUN, "--extender-listen", "here"), 2, "--extender-listen: must be HOST:PORT"),
        ((*RUN, *OPEN), 2, "plain text is served on loopback addresses only, not on 0.0.0.0:9"),
        ((*RUN, *OPEN, "--extender-tls-cert", "c"), 2, "--extender-tls-key go together"),
        ((*RUN, *EXTENDER, "--extender-tls-key", "k"), 2, "--extender-tls-key go together"),
        ((*RUN, *EXTENDER, "--extender-client-ca", "a"), 2, "--extender-client-ca: needs"),
        (
            (*RUN, "--binder", "--extender-tls-cert", "c", "--extender-tls-key", "k"),
            2,
            "--extender-tls-cert: needs --extender-listen",
        ),
        ((*RUN, *EXTENDER, "--report", "r"), 2, "--extender-listen: needs nodes"),
        ((*RUN, "--binder", "--from", "f"), 2, "--binder: needs a live cluster"),
        (
            (*RUN, "--karmada-port", "9", "--scoring-config", "s"),
            2,
            "--scoring-config: needs --endpoint, --extender-listen or --binder",
        ),
        ((*RUN, "--report", "r", "--scoring-config", "s"), 2, "--scoring-config: needs nodes"),
    ],
)
def test_what_goes_wrong_is_one_line_and_a_code(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["estimator", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == code
    told = capsys.readouterr().err
    assert said in told
    assert told.startswith("estimator: ")
    assert told.count("\n") == 1


def test_a_variable_that_means_nothing_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESTIMATOR_CLUSTR", "member1")
    monkeypatch.setenv("ESTIMATOR_SERVICE_HOST", "10.0.0.1")
    shown = CliRunner().invoke(cli, ["run"])
    assert "ESTIMATOR_CLUSTR is no setting" in shown.stderr
    assert "did you mean ESTIMATOR_CLUSTER?" in shown.stderr
    assert "ESTIMATOR_SERVICE_HOST" not in shown.stderr


def test_a_token_that_all_who_list_processes_read_is_warned_about(tmp_path: Path) -> None:
    """Not where it came from a place of its owner's alone."""
    path = tmp_path / "agent.yaml"
    path.write_text("join_token: s3cret\n", encoding="utf-8")
    # Without an endpoint nothing is begun.
    command = ["join", "--cluster", "member1", "--karmada-port", "10352"]
    shown = CliRunner().invoke(cli, [*command, "--join-token", "s3cret"])
    assert "give it in ESTIMATOR_JOIN_TOKEN" in shown.stderr
    assert "s3cret" not in shown.output
    for arguments, environment in (
        (["--config", str(path)], {}),
        ([], {"ESTIMATOR_JOIN_TOKEN": "s3cret"}),
        (["--join-token-file", str(path)], {}),
    ):
        shown = CliRunner().invoke(cli, [*command, *arguments], env=environment)
        assert "--endpoint: is required" in shown.stderr
        assert "warning" not in shown.stderr


def test_a_file_of_settings_that_cannot_be_read_is_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("cluster: member1\njoin_token: 's3cret: [\n", encoding="utf-8")
    shown = CliRunner().invoke(cli, ["run", "--config", str(path)])
    assert shown.exit_code == 2
    assert f"{path}, line" in shown.stderr
    assert "s3cret" not in shown.stderr
