"""Runs migrations on the connection that ``federation.store.migrate`` passes in.

Must not make a connection, nor read a configuration file: there is one way in. Must not lock:
whoever passes a connection does.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from federation.store.schema import metadata


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=True,
        version_table_schema=context.config.attributes["schema"],
        compare_server_default=True,
    )
    with context.begin_transaction():
        context.run_migrations()


run(context.config.attributes["connection"])
