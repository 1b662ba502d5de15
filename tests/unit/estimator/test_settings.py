"""Settings of an agent: where they come from, and what is told of those that are wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from estimator.__main__ import cli
from estimator.settings import OPTIONS, RunSettings, run_settings
from federation.model.errors import InvalidRequest

STATE = Path("/state")


def settings(
    *,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    document: Mapping[str, object] | None = None,
) -> RunSettings:
    loaded = OPTIONS.load(
        flags=flags or {},
        environment=environment or {},
        document=document or {},
        source="agent.yaml",
    )
    return run_settings(loaded, STATE)


def test_flags_win_over_environment_over_file() -> None:
    loaded = settings(
        flags={"cluster": "flag", "endpoint": ()},
        environment={"ESTIMATOR_CLUSTER": "variable", "ESTIMATOR_ENDPOINT": "a:1 b:2"},
        document={"cluster": "file", "endpoint": "c:3", "pool_budget": 16, "insecure": False},
    )
    assert loaded.cluster == "flag"
    assert loaded.addresses == ("a:1", "b:2")
    assert loaded.pool_budget == 16
    assert loaded.credential_file == STATE / "agent-flag.json"


@pytest.mark.parametrize("written", ["a:1", ["a:1"], ["a:1", "b:2"]])
def test_endpoints_of_a_file_are_one_or_a_list(written: object) -> None:
    addresses = settings(document={"cluster": "c", "endpoint": written}).addresses
    assert list(addresses) == ([written] if isinstance(written, str) else written)


ENDPOINTS = ["localhost:1", "127.9.9.9:1", "[::1]:7443"]
OTHERS = ["cp.example:1", "10.0.0.1:1", "localhost.example:1", "[::]:1"]
WRONG = [
    "cp.example",
    ":7443",
    "cp:",
    "cp:0",
    "cp:65536",
    "::1:7443",
    "http://cp:7443",
    "cp:\u0667",
]


def test_endpoints_are_read_and_written_alike_and_plain_text_reaches_loopback_alone() -> None:
    for text in [*ENDPOINTS, *OTHERS]:
        assert settings(flags={"cluster": "c", "endpoint": (text,)}).addresses == (text,)
        flags = {"cluster": "c", "endpoint": (text,), "insecure": "true"}
        if text in ENDPOINTS:
            assert settings(flags=flags).insecure
        else:
            with pytest.raises(InvalidRequest, match="loopback addresses only"):
                settings(flags=flags)
    for text in WRONG:
        with pytest.raises(InvalidRequest, match="must be HOST:PORT"):
            settings(flags={"cluster": "c", "endpoint": (text,)})


def test_everything_wrong_is_told_at_once_under_the_name_it_was_written_as() -> None:
    with pytest.raises(InvalidRequest) as caught:
        settings(
            flags={"karmada_port": "70000", "ca_sha256": "ab", "endpoint": ("a:1", "nowhere")},
            environment={"ESTIMATOR_CLUSTER": "Big", "ESTIMATOR_INSECURE": "perhaps"},
            document={"pool_budget": 8, "from": "f", "report": "r", "colour": "blue"},
        )
    rules = {violation.field: violation.rule for violation in caught.value.violations}
    assert set(rules) == {
        "--karmada-port",
        "--ca-sha256",
        "--endpoint",
        "ESTIMATOR_CLUSTER",
        "ESTIMATOR_INSECURE",
        "agent.yaml: pool_budget",
        "agent.yaml: from, agent.yaml: report",
        "agent.yaml: colour",
    }
    assert rules["--endpoint"] == "must be HOST:PORT; it is 'nowhere'"
    assert "65535" in rules["--karmada-port"]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--ca-file: must be a file"):
        settings(flags={"cluster": "c", "endpoint": ("a:1",), "ca_file": str(tmp_path)})


def test_settings_are_shown_with_their_origin_and_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("endpoint: [a:1, b:2]\njoin_token: s3cret\n")
    arguments = ("show-config", "--config", str(path), "--insecure", "-o", "json")
    result = CliRunner().invoke(cli, arguments, env={"ESTIMATOR_CLUSTER": "c"})
    assert result.exit_code == 0, result.output
    rows = {row["name"]: (row["value"], row["origin"]) for row in json.loads(result.stdout)}
    assert rows["cluster"] == ("c", "environment ESTIMATOR_CLUSTER")
    assert rows["endpoint"] == ("a:1 b:2", f"file {path}: endpoint")
    assert rows["join_token"] == ("***", f"file {path}: join_token")
    assert rows["insecure"] == ("true", "flag --insecure")
    assert rows["pool_budget"] == ("256", "default")
    assert rows["kubeconfig"] == ("", "default")
    shown = CliRunner().invoke(cli, ["show-config", "--karmada-port", "x"])
    assert shown.exit_code == 2
    assert "--karmada-port: must be a whole number" in shown.stderr
