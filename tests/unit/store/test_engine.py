"""What the driver's errors mean to callers."""

from __future__ import annotations

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from federation.model.errors import Unavailable
from federation.store.engine import translated

# What asyncpg says when a connection ends between two messages of one statement.
BETWEEN = asyncpg.InternalClientError("cannot switch to state 12; another operation is in progress")


def wrapped(error: Exception) -> DBAPIError:
    """As SQLAlchemy passes a driver's error on."""
    adapted = Exception(str(error))
    adapted.__cause__ = error
    return DBAPIError("SELECT 1", {}, adapted)


@pytest.mark.parametrize(
    "error", [OSError("refused"), asyncpg.InterfaceError("closed"), BETWEEN, wrapped(BETWEEN)]
)
async def test_a_connection_that_ends_is_nobodys_fault(error: Exception) -> None:
    with pytest.raises(Unavailable, match="cannot be reached now"):
        async with translated():
            raise error


async def test_what_nobody_expected_is_passed_on() -> None:
    with pytest.raises(DBAPIError):
        async with translated():
            raise wrapped(ValueError("a fault of ours"))
