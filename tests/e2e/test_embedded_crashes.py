"""The embedded PostgreSQL and its owner, killed in turn: no acknowledged row is lost."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import asyncpg
import pytest

from federation.embedded_postgres.binaries import PostgresBinaries, find_binaries
from federation.embedded_postgres.home import RunAs
from federation.embedded_postgres.process import launch, read_postmaster, serves
from federation.embedded_postgres.server import DataDirectoryInUse, EmbeddedPostgres
from lab.databases import connect, connected, run
from lab.patience import PATIENCE_SECONDS, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="waits for processes by pidfd")

PARENT = """
import sys
from pathlib import Path
from federation.embedded_postgres.server import EmbeddedPostgres
from federation.embedded_postgres.binaries import find_binaries
server = EmbeddedPostgres(find_binaries(None, ""), Path(sys.argv[1]))
server.start()
print(server.process_id, flush=True)
sys.stdin.read()
"""
DEADLINE_MS = int(PATIENCE_SECONDS * 1000)


def notice_the_end(server: EmbeddedPostgres) -> bool:
    """Ask as a supervisor does: an end is noticed soon, and not in the same instant."""
    deadline = monotonic() + DEADLINE_MS / 1000
    while monotonic() < deadline:
        if server.ensure_running():
            return True
    return False


def await_end(pid: int) -> bool:
    """Whether the process ended before the deadline; True also if it is gone already."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(DEADLINE_MS))
    finally:
        os.close(descriptor)


@pytest.fixture(scope="module")
def binaries() -> PostgresBinaries:
    return find_binaries(None, os.environ.get("PATH", ""))


@pytest.fixture
def server(binaries: PostgresBinaries, tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    made = EmbeddedPostgres(binaries, tmp_path / "postgres")
    yield made
    made.discard()


async def write_until_the_server_dies(url: str, pid: int, *, rows: int) -> list[int]:
    """Insert numbers one transaction each; kill the server when ``rows`` are acknowledged."""
    connection = await connect(url)
    await connection.execute("CREATE TABLE written (n int)")
    acknowledged: list[int] = []
    try:
        while True:
            number = len(acknowledged)
            await connection.execute("INSERT INTO written VALUES ($1)", number)
            acknowledged.append(number)
            if len(acknowledged) == rows:
                os.kill(pid, signal.SIGKILL)
            if len(acknowledged) > rows * 1000:
                pytest.fail("the server outlives its killing")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
        return acknowledged
    finally:
        connection.terminate()


async def read_written(url: str) -> list[int]:
    connection = await connect(url)
    rows = await connection.fetch("SELECT n FROM written ORDER BY n")
    await connection.close()
    return [row["n"] for row in rows]


def test_killed_postmaster_is_started_again_and_no_acknowledged_row_is_lost(
    server: EmbeddedPostgres,
) -> None:
    server.start()
    pid = server.process_id
    assert pid is not None
    acknowledged = run(write_until_the_server_dies(server.url, pid, rows=50))
    assert await_end(pid)
    assert notice_the_end(server)
    assert server.process_id not in {None, pid}
    written = run(read_written(server.url))
    assert len(acknowledged) >= 50
    # One more row than acknowledged may have been committed when the answer was lost.
    assert written[: len(acknowledged)] == acknowledged
    assert len(written) <= len(acknowledged) + 1


def test_stop_after_a_crash_is_quiet_and_start_recovers(server: EmbeddedPostgres) -> None:
    server.start()
    pid = server.process_id
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert await_end(pid)
    server.stop()
    server.start()
    assert server.process_id != pid


def test_crashed_backend_is_survived_by_the_server(server: EmbeddedPostgres) -> None:
    async def crash() -> None:
        connection = await connect(server.url)
        os.kill(await connection.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("SELECT pg_sleep(20)")
        connection.terminate()

    async def answer() -> object:
        try:
            async with connected(server.url) as connection:
                return await connection.fetchval("SELECT 1")
        except (asyncpg.PostgresError, OSError):
            return None

    server.start()
    run(crash())
    assert not server.ensure_running()
    run(until(answer, lambda found: found == 1))


def test_stale_lock_file_with_a_number_in_use_again_is_overcome(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start()
    pid = server.process_id
    assert pid is not None
    lock_file = server.data_directory / "postmaster.pid"
    os.kill(pid, signal.SIGKILL)
    assert await_end(pid)
    # A living process of the very user that the server runs as: PostgreSQL itself would give up.
    other = launch(
        ["/bin/sleep", "60"],
        run_as=RunAs(
            name="owner",
            uid=lock_file.stat().st_uid,
            gid=lock_file.stat().st_gid,
            switch=os.geteuid() == 0,
        ),
        output=sys.__stderr__.buffer,
    )
    try:
        lines = lock_file.read_text().splitlines(keepends=True)
        lock_file.write_text(f"{other.pid}\n" + "".join(lines[1:]))
        assert notice_the_end(server)
    finally:
        other.kill()
        other.wait()


def start_parent(directory: Path) -> tuple[subprocess.Popen[str], int]:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def close(parent: subprocess.Popen[str]) -> None:
    for pipe in (parent.stdin, parent.stdout):
        assert pipe is not None
        pipe.close()
    parent.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_killed_parent_takes_the_server_with_it(
    server: EmbeddedPostgres, tmp_path: Path, number: signal.Signals
) -> None:
    parent, pid = start_parent(tmp_path / "postgres")
    try:
        parent.send_signal(number)
        assert await_end(pid)
    finally:
        close(parent)


def test_next_owner_waits_for_the_server_of_a_killed_one(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    parent, pid = start_parent(tmp_path / "postgres")
    try:
        with pytest.raises(DataDirectoryInUse, match=f"process {parent.pid}"):
            server.start()
        parent.kill()
        parent.wait()
        server.start()
        assert server.process_id != pid
    finally:
        close(parent)


def test_watched_server_ends_when_the_pipe_closes(
    server: EmbeddedPostgres, binaries: PostgresBinaries
) -> None:
    """What stands in for the kernel's help where there is none, tried here as well."""
    server.start()
    data = server.data_directory
    # A copy where the user of the server cannot reach ours.
    exe = Path(f"/proc/{server.process_id}/exe")
    program = str(exe.readlink()) if exe.is_symlink() else binaries.program("postgres")
    server.stop()
    owner = data.stat()
    run_as = RunAs(
        name="owner", uid=owner.st_uid, gid=owner.st_gid, switch=os.geteuid() != owner.st_uid
    )
    with (data.parent.parent / os.devnull).open("ab") as output:
        watcher = launch(
            [
                program,
                "-D",
                str(data),
                "-c",
                "listen_addresses=",
                "-c",
                f"unix_socket_directories={data.parent}/socket",
            ],
            run_as=run_as,
            output=output,
            watch=True,
        )
    try:
        postmaster = run(until_ready(data))
        assert serves(postmaster, data)
        assert watcher.stdin is not None
        watcher.stdin.close()
        assert await_end(postmaster)
        watcher.wait(DEADLINE_MS / 1000)
    finally:
        watcher.kill()


async def until_ready(data: Path) -> int:
    async def pid() -> int:
        postmaster = read_postmaster(data)
        return postmaster.pid if postmaster is not None and postmaster.ready else 0

    return await until(pid, bool)
