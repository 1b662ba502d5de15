"""The embedded PostgreSQL of root: it runs as another user, in a folder of its own."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.embedded_postgres import home as postgres_home
from federation.embedded_postgres.binaries import PostgresBinaries, find_binaries
from federation.embedded_postgres.errors import PostgresNotStarted
from federation.embedded_postgres.home import copy_for_everybody, prepare_home
from federation.embedded_postgres.location import LOCATION, OWNER, database_folder
from federation.embedded_postgres.server import EmbeddedPostgres
from lab.databases import connect, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="is about being started as root")


@pytest.fixture
def binaries() -> PostgresBinaries:
    return find_binaries(None, "")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Our own /var/tmp, open to everybody; a short path outside pytest's private folders."""
    folder = Path("/var/tmp") / f"fedsched-test-{os.getpid()}"  # noqa: S108 - our own folder in it
    folder.mkdir(mode=0o755)
    folder.chmod(0o1777)
    monkeypatch.setattr(postgres_home, "ROOT_PLACE", folder)
    yield folder
    shutil.rmtree(folder)


def permissions(*folders: Path) -> dict[Path, tuple[int, int, int]]:
    found = {}
    for folder in folders:
        for path in (folder, *folder.parents):
            status = path.stat()
            found[path] = (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    return found


async def select_one(url: str) -> object:
    connection = await connect(url)
    try:
        return await connection.fetchval("SELECT 1")
    finally:
        await connection.close()


def test_server_runs_as_an_unprivileged_user_and_touches_no_permissions(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    before = permissions(closed, binaries.bin_directory, place)
    with EmbeddedPostgres(binaries, closed / "postgres") as server:
        status = Path(f"/proc/{server.process_id}/status").read_text()
        uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
        groups = next(line for line in status.splitlines() if line.startswith("Groups:")).split()
        assert "0" not in [*uids, *groups[1:]]
        assert server.data_directory.is_relative_to(place)
        home = server.data_directory.parent.stat()
        assert (stat.S_IMODE(home.st_mode), home.st_uid) == (0o700, int(uids[0]))
        assert run(select_one(server.url)) == 1
    assert permissions(closed, binaries.bin_directory, place) == before


def closed_copy(binaries: PostgresBinaries, closed: Path) -> Path:
    """The programs in a folder that other users cannot enter."""
    closed.mkdir(mode=0o700)
    package = binaries.bin_directory.parent.parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, closed / folder.name, symlinks=True)
    return closed / binaries.bin_directory.relative_to(package.parent)


def test_unreachable_wheel_is_copied_once_and_for_reading_only(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    closed = tmp_path / "venv"
    hidden = PostgresBinaries(
        bin_directory=closed_copy(binaries, closed),
        version=binaries.version,
        origin=binaries.origin,
    )
    server = EmbeddedPostgres(hidden, tmp_path / "postgres")
    with server:
        assert run(select_one(server.url)) == 1
        program = Path(f"/proc/{server.process_id}/exe").readlink()
    copy = place / f"fedsched-postgresql-{binaries.version}"
    assert program.is_relative_to(copy)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert all(
        path.lstat().st_uid == 0 and (path.is_symlink() or not path.stat().st_mode & 0o022)
        for path in copy.rglob("*")
    )
    made_at = copy.stat().st_ctime_ns
    with server:
        assert copy.stat().st_ctime_ns == made_at
    assert [path.name for path in place.glob("fedsched-postgresql*")] == [copy.name]


def test_copy_that_others_may_change_is_refused(place: Path, binaries: PostgresBinaries) -> None:
    target = place / f"fedsched-postgresql-{binaries.version}"
    target.mkdir()
    target.chmod(0o777)
    with pytest.raises(PostgresNotStarted, match="only root can change"):
        copy_for_everybody(binaries)


@pytest.mark.parametrize("trap", ["symlink", "open folder", "somebody else's"])
def test_prepared_folder_of_somebody_else_is_refused(
    place: Path, tmp_path: Path, trap: str
) -> None:
    home = prepare_home(tmp_path / "postgres").private
    shutil.rmtree(home)
    if trap == "symlink":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        home.symlink_to(tmp_path / "elsewhere")
    else:
        home.mkdir(mode=0o700)
        if trap == "open folder":
            home.chmod(0o777)
        os.chown(home, *((65534, 65534) if trap == "open folder" else (12345, 12345)))
    with pytest.raises(PostgresNotStarted, match=r"only .* can enter"):
        prepare_home(tmp_path / "postgres")


def test_without_an_unprivileged_user_says_what_to_do(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_home, "UNPRIVILEGED", ("nobody-of-that-name",))
    with pytest.raises(PostgresNotStarted, match="refuses to run as root"):
        prepare_home(tmp_path / "postgres")


def test_data_made_by_another_unprivileged_user_stays_with_that_user(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_home, "UNPRIVILEGED", ("nobody",))
    first = prepare_home(tmp_path / "postgres")
    monkeypatch.setattr(postgres_home, "UNPRIVILEGED", ("daemon", "nobody"))
    assert prepare_home(tmp_path / "postgres").run_as == first.run_as


@pytest.fixture
def open_folder(place: Path) -> Path:
    """A folder that everybody can enter, as /var/lib is."""
    folder = place / "lib"
    folder.mkdir(mode=0o755)
    return folder


async def write_row(url: str) -> None:
    connection = await connect(url)
    try:
        await connection.execute("CREATE TABLE kept AS SELECT 7 AS value")
    finally:
        await connection.close()


async def read_row(url: str) -> object:
    connection = await connect(url)
    try:
        return await connection.fetchval("SELECT value FROM kept")
    finally:
        await connection.close()


def fill(binaries: PostgresBinaries, directory: Path) -> Path:
    """Start a server, write a row, and return the folder of its database."""
    with EmbeddedPostgres(binaries, directory) as server:
        run(write_row(server.url))
        return server.data_directory.parent


def row_in(binaries: PostgresBinaries, directory: Path) -> object:
    with EmbeddedPostgres(binaries, directory) as server:
        return run(read_row(server.url))


def test_the_database_lies_beside_a_directory_that_others_can_enter(
    open_folder: Path, binaries: PostgresBinaries
) -> None:
    state = open_folder / "state"
    state.mkdir(mode=0o711)
    folder = fill(binaries, state / "postgres")
    assert folder == state / "postgres-database"
    # Moved or copied as a whole, it is a fleet of its own.
    state.rename(open_folder / "moved")
    assert row_in(binaries, open_folder / "moved" / "postgres") == 7
    shutil.copytree(open_folder / "moved", open_folder / "copy", symlinks=True)
    owner = (open_folder / "moved" / "postgres-database").stat()
    for path in [*(open_folder / "copy" / "postgres-database").rglob("*")]:
        os.lchown(path, owner.st_uid, owner.st_gid)
    os.chown(open_folder / "copy" / "postgres-database", owner.st_uid, owner.st_gid)
    (open_folder / "copy" / "postgres-database").chmod(0o700)
    assert row_in(binaries, open_folder / "copy" / "postgres") == 7
    assert database_folder(open_folder / "copy" / "postgres").parent == open_folder / "copy"


def test_a_directory_that_was_closed_says_what_to_open(open_folder: Path) -> None:
    state = open_folder / "state"
    state.mkdir(mode=0o711)
    prepare_home(state / "postgres")
    state.chmod(0o700)
    with pytest.raises(PostgresNotStarted, match=r"state, which the user .* cannot enter any more"):
        prepare_home(state / "postgres")


def test_a_directory_that_is_moved_keeps_the_database_that_lies_elsewhere(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    folder = fill(binaries, tmp_path / "one" / "postgres")
    assert folder.parent == place
    (tmp_path / "one").rename(tmp_path / "two")
    assert database_folder(tmp_path / "two" / "postgres") == folder
    assert row_in(binaries, tmp_path / "two" / "postgres") == 7
    # The name of before is free for another one.
    assert fill(binaries, tmp_path / "one" / "postgres") != folder
    assert row_in(binaries, tmp_path / "two" / "postgres") == 7


def test_a_copy_of_a_directory_is_refused_while_the_original_is_there(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    fill(binaries, tmp_path / "one" / "postgres")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with pytest.raises(PostgresNotStarted, match=r"copy/postgres is a copy of .*one/postgres"):
        prepare_home(tmp_path / "copy" / "postgres")
    (tmp_path / "copy" / "postgres" / LOCATION).unlink()
    with EmbeddedPostgres(binaries, tmp_path / "copy" / "postgres") as server:
        assert run(select_one(server.url)) == 1
    assert row_in(binaries, tmp_path / "one" / "postgres") == 7


def test_a_removed_directory_does_not_bring_its_old_database_back(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    folder = fill(binaries, tmp_path / "one" / "postgres")
    shutil.rmtree(tmp_path / "one")
    with pytest.raises(PostgresNotStarted, match=f"remove {folder} to begin with an empty"):
        prepare_home(tmp_path / "one" / "postgres")
    shutil.rmtree(folder)
    assert fill(binaries, tmp_path / "one" / "postgres") == folder


def test_a_database_that_is_gone_is_not_begun_anew(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    folder = fill(binaries, tmp_path / "one" / "postgres")
    shutil.rmtree(folder)
    with pytest.raises(PostgresNotStarted, match=f"was in {folder}, and that folder is gone"):
        prepare_home(tmp_path / "one" / "postgres")


def test_a_database_of_a_release_without_records_is_taken_on(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    folder = fill(binaries, tmp_path / "one" / "postgres")
    (folder / OWNER).unlink()
    (tmp_path / "one" / "postgres" / LOCATION).unlink()
    assert row_in(binaries, tmp_path / "one" / "postgres") == 7
    assert database_folder(tmp_path / "one" / "postgres") == folder


def test_a_temporary_folder_that_ends_with_the_service_is_refused(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"40 30 8:1 /var/tmp/systemd-private-1a-fedsched/tmp {place} rw - ext4 a b\n")
    monkeypatch.setattr(postgres_home, "MOUNTS", mounts)
    with pytest.raises(PostgresNotStarted, match="PrivateTmp"):
        prepare_home(tmp_path / "postgres")


def test_a_directory_of_another_user_is_refused(place: Path, tmp_path: Path) -> None:
    data = tmp_path / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("18\n")
    os.chown(tmp_path / "postgres", 12345, 12345)
    with pytest.raises(PostgresNotStarted, match="start as user 12345"):
        prepare_home(tmp_path / "postgres")


def test_programs_that_are_named_are_copied_too(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    """FEDERATION_POSTGRES_BIN names programs in the same way."""
    named = find_binaries(closed_copy(binaries, tmp_path / "closed"), "")
    assert named.origin == "given"
    with EmbeddedPostgres(named, tmp_path / "postgres") as server:
        assert run(select_one(server.url)) == 1
