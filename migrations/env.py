"""Runs migrations on the connection that ``federation.store.migrate`` passes in.

Must not make a connection, nor read a configuration file: there is one way in.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, text

from federation.store.schema import metadata

# Two programs that start at once: the second waits for the first, and then finds nothing to do.
LOCK_NAME = "fedsched migrations"
WAIT_FOR_OTHERS = "120s"
# Nobody else's statements may queue behind a migration that waits for a table.
LOCK_TIMEOUT = "5s"
STATEMENT_TIMEOUT = "300s"


def set_for_session(connection: Connection, setting: str, value: str) -> None:
    connection.execute(
        text("SELECT set_config(:setting, :value, false)"), {"setting": setting, "value": value}
    )


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=True,
        compare_server_default=True,
    )
    set_for_session(connection, "lock_timeout", WAIT_FOR_OTHERS)
    set_for_session(connection, "statement_timeout", WAIT_FOR_OTHERS)
    connection.execute(
        text("SELECT pg_advisory_lock(hashtextextended(:name, 0))"), {"name": LOCK_NAME}
    )
    set_for_session(connection, "lock_timeout", LOCK_TIMEOUT)
    set_for_session(connection, "statement_timeout", STATEMENT_TIMEOUT)
    # The lock and the settings belong to the session, and outlive this transaction.
    connection.commit()
    with context.begin_transaction():
        context.run_migrations()
    # The connection is closed next, which gives the lock back whatever happened.


run(context.config.attributes["connection"])
