"""Statements that every batch of decisions runs: compiled once, given to the driver as they are.

Must not stand for what returns JSON: the driver gives it as text. SQLAlchemy would look each of
them up, bind it and prepare its result anew every time, which costs more than the statement itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ClauseElement, CursorResult
from sqlalchemy.dialects.postgresql import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

DIALECT: Any = asyncpg.dialect


class Prepared:
    """A statement and the names of its parameters, in the order of their places."""

    def __init__(self, statement: ClauseElement) -> None:
        compiled: Any = statement.compile(dialect=DIALECT())
        self._text = str(compiled)
        self._names: tuple[str, ...] = tuple(compiled.positiontup)

    async def execute(
        self, connection: AsyncConnection, given: Mapping[str, Any]
    ) -> CursorResult[*tuple[Any, ...]]:
        """Within the connection's transaction; raises what ``AsyncConnection.execute`` does."""
        places = tuple(given[name] for name in self._names)
        return await connection.exec_driver_sql(self._text, places)
