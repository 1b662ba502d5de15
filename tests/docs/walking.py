"""Runs the commands of a page of documentation, one after the other, as a reader would.

Must not know any page: what one needs besides stands in its comments (``lab/pages.py``).
Verbs that end run in this process, which is ten times cheaper; all else are real programs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from string import Template
from typing import Final, NamedTuple

import click
from click.testing import CliRunner

from estimator.__main__ import cli as estimator
from federation.__main__ import main as federation
from federation.cli.__main__ import fedctl
from lab.pages import PYTHON, ROOT, Step, commands_of
from lab.patience import PATIENCE_SECONDS
from lab.program_logs import check_process
from lab.servers import environment
from tests.docs.fleet import Fleet

PROGRAMS: Final[Mapping[str, click.Command]] = {
    "fedctl": fedctl,
    "federation": federation,
    "estimator": estimator,
}
MODULES: Final = {"fedctl": "federation.cli", "federation": "federation", "estimator": "estimator"}
# Workloads that pages name and do not show.
FILES: Final = Path(__file__).parent / "files"
# What only a shell understands.
SHELL: Final = re.compile(r"[|<>;&$`*?]|^\w+=")
POLL_SECONDS: Final = 0.1
# A demo is a command, too, and takes its time on a busy machine.
MAX_PROGRAM_SECONDS: Final = 600.0
# There is no cluster to ask; a picture of one is all that the pages want.
KUBECTL: Final = f"""#!{sys.executable}
import json, sys
if sys.argv[1:] != ["get", "nodes,pods", "-A", "-o", "json"]:
    sys.exit("no cluster to ask")
items = json.load(open("{ROOT}/examples/clusters/member2.json"))["items"]
shown = [i for i in items if i["kind"] in ("Node", "Pod")]
shown = [i for i in shown if i["kind"] == "Node" or i["spec"].get("nodeName")]
json.dump({{"apiVersion": "v1", "kind": "List", "items": shown}}, sys.stdout)
"""


class Ended(NamedTuple):
    """How a command ended, and what it said on either output."""

    code: int
    output: str


class Walk:
    """A folder in which a page's commands run, and what they are told by variables."""

    def __init__(self, folder: Path, database_url: str, kept: ExitStack) -> None:
        self.folder = folder
        self.printed = ""
        # What pages call something, and what it is called here.
        self.names: dict[str, str] = {".venv/bin/": ""}
        self._database_url = database_url
        self._kept = kept
        self._tools = folder / "tools"
        self._make_tools()
        shutil.copytree(FILES, folder, dirs_exist_ok=True)
        for name in ("examples", "deploy", "proto"):
            (folder / name).symlink_to(ROOT / name)
        self.variables = environment(
            {
                "PATH": f"{self._tools}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(folder),
                "FEDCTL_CONFIG": str(folder / "fedctl.yaml"),
                "PYTHONPATH": str(ROOT),
                "FEDERATION_DATABASE_URL": database_url,
                # Where a page says nothing of it, ports are the system's choice.
                "FEDERATION_LISTEN": "127.0.0.1:0",
                "FEDERATION_WEB_LISTEN": "127.0.0.1:0",
            }
        )

    def take(self, step: Step) -> None:
        """Does what a step says; raises AssertionError where it does not go as the page says."""
        if (members := step.mark("fleet")) is not None:
            self._join_fleet(members)
        elif (named := step.mark("let")) is not None:
            self.names[named[0]] = self._found(named[1])
        elif (file := step.mark("file")) is not None:
            (self.folder / file[0]).write_text(step.text, encoding="utf-8")
        elif step.is_run and step.mark("skip") is None:
            self._run(step)

    def _run(self, step: Step) -> None:
        if (pattern := step.mark("background")) is not None:
            (command,) = commands_of(self._here(step.text))
            self.printed = self._kept.enter_context(self._running(command, pattern[0]))
            return
        expected = int((step.mark("ends") or ("0",))[0])
        lines = [step.text] if step.language == PYTHON else list(commands_of(step.text))
        self.printed = ""
        for number, line in enumerate(lines, start=1):
            ended = self._ended(self._here(line), step.language)
            self.printed += ended.output
            wanted = expected if number == len(lines) else 0
            assert ended.code == wanted, f"{line}\nends with {ended.code}:\n{ended.output}"
        for words in step.mark("prints") or ():
            assert self._here(words) in self.printed, f"no {words!r} in:\n{self.printed}"

    def _here(self, text: str) -> str:
        """The text with what things are called here."""
        for name, meant in self.names.items():
            text = text.replace(name, meant)
        return text

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, self.printed, re.MULTILINE)
        assert found is not None, f"no {pattern!r} in:\n{self.printed}"
        return found[found.lastindex or 0]

    def _ended(self, line: str, language: str) -> Ended:
        if language == PYTHON:
            return self._program([sys.executable, "-c", line])
        program, _, rest = line.partition(" ")
        if program == "await":
            return self._awaited(*shlex.split(rest, comments=True))
        if program == "export":
            name, _, value = rest.partition("=")
            (written,) = shlex.split(value, comments=True)
            known = {**self.variables, "PWD": str(self.folder)}
            self.variables[name] = Template(written).safe_substitute(known)
            return Ended(0, "")
        # A comment may hold anything.
        call = re.sub(r"\s+# .*$", "", line)
        if program in PROGRAMS and not SHELL.search(_unquoted(call)):
            return self._verb(program, shlex.split(call))
        return self._program(["bash", "-euo", "pipefail", "-c", line])

    def _verb(self, program: str, words: Sequence[str]) -> Ended:
        runner = CliRunner(env=dict(self.variables))
        result = runner.invoke(PROGRAMS[program], words[1:], prog_name=program)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.output)

    def _program(self, command: Sequence[str]) -> Ended:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAX_PROGRAM_SECONDS,
            check=False,
        )
        return Ended(done.returncode, done.stdout)

    def _awaited(self, words: str, *command: str) -> Ended:
        """Runs the command until it prints the words; how it ends before does not matter."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while words not in (ended := self._ended(shlex.join(command), "")).output:
            assert time.monotonic() < deadline, f"no {words!r} in:\n{ended.output}"
            time.sleep(POLL_SECONDS)
        return ended

    @contextmanager
    def _running(self, command: str, pattern: str) -> Iterator[str]:
        """Runs the command until the walk is over; what it printed until the pattern came."""
        log = self.folder / f"background-{len(list(self.folder.glob('background-*')))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec env {command}"],
                cwd=self.folder,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not re.search(pattern, said := log.read_text("utf-8"), re.MULTILINE):
                assert process.poll() is None, f"{command}\nhas ended:\n{said}"
                assert time.monotonic() < deadline, f"no {pattern!r} in:\n{said}"
                time.sleep(POLL_SECONDS)
            yield said
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            check_process(command, log.read_text("utf-8", "replace"))

    def _join_fleet(self, members: Sequence[str]) -> None:
        """A control plane with TLS whose page and API the walk knows, and these members."""
        fleet = self._kept.enter_context(Fleet(self.folder, self._database_url))
        fleet.join(members)
        self.names |= {
            "127.0.0.1:7443": fleet.endpoint,
            "cp.example:7443": fleet.endpoint,
            "cp-0.example:7443": fleet.endpoint,
            "cp-1.example:7443": fleet.endpoint,
            "127.0.0.1:7080": fleet.web,
        }
        self.variables |= {
            "FEDCTL_ENDPOINT": fleet.endpoint,
            "FEDCTL_CA": str(self.folder / "certs" / "ca.pem"),
            "FEDCTL_TOKEN_FILE": str(self.folder / "admin.token"),
        }

    def _make_tools(self) -> None:
        self._tools.mkdir()
        programs = Path(sys.executable).parent
        make = shutil.which("make") or "/usr/bin/make"
        scripts = {
            "kubectl": KUBECTL,
            "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
            "buf": f'#!/bin/sh\nexec {programs / "buf"} "$@"\n',
            # In the checkout, with the programs of the Python that runs the tests.
            "make": f'#!/bin/sh\nexec {make} -C {ROOT} BIN={programs} "$@"\n',
        }
        for name, module in MODULES.items():
            scripts[name] = f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n'
        for name, script in scripts.items():
            path = self._tools / name
            path.write_text(script, encoding="utf-8")
            path.chmod(0o755)


def _unquoted(line: str) -> str:
    """Without what quotes hide from a shell."""
    return re.sub(r"'[^']*'|\"[^\"$`]*\"", "", line)
