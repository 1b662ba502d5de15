"""The quickstart, walked as it is written: only its ports are others."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.servers import ROOT, environment, federation, started
from tests.patience import PATIENCE_SECONDS

PAGE = (ROOT / "docs/quickstart.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", PAGE, flags=re.DOTALL)
LINES = [line for language, block in BLOCKS if not language for line in block.splitlines()]
YAML = next(block for language, block in BLOCKS if language == "yaml")
PROGRAMS = {"fedctl": "federation.cli", "estimator": "estimator"}
TLS = ("--tls-cert=certs/server.pem", "--tls-key=certs/server.key", "--tls-ca=certs/ca.pem")
EXPECTED = {
    "fedctl login": "0 clusters; kept in",
    "fedctl get clusters": "mine  True   connected",
    "fedctl describe cluster mine": "Kept back",
    "fedctl schedule -f web.yaml --preview": "fedctl schedule --commit",
    "fedctl schedule -f web.yaml": "SCHEDULED",
    "fedctl explain shop/web-deployment": "trigger:                         the binding is new",
    "fedctl schedule -f big.yaml": "UNSCHEDULABLE",
    "fedctl get queue": "big",
    "fedctl history shop/web-deployment": "mine 0 to 12",
}


class Walk:
    """A folder in which the commands are run, and what they are told by variables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = environment(
            {"HOME": str(folder), "FEDCTL_CONFIG": str(folder / "fedctl"), "PYTHONPATH": str(ROOT)}
        )

    def run(self, line: str) -> str:
        """What the command prints; it must end with 0."""
        call, _, written = line.partition(" > ")
        program, *arguments = shlex.split(call)
        module = ["-m", PROGRAMS[program]] if program in PROGRAMS else []
        done = subprocess.run(
            [sys.executable, *module, *arguments] if module else [program, *arguments],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        if written:
            (self.folder / written).write_text(done.stdout, encoding="utf-8")
        return done.stdout + done.stderr

    @contextmanager
    def agent(self, printed: str) -> Iterator[None]:
        """Runs while the walk goes on."""
        command = next(line for line in printed.splitlines() if line.startswith("estimator run"))
        replayed = str(ROOT / "examples/clusters/member2.json")
        with subprocess.Popen(
            [sys.executable, "-m", *shlex.split(command), "--from", replayed],
            cwd=self.folder,
            env=self.variables,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stderr is not None
                assert any("connected as cluster mine" in line for line in process.stderr)
                # Its first report is on its way.
                deadline = time.monotonic() + PATIENCE_SECONDS
                while "Kept back" not in self.run("fedctl describe cluster mine"):
                    assert time.monotonic() < deadline, "there is no report"
                yield
            finally:
                process.terminate()


def test_the_quickstart_leads_to_a_decision(tmp_path: Path, database_url: str) -> None:
    walk = Walk(tmp_path)
    certificates = tmp_path / "certs"
    assert federation("certs", "--dir", str(certificates)).returncode == 0
    (tmp_path / "web.yaml").write_text(YAML, encoding="utf-8")
    with started(
        *("--listen=127.0.0.1:0", "--web-listen=127.0.0.1:0", f"--data-dir={tmp_path / 'state'}"),
        *(each.replace("certs", str(certificates)) for each in TLS),
        FEDERATION_DATABASE_URL=database_url,
    ) as server:
        endpoint = server.await_line(r"API +(\S+) \(TLS").group(1)
        server.await_line(r"web +http")
        calls = [line.replace("127.0.0.1:7443", endpoint) for line in LINES]
        joining = next(i for i, line in enumerate(calls) if line.startswith("fedctl join-token"))
        for line in calls[:joining]:
            if line.startswith("fedctl"):
                assert EXPECTED["fedctl login"] in walk.run(line)
        with walk.agent(walk.run(calls[joining])):
            tried = [
                expected(line, walk.run(line))
                for line in calls[joining + 1 :]
                if line.startswith(("fedctl", "sed"))
            ]
    assert sum(tried) == len(EXPECTED) - 1


def expected(line: str, printed: str) -> bool:
    """Whether there is something that the command must print; it was, then."""
    words = EXPECTED.get(line)
    assert words is None or words in printed, (line, printed)
    return words is not None
