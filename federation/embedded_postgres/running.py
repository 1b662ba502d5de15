"""The address of an embedded PostgreSQL that another process runs.

Must not start, stop or change anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from federation.embedded_postgres.location import database_folder
from federation.embedded_postgres.process import read_postmaster, serves
from federation.embedded_postgres.server import DATABASE, USER

# Of a server's postmaster.pid: its port, and the folder of its socket.
PORT_LINE: Final = 3
SOCKETS_LINE: Final = 4


def running_url(directory: Path) -> str | None:
    """Return the URL of the server of a directory, as another process runs it; None where none
    does. Raises PostgresNotStarted where the directory does not say where its database is.
    """
    data = database_folder(directory) / "data"
    try:
        postmaster = read_postmaster(data)
        if postmaster is None or not serves(postmaster.pid, data):
            return None
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    if len(lines) <= SOCKETS_LINE:
        return None
    query = {"host": lines[SOCKETS_LINE].strip(), "port": lines[PORT_LINE].strip()}
    return f"postgresql+asyncpg://{USER}@/{DATABASE}?{urlencode(query, safe='/')}"
