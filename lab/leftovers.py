"""Databases of programs that tests have started: gone with the folders that tests make.

As root a server's data lies in a folder of its own that is named after the one given: once that is
gone nobody finds it. Must not touch what a process that lives uses.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from federation.embedded_postgres.errors import PostgresNotStarted
from lab.servers import embedded_in

SESSION: Final = re.compile(r"pytest-\d+")


def discard_databases(folder: Path) -> None:
    """Those anywhere below it that nobody uses."""
    for lock in [*folder.rglob("postgres.lock")]:
        with suppress(PostgresNotStarted):
            embedded_in(lock.parent).discard()


def discard_those_of_the_dead(ours: Path) -> None:
    """Of tests that were killed: pytest keeps their folders beside ``ours`` for a while."""
    session = next((each for each in (ours, ours.parent) if SESSION.fullmatch(each.name)), None)
    for other in session.parent.iterdir() if session else ():
        if SESSION.fullmatch(other.name) and other != session and not _is_alive(other):
            discard_databases(other)


def _is_alive(session: Path) -> bool:
    """By pytest's own lock, which it removes when it ends."""
    try:
        pid = int((session / ".lock").read_text(encoding="ascii"))
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True
    return Path(f"/proc/{pid}").exists()
