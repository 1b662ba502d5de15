"""The ``federation`` command: its verbs, its settings and its exit codes.

The only place that reads the environment, the command line and signals. Must not hold any logic
that a test would want to call without them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import click

import federation.runtime.native_libraries  # noqa: F401 - before grpc and numpy
from federation.bridge.__main__ import bridge
from federation.certificates import make_certificates
from federation.codec.document_files import document_of
from federation.model.errors import FederationError, InvalidRequest
from federation.runtime.allocator import give_back_freed_memory
from federation.runtime.findings import told_findings
from federation.runtime.flags import print_config, with_flags
from federation.runtime.interruptions import Interruptions
from federation.runtime.logs import change_level, configure_logging
from federation.runtime.settings import OPTIONS, LoadedSettings, check_serving, load_settings
from federation.runtime.state_home import state_home
from federation.runtime.terminal import Program, error_lines, say, say_lines
from federation.runtime.watched_files import FileWatch

REFUSED, USAGE = 1, 2
INTERRUPTED = 128 + signal.SIGINT
# An estimate gives the interpreter up at hundreds of its steps; where a thread takes it each time,
# it waits for as many of these. The usual 5 ms add up to more than a second, and 1 ms to a quarter;
# with far less, two threads that work at the same time mostly take turns.
SWITCH_SECONDS = 0.0002


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
            data_dir=state_home(os.environ) / "fedsched",
        )
    for warning in loaded.warnings:
        say(f"warning: {warning}", err=True)
    return loaded


with_settings = with_flags(OPTIONS, load)


@main.command()
@with_settings
def serve(loaded: LoadedSettings) -> None:
    """Serve the API until SIGTERM or Ctrl-C.

    Every flag is also an environment variable (--data-dir: FEDERATION_DATA_DIR) and a key of the
    file (data_dir). Without a database URL an embedded PostgreSQL runs in the data directory.

    Changed TLS files are in use within ten seconds; after SIGHUP they are read at once.

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
    signal.signal(signal.SIGUSR1, lambda *_: change_level(settings.log_level))
    file_watch = FileWatch()
    signal.signal(signal.SIGHUP, lambda *_: file_watch.request())
    with told():
        check_serving(loaded)
        from federation.serving import serve_until_stopped  # noqa: PLC0415 - nearly all there is

        search_path = os.environ.get("PATH", os.defpath)
        serve_until_stopped(loaded, search_path, interruptions, file_watch)


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
    from federation.database import opened_database, pending_migrations  # noqa: PLC0415 - see above
    from federation.store.migrate import upgrade  # noqa: PLC0415 - see above

    with told(), opened_database(settings, os.environ.get("PATH", os.defpath)) as database:
        missing = pending_migrations(database, loaded)
        if missing:
            upgrade(database.url)
        done = f"ran {', '.join(missing)}" if missing else "nothing to do"
        say(f"{database.description}: {done}")


@main.command("admin-token")
@with_settings
def admin_token(loaded: LoadedSettings) -> None:
    """Make a new admin token and print it; all others end, within half a minute everywhere.

    For who has lost the one that the first start wrote. With an embedded PostgreSQL, stop the
    server first.

    \b
    Example:
      federation admin-token --database-url postgresql://fedsched@db.example/fedsched > admin.token
    """
    from federation.admin_token import made_anew  # noqa: PLC0415 - see above
    from federation.database import bring_up_to_date, opened_database  # noqa: PLC0415 - see above

    with told(), opened_database(loaded.settings, os.environ.get("PATH", os.defpath)) as database:
        bring_up_to_date(database, loaded)
        token = asyncio.run(made_anew(database))
    say(token)


@main.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form.")
@with_settings
def doctor(loaded: LoadedSettings, output: str) -> None:
    """Say what the guarantees are worth here, and what to do; exits with 1 where one does not hold.

    Give it the settings of `federation serve`. It changes nothing. An embedded PostgreSQL may run
    meanwhile.

    \b
    Example:
      federation doctor --database-url postgresql://fedsched@db.example/fedsched
    """
    from federation.database import looked_at_database  # noqa: PLC0415 - see above
    from federation.doctor import examine  # noqa: PLC0415 - see above

    with (
        told(),
        looked_at_database(loaded.settings, os.environ.get("PATH", os.defpath)) as database,
    ):
        findings = asyncio.run(examine(loaded, database))
    sys.exit(told_findings(findings, as_json=output == "json"))


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
    print_config(loaded.options, output)


@main.command()
@click.option(
    "--examples",
    type=click.Path(path_type=Path),
    default=Path("examples"),
    show_default=True,
    help="Folder with the recorded clusters and the workload to schedule.",
)
@click.option("--karmada", is_flag=True, help="Also show the bridge to Karmada.")
def demo(examples: Path, *, karmada: bool) -> None:
    """Show the main job from nothing: PostgreSQL, a control plane, three agents, one Deployment.

    Then a workload waits for room and gets it, and a cluster is lost and comes back.

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
    from federation.demo.story import run_demo  # noqa: PLC0415 - see above

    with told():
        stay = sys.stdout.isatty()
        run_demo(examples.resolve(), os.environ, interruptions, stay=stay, karmada=karmada)


main.add_command(bridge)


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


if __name__ == "__main__":
    main()
