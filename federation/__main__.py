"""The ``federation`` command: serve, migrate, certs, demo, show-config.

The only place that reads the environment, the command line and signals. Must not hold any logic
that a test would want to call without them.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

import federation.runtime.grpc_noise  # noqa: F401 - before grpc
from federation.app import ControlPlane
from federation.certificates import make_certificates
from federation.codec.document_files import document_of
from federation.database import (
    Database,
    bring_up_to_date,
    opened_database,
    pending_migrations,
)
from federation.demo.story import run_demo
from federation.model.errors import FederationError, InvalidRequest
from federation.plugins import read_profiles
from federation.runtime import flags
from federation.runtime.allocator import give_back_freed_memory
from federation.runtime.interruptions import Interruptions
from federation.runtime.logs import configure_logging
from federation.runtime.settings import OPTIONS, LoadedSettings, check_serving, load_settings
from federation.runtime.terminal import Program, error_lines, say, say_lines
from federation.scheduler.plugins.profile import Profiles
from federation.store.migrate import upgrade

REFUSED, USAGE = 1, 2
# Objects made before the garbage collector looks at them.
COLLECT_AFTER = 100_000
MOSTLY_GARBAGE = COLLECT_AFTER * 9 // 10
INTERRUPTED = 128 + signal.SIGINT
# The usual 5 ms, again and again, add up to a tenth of a second for one call.
SWITCH_SECONDS = 0.001

logger = logging.getLogger("federation")


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="fedsched", prog_name="federation")
def main() -> None:
    """The control plane of fedsched.

    \b
    Example:
      federation certs --dir certs
      federation serve --tls-cert certs/server.pem --tls-key certs/server.key --tls-ca certs/ca.pem
    """


def load(config: Path | None, given: Mapping[str, str | None]) -> LoadedSettings:
    """The settings of a command; what is wrong with them is told, and ends the program."""
    named = config or os.environ.get(OPTIONS.config_variable)
    with told():
        loaded = load_settings(
            flags=given,
            environment=os.environ,
            document=document_of(Path(named)) if named else {},
            source=str(named or ""),
            data_dir=_state_home() / "fedsched",
        )
    for warning in loaded.warnings:
        say(f"warning: {warning}", err=True)
    return loaded


with_settings = flags.with_flags(OPTIONS, load)


@main.command()
@with_settings
def serve(loaded: LoadedSettings) -> None:
    """Serve the API until SIGTERM or Ctrl-C.

    Every flag is also an environment variable (--data-dir: FEDERATION_DATA_DIR) and a key of the
    file (data_dir). Without a database URL an embedded PostgreSQL runs in the data directory.

    \b
    Example:
      federation serve --insecure --data-dir ./state
    """
    settings = loaded.settings
    configure_logging(sys.stderr, form=settings.log_format, level=settings.log_level)
    give_back_freed_memory()
    # The event loop takes over from a thread that reads, estimates or decides as soon as that.
    sys.setswitchinterval(SWITCH_SECONDS)
    # While it starts, too, it must end what it has begun.
    interruptions = Interruptions()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, interruptions.arrive)
    with told(), ExitStack() as stack:
        check_serving(loaded)
        profiles = read_profiles(settings.scheduler_config)
        # An event loop must not be interrupted while it is made: it is told instead.
        with interruptions.allowed():
            path = os.environ.get("PATH", os.defpath)
            database = stack.enter_context(opened_database(settings, path))
            for revision in bring_up_to_date(database, loaded):
                logger.info("migration run", extra={"fields": {"revision": revision}})
        asyncio.run(_serve(loaded, database, profiles, interruptions))


@main.command()
@with_settings
def migrate(loaded: LoadedSettings) -> None:
    """Bring the schema of the database up to date.

    \b
    Example:
      federation migrate --database-url postgresql://fedsched@db.example/fedsched
    """
    settings = loaded.settings
    configure_logging(sys.stderr, form=settings.log_format, level=settings.log_level)
    with told(), opened_database(settings, os.environ.get("PATH", os.defpath)) as database:
        missing = pending_migrations(database, loaded)
        if missing:
            upgrade(database.url)
        done = f"ran {', '.join(missing)}" if missing else "nothing to do"
        say(f"{database.description}: {done}")


@main.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path, file_okay=False), required=True)
@click.option("--host", "hosts", multiple=True, help="Host name or IP address; may be repeated.")
def certs(directory: Path, hosts: tuple[str, ...]) -> None:
    """Make a small CA and a server certificate, for trying out.

    A CA that the directory already has is kept, and issues the new server certificate; the hosts
    of the one before stay.

    \b
    Example:
      federation certs --dir certs --host api.example --host 10.0.0.5
    """
    local = ("localhost", "127.0.0.1", "::1", socket.gethostname())
    with told():
        files = make_certificates(directory, list(dict.fromkeys((*hosts, *local))))
    say(f"federation serve --tls-cert {files.cert} --tls-key {files.key} --tls-ca {files.ca}")


@main.command("show-config")
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", help="Form."
)
@with_settings
def show_config(loaded: LoadedSettings, output: str) -> None:
    """Print every setting and where it came from, secrets masked.

    \b
    Example:
      federation show-config -o yaml
    """
    flags.show_config(loaded.options, output)


@main.command()
@click.option(
    "--examples",
    type=click.Path(path_type=Path),
    default=Path("examples"),
    show_default=True,
    help="Folder with the recorded clusters and the workload to schedule.",
)
def demo(examples: Path) -> None:
    """Show the main job from nothing: PostgreSQL, a control plane, three agents, one Deployment.

    On a terminal everything keeps running until Ctrl-C; else it ends by itself.

    \b
    Example:
      federation demo
    """
    interruptions = Interruptions()
    # Ended like this, too, the demo must leave nothing running; nohup ignores one of them.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interruptions.arrive)
    with told():
        run_demo(examples.resolve(), os.environ, interruptions, stay=sys.stdout.isatty())


@contextmanager
def told() -> Iterator[None]:
    """Turn an expected error into its message and an exit code, without a stack trace."""
    try:
        yield
    except FederationError as error:
        say_lines("\n".join(error_lines(error)), err=True)
        sys.exit(USAGE if isinstance(error, InvalidRequest) else REFUSED)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _state_home() -> Path:
    """The XDG base directory for state; a relative one is to be ignored, says the standard."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path.home() / ".local" / "state"
    except RuntimeError:
        return Path("/var/lib")  # A container's user may have neither a home nor a name.


async def _serve(
    loaded: LoadedSettings, database: Database, profiles: Profiles, interruptions: Interruptions
) -> None:
    stop = asyncio.Event()
    wake = functools.partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set)
    control_plane = ControlPlane(
        loaded.settings, database, host_name=socket.gethostname(), profiles=profiles
    )
    with interruptions.told(wake):
        try:
            with sparing_the_fleet():
                has_started = await unless_stopped(control_plane.start(), stop)
            if has_started:
                say_lines(_banner(loaded, database, control_plane), err=True)
                await stop.wait()
            logger.info("stopping")
        finally:
            await control_plane.stop()


async def unless_stopped(start: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Whether the start came to its end: who is told to stop meanwhile need not wait for that."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        return False
    finally:
        for task in (starting, stopping):
            task.cancel()
        await asyncio.gather(starting, stopping, return_exceptions=True)


@contextmanager
def sparing_the_fleet() -> Iterator[None]:
    """Keep the garbage collector from ever looking at what is made meanwhile: a whole fleet.

    Nearly all of its millions of objects live on, and reference counts end the others: looking at
    them takes longer than loading them does, and later longer than decisions do.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        gc.callbacks.append(spare_survivors)
        gc.enable()


def spare_survivors(phase: str, look: Mapping[str, int]) -> None:
    """Keep the garbage collector from looking once more at what has outlived its look.

    Nearly all of that is promises, which reference counts end: a look at millions of them would
    stop everything for seconds. A cycle that is in use at such a look is never freed, so none is
    spared where nearly all was garbage: that is what calls leave behind in a fleet that does not
    grow, and some are always under way.
    """
    if phase == "stop" and look["collected"] < MOSTLY_GARBAGE:
        gc.freeze()


def _banner(loaded: LoadedSettings, database: Database, control_plane: ControlPlane) -> str:
    settings = loaded.settings
    trust = "plain text" if settings.tls_ca is None else f"TLS, CA {settings.tls_ca}"
    token = control_plane.admin_token_file
    lines = [
        f"fedsched {version('fedsched')} serves",
        f"  API       {control_plane.endpoint} ({trust})",
        f"  web       http://{control_plane.web_endpoint}/readyz",
        f"  database  {database.description}",
        f"  token     {token if token.exists() else 'where an earlier start wrote it'}",
    ]
    if control_plane.probe_endpoint is not None:
        lines.insert(3, f"  probes    http://{control_plane.probe_endpoint}/readyz")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
