"""Bodies that decisions share, by name: the fleets and profiles that they were made on.

Must not know what is in a body. Each is written once, and marked as used now and then.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final

from sqlalchemy import LargeBinary, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.packed_inputs import SharedBodies
from federation.store.decision_tables import decision_input as table
from federation.store.lists import is_one_of
from federation.store.statements import named

# For how long what was written is not written again, nor marked as used. After a restore it may be
# missing so long.
KNOWN_SECONDS: Final = 600.0
# What is in use was marked as used within this time.
USED_SECONDS: Final = 3600.0
_MOST_KNOWN: Final = 10_000

# In ascending order: two that write the same wait for each other, and never in a circle.
PUT = text("""
    INSERT /* fedsched:decision_inputs.put */ INTO decision_input (name, body)
    SELECT name, body FROM unnest(:names, :bodies) AS given (name, body) ORDER BY name
    ON CONFLICT (name) DO UPDATE SET used_at = now()
    WHERE decision_input.used_at < now() - interval '40 min'
""").bindparams(
    bindparam("names", type_=ARRAY(LargeBinary)), bindparam("bodies", type_=ARRAY(LargeBinary))
)


class WrittenBodies:
    """Names of bodies that this process wrote lately, in transactions that were committed."""

    def __init__(self) -> None:
        self._written_at: dict[bytes, float] = {}

    def has(self, name: bytes) -> bool:
        return time.monotonic() - self._written_at.get(name, -KNOWN_SECONDS) < KNOWN_SECONDS

    def add(self, names: Collection[bytes]) -> None:
        if len(self._written_at) + len(names) > _MOST_KNOWN:
            self._written_at.clear()
        self._written_at |= dict.fromkeys(names, time.monotonic())


class SharedBodyStatements:
    """Puts bodies within one transaction, and finds them."""

    def __init__(self, connection: AsyncConnection, written: WrittenBodies) -> None:
        self._connection = connection
        self._written = written
        self._put: set[bytes] = set()

    async def put(self, shared: Iterable[SharedBodies]) -> None:
        """Keeps those that this process did not write lately."""
        bodies: dict[bytes, bytes] = {}
        for each in shared:
            if each.name not in self._put and not self._written.has(each.name):
                self._put.add(each.name)
                bodies |= each.bodies
        if bodies:
            given = {"names": list(bodies), "bodies": list(bodies.values())}
            await self._connection.execute(PUT, given)

    def were_committed(self) -> None:
        if self._put:
            self._written.add(self._put)

    async def find(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """What ``decision_ports.Decisions.shared`` says."""
        query = select(table.c.name, table.c.body).where(is_one_of(table.c.name, names))
        return {
            row.name: row.body
            for row in await self._connection.execute(named("decision_inputs.find", query))
        }

    async def prune(self, unused_seconds: float, limit: int) -> int:
        """What ``decision_ports.Decisions.prune_shared`` says."""
        before = func.now() - timedelta(seconds=unused_seconds + USED_SECONDS)
        old = select(table.c.name).where(table.c.used_at < before).limit(limit)
        gone = delete(table).where(table.c.name.in_(old)).returning(table.c.name)
        return len((await self._connection.execute(named("decision_inputs.prune", gone))).all())
