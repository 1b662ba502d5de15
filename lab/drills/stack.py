"""A whole stack for a long while: the demo's programs stay up, and every feature is used again.

The demo starts a control plane with TLS, three agents on API servers, the propagator, a Karmada and
the bridge. Rounds of commands then go through what the README names. An error in any program's log
fails the drill, and so does a command that fails.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lab.patience import PATIENCE_SECONDS
from lab.servers import ROOT, environment

START_SECONDS: Final = 600.0
POLL_SECONDS: Final = 0.2
STAYS: Final = "Ctrl-C"
# Reports are kept once a minute: none may be kept yet.
FIRST_ROUND: Final = "round-0"
# The demo's propagator makes pods for this binding alone.
WITH_PODS: Final = "shop/checkout-deployment"
ON_TERMINAL: Final = """
import os, sys
os.login_tty(0)
os.execv(sys.executable, [sys.executable, "-m", "federation", "demo", "--karmada"])
"""
WORKLOAD: Final = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  replicas: {replicas}
  template:
    spec: {{containers: [{{name: web, resources: {{requests: {{cpu: {cpu}, memory: 64Mi}}}}}}]}}
"""
POLICY: Final = """
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: all, namespace: {namespace}}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment}}]
  placement:
    clusterAffinity: {{clusterNames: [member1, member2, member3]}}
    replicaScheduling:
      replicaSchedulingType: Divided
      replicaDivisionPreference: Weighted
      weightPreference: {{dynamicWeight: AvailableReplicas}}
"""
PAGES: Final = (
    "/ui/",
    "/ui/bindings",
    "/ui/queue",
    "/ui/plans",
    "/ui/about",
    "/metrics",
    "/readyz",
)


@dataclass(slots=True, kw_only=True)
class Result:
    """Figures of a drill: rounds and commands, those that failed, and how the demo ended."""

    rounds: int = 0
    commands: int = 0
    failures: list[str] = field(default_factory=list)
    code: int = 0
    last_words: str = ""

    def broken(self) -> list[str]:
        """Return the reasons why the drill fails."""
        ended = [f"the demo ended with {self.code}: {self.last_words}"] if self.code else []
        return [*self.failures, *ended]


class Stack:
    """A demo on a terminal of its own that stays up, and callers of its control plane."""

    def __init__(self, folder: Path, result: Result) -> None:
        self.result = result
        self.written = self.web = ""
        self.variables: Mapping[str, str] = {}
        self._folder = folder
        self._terminal, inner = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL],
            cwd=ROOT,
            env=environment({"TMPDIR": str(folder), "TERM": "dumb"}),
            stdin=inner,
            stdout=inner,
            stderr=inner,
        )
        os.close(inner)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._terminal, 65536)
            except OSError:
                return
            if not piece:
                return
            self.written += piece.decode(errors="replace")

    def await_story(self) -> None:
        """Wait until the demo has told its story and stays."""
        deadline = time.monotonic() + START_SECONDS
        while STAYS not in self.written:
            assert self.process.poll() is None, self.written
            assert time.monotonic() < deadline, self.written
            time.sleep(POLL_SECONDS)
        self.look()

    def end(self) -> None:
        """End the demo as Ctrl-C does; it looks into its programs' logs."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.result.code = self.process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        os.close(self._terminal)
        self.result.last_words = self.written[-4000:]

    def look(self) -> None:
        """Find where the control plane listens, and its admin's token."""
        (home,) = self._folder.glob("fedsched-demo-*")
        log = (home / "control-plane.log").read_text(encoding="utf-8")
        api, web = re.search(r"API +(\S+)", log), re.search(r"web +(http://[^/]+)", log)
        assert api is not None, log
        assert web is not None, log
        self.web = web.group(1)
        self.variables = {
            "FEDCTL_ENDPOINT": api.group(1),
            "FEDCTL_CA": str(home / "certs" / "ca.pem"),
            "FEDCTL_TOKEN_FILE": str(home / "state" / "admin.token"),
        }

    def fedctl(self, *arguments: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """Run a verb; a code that is not expected is kept as a failure."""
        done = subprocess.run(
            [sys.executable, "-m", "federation.cli", *arguments],
            cwd=ROOT,
            env=environment(self.variables),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        self.result.commands += 1
        if done.returncode not in codes or "Traceback" in done.stderr:
            command = " ".join(arguments)
            self.result.failures.append(
                f"fedctl {command}: {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1000:]}"
            )
        return done.stdout

    def verbs(self, *commands: str) -> None:
        """Run verbs one after the other."""
        for command in commands:
            self.fedctl(*shlex.split(command))

    def pages(self) -> None:
        for page in PAGES:
            try:
                with urllib.request.urlopen(f"{self.web}{page}", timeout=PATIENCE_SECONDS):
                    pass
            except OSError as error:
                self.result.failures.append(f"{page}: {error}")


def run_stack(folder: Path, seconds: float) -> Result:
    """Run rounds for so many seconds after the story, one at least."""
    result = Result()
    with staying(folder, result) as stack:
        began = time.monotonic()
        while result.rounds == 0 or time.monotonic() - began < seconds:
            play_round(stack, f"round-{result.rounds}")
            result.rounds += 1
            print(f"round {result.rounds}: {len(result.failures)} failures", flush=True)
            if stack.process.poll() is not None:
                # Its last words say why it ended.
                result.failures.append("the demo ended by itself")
                break
    return result


@contextmanager
def staying(folder: Path, result: Result) -> Iterator[Stack]:
    stack = Stack(folder, result)
    try:
        stack.await_story()
        yield stack
    finally:
        stack.end()


def play_round(stack: Stack, namespace: str) -> None:
    """Use every feature once, in a namespace that is empty at the end."""
    schedule_and_explain(stack, namespace)
    steer_the_fleet(stack, namespace)
    watch_over_access(stack, namespace)
    stack.pages()
    for name in ("web", "api", "big"):
        stack.fedctl("delete", "binding", f"{namespace}/{name}-deployment", "--yes", codes=(0, 1))
    stack.verbs(f"get bindings -n {namespace}")
    # Last: a step of a plan ends once pods run elsewhere, and the round's bindings have none.
    stack.fedctl("plan", "create", "balance", codes=(0, 1))
    # Bring replicas that run back to a cluster, and empty it again.
    stack.verbs(
        "uncordon member1",
        f"reschedule {WITH_PODS}",
        "drain member1 --yes",
        "uncordon member1",
        "get plans",
    )


def files(namespace: str, *workloads: tuple[str, int, str]) -> str:
    parts = [
        WORKLOAD.format(name=name, namespace=namespace, replicas=replicas, cpu=cpu)
        for name, replicas, cpu in workloads
    ]
    return "\n---\n".join([*parts, POLICY.format(namespace=namespace)])


def schedule_and_explain(stack: Stack, namespace: str) -> None:
    fedctl, binding = stack.fedctl, f"{namespace}/web-deployment"
    one, two = ("web", 3, "100m"), ("api", 2, "200m")
    stack.verbs(
        "estimate --request cpu=500m,memory=1Gi",
        "estimate --request cpu=500m --source exact",
    )
    previewed = ("schedule", "-f", "-", "--preview", "-o", "json")
    shown = fedctl(*previewed, stdin=files(namespace, one))
    if token := re.search(r'"(?:previewToken|token)": ?"([^"]+)"', shown):
        fedctl("schedule", "--commit", token.group(1))
    fedctl("schedule", "-f", "-", stdin=files(namespace, one, two))
    stack.verbs(f"explain {binding}", f"describe binding {binding}", f"history {binding}")
    decisions = fedctl("get", "decisions", "-n", namespace, "-o", "name").split()
    for decision in decisions[:2]:
        fedctl("replay", decision.rpartition("/")[2])
        # 3: the kept report of that minute is another one than the decision was made on.
        codes = (0, 1, 3) if namespace == FIRST_ROUND else (0, 3)
        fedctl("replay", decision.rpartition("/")[2], "--from-reports", codes=codes)
    # Of more cores than there are: it waits, and never runs.
    fedctl("schedule", "-f", "-", stdin=files(namespace, ("big", 500, "8")))
    big = f"{namespace}/big-deployment"
    stack.verbs("get queue", f"suspend {big}", f"resume {big}", f"reschedule {binding}")


def steer_the_fleet(stack: Stack, namespace: str) -> None:
    stack.verbs("cordon member2 --reason 'a drill'")
    stack.fedctl("schedule", "-f", "-", stdin=files(namespace, ("web", 5, "100m")))
    given = "-f examples/fleet.yaml -f examples/deployment.yaml -f examples/policy.yaml"
    stack.verbs(
        "uncordon member2",
        "get clusters -o wide",
        "describe cluster member1",
        "failover status",
        "top clusters",
        "get reservations",
        f"quota set {namespace} --replicas 50 --hard cpu=64",
        "quota list",
        f"quota delete {namespace}",
        f"simulate {given}",
    )


def watch_over_access(stack: Stack, namespace: str) -> None:
    made = stack.fedctl("token", "create", f"viewer-{namespace}", "--role", "viewer")
    stack.verbs("get tokens")
    # The demo's own tokens stay: the bridge has one.
    if found := re.search(r"\btok-[0-9a-f]+", made):
        stack.fedctl("token", "revoke", found.group(0))
    else:
        stack.result.failures.append(f"token create does not show an id:\n{made}")
    stack.verbs("whoami", "audit list", "audit verify", "doctor")
