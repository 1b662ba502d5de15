"""The admin token: the file of the first start, and another for whoever lost it.

Must not need a control plane that runs: who may write to the database may do everything anyway.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

from federation.database import Database
from federation.model.errors import PreconditionFailed
from federation.runtime.files import make_private_directory, write_whole
from federation.services.members.identity import Identity, replace_admin_token
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore

logger = logging.getLogger(__name__)


async def keep_admin_token(identity: Identity, path: Path) -> None:
    """Make the admin token at the first start; its file is the only place that has it.

    Raises PreconditionFailed, and Unavailable.
    """

    def write(token: str) -> None:
        try:
            write_whole(path, f"{token}\n".encode(), mode=0o600)
        except OSError as error:
            raise PreconditionFailed(f"cannot write {path}: {error.strerror or error}") from error

    make_private_directory(path.parent)
    _tell(path, made=await identity.ensure_admin_token(write))


def _tell(path: Path, *, made: bool) -> None:
    fields = {"path": str(path)}
    if made:
        logger.info("admin token written", extra={"fields": fields})
    elif not path.exists():
        text = "admin token was made by an earlier start, and is not here"
        logger.warning(text, extra={"fields": fields})


async def made_anew(database: Database) -> str:
    """As ``replace_admin_token``, of a database whose schema is up to date; for the user of the
    system who runs this.
    """
    engine = create_engine(database.url, "admin-token")
    try:
        actor = f"user {os.getuid()} of {socket.gethostname()}"
        return await replace_admin_token(PostgresStore(engine), actor)
    finally:
        await engine.dispose()
