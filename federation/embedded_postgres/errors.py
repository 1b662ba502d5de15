"""Errors of the embedded PostgreSQL.

Must not know how they come about.
"""

from __future__ import annotations

from federation.model.errors import Unavailable


class PostgresNotStarted(Unavailable):
    """The embedded PostgreSQL could not be started."""

    reason = "POSTGRES_NOT_STARTED"
