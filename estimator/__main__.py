"""The command line of the agent: reads argv, environment and signals, and prints.

Must not hold any logic that another program could need.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import click

import federation.runtime.native_libraries  # noqa: F401 - before grpc and numpy
from estimator.cases import answers
from estimator.estimation.capacity import NodeSet
from estimator.estimation.pooling import USUAL_LABEL_KEYS, Pooling
from estimator.kube.access import service_account
from estimator.reports import document_of
from estimator.settings import OPTIONS, RunSettings, run_settings, shown_to_all
from estimator.sources import parse_dump
from estimator.watched_cluster import WatchedCluster
from federation.codec import document_files
from federation.codec.requirements import quantities_of
from federation.model.errors import FederationError, InvalidRequest
from federation.model.grades import DEFAULT_MODEL
from federation.model.pools.values import DEFAULT_BUDGET, MAX_BUDGET, MIN_BUDGET
from federation.model.resources import PODS, amounts_of
from federation.model.workload import NodeClaim, ReplicaRequirements
from federation.runtime import spans
from federation.runtime.findings import told_findings
from federation.runtime.flags import print_config, with_flags
from federation.runtime.logs import change_level, configure_logging
from federation.runtime.options import LoadedOptions
from federation.runtime.state_home import state_home
from federation.runtime.terminal import json_text, say, say_lines
from federation.runtime.watched_files import FileWatch
from federation.runtime.yaml_texts import yaml_text

EXISTING_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
BUDGET = click.IntRange(MIN_BUDGET, MAX_BUDGET)
HELP = {option.name: option.help for option in OPTIONS}


def example(*lines: str) -> str:
    """The end of a help page; the mark keeps click from filling the lines."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def load(config: Path | None, flag_values: Mapping[str, Any]) -> LoadedOptions:
    """The options of a command, each checked by itself: flag, else variable, else --config's file.

    Raises click.UsageError.
    """
    named = config or os.environ.get(OPTIONS.config_variable)
    try:
        document = document_files.document_of(Path(named)) if named else {}
    except InvalidRequest as error:
        raise click.UsageError(error.message) from error
    loaded = OPTIONS.load(
        flags=flag_values, environment=os.environ, document=document, source=str(named or "")
    )
    for warning in loaded.warnings:
        say(f"estimator: warning: {warning}", err=True)
    return loaded


with_settings = with_flags(OPTIONS, load)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example("estimator report --from cluster.json"),
)
@click.version_option(package_name="fedsched", prog_name="estimator")
def cli() -> None:
    """The agent of one member cluster: reports its capacity and places replicas on its nodes."""


@cli.command(
    epilog=example(
        "estimator run --cluster member1 --endpoint 127.0.0.1:7443 --insecure \\",
        "  --from cluster.json --join-token-file join.token",
        "estimator run --cluster member1 --karmada-port 10352",
    )
)
@with_settings
def run(loaded: LoadedOptions) -> None:
    """Report to the control plane, and answer it and Karmada, until stopped.

    Settings come from flags, then ESTIMATOR_ variables, then the file of --config. Changed TLS
    files are in use within ten seconds; after SIGHUP they are read at once.
    """
    from estimator.app import run as run_agent  # noqa: PLC0415 - only agents need the slow client

    settings = _checked(loaded)
    configure_logging(sys.stderr, form=settings.log_format, level=settings.log_level)
    signal.signal(signal.SIGUSR1, lambda *_: change_level(settings.log_level))
    file_watch = FileWatch()
    signal.signal(signal.SIGHUP, lambda *_: file_watch.request())
    # What this agent is asked is traced where the asker's is; it begins no trace.
    with spans.sent_to(settings.trace_endpoint, "estimator", settings.cluster, ratio=0.0):
        asyncio.run(_until_signalled(lambda stopping: run_agent(settings, stopping, file_watch)))


@cli.command(
    epilog=example(
        "estimator join --cluster member1 --endpoint cp.example:7443 \\",
        "  --join-token-file join.token --ca-url http://cp.example:7080/ca.pem --ca-sha256 HEX",
    )
)
@with_settings
def join(loaded: LoadedOptions) -> None:
    """Only join: exchange the token for a credential, and keep it for later runs."""
    from estimator.app import join as join_cluster  # noqa: PLC0415 - only agents need the slow client

    settings = _checked(loaded)
    if not settings.endpoints:
        raise click.UsageError("--endpoint: is required")
    if not (settings.join_token or settings.join_token_file):
        raise click.UsageError("ESTIMATOR_JOIN_TOKEN or --join-token-file: is required")
    kept_in = asyncio.run(join_cluster(settings))
    say(f"{settings.cluster} joined; {kept_in}")


@cli.command(
    epilog=example("estimator doctor --cluster member1 --endpoint cp.example:7443 --ca-file ca.pem")
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Format.")
@with_settings
def doctor(loaded: LoadedOptions, output: str) -> None:
    """Say whether an agent can do its work here, and what to do; exits with 1 where it cannot.

    Give it the settings of `estimator run`. It reads the cluster, the credential and the way to
    each control plane, changes nothing, and takes no running agent's place.
    """
    from estimator.app import looked_at  # noqa: PLC0415 - only agents need the slow client

    findings = asyncio.run(looked_at(_checked(loaded)))
    sys.exit(told_findings(findings, as_json=output == "json"))


@cli.command("show-config", epilog=example("estimator show-config -o yaml"))
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Format."
)
@with_settings
def show_config(loaded: LoadedOptions, output: str) -> None:
    """Print every setting of an agent and where it came from, secrets masked."""
    if loaded.violations:
        raise click.UsageError(InvalidRequest(loaded.violations).message)
    print_config(loaded, output)


@cli.command(
    epilog=example(
        "kubectl get nodes,pods -A -o json > cluster.json",
        "estimator report --from cluster.json -o json",
    )
)
@click.option("--from", "dump", type=EXISTING_FILE, required=True, help=HELP["from"])
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Format."
)
@click.option("--count-unschedulable-nodes", is_flag=True, help=HELP["count_unschedulable_nodes"])
@click.option("--pool-budget", type=BUDGET, default=DEFAULT_BUDGET, help=HELP["pool_budget"])
@click.option("--pool-labels", default="", help=HELP["pool_labels"])
def report(
    dump: Path,
    output: str,
    pool_budget: int,
    pool_labels: str,
    *,
    count_unschedulable_nodes: bool,
) -> None:
    """The report that a dump of nodes and pods gives, graded by the default model."""
    node_set = NodeSet.EVERY if count_unschedulable_nodes else NodeSet.SCHEDULABLE
    cluster = _dumped(dump, node_set)
    labels = filter(None, pool_labels.split(","))
    cluster.pool_by(Pooling(pool_budget, [*labels, *USUAL_LABEL_KEYS]))
    capacity = cluster.capacity(DEFAULT_MODEL)
    document = document_of(capacity)
    match output:
        case "json":
            say_lines(json_text(document, indent=2))
        case "yaml":
            say_lines(yaml_text(document).rstrip("\n"))
        case _:
            _print_report(document)
            if capacity.gated:
                gated = quantities_of(capacity.gated)
                count = gated.pop(PODS)
                amounts = ", ".join(f"{name} {quantity}" for name, quantity in gated.items())
                pods = "1 pod" if count == "1" else f"{count} pods"
                say(f"gated: {pods} behind scheduling gates ({amounts}), in no total")


@cli.command(
    epilog=example(
        "estimator estimate --from cluster.json --request cpu=1,memory=2Gi --selector disk=ssd"
    )
)
@click.option("--from", "dump", type=EXISTING_FILE, help=HELP["from"])
@click.option("--request", help="What one replica asks for, as cpu=1,memory=2Gi.")
@click.option("--selector", multiple=True, help="Node label KEY=VALUE; may be given several times.")
@click.option("--cases", type=EXISTING_FILE, help="Clusters and questions, one JSON object a line.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Format.")
def estimate(
    dump: Path | None,
    request: str | None,
    selector: tuple[str, ...],
    cases: Path | None,
    output: str,
) -> None:
    """How many replicas of a shape fit on the nodes now, exactly."""
    if cases is not None:
        if dump is not None or request is not None or selector:
            raise click.UsageError("--cases excludes --from, --request and --selector")
        with cases.open("rb") as lines:
            for answer in answers(lines):
                say(json_text(answer))
        return
    if dump is None:
        raise click.UsageError("give --from FILE, or --cases FILE")
    requirements = ReplicaRequirements(
        request=amounts_of(_pairs(request or "", "--request"), field="--request"),
        node_claim=NodeClaim(node_selector=_pairs(",".join(selector), "--selector")),
    )
    replicas = _dumped(dump, NodeSet.SCHEDULABLE).exact().replicas(requirements)
    say(json_text({"replicas": replicas}) if output == "json" else str(replicas))


def _pairs(text: str, flag: str) -> dict[str, str]:
    """KEY=VALUE pairs separated by commas."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{flag}: write KEY=VALUE, not {part!r}")
        pairs[key] = value
    return pairs


def _dumped(path: Path, node_set: NodeSet) -> WatchedCluster:
    dump = parse_dump(path, path.read_bytes())
    cluster = WatchedCluster(node_set)
    cluster.cache.replace_nodes(dump.nodes)
    cluster.cache.replace_pods(dump.pods)
    cluster.quotas.replace(dump.quotas)
    return cluster


def _print_report(document: dict[str, Any]) -> None:
    nodes, summary = document["nodeSummary"], document["resourceSummary"]
    graded = nodes.get("gradedNum", 0)
    say(f"nodes: {nodes['totalNum']}, ready {nodes['readyNum']}, graded {graded}")
    columns = ("allocatable", "allocated", "allocating")
    names = sorted({name for column in columns for name in summary.get(column, {})})
    rows = [
        ("resource", *columns),
        *(
            (name, *(summary.get(column, {}).get(name, "0") for column in columns))
            for name in names
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        say("  ".join(cells).rstrip())
    counts = summary.get("allocatableModelings", [])
    if "pools" in document:
        pools = document["pools"]
        keys = ", ".join(pools.get("labelKeys", ())) or "no label"
        pool_count, cell_count = len(pools.get("pools", ())), len(pools.get("counts", ()))
        say(f"pools: {pool_count} by {keys}; {cell_count} cells")
    say("grades: " + ", ".join(f"{entry['grade']}: {entry['count']}" for entry in counts))


def _checked(loaded: LoadedOptions) -> RunSettings:
    try:
        settings = run_settings(loaded, _state_directory(), service_account(os.environ))
    except InvalidRequest as error:
        raise click.UsageError(error.message) from error
    for warning in shown_to_all(loaded):
        say(f"estimator: warning: {warning}", err=True)
    return settings


def _state_directory() -> Path:
    return state_home(os.environ) / "fedsched"


async def _until_signalled(
    work: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
) -> None:
    """Run ``work`` with an event that SIGTERM and SIGINT set."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    await work(stopping)


def main() -> None:
    """Run the command line. Exits with 0, 1 when an operation was refused, 2 for wrong usage."""
    try:
        code = cli.main(prog_name="estimator", standalone_mode=False)
    except click.ClickException as error:
        say(f"estimator: {_one_line(error.format_message())}", err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(1)
    except FederationError as error:
        say(f"estimator: {_one_line(error.message)}", err=True)
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    main()
