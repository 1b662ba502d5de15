"""Records that tie a directory to its database, where root keeps the database in another folder.

Must not make a folder, nor judge who may enter one: `home` does.
"""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from federation.embedded_postgres.errors import PostgresNotStarted
from federation.runtime.files import write_whole

# In the directory: where its database is. In the folder of the database: whose it is.
LOCATION: Final = "database-location.json"
OWNER: Final = "fedsched-directory.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A path, and the id that both records of one database share."""

    id: str
    path: Path


class _StoredRecord(msgspec.Struct, forbid_unknown_fields=True):
    """A record as its file holds it."""

    version: Literal[1]
    id: str
    path: str


def database_folder(directory: Path) -> Path:
    """Return the folder that holds the database of a directory; itself where no record says else.

    Raises PostgresNotStarted where the record cannot be read.
    """
    record = location_of(directory)
    return record.path if record else directory


def location_of(directory: Path) -> Record | None:
    """Return what a directory says of its database. Raises PostgresNotStarted."""
    return _read(directory / LOCATION)


def owner_of(folder: Path) -> Record | None:
    """Return what the folder of a database says of its directory. Raises PostgresNotStarted."""
    return _read(folder / OWNER)


def has_data(folder: Path) -> bool:
    """Return whether a folder holds a finished database."""
    return (folder / "data" / "PG_VERSION").exists()


def require_own(directory: Path, location: Record) -> None:
    """Refuse a database that is gone, or that belongs to another directory.

    A directory that was moved keeps its database: the record there is corrected.
    """
    folder = location.path
    if not folder.is_dir():
        raise PostgresNotStarted(
            f"the database of {directory} was in {folder}, and that folder is gone: put it back, "
            f"or remove {directory / LOCATION} to begin with an empty database"
        )
    owner = owner_of(folder)
    if owner is None:
        # The first start was interrupted between the two records.
        tie(directory, folder, location.id)
        return
    if owner.id != location.id:
        raise PostgresNotStarted(
            f"{directory} names the database in {folder}, which belongs to {owner.path}: "
            f"remove {directory / LOCATION} to begin with an empty database"
        )
    if owner.path == directory:
        return
    original = location_of(owner.path)
    if original is not None and original.id == location.id:
        raise PostgresNotStarted(
            f"{directory} is a copy of {owner.path}, whose database is in {folder}: use that "
            f"directory, or remove {directory / LOCATION} to begin with an empty database"
        )
    logger.warning(
        "the directory of the database was moved",
        extra={"fields": {"from": str(owner.path), "to": str(directory), "database": str(folder)}},
    )
    _write(folder / OWNER, folder, Record(id=location.id, path=directory))


def require_no_other(directory: Path, folder: Path, owner: Record | None) -> None:
    """Refuse a folder that already holds a database, for a directory that names none."""
    whose = f"of {owner.path}" if owner else "of a directory"
    raise PostgresNotStarted(
        f"{folder} holds the database {whose} that is not there any more, and {directory} names "
        f"no database: put that directory back with its {LOCATION}, or remove {folder} to begin "
        "with an empty database"
    )


def tie(directory: Path, folder: Path, identity: str | None = None) -> None:
    """Write both records; of two processes that begin at once the first one's id holds."""
    made = Record(id=identity or secrets.token_hex(8), path=folder)
    path = directory / LOCATION
    if identity is None:
        beside = path.with_name(f".{LOCATION}.{os.getpid()}")
        _write(beside, directory, made)
        try:
            os.link(beside, path)
        except FileExistsError:
            made = location_of(directory) or made
        finally:
            beside.unlink()
    _write(folder / OWNER, folder, Record(id=made.id, path=directory))


def _read(path: Path) -> Record | None:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PostgresNotStarted(f"cannot read {path}: {error.strerror}") from error
    try:
        stored = msgspec.json.decode(text, type=_StoredRecord)
    except msgspec.DecodeError as error:
        raise PostgresNotStarted(
            f"{path} is no record of where a database is, put back the file as it was: {error}"
        ) from error
    # Relative where both lie side by side, and move together.
    place = Path(os.path.normpath(path.parent / stored.path))
    return Record(id=stored.id, path=place)


def _write(path: Path, folder: Path, record: Record) -> None:
    are_neighbours = record.path.parent == folder.parent
    written = Path("..", record.path.name) if are_neighbours else record.path
    stored = _StoredRecord(version=1, id=record.id, path=str(written))
    write_whole(path, msgspec.json.encode(stored) + b"\n", mode=0o600)
