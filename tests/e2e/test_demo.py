"""``federation demo`` as a process: what it prints, and that nothing is left whatever ends it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from lab.servers import ROOT, environment

END_SECONDS = 600.0
ON_LINUX = sys.platform == "linux"
# Where an embedded PostgreSQL may have folders outside the demo's own.
PLACES = (Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - only looked at
STARTING = "a certificate authority"
JOINING = "✓ embedded PostgreSQL"
SHOWING = r"\$ fedctl schedule"


@dataclass(slots=True, kw_only=True)
class Demo:
    """A running demo whose temporary files are in a folder of the test's own."""

    process: subprocess.Popen[str]
    folder: Path
    printed: str = ""
    names: set[str] = field(default_factory=set)

    def read_until(self, pattern: str) -> None:
        """Reads up to the line that matches, and remembers what the demo has made so far."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.printed += line
            if re.search(pattern, line):
                self.names |= {name_of_home(made) for made in self.folder.glob("fedsched-demo-*")}
                return
        raise AssertionError(f"no {pattern!r} in:\n{self.printed}")

    def end(self) -> int:
        """Its exit code, once it has closed its output."""
        assert self.process.stdout is not None
        self.printed += self.process.stdout.read()
        return self.process.wait()

    def traces(self) -> list[str]:
        """What there is of it: files, folders of its database, processes."""
        folders = [
            str(path) for name in self.names for place in PLACES for path in place.glob(f"*{name}*")
        ]
        return [*map(str, self.folder.iterdir()), *folders, *self.processes()]

    def processes(self) -> list[str]:
        """Every process whose command line or environment holds a name of the demo's."""
        found = []
        names = [os.fsencode(name) for name in (str(self.folder), *self.names)]
        for process in Path("/proc").glob("[0-9]*") if ON_LINUX else ():
            try:
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                words = command + (process / "environ").read_bytes()
            except OSError:
                continue  # It has ended, or is not ours to look into.
            if any(name in words for name in names):
                found.append(f"{process.name} {os.fsdecode(command)}")
        return found


def name_of_home(folder: Path) -> str:
    """What the folders of an embedded PostgreSQL are named after that cannot live in its own."""
    return hashlib.sha256(os.fsencode(folder.resolve() / "state" / "postgres")).hexdigest()[:12]


@contextmanager
def running_demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "federation", "demo", *arguments],
        cwd=ROOT,
        env=environment({"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    # A demo that hangs closes its output this way, and fails.
    watchdog = threading.Timer(END_SECONDS, process.kill)
    watchdog.start()
    demo = Demo(process=process, folder=folder)
    try:
        yield demo
    finally:
        watchdog.cancel()
        if process.poll() is None:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()
        for left in demo.processes():
            os.kill(int(left.split()[0]), signal.SIGTERM)


def replicas(printed: str, request: str, clusters: str) -> list[str]:
    """The numbers of one table, cluster after cluster."""
    (table,) = re.findall(
        rf"\$ fedctl estimate --request {re.escape(request)} --clusters {clusters}-1.*\n"
        rf"CLUSTER .*\n((?:{clusters}-\d .*\n)+)",
        printed,
    )
    return [line.split()[1] for line in table.splitlines()]


def shown(printed: str, command: str) -> str:
    """What a command printed, up to the next empty line."""
    (answer,) = re.findall(rf"\$ fedctl {re.escape(command)}\n(.*?)\n(?:\n|$)", printed, re.DOTALL)
    return str(answer)


def test_it_tells_its_story_and_leaves_nothing(tmp_path: Path) -> None:
    with running_demo(tmp_path / "tmp", "--karmada") as demo:
        demo.read_until(JOINING)
        assert demo.traces()
        code = demo.end()
        assert (code, demo.traces()) == (0, []), demo.printed
    assert replicas(demo.printed, "cpu=500m", "doc-summary") == ["6", "4", "0"]
    assert replicas(demo.printed, "cpu=3,memory=20Gi", "doc-models") == ["7", "8", "10"]
    assert replicas(demo.printed, "cpu=3,memory=60Gi", "doc-models") == ["6", "4", "4"]
    assert re.search(r"Outcome: +SCHEDULED", demo.printed)
    assert re.search(r"MostAllocated", demo.printed)
    assert "Queued:" in shown(demo.printed, "schedule -f examples/urgent.yaml")
    assert re.search(r"^ *1 +race +urgent +100 +unschedulable .*cpu", demo.printed, re.MULTILINE)
    placed, refused = shown(demo.printed, "history race/urgent").splitlines()[1:]
    assert re.search(r" SCHEDULED +small\d=0->1 ", placed)
    assert " UNSCHEDULABLE " in refused
    bound = shown(demo.printed, "describe binding shop/checkout-deployment")
    assert re.search(r"^Clusters: +member1=2, member2=8, member3=10$", bound, re.MULTILINE)
    held = demo.printed.partition("\nReservations\n")[2].splitlines()[1:4]
    assert [line.split()[2:5] for line in held] == [
        ["2", "0", "2"],
        ["8", "0", "8"],
        ["10", "0", "10"],
    ]
    drain = demo.printed.partition("$ fedctl drain member1 --yes\n")[2]
    assert re.search(r"^Moves: +2 of 2 replicas, in 1 step$", drain, re.MULTILINE)
    assert re.search(r"^At best: +2 .*within 0 % of the best possible$", drain, re.MULTILINE)
    assert "\nplan/1 done: 1 of 1 step is done\n" in drain
    assert re.search(r"^member2 +\S+ +lost for ", demo.printed, re.MULTILINE)
    history = shown(demo.printed, "history shop/checkout-deployment")
    assert re.search(r"member1=2->0.* member1 is to be emptied", history)
    assert re.search(r"member2=\d+->0.* untolerated taint fedsched\.io/unreachable", history)
    written = yaml.safe_load(
        re.findall(r"show \S+karmada.config \S+\n(.*?)\n\n", demo.printed, re.DOTALL)[0]
    )
    shares = {each["name"]: each["replicas"] for each in written["spec"]["clusters"]}
    assert shares == {"asia": 6, "europe": 2}
    (condition,) = written["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "Success")
    assert re.search(r"^asia +6 +summary-checked ", demo.printed, re.MULTILINE)
    assert "Traceback" not in demo.printed


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("deployment.yaml", "The control plane's last words:\n"),
        ("clusters/member1.json", "members ended with exit code"),
    ],
    ids=["a command", "a program"],
)
def test_when_it_fails_its_logs_stay(tmp_path: Path, broken: str, words: str) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(ROOT / "examples", examples)
    (examples / broken).write_text("{nonsense")
    with running_demo(tmp_path / "tmp", "--examples", str(examples)) as demo:
        code = demo.end()
    assert code == 1, demo.printed
    assert words in demo.printed
    kept = re.search(r"Every log is kept in (.+)\n$", demo.printed)
    assert kept is not None
    assert {"control-plane.log", "members.log"} <= {path.name for path in Path(kept[1]).iterdir()}
    assert demo.traces() == [kept[1]]


@pytest.mark.parametrize(
    ("number", "moment"),
    [(signal.SIGINT, SHOWING), (signal.SIGTERM, STARTING), (signal.SIGHUP, JOINING)],
)
def test_it_leaves_nothing_when_it_is_interrupted(
    tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    with running_demo(tmp_path / "tmp") as demo:
        demo.read_until(moment)
        if number is signal.SIGINT:
            # As a terminal does: to everybody in the foreground, and people press it twice.
            os.killpg(demo.process.pid, number)
            os.killpg(demo.process.pid, number)
        else:
            demo.process.send_signal(number)
        code = demo.end()
        assert (code, demo.traces()) == (128 + signal.SIGINT, []), demo.printed
    assert "\nStopping.\n" in demo.printed
    assert "Traceback" not in demo.printed
