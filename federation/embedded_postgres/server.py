"""An embedded PostgreSQL for trying out, small installations and tests: one server, one folder.

Must not read the environment (binaries and folder are passed in) and must never open TCP.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import RLock
from time import monotonic, sleep
from typing import IO, Self
from urllib.parse import urlencode

from federation.embedded_postgres.binaries import VERSION_SECONDS, PostgresBinaries
from federation.embedded_postgres.errors import PostgresNotStarted
from federation.embedded_postgres.home import (
    PORT,
    SOCKET_NAME,
    Home,
    RunAs,
    copy_for_everybody,
    prepare_home,
)
from federation.embedded_postgres.location import LOCATION, OWNER
from federation.embedded_postgres.process import (
    disown_postmaster_file,
    launch,
    read_postmaster,
    serves,
)

USER = "federation"
DATABASE = "postgres"  # Made by initdb; the server has no other tenant.
DEFAULTS = {"fsync": "on", "synchronous_commit": "on", "timezone": "UTC", "log_timezone": "UTC"}
FIXED = {"listen_addresses": "", "unix_socket_permissions": "0700", "port": str(PORT)}
# `trust` asks nobody for a password: the socket is in a folder that only its owner can enter,
# and there is no other way in.
INITDB_OPTIONS = ("--auth=trust", "--encoding=UTF8", "--locale=C", "--data-checksums")
STEP_SECONDS = 0.02
PREDECESSOR_SECONDS = 15.0  # A dying server kills children that hang after five.
LOG_BYTES = 16 * 1024 * 1024
LOG_LINES_SHOWN = 12
LEFTOVER_CHILDREN = "pre-existing shared memory block"

logger = logging.getLogger(__name__)


class DataDirectoryInUse(PostgresNotStarted):
    """Another process uses this data directory."""

    reason = "DATA_DIRECTORY_IN_USE"

    def __init__(self, directory: Path, pid: int | None) -> None:
        self.pid = pid
        named = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{directory} is used by {named}: stop it first, or choose another data directory"
        )


class WrongMajorVersion(PostgresNotStarted):
    """The data directory was made by another major version of PostgreSQL."""

    reason = "POSTGRES_MAJOR_VERSION"


class EmbeddedPostgres:
    """A PostgreSQL server that lives as long as this process does.

    Every call blocks, up to a deadline: call from a thread when a loop runs. Safe to share between
    threads. ``settings`` are further PostgreSQL settings, which cannot open TCP.
    """

    def __init__(
        self,
        binaries: PostgresBinaries,
        directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        start_seconds: float = 120.0,
        stop_seconds: float = 30.0,
    ) -> None:
        self._binaries = binaries
        self._directory = directory
        self._settings = {**DEFAULTS, **(settings or {}), **FIXED}
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._guard = RLock()
        self._locks = ExitStack()
        self._home: Home | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def data_directory(self) -> Path:
        """Where the data really is; in a folder of its own when started as root."""
        return self._started_home().data

    @property
    def url(self) -> str:
        """SQLAlchemy's address of the server, for asyncpg over the unix socket."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        # The port is named because asyncpg would else take $PGPORT.
        query = urlencode({"host": str(self._started_home().sockets), "port": PORT}, safe="/")
        return f"postgresql+asyncpg://{USER}@/{database}?{query}"

    @property
    def process_id(self) -> int | None:
        """The server's process id, None while it does not run."""
        postmaster = read_postmaster(self.data_directory) if self.is_alive() else None
        return postmaster.pid if postmaster else None

    def start(self) -> None:
        """Start, after initdb if the folder is new, and wait until connections are taken.

        Raises PostgresNotStarted; its message ends with the server's last words.
        """
        with self._guard:
            if self.is_alive():
                return
            deadline = monotonic() + self._start_seconds
            home = prepare_home(self._directory)
            if self._home is None:
                self._take_locks(home)
                self._home = home
            try:
                self._binaries = self._runnable_binaries(home)
                if not home.data.exists():
                    self._initialise(home, deadline)
                self._check_version(home)
                self._await_predecessor(home)
                self._run_server(home, deadline)
            except BaseException as error:
                self.stop()
                if isinstance(error, OSError):
                    raise PostgresNotStarted(f"cannot start PostgreSQL: {error}") from error
                raise
            logger.info("embedded PostgreSQL %s runs in %s", self._binaries.version, home.data)

    def stop(self) -> None:
        """Stop in order (every connection is closed, a checkpoint written); harm nothing twice."""
        with self._guard:
            if self._process is not None:
                for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
                    self._process.send_signal(number)
                    try:
                        self._process.wait(self._stop_seconds)
                        break
                    except subprocess.TimeoutExpired:
                        logger.warning("embedded PostgreSQL ignores %s", number.name)
                if self._process.stdin is not None:
                    self._process.stdin.close()
                self._process = None
            self._locks.close()
            self._home = None

    def is_alive(self) -> bool:
        """Whether the server process runs; it may be busy recovering after a crash of a child."""
        return self._process is not None and self._process.poll() is None

    def ensure_running(self) -> bool:
        """Start a server that ended by itself; True if that was needed."""
        with self._guard:
            if self.is_alive():
                return False
            logger.warning("embedded PostgreSQL ended unexpectedly, starting it again")
            self.start()
            return True

    def discard(self) -> None:
        """Stop, and delete the data for ever, also what is kept outside the folder given."""
        with self._guard:
            home = prepare_home(self._directory)
            self.stop()
            with ExitStack() as locks:
                self._locks = locks
                self._take_locks(home)
                for folder in (home.data, home.unfinished, home.sockets):
                    shutil.rmtree(folder, ignore_errors=True)
                records = (home.directory / LOCATION, home.private / OWNER)
                for file in (home.log, home.lock, *records):
                    file.unlink(missing_ok=True)
                for folder in {home.private, home.directory}:
                    with suppress(OSError):  # Not ours alone when something else is in it.
                        folder.rmdir()

    def _started_home(self) -> Home:
        if self._home is None:
            raise PostgresNotStarted("the embedded PostgreSQL has not been started")
        return self._home

    def _take_locks(self, home: Home) -> None:
        """One owner per folder, for as long as this process lives and no longer."""
        lock = self._locks.enter_context(home.lock.open("a+b"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip()
            self._locks.close()
            raise DataDirectoryInUse(home.directory, int(pid) if pid else None) from None
        lock.truncate(0)
        lock.write(b"%d\n" % os.getpid())
        lock.flush()
        if home.private != home.directory:
            # systemd-tmpfiles ages /var/tmp, and leaves alone what is locked.
            private = os.open(home.private, os.O_RDONLY | os.O_DIRECTORY)
            self._locks.callback(os.close, private)
            fcntl.flock(private, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _runnable_binaries(self, home: Home) -> PostgresBinaries:
        """The binaries, or a copy of them, that the server's user can reach."""
        if not home.run_as.switch or self._can_run(self._binaries, home):
            return self._binaries
        if self._binaries.movable:
            copy = copy_for_everybody(self._binaries)
            if self._can_run(copy, home):
                return copy
        raise PostgresNotStarted(
            f"PostgreSQL refuses to run as root, and the user {home.run_as.name} cannot run "
            f"{self._binaries.program('postgres')}{self._last_words(home, 0)}"
        )

    def _can_run(self, binaries: PostgresBinaries, home: Home) -> bool:
        deadline = monotonic() + VERSION_SECONDS
        with self._log(home) as log:
            return all(
                _exit_status([binaries.program(name), "--version"], home.run_as, log, deadline) == 0
                for name in ("postgres", "initdb")
            )

    def _initialise(self, home: Home, deadline: float) -> None:
        """Make the data in a folder beside, then rename: an interrupted initdb leaves no data."""
        unfinished = home.unfinished
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [self._binaries.program("initdb"), f"--pgdata={unfinished}", f"--username={USER}"]
        with self._log(home) as log:
            begin = log.tell()
            status = _exit_status([*command, *INITDB_OPTIONS], home.run_as, log, deadline)
        if status != 0:
            raise PostgresNotStarted(
                f"cannot make a database in {home.private}{self._last_words(home, begin)}"
            )
        unfinished.rename(home.data)

    def _check_version(self, home: Home) -> None:
        made_by = (home.data / "PG_VERSION").read_text(encoding="ascii").strip()
        if made_by != str(self._binaries.major_version):
            raise WrongMajorVersion(
                f"{home.data} was made by PostgreSQL {made_by}, and {self._binaries.bin_directory} "
                f"is PostgreSQL {self._binaries.version}: point FEDERATION_POSTGRES_BIN at "
                f"programs of version {made_by}, or choose another data directory"
            )

    def _await_predecessor(self, home: Home) -> None:
        """Wait for the server of an owner that was killed a moment ago; it is on its way out."""
        deadline = monotonic() + PREDECESSOR_SECONDS
        while (found := read_postmaster(home.data)) and serves(found.pid, home.data):
            if monotonic() > deadline:
                raise DataDirectoryInUse(home.data, found.pid)
            sleep(STEP_SECONDS)

    def _run_server(self, home: Home, deadline: float) -> None:
        """Start the server; again while children of a killed one still hold its memory."""
        while True:
            disown_postmaster_file(home.data, home.run_as)
            for leftover in home.sockets.glob(f"{SOCKET_NAME}*"):
                leftover.unlink()
            with self._log(home) as log:
                begin = log.tell()
                self._process = launch(self._server_command(home), run_as=home.run_as, output=log)
            if self._await_ready(home, self._process, deadline):
                return
            words = self._last_words(home, begin)
            if LEFTOVER_CHILDREN not in words or monotonic() > deadline:
                late = f" within {self._start_seconds:g} s" if self.is_alive() else ""
                raise PostgresNotStarted(f"PostgreSQL did not start in {home.data}{late}{words}")
            sleep(STEP_SECONDS)

    def _server_command(self, home: Home) -> Sequence[str]:
        settings = {**self._settings, "unix_socket_directories": str(home.sockets)}
        options = [option for item in settings.items() for option in ("-c", "=".join(item))]
        return [self._binaries.program("postgres"), "-D", str(home.data), *options]

    def _await_ready(self, home: Home, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """True when connections are taken, False when the server ended or the time is up.

        A server that recovers from a crash says so in its file, and is waited for.
        """
        while process.poll() is None and monotonic() < deadline:
            postmaster = read_postmaster(home.data)
            if postmaster and postmaster.ready and postmaster.pid != os.getpid():
                return True
            sleep(STEP_SECONDS)
        return False

    def _log(self, home: Home) -> IO[bytes]:
        """The log, opened by us and handed down: its folder may be closed to the server's user."""
        if home.log.exists() and home.log.stat().st_size > LOG_BYTES:
            home.log.replace(home.log.with_suffix(".log.1"))
        return home.log.open("ab")

    def _last_words(self, home: Home, begin: int) -> str:
        with home.log.open("rb") as log:
            log.seek(begin)
            lines = log.read().decode(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "".join(f"\n  {line}" for line in lines)


def _exit_status(command: Sequence[str], run_as: RunAs, log: IO[bytes], deadline: float) -> int:
    """The exit status of a program that is to end by itself before the deadline."""
    process = launch(command, run_as=run_as, output=log)
    try:
        return process.wait(max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
    except KeyboardInterrupt:
        # It removes what it has begun, and must not go on doing so when we are gone.
        process.terminate()
        process.wait()
        raise
