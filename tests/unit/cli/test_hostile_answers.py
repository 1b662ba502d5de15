"""Whatever a server answers, nothing of it acts on the terminal of who asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from federation.cli.__main__ import fedctl
from federation.model.printable import is_printable
from tests.unit.cli.hostile import hostile_server

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
WORKLOAD = ("-f", str(EXAMPLES / "deployment.yaml"), "-f", str(EXAMPLES / "policy.yaml"))
ASKING = [
    ("get", "clusters"),
    ("get", "bindings"),
    ("get", "queue"),
    ("describe", "cluster", "member1"),
    ("describe", "binding", "shop/web"),
    ("explain", "shop/web"),
    ("get", "decisions", "--since", "1h"),
    ("get", "decision", "d1"),
    ("history", "shop/web"),
    ("replay", "d1"),
    ("estimate", "--request", "cpu=1"),
    ("schedule", *WORKLOAD),
    ("schedule", *WORKLOAD, "--preview"),
    ("reservation", "release", "shop/web"),
    ("reschedule", "shop/web"),
    ("join-token", "create", "--cluster", "member1"),
]
DOING = [
    ("join-token", "create", "--cluster", "member1", "--token-only"),
    ("reservation", "renew", "shop/web"),
    ("suspend", "shop/web"),
    ("resume", "shop/web"),
    ("cordon", "member1"),
    ("uncordon", "member1"),
    ("revoke", "member1"),
    ("delete", "cluster", "member1"),
    ("delete", "binding", "shop/web"),
    ("get", "bindings", "-w"),
    ("get", "clusters", "-w"),
    ("get", "clusters", "-w", "-o", "json"),
]


def asked(endpoint: str, *arguments: str, folder: Path) -> Result:
    token = folder / "token"
    token.write_text("secret")
    flags = ["--insecure", "--endpoint", endpoint, "--token-file", str(token)]
    return CliRunner().invoke(fedctl, [*flags, *arguments])


def assert_safe(result: Result) -> None:
    assert result.output
    for line in (result.stdout + result.stderr).split("\n"):
        assert is_printable(line), line
        assert not line.startswith("error: forged")
    assert not isinstance(result.exception, Exception), result.exception


@pytest.mark.parametrize("verb", ASKING, ids=" ".join)
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_an_answer(verb: tuple[str, ...], output: str, tmp_path: Path) -> None:
    with hostile_server() as endpoint:
        result = asked(endpoint, *verb, "-o", output, folder=tmp_path)
    assert_safe(result)
    if output == "json":
        assert json.loads(result.stdout)
    elif output == "yaml":
        assert yaml.safe_load(result.stdout)


@pytest.mark.parametrize("verb", DOING, ids=" ".join)
def test_what_was_done(verb: tuple[str, ...], tmp_path: Path) -> None:
    with hostile_server() as endpoint:
        assert_safe(asked(endpoint, *verb, folder=tmp_path))


@pytest.mark.parametrize("verb", [*ASKING, *DOING], ids=" ".join)
def test_a_refusal(verb: tuple[str, ...], tmp_path: Path) -> None:
    with hostile_server(refuse=True) as endpoint:
        result = asked(endpoint, *verb, folder=tmp_path)
    assert result.exit_code == 1
    assert_safe(result)
