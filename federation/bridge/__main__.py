"""``federation bridge``: its options, its variables, its signals.

Must not hold any logic that a test would want to call without them, nor load what ``--help`` does
not need.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import federation.runtime.native_libraries  # noqa: F401 - before grpc and numpy
from federation.model.errors import FederationError, InvalidRequest
from federation.runtime.terminal import error_lines, say_lines

if TYPE_CHECKING:
    from federation.runtime.watched_files import FileWatch

REFUSED: Final = 1
USAGE: Final = 2
ENDPOINT: Final = "127.0.0.1:7443"
_FILE: Final = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option(
    "--karmada-kubeconfig",
    type=_FILE,
    envvar="BRIDGE_KARMADA_KUBECONFIG",
    help="Of Karmada's API server; else a service account. [env: BRIDGE_KARMADA_KUBECONFIG]",
)
@click.option(
    "--scheduler-name",
    help="Bindings whose schedulerName is this are decided here. Default: fedsched; with --shadow "
    "default-scheduler, karmada-scheduler's own name.",
)
@click.option(
    "--shadow",
    is_flag=True,
    help="Compare with what karmada-scheduler has decided, report, and write nothing.",
)
@click.option(
    "--for",
    "seconds",
    type=click.FloatRange(min=0),
    default=0.0,
    metavar="SECONDS",
    help="With --shadow: go on comparing new decisions for so long.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Form of the report of --shadow.",
)
@click.option(
    "--as-karmada", is_flag=True, help="Answer as karmada-scheduler where fedsched differs."
)
@click.option(
    "--failover",
    is_flag=True,
    help="Move what runs in clusters that are lost or that a taint empties. Default: that is "
    "Karmada's own.",
)
@click.option(
    "--endpoint",
    metavar="HOST:PORT",
    default=ENDPOINT,
    show_default=True,
    envvar="BRIDGE_ENDPOINT",
    help="The control plane. [env: BRIDGE_ENDPOINT]",
)
@click.option(
    "--token-file",
    type=_FILE,
    required=True,
    envvar="BRIDGE_TOKEN_FILE",
    help="File with the control plane's token. [env: BRIDGE_TOKEN_FILE]",
)
@click.option(
    "--ca",
    type=_FILE,
    envvar="BRIDGE_CA",
    help="Certificate authority to trust, PEM; else the system's. [env: BRIDGE_CA]",
)
@click.option("--insecure", is_flag=True, help="Plain text, to a control plane on this machine.")
@click.option(
    "--lease-name", default="fedsched-bridge", show_default=True, help="Of several, one works."
)
@click.option("--lease-namespace", default="karmada-system", show_default=True)
@click.option(
    "--health-listen",
    metavar="HOST:PORT",
    envvar="BRIDGE_HEALTH_LISTEN",
    help="Serve /livez, /readyz and /metrics, in plain HTTP. [env: BRIDGE_HEALTH_LISTEN]",
)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info"
)
def bridge(
    log_format: str, log_level: str, *, shadow: bool, seconds: float, output: str, **options: Any
) -> None:
    """Decide Karmada's bindings in karmada-scheduler's place.

    Reads Clusters and the bindings of the scheduler name from Karmada's API server, has the
    control plane decide them, and writes what karmada-scheduler would write. Runs until SIGTERM
    or Ctrl-C. Its token, authority and kubeconfig are read again within ten seconds of a change,
    and at once after SIGHUP.

    \b
    Example:
      federation bridge --karmada-kubeconfig karmada.config --token-file bridge.token --ca ca.pem
      federation bridge --shadow --for 3600 -o json --karmada-kubeconfig karmada.config \\
        --token-file viewer.token --ca ca.pem
    """
    from federation.runtime.log_fields import LogFormat, LogLevel  # noqa: PLC0415 - not for --help
    from federation.runtime.logs import configure_logging  # noqa: PLC0415 - not for --help

    configure_logging(sys.stderr, form=LogFormat(log_format), level=LogLevel(log_level))
    try:
        if shadow:
            asyncio.run(_compare_until_stopped(options, seconds, output))
        else:
            asyncio.run(_run_until_stopped(options))
    except FederationError as error:
        say_lines("\n".join(error_lines(error)), err=True)
        sys.exit(USAGE if isinstance(error, InvalidRequest) else REFUSED)


async def _run_until_stopped(options: dict[str, Any]) -> None:
    from federation.bridge.app import run, settings_of  # noqa: PLC0415 - nearly all there is

    settings = settings_of(**_completed(options, "fedsched"))
    await run(settings, _stop_event(), _file_watch())


async def _compare_until_stopped(options: dict[str, Any], seconds: float, output: str) -> None:
    from federation.bridge.agreement import print_agreement  # noqa: PLC0415 - not for --help
    from federation.bridge.app import compare, settings_of  # noqa: PLC0415 - nearly all there is

    settings = settings_of(**_completed(options, "default-scheduler"))
    print_agreement(await compare(settings, _stop_event(), seconds, _file_watch()), output)


def _completed(options: dict[str, Any], scheduler: str) -> dict[str, Any]:
    """Return the options with the default scheduler, and with the pod's service account."""
    from estimator.kube.access import service_account  # noqa: PLC0415 - not for --help

    account = service_account(os.environ)
    name = options["scheduler_name"] or scheduler
    return {**options, "scheduler_name": name, "account": account}


def _file_watch() -> FileWatch:
    """Return a watch that reads changed files every few seconds, and at once after SIGHUP."""
    from federation.runtime.watched_files import FileWatch  # noqa: PLC0415 - not for --help

    file_watch = FileWatch()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, file_watch.request)
    return file_watch


def _stop_event() -> asyncio.Event:
    """Return an event that a signal to stop sets."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    return stopping
