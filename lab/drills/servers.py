"""Two PostgreSQL servers behind one address that can be moved, and what operators are told to do.

Must not know what is kept in them. The address stands for what people have there: a virtual IP
address, a proxy, a name.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import make_url

from federation.embedded_postgres.binaries import PostgresBinaries
from federation.embedded_postgres.home import (
    PORT,
    SOCKET_NAME,
    Home,
    copy_for_everybody,
    prepare_home,
)
from federation.embedded_postgres.process import launch
from federation.embedded_postgres.server import EmbeddedPostgres
from lab.databases import connect, run
from lab.pages import ROOT, steps_of
from lab.patience import PATIENCE_SECONDS
from lab.servers import found_binaries

PAGE = ROOT / "docs" / "how-to" / "fail-over-postgresql.md"
OURS = ("make drills does it",)


def commands() -> list[str]:
    """Blocks of the page that are tried here, in its order."""
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    return [step.text for step in steps if step.mark("skip") == OURS]


def promote_as_written(standby_url: str, programs: Path) -> None:
    """``programs``: where PostgreSQL's are. Returns once the standby leads."""
    path = f"{programs}:{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "STANDBY": standby_url}
    answers = []
    for command in commands():
        done = subprocess.run(
            ["sh", "-e", "-c", command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
        answers.append(done.stdout)
    promoted = [answer for answer in answers if answer.strip() == "t"]
    assert promoted, answers


USER, DATABASE = "federation", "postgres"
NAME = "standby"


def execute(url: str, *statements: str) -> object:
    """One after the other; the first value of the last one's answer."""

    async def executed() -> object:
        connection = await connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return run(executed())


def await_answer(url: str, statement: str, wanted: object) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with suppress(OSError, Exception):
            if execute(url, statement) == wanted:
                return
        assert time.monotonic() < deadline, statement
        time.sleep(0.05)


class MovableAddress:
    """A port on loopback that stands for the server whose sockets are in a folder."""

    def __init__(self, sockets: Path) -> None:
        self._sockets = sockets
        self._open: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        serving = asyncio.start_server(self._relay, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(_started(serving), self._loop).result()
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"postgresql://{USER}@127.0.0.1:{port}/{DATABASE}"

    def move(self, sockets: Path) -> None:
        """From now on it is that server's; who was connected is cut off."""
        asyncio.run_coroutine_threadsafe(self._move(sockets), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)

    async def _move(self, sockets: Path) -> None:
        self._sockets = sockets
        for writer in self._open:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path = str(self._sockets / SOCKET_NAME)
            far_reader, far_writer = await asyncio.open_unix_connection(path)
        except OSError:
            writer.close()
            return
        both = {writer, far_writer}
        self._open |= both
        try:
            await self._greet(reader, far_writer)
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._open -= both
            for each in both:
                each.close()

    async def _greet(self, reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter) -> None:
        """Whatever comes before bytes are passed on as they are."""


class ForgetfulAddress(MovableAddress):
    """As a pooler that is told to ignore settings: it passes on who connects to what, and no more.

    Who connects must not ask for TLS first.
    """

    async def _greet(self, reader: asyncio.StreamReader, far_writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(4))
        version, words = await reader.readexactly(4), await reader.readexactly(length - 8)
        names_and_values = iter(words.rstrip(b"\0").split(b"\0"))
        kept = [
            name + b"\0" + value + b"\0"
            for name, value in zip(names_and_values, names_and_values, strict=True)
            if name in {b"user", b"database", b"application_name"}
        ]
        content = version + b"".join(kept) + b"\0"
        far_writer.write((len(content) + 4).to_bytes(4) + content)


async def _started(serving: object) -> asyncio.Server:
    server: asyncio.Server = await serving  # type: ignore[misc] # a coroutine of the other loop
    return server


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    writer.close()


def sockets_of(server: EmbeddedPostgres) -> Path:
    return Path(str(make_url(server.url).query["host"]))


class Pair:
    """A primary and its standby."""

    def __init__(self, folder: Path) -> None:
        self._found = found_binaries()
        self._primary = EmbeddedPostgres(self._found, folder / "primary")
        self._home = prepare_home(folder / "standby")
        self._standby: subprocess.Popen[bytes] | None = None
        self._primary.start()

    @property
    def primary_url(self) -> str:
        return make_url(self._primary.url).render_as_string(hide_password=False)

    @property
    def standby_url(self) -> str:
        host = str(self._home.sockets)
        return f"postgresql+asyncpg://{USER}@/{DATABASE}?host={host}&port={PORT}"

    @property
    def primary_sockets(self) -> Path:
        return sockets_of(self._primary)

    @property
    def standby_sockets(self) -> Path:
        return self._home.sockets

    def wait_for(self, names: str) -> None:
        """From now on its commits wait for these standbys; empty: for none."""
        setting = f"ALTER SYSTEM SET synchronous_standby_names = '{names}'"
        execute(self.primary_url, setting, "SELECT pg_reload_conf()")
        await_answer(self.primary_url, "SHOW synchronous_standby_names", names)

    def follow(self, *, synchronous: bool) -> None:
        """Copy the primary, and follow it from now on."""
        if synchronous:
            # Before the copy, which has it then, too: once promoted it waits for itself.
            self.wait_for(NAME)
        whom = f"host={self.primary_sockets} port={PORT} user={USER} application_name={NAME}"
        copying = (self._program("pg_basebackup"), "--dbname", whom, "--write-recovery-conf")
        copy = (*copying, "--checkpoint=fast", f"--pgdata={self._home.data}")
        run_to_end(copy, self._home)
        with self._home.log.open("ab") as log:
            settings = (f"unix_socket_directories={self._home.sockets}", "listen_addresses=")
            options = [option for each in settings for option in ("-c", each)]
            command = (self._program("postgres"), "-D", str(self._home.data), *options)
            self._standby = launch(command, run_as=self._home.run_as, output=log)
        state = "SELECT sync_state FROM pg_stat_replication"
        await_answer(self.primary_url, state, "sync" if synchronous else "async")

    def kill_primary(self) -> None:
        """As when its machine is gone."""
        pid = self._primary.process_id
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    def promote(self) -> None:
        """As operators are told to. Returns once the standby leads."""
        url = f"postgresql://{USER}@/{DATABASE}?host={self._home.sockets}&port={PORT}"
        promote_as_written(url, Path(self._program("psql")).parent)

    def _program(self, name: str) -> str:
        return runnable(self._found, self._home).program(name)

    def discard(self) -> None:
        if self._standby is not None:
            self._standby.send_signal(signal.SIGQUIT)
            self._standby.wait()
        # Started as root, it is outside the folder given.
        shutil.rmtree(self._home.private, ignore_errors=True)
        self._primary.discard()


def runnable(found: PostgresBinaries, home: Home) -> PostgresBinaries:
    """Those that the server's user can run."""
    return copy_for_everybody(found) if home.run_as.switch and found.movable else found


def run_to_end(command: tuple[str, ...], home: Home) -> None:
    """A program of PostgreSQL, as the user of its servers."""
    with home.log.open("ab") as log:
        process = launch(command, run_as=home.run_as, output=log)
        assert process.wait(PATIENCE_SECONDS) == 0, home.log.read_text()


class Restorable:
    """A server, and another one that a dump of it is restored into."""

    def __init__(self, folder: Path) -> None:
        self._found = found_binaries()
        self._server = EmbeddedPostgres(self._found, folder / "server")
        self._restored = EmbeddedPostgres(self._found, folder / "restored")
        self._home = prepare_home(folder / "dump")
        self._dump = self._home.private / "dump"
        self._server.start()

    @property
    def url(self) -> str:
        return make_url(self._server.url).render_as_string(hide_password=False)

    @property
    def sockets(self) -> Path:
        return sockets_of(self._server)

    @property
    def restored_sockets(self) -> Path:
        return sockets_of(self._restored)

    def back_up(self) -> None:
        program = runnable(self._found, self._home).program("pg_dump")
        where = (f"--host={self.sockets}", f"--username={USER}", f"--dbname={DATABASE}")
        run_to_end((program, *where, "--format=custom", f"--file={self._dump}"), self._home)

    def restore(self) -> None:
        """The backup in another server; the first is gone."""
        pid = self._server.process_id
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        self._restored.start()
        program = runnable(self._found, self._home).program("pg_restore")
        where = (f"--host={self.restored_sockets}", f"--username={USER}", f"--dbname={DATABASE}")
        run_to_end((program, *where, "--exit-on-error", str(self._dump)), self._home)

    def discard(self) -> None:
        self._server.discard()
        self._restored.discard()
        self._dump.unlink(missing_ok=True)


@contextmanager
def restorable(folder: Path) -> Iterator[Restorable]:
    server = Restorable(folder)
    try:
        yield server
    finally:
        server.discard()


@contextmanager
def pair(folder: Path) -> Iterator[Pair]:
    both = Pair(folder)
    try:
        yield both
    finally:
        both.discard()
