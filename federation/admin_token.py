"""A new admin token for whoever lost the one of the first start, straight into the database.

Must not need a control plane that runs: who may write to the database may do everything anyway.
"""

from __future__ import annotations

from federation.database import Database
from federation.services.members.identity import replace_admin_token
from federation.store.engine import create_engine
from federation.store.postgres import PostgresStore


async def made_anew(database: Database) -> str:
    """As ``replace_admin_token``, of a database whose schema is up to date."""
    engine = create_engine(database.url)
    try:
        return await replace_admin_token(PostgresStore(engine))
    finally:
        await engine.dispose()
