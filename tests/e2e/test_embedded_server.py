"""The embedded PostgreSQL: started, stopped, discarded, and refused with its last words."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from federation.embedded_postgres.binaries import (
    SYSTEM_PLACES,
    PostgresBinaries,
    find_binaries,
    wheel_directories,
)
from federation.embedded_postgres.home import PostgresNotStarted
from federation.embedded_postgres.server import (
    DataDirectoryInUse,
    EmbeddedPostgres,
    WrongMajorVersion,
)
from lab.databases import connect, run

Start = Callable[..., EmbeddedPostgres]


@pytest.fixture(scope="session")
def binaries() -> PostgresBinaries:
    return find_binaries(None, os.environ.get("PATH", ""))


@pytest.fixture
def build(binaries: PostgresBinaries, tmp_path: Path) -> Iterator[Start]:
    made: list[EmbeddedPostgres] = []

    def new(directory: Path = tmp_path / "postgres", **options: object) -> EmbeddedPostgres:
        server = EmbeddedPostgres(options.pop("binaries", binaries), directory, **options)
        made.append(server)
        return server

    yield new
    for server in reversed(made):
        server.discard()


async def ask(url: str, *statements: str) -> object:
    connection = await connect(url)
    try:
        for statement in statements[:-1]:
            await connection.execute(statement)
        return await connection.fetchval(statements[-1])
    finally:
        await connection.close()


def test_start_takes_connections_and_data_outlives_stop(build: Start) -> None:
    with build() as server:
        run(ask(server.url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7) RETURNING n"))
    assert not server.is_alive()
    with server:
        assert run(ask(server.url, "SELECT n FROM kept")) == 7


def test_start_twice_keeps_the_one_server(build: Start) -> None:
    server = build()
    server.start()
    first = server.process_id
    server.start()
    assert server.process_id == first
    assert not server.ensure_running()


def test_stop_and_discard_without_start_do_nothing(build: Start) -> None:
    server = build()
    server.stop()
    server.discard()
    with pytest.raises(PostgresNotStarted, match="has not been started"):
        _ = server.url


def test_discard_leaves_nothing_behind(build: Start, tmp_path: Path) -> None:
    server = build()
    server.start()
    data = server.data_directory
    server.discard()
    assert not data.exists()
    assert not data.parent.exists() or data.parent == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_discard_removes_what_an_interrupted_initdb_left(build: Start, tmp_path: Path) -> None:
    server = build()
    server.start()
    unfinished = server.data_directory.with_name("data.new")
    server.stop()
    unfinished.mkdir()
    (unfinished / "PG_VERSION").touch()
    server.discard()
    assert not unfinished.exists()
    assert list(tmp_path.iterdir()) == []


def test_server_never_listens_on_tcp_and_syncs_to_disk(build: Start) -> None:
    with build(settings={"listen_addresses": "*"}) as server:
        assert run(ask(server.url, "SHOW listen_addresses")) == ""
        assert run(ask(server.url, "SHOW fsync")) == "on"
        assert run(ask(server.url, "SELECT inet_server_addr()")) is None
        sockets = {
            str(descriptor.readlink())
            for descriptor in Path(f"/proc/{server.process_id}/fd").iterdir()
        }
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert sockets.isdisjoint(f"socket:[{fields[9]}]" for fields in listening)


def test_database_is_utf8_and_sorts_by_bytes(build: Start) -> None:
    with build() as server:
        assert run(ask(server.url, "SHOW server_encoding")) == "UTF8"
        assert run(ask(server.url, "SELECT 'a' > 'B'")) is True


def test_long_directory_gets_a_short_socket(build: Start, tmp_path: Path) -> None:
    with build(tmp_path / ("long-" * 40) / "a, b") as server:
        assert run(ask(server.url, "SELECT 1")) == 1


def test_two_servers_on_one_directory_name_the_first_process(build: Start) -> None:
    first, second = build(), build()
    first.start()
    with pytest.raises(DataDirectoryInUse, match=f"process {os.getpid()}") as refused:
        second.start()
    assert refused.value.pid == os.getpid()
    assert first.is_alive()
    first.stop()
    second.start()


def test_server_started_from_a_thread_outlives_the_thread(build: Start) -> None:
    server = build()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    assert run(ask(server.url, "SELECT 1")) == 1


def test_data_of_another_major_version_is_refused(build: Start) -> None:
    server = build()
    server.start()
    version_file = server.data_directory / "PG_VERSION"
    server.stop()
    version_file.write_text("12\n")
    with pytest.raises(WrongMajorVersion, match="made by PostgreSQL 12"):
        server.start()


def test_failing_initdb_shows_its_last_words(build: Start, tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    for name in ("postgres", "initdb"):
        (broken / name).write_text(
            "#!/bin/sh\n"
            """[ "$1" = --version ] && exec echo 'postgres (PostgreSQL) 18.4'\n"""
            "echo could not write: No space left on device\nexit 1\n"
        )
        (broken / name).chmod(0o755)
    # The server's user must get there; how deep pytest goes depends on how many workers it has.
    for folder in (tmp_path, *tmp_path.parents):
        if folder == Path(tempfile.gettempdir()):
            break
        folder.chmod(0o755)
    programs = find_binaries(broken, "")
    with pytest.raises(PostgresNotStarted, match="No space left on device"):
        build(tmp_path / "postgres", binaries=programs).start()


def test_failing_server_shows_its_last_words(build: Start) -> None:
    server = build(settings={"shared_buffers": "nonsense"})
    with pytest.raises(PostgresNotStarted, match='invalid value for parameter "shared_buffers"'):
        server.start()
    assert not server.is_alive()


def test_deadline_for_the_start_holds(build: Start) -> None:
    server = build()
    server.start()
    server.stop()
    with pytest.raises(PostgresNotStarted, match="within 0 s"):
        build(start_seconds=0.0).start()


@pytest.mark.parametrize(
    "bin_directory",
    [
        *wheel_directories(),
        *(found for root, pattern in SYSTEM_PLACES for found in sorted(root.glob(pattern))),
    ],
    ids=lambda directory: directory.parent.name,
)
def test_every_installed_version_works(build: Start, bin_directory: Path) -> None:
    found = find_binaries(bin_directory, "")
    with build(binaries=found) as server:
        version = run(ask(server.url, "SHOW server_version"))
        assert str(version).startswith(found.version)
