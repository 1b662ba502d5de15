"""Control planes of their own processes on one PostgreSQL that keeps its word, to be killed.

Must not know what is done with them. A killed one starts again with the same data directory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from federation.embedded_postgres.server import EmbeddedPostgres
from federation.runtime.log_errors import errors_in
from federation.store.migrate import upgrade
from lab.servers import ROOT, Server, environment, found_binaries

ARGUMENTS = ("--insecure", "--listen=127.0.0.1:0", "--web-listen=127.0.0.1:0")
# Nobody reads what is only for information; what is wrong is looked for at the end.
QUIET = ("--log-level=warning",)
POLL_SECONDS = 0.01
STARTS = 5
# Errors that a control plane logs rightly where PostgreSQL is killed and clusters are lost.
EXPECTED_ERRORS = (
    "the database cannot be used",
    "many clusters of one place fell silent",
    "failover is frozen",
)


def python_of(checkout: Path) -> str:
    """Return the Python that runs the programs of an installed checkout."""
    return sys.executable if checkout == ROOT else str(checkout / ".venv/bin/python")


class Plane:
    """One of the control planes; ``endpoint`` is empty while it does not serve, ``web`` is where it
    served last.
    """

    def __init__(
        self,
        number: int,
        database_url: str,
        folder: Path,
        arguments: tuple[str, ...],
        checkout: Path = ROOT,
    ) -> None:
        self.number = number
        self._checkout = checkout
        self.endpoint = self.web = ""
        self.kills = 0
        self._environment = environment({"FEDERATION_DATABASE_URL": database_url})
        # The admin's token is made once, by the first.
        self._arguments = (*ARGUMENTS, *QUIET, *arguments, f"--data-dir={folder}")
        self._output: list[str] = []
        self._server: Server | None = None

    def start(self) -> None:
        """Again where it ends at once, as it does when its database dies while it starts."""
        for _ in range(STARTS):
            server = Server(self._launched())
            try:
                endpoint = server.await_line(r"API +(\S+)").group(1)
                self.web = server.await_line(r"web +(http://[^/]+)").group(1)
            except AssertionError:
                server.process.kill()
                server.process.wait()
                self._keep_output(server)
                continue
            self._server, self.endpoint = server, endpoint
            return
        raise AssertionError("\n".join(self._output))

    def _launched(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [python_of(self._checkout), "-m", "federation", "serve", *self._arguments],
            cwd=self._checkout,
            env=self._environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.process.pid

    def newest_lines(self) -> list[str]:
        """What it has logged since it was last asked."""
        assert self._server is not None
        return self._server.newest_lines()

    def lines(self) -> list[str]:
        """What it has logged since it started."""
        assert self._server is not None
        self._server.newest_lines()
        return [*self._server.lines]

    def restart(self) -> None:
        """As after a power cut."""
        self.kills += 1
        self.kill()
        self.start()

    def kill(self) -> None:
        if self._server is not None:
            self.endpoint = ""
            self._server.process.send_signal(signal.SIGKILL)
            self._end(self._server)

    def stop(self) -> int:
        """Let it end in order; its exit code."""
        if self._server is None:
            return 0
        self.endpoint = ""
        self._server.process.send_signal(signal.SIGTERM)
        return self._end(self._server)

    def unexpected(self) -> list[str]:
        """Return the errors in its log that no kill explains; call when it has ended."""
        return errors_in("\n".join(self._output), EXPECTED_ERRORS)

    def _end(self, server: Server) -> int:
        code = server.await_end()
        self._keep_output(server)
        self._server = None
        return code

    def _keep_output(self, server: Server) -> None:
        assert server.process.stderr is not None
        server.process.stderr.close()
        self._output += server.lines


class Planes:
    """All control planes of a fleet."""

    def __init__(
        self,
        folder: Path,
        count: int,
        database_url: str,
        arguments: tuple[str, ...],
        checkout: Path = ROOT,
    ) -> None:
        self._folder = folder / "state"
        self.all = [
            Plane(number, database_url, self._folder, arguments, checkout)
            for number in range(count)
        ]

    @property
    def endpoints(self) -> list[str]:
        """Those that serve, as far as is known."""
        return [each.endpoint for each in self.all if each.endpoint]

    @property
    def token(self) -> str:
        return (self._folder / "admin.token").read_text(encoding="ascii").strip()

    def start(self) -> None:
        """The first, which makes what all share, then the others at once."""
        self.all[0].start()
        with ThreadPoolExecutor(max_workers=len(self.all)) as threads:
            list(threads.map(Plane.start, self.all[1:]))

    def stop(self) -> list[int]:
        """Their exit codes."""
        return [each.stop() for each in self.all]

    def kill(self) -> None:
        """Those that still run."""
        for each in self.all:
            each.kill()


@contextmanager
def running_planes(
    folder: Path,
    count: int,
    database_url: str,
    arguments: tuple[str, ...] = (),
    checkout: Path = ROOT,
) -> Iterator[Planes]:
    """Control planes of a checkout, until the block ends."""
    planes = Planes(folder, count, database_url, arguments, checkout)
    try:
        planes.start()
        yield planes
    finally:
        planes.kill()


class Postgres:
    """A PostgreSQL that writes through to the disk, to be killed."""

    def __init__(self, server: EmbeddedPostgres) -> None:
        self.kills = 0
        self._server = server

    @property
    def url(self) -> str:
        return make_url(self._server.url).render_as_string(hide_password=False)

    @property
    def pid(self) -> int:
        """Of the postmaster; it runs."""
        pid = self._server.process_id
        assert pid is not None
        return pid

    def restart(self) -> None:
        """As after a power cut."""
        os.kill(self.pid, signal.SIGKILL)
        self.kills += 1
        while not self._server.ensure_running():
            time.sleep(POLL_SECONDS)


@contextmanager
def durable_postgres(folder: Path, checkout: Path = ROOT) -> Iterator[Postgres]:
    """A database with the schema of a checkout; its data is gone at the end."""
    server = EmbeddedPostgres(found_binaries(), folder / "postgres")
    server.start()
    try:
        postgres = Postgres(server)
        if checkout == ROOT:
            upgrade(server.url)
        else:
            migrate = [python_of(checkout), "-m", "federation", "migrate"]
            settings = environment({"FEDERATION_DATABASE_URL": postgres.url})
            subprocess.run(
                migrate, cwd=checkout, env=settings, check=True, stdout=subprocess.DEVNULL
            )
        yield postgres
    finally:
        server.discard()
