"""Control planes of their own processes on one PostgreSQL that keeps its word, to be killed.

Must not know what is done with them. A killed one starts again with the same data directory.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import make_url

from federation.store.embedded import EmbeddedPostgres
from federation.store.migrate import upgrade
from federation.store.postgres_binaries import find_binaries
from tests.e2e.servers import ROOT, Server, environment

ARGUMENTS = ("--insecure", "--listen=127.0.0.1:0", "--web-listen=127.0.0.1:0")
# Nobody reads what is only for information; what is wrong is looked for at the end.
QUIET = ("--log-level=warning",)
POLL_SECONDS = 0.01
UNEXPECTED = re.compile(r"Traceback|unexpected error|never retrieved|Task was destroyed")


class Plane:
    """One of the control planes; ``endpoint`` is empty while it does not serve."""

    def __init__(
        self, number: int, database_url: str, folder: Path, arguments: tuple[str, ...]
    ) -> None:
        self.number = number
        self.endpoint = ""
        self.kills = 0
        self._environment = environment({"FEDERATION_DATABASE_URL": database_url})
        # The admin's token is made once, by the first.
        self._arguments = (*ARGUMENTS, *QUIET, *arguments, f"--data-dir={folder}")
        self._output: list[str] = []
        self._server: Server | None = None

    def start(self) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "federation", "serve", *self._arguments],
            cwd=ROOT,
            env=self._environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        self._server = Server(process)
        self.endpoint = self._server.await_line(r"API +(\S+)").group(1)

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.process.pid

    def kill(self) -> None:
        """As a power cut would."""
        assert self._server is not None
        self.endpoint = ""
        self.kills += 1
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
        """Lines of its log that speak of a mistake of its own; call when it has ended."""
        return [
            "\n".join(self._output[place : place + 40])
            for place, line in enumerate(self._output)
            if UNEXPECTED.search(line)
        ]

    def _end(self, server: Server) -> int:
        code = server.await_end()
        assert server.process.stderr is not None
        server.process.stderr.close()
        self._output += server.lines
        self._server = None
        return code


class Planes:
    """All control planes of a fleet and their database."""

    def __init__(
        self, folder: Path, count: int, postgres: EmbeddedPostgres, arguments: tuple[str, ...]
    ) -> None:
        self.postgres = postgres
        self.postgres_kills = 0
        self._folder = folder / "state"
        self.all = [
            Plane(number, self.database_url, self._folder, arguments) for number in range(count)
        ]

    @property
    def database_url(self) -> str:
        return make_url(self.postgres.url).render_as_string(hide_password=False)

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

    async def restart(self, plane: Plane) -> None:
        await asyncio.to_thread(plane.kill)
        await asyncio.to_thread(plane.start)

    async def restart_postgres(self) -> None:
        pid = self.postgres.process_id
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self.postgres_kills += 1
        await asyncio.to_thread(self._await_postgres)

    def stop(self) -> None:
        for each in self.all:
            each.stop()

    def _await_postgres(self) -> None:
        """Until its end was noticed and it runs again."""
        while not self.postgres.ensure_running():
            time.sleep(POLL_SECONDS)


@contextmanager
def running_planes(folder: Path, count: int, arguments: tuple[str, ...] = ()) -> Iterator[Planes]:
    """``count`` of them on a PostgreSQL that writes through to the disk."""
    binaries = os.environ.get("FEDERATION_POSTGRES_BIN")
    found = find_binaries(Path(binaries) if binaries else None, os.environ.get("PATH", ""))
    postgres = EmbeddedPostgres(found, folder / "postgres")
    postgres.start()
    try:
        upgrade(postgres.url)
        planes = Planes(folder, count, postgres, arguments)
        try:
            planes.start()
            yield planes
        finally:
            planes.stop()
    finally:
        postgres.discard()
