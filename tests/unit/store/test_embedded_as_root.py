from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from federation.embedded_postgres import home as postgres_home
from federation.embedded_postgres.binaries import PostgresBinaries, find_binaries
from federation.embedded_postgres.home import PostgresNotStarted, copy_for_everybody, prepare_home
from federation.embedded_postgres.server import EmbeddedPostgres
from tests.databases import connect, run

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


def test_unreachable_wheel_is_copied_once_and_for_reading_only(
    place: Path, binaries: PostgresBinaries, tmp_path: Path
) -> None:
    closed = tmp_path / "venv"
    closed.mkdir(mode=0o700)
    package = binaries.bin_directory.parent.parent
    for folder in (package, package.with_name(f"{package.name}.libs")):
        if folder.exists():
            shutil.copytree(folder, closed / folder.name, symlinks=True)
    hidden = PostgresBinaries(
        bin_directory=closed / binaries.bin_directory.relative_to(package.parent),
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
