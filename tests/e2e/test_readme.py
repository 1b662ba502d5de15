"""The README, tried: its offline commands run, its Python runs, its links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.servers import ROOT, await_status, environment, federation, started
from tests.patience import PATIENCE_SECONDS

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line.partition("#")[0].strip()
    for language, block in BLOCKS
    if language == ""
    for line in block.splitlines()
    if line.startswith(".venv/bin/")
]
OFFLINE = [line for line in COMMANDS if " simulate " in line or " --from " in line]
PROGRAMS = {"fedctl": "federation.cli", "federation": "federation", "estimator": "estimator"}


def run(command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command.removeprefix(".venv/bin/"))
    return subprocess.run(
        [sys.executable, "-m", PROGRAMS[program], *arguments],
        cwd=ROOT,
        env=environment({}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_there_is_something_to_try() -> None:
    assert len(COMMANDS) >= 5
    assert len(OFFLINE) >= 2


@pytest.mark.parametrize("command", OFFLINE)
def test_an_offline_command_answers(command: str) -> None:
    answer = run(command)
    assert answer.returncode == 0, answer.stderr
    assert "member3" in answer.stdout


@pytest.mark.parametrize("command", [each for each in COMMANDS if each not in OFFLINE])
def test_an_online_command_has_only_options_that_exist(command: str) -> None:
    answer = run(f"{command} --help")
    assert answer.returncode == 0, answer.stderr
    for option in re.findall(r" (--[a-z-]+)", command):
        assert option in answer.stdout


def test_the_python_example_runs_as_it_stands(tmp_path: Path, database_url: str) -> None:
    example = next(block for language, block in BLOCKS if language == "python")
    state = tmp_path / ".local" / "state" / "fedsched"
    assert federation("certs", "--dir", str(tmp_path / "certs")).returncode == 0
    with started(
        *("--listen", "127.0.0.1:0", "--web-listen", "127.0.0.1:0", "--data-dir", str(state)),
        *(f"--tls-{part}={tmp_path / 'certs' / name}" for part, name in TLS_FILES),
        FEDERATION_DATABASE_URL=database_url,
    ) as server:
        endpoint = server.await_line(r"API +(\S+) \(TLS").group(1)
        web = server.await_line(r"web +(http://[^/]+)").group(1)
        await_status(f"{web}/readyz", 200)
        answer = subprocess.run(
            [sys.executable, "-c", example.replace("127.0.0.1:7443", endpoint)],
            cwd=tmp_path,
            env=environment({"HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    assert (answer.returncode, answer.stderr) == (0, "")


TLS_FILES = (("cert", "server.pem"), ("key", "server.key"), ("ca", "ca.pem"))


@pytest.mark.parametrize("page", sorted(path.name for path in ROOT.glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (ROOT / target).exists(), target
