"""What the demo shows, step by step, by running the commands a user would.

Must not compute any answer itself: every number comes through the API.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
import webbrowser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic, sleep

from federation.certificates import ca_fingerprint, make_certificates
from federation.client import BlockingClient, Client
from federation.demo import members as pods
from federation.demo.awaiting import (
    await_clusters,
    await_heard,
    await_placed,
    await_reports,
    await_running,
)
from federation.demo.karmada import BINDING, NEEDED, karmada_command, start_bridge, start_karmada
from federation.demo.programs import (
    LOOPBACK,
    DemoFailed,
    LoggedError,
    ProgramEnded,
    Programs,
    claimed_port,
    keep_logs,
    last_words,
)
from federation.demo.stage import BINARIES, MEMBERS, DemoStage, discard_database, dump_of, target_of
from federation.demo.telling import say, step
from federation.model.errors import FederationError
from federation.runtime.files import write_whole
from federation.runtime.interruptions import Interruptions

CONTROL_PLANE = "control-plane"
PREFIX = "FEDERATION_"
SMALL = ("small1", "small2")
START_SECONDS = 180.0
DEPLOYED = "shop/checkout-deployment"
LOST_SECONDS = 5
# Set where there is a desktop to show a browser on.
DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentedTable:
    """One row of the documentation's tables: the request, and the clusters it is asked of."""

    title: str
    request: str
    source: str
    clusters: str


DOCUMENTED = (
    DocumentedTable(
        title="500m cpu on summaries (4 - 0.95 free, 4 - 2 free, no pod slot free): 6, 4, 0",
        request="cpu=500m",
        source="summary",
        clusters="doc-summary",
    ),
    DocumentedTable(
        title="3 cpu, 20Gi on the default model's grade counts: 7, 8, 10",
        request="cpu=3,memory=20Gi",
        source="models",
        clusters="doc-models",
    ),
    DocumentedTable(
        title="3 cpu, 60Gi on the same: 6, 4, 4",
        request="cpu=3,memory=60Gi",
        source="models",
        clusters="doc-models",
    ),
)


def run_demo(
    examples: Path,
    environment: Mapping[str, str],
    interruptions: Interruptions,
    *,
    stay: bool,
    karmada: bool = False,
) -> None:
    """Runs the whole story, with the chapter about Karmada where it is wanted; with ``stay`` it
    keeps everything up until it is interrupted.

    Raises FederationError when a step fails, and KeyboardInterrupt when the story is interrupted.
    Leaves nothing running, and nothing on disk but the logs of a failure.
    """
    _require_examples(examples, *(NEEDED if karmada else ()))
    with (
        tempfile.TemporaryDirectory(prefix="fedsched-demo-") as name,
        claimed_port(7443) as port,
        claimed_port(7080) as web_port,
    ):
        stage = _set_up(Path(name), examples, environment, port=port, web_port=web_port)
        stage = replace(stage, karmada=karmada)
        try:
            with Programs(stage.folder, stage.environment, interruptions) as programs:
                _play(stage, programs, interruptions, stay=stay)
        except FederationError as error:
            raise DemoFailed(f"{error.message}{_kept_logs(stage, error)}") from error
        finally:
            discard_database(stage)


def _play(
    stage: DemoStage, programs: Programs, interruptions: Interruptions, *, stay: bool
) -> None:
    try:
        with interruptions.allowed():
            _tell(stage, programs, interruptions)
        programs.require_clean_logs()
        if stay:
            with suppress(KeyboardInterrupt), interruptions.allowed():
                _stay(stage, programs)
            _stop(programs)
            programs.require_clean_logs()
    except KeyboardInterrupt:
        _stop(programs)
        raise


def _stop(programs: Programs) -> None:
    begin = monotonic()
    say("\nStopping.")
    programs.stop()
    say(f"Stopped in {monotonic() - begin:.1f} s.")


def _kept_logs(stage: DemoStage, error: FederationError) -> str:
    """Where the logs are kept; and the control plane's last words, when no others are told."""
    kept = keep_logs(stage.folder)
    words = ""
    if not isinstance(error, ProgramEnded | LoggedError):
        words = f"\nThe control plane's last words:{last_words(kept / f'{CONTROL_PLANE}.log')}"
    return f"{words}\nEvery log is kept in {kept}"


def _tell(stage: DemoStage, programs: Programs, interruptions: Interruptions) -> None:
    pods.start_members(stage, programs, MEMBERS)
    _start_control_plane(stage, programs)
    with ExitStack() as stack:
        # Half an event loop cannot be cleaned up.
        with interruptions.held():
            client = stack.enter_context(BlockingClient(target_of(stage)))
        _join(stage, programs, client, MEMBERS)
        _show_main_job(stage, programs)
        _show_pods(stage, programs, client)
        _show_promises(stage, programs, client)
        _show_queue(stage, programs, client)
        _show_plan(programs, client)
        _show_failover(stage, programs, client)
        _show_documentation(stage, programs, client)
        if stage.karmada:
            _show_karmada(stage, programs, client)


def _require_examples(examples: Path, *others: str) -> None:
    usual = ("clusters", "reports", "deployment.yaml", "twenty_at_once.py", "urgent.yaml")
    for name in (*usual, *pods.NEEDED, *others):
        needed = examples / name
        if not needed.exists():
            raise DemoFailed(
                f"{needed} is missing: run the demo from a checkout, or --examples DIR"
            )


def _set_up(
    folder: Path, examples: Path, environment: Mapping[str, str], *, port: int, web_port: int
) -> DemoStage:
    endpoint = f"{LOOPBACK}:{port}"
    stage = DemoStage(
        folder=folder,
        examples=examples,
        endpoint=endpoint,
        web=f"{LOOPBACK}:{web_port}",
        environment={
            # Settings of another control plane must not leak into this one.
            **{k: v for k, v in environment.items() if k == BINARIES or not k.startswith(PREFIX)},
            "FEDCTL_ENDPOINT": endpoint,
            "FEDCTL_CA": str(folder / "certs" / "ca.pem"),
            "FEDCTL_TOKEN_FILE": str(folder / "state" / "admin.token"),
        },
    )
    (folder / "state").mkdir(mode=0o700)
    return stage


def _start_control_plane(stage: DemoStage, programs: Programs) -> None:
    with step("a certificate authority and a server certificate"):
        make_certificates(stage.certificates, [LOOPBACK, "localhost"])
    with step("embedded PostgreSQL and one control plane, TLS on"):
        programs.start(
            CONTROL_PLANE,
            "-m",
            "federation",
            "serve",
            f"--listen={stage.endpoint}",
            f"--web-listen={stage.web}",
            f"--data-dir={stage.folder / 'state'}",
            f"--tls-cert={stage.certificates / 'server.pem'}",
            f"--tls-key={stage.certificates / 'server.key'}",
            f"--tls-ca={stage.certificates / 'ca.pem'}",
            "--report-seconds=1",
            "--heartbeat-seconds=1",
            f"--lost-seconds={LOST_SECONDS}",
            # Agents of one machine fall silent together when that is slow: the story goes on then.
            "--breaker-percent=100",
        )
        # Its own words first: another server may have taken the port meanwhile, and answer there.
        programs.await_words(CONTROL_PLANE, "  API  ", START_SECONDS)
        programs.await_answer(f"http://{stage.web}/readyz", START_SECONDS)
    say(f"  to look at all of this: http://{stage.web}/ui/")


def _join(
    stage: DemoStage, programs: Programs, client: BlockingClient, clusters: Sequence[str]
) -> None:
    """Enrols one agent per cluster by token over TLS and waits for each one's first report."""
    with step(f"agents join by token over TLS: {', '.join(clusters)}"):
        if clusters == MEMBERS:
            pods.await_members(stage, programs, clusters)
        for cluster in clusters:
            answer = client.call(partial(Client.create_join_token, cluster=cluster))
            token = stage.folder / f"{cluster}.join-token"
            write_whole(token, answer.token.encode(), mode=0o600)
            _start_agent(stage, programs, cluster, f"--join-token-file={token}")
        await_reports(programs, client, clusters)


def _start_agent(stage: DemoStage, programs: Programs, cluster: str, *options: str) -> None:
    """Without a token in the options it has to have joined before."""
    programs.start(
        cluster,
        "-m",
        "estimator",
        "run",
        f"--cluster={cluster}",
        f"--endpoint={stage.endpoint}",
        f"--ca-url=http://{stage.web}/ca.pem",
        f"--ca-sha256={ca_fingerprint((stage.certificates / 'ca.pem').read_bytes())}",
        f"--credential-file={stage.folder / f'{cluster}.credential.json'}",
        dump_of(stage, cluster),
        *options,
    )


def _show_main_job(stage: DemoStage, programs: Programs) -> None:
    deployment, policy = (
        _shown(stage.examples / name) for name in ("deployment.yaml", "policy.yaml")
    )
    _fedctl(programs, "get", "clusters")
    _fedctl(programs, "estimate", "--request", "cpu=500m,memory=1Gi")
    _fedctl(programs, "schedule", "-f", deployment, "-f", policy)
    _fedctl(programs, "explain", DEPLOYED)


def _show_pods(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    say("\nSo far this is a promise. A propagation controller applies it to the members:")
    pods.start_propagator(stage, programs, MEMBERS, str(stage.examples / "deployment.yaml"))
    with step("the pods are on nodes, and the agents have seen every one of them"):
        await_running(programs, client, DEPLOYED)
    _fedctl(programs, "describe", "binding", DEPLOYED)


def _show_promises(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    say("")
    _join(stage, programs, client, SMALL)
    say("\nTwenty workloads of one core at once, on two clusters with two free cores each:")
    script = stage.examples / "twenty_at_once.py"
    _run(programs, f"python {_shown(script)}", [sys.executable, str(script)], SMALL)


def _show_queue(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    placed = await_placed(programs, client, "race")
    say("\nBoth clusters are full. A workload of higher priority has to wait, too:")
    _fedctl(programs, "schedule", "-f", _shown(stage.examples / "urgent.yaml"))
    _fedctl(programs, "get", "queue", "--priority", "100")
    say("\nOne of those with a place is deleted. The first in the queue gets the room:")
    _fedctl(programs, "delete", "binding", placed, "--yes")
    await_clusters(programs, client, "race/urgent", bool)
    _fedctl(programs, "history", "race/urgent")


def _show_plan(programs: Programs, client: BlockingClient) -> None:
    left = await_clusters(programs, client, DEPLOYED, bool)[0]
    say(f"\n{left} is to be emptied. What it has stays there until its replacement runs:")
    _fedctl(programs, "drain", left, "--yes")


def _show_failover(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    lost = await_clusters(programs, client, DEPLOYED, bool)[0]
    say(f"\nThe agent of {lost} is killed. A cluster silent for {LOST_SECONDS} s is lost here:")
    programs.kill(lost)
    with step(f"{lost} is lost, and its replicas run elsewhere"):
        await_clusters(programs, client, DEPLOYED, lambda clusters: lost not in clusters)
        await_running(programs, client, DEPLOYED)
    _fedctl(programs, "failover", "status")
    say("\nThe agent starts again. What has begun to run elsewhere stays there:")
    _start_agent(stage, programs, lost)
    with step(f"{lost} is back"):
        await_heard(programs, client, lost)
    _fedctl(programs, "history", DEPLOYED)


def _shown(path: Path) -> str:
    """The path as a user would type it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _show_documentation(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    kinds = ("doc-summary", "doc-models")
    documented = [f"{kind}-{number}" for kind in kinds for number in (1, 2, 3)]
    say("")
    _join(stage, programs, client, documented)
    for table in DOCUMENTED:
        say(f"\nThe documentation's table, computed now: {table.title}")
        chosen = ",".join(name for name in documented if name.startswith(table.clusters))
        _fedctl(
            programs,
            *("estimate", "--request", table.request),
            *("--clusters", chosen, "--source", table.source),
        )


def _show_karmada(stage: DemoStage, programs: Programs, client: BlockingClient) -> None:
    say("")
    with step("an API server as Karmada's, with three Clusters that have no agent of ours"):
        start_karmada(stage, programs)
    with step("the bridge, which decides what names fedsched as its scheduler"):
        start_bridge(stage, programs, client)
        await_reports(programs, client, ("asia", "europe", "oceania"))
    say("\nKarmada makes a binding of a Deployment and a policy, and the bridge places it:")
    manifest = _shown(stage.examples / "karmada" / "binding.yaml")
    _run(programs, *karmada_command(stage, "create", manifest, _shown))
    await_placed(programs, client, BINDING.split("/", maxsplit=1)[0])
    _run(programs, *karmada_command(stage, "show", BINDING, _shown))
    say("\nIn Karmada everything is as its own scheduler writes it. Here, too, it is known why:")
    _fedctl(programs, "explain", BINDING)


def _fedctl(programs: Programs, *arguments: str) -> None:
    """Shows and runs one fedctl command."""
    _run(programs, "fedctl", [sys.executable, "-m", "federation.cli"], arguments)


def _run(programs: Programs, shown: str, command: Sequence[str], arguments: Sequence[str]) -> None:
    """Shows and runs a command."""
    say(f"\n$ {shown} {shlex.join(arguments)}")
    status = programs.run(*command, *arguments)
    if status != 0:
        raise DemoFailed(f"{shown} {arguments[0]} ended with exit code {status}")


def _stay(stage: DemoStage, programs: Programs) -> None:
    page = f"http://{stage.web}/ui/"
    say(f"\nEverything keeps running until Ctrl-C. Look at it: {page}")
    _open(page, stage.environment)
    say("In another terminal:\n")
    for name in ("FEDCTL_ENDPOINT", "FEDCTL_CA", "FEDCTL_TOKEN_FILE"):
        say(f"  export {name}={stage.environment[name]}")
    say("  .venv/bin/fedctl describe cluster member2")
    while True:
        programs.require_running()
        sleep(0.5)


def _open(page: str, environment: Mapping[str, str]) -> None:
    """In a browser, where there is a desktop to show it: one in a terminal would cover this."""
    has_desktop = sys.platform == "darwin" or any(environment.get(each) for each in DESKTOPS)
    if not has_desktop or environment.get("SSH_CONNECTION"):
        return
    with suppress(webbrowser.Error, OSError):
        webbrowser.open(page)
