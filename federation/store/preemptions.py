"""How many replicas were preempted lately: rows, and statements over them.

Must not decide how many may be.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import BigInteger, Text, bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

LOCK = text(
    "SELECT /* fedsched:preemptions.lock */ "
    "pg_advisory_xact_lock(hashtextextended('fedsched preemption', 0))"
)
# An index serves a subquery, which is asked once, and not a function that changes with each row.
# Whoever holds the lock sees all that was added before, at earlier instants.
ADD = text("""
    INSERT /* fedsched:preemptions.add */ INTO preemption (namespace, replicas)
    SELECT * FROM unnest(:namespaces, :replicas)
""").bindparams(
    bindparam("namespaces", type_=ARRAY(Text)), bindparam("replicas", type_=ARRAY(BigInteger))
)
SPENT = text("""
    SELECT /* fedsched:preemptions.spent */
        namespace, sum(replicas)::bigint AS replicas FROM preemption
    WHERE at > (SELECT clock_timestamp()) - interval '1 minute' GROUP BY namespace
""")
PRUNE = text(
    "DELETE /* fedsched:preemptions.prune */ "
    "FROM preemption WHERE at < (SELECT clock_timestamp()) - interval '1 hour'"
)


class PreemptionStatements:
    """Implements ``journal_ports.Preemptions`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def spent(self) -> Mapping[str, int]:
        rows = await self._connection.execute(SPENT)
        return {row.namespace: row.replicas for row in rows}

    async def add(self, replicas: Mapping[str, int]) -> Mapping[str, int]:
        await self._connection.execute(LOCK)
        await self._connection.execute(PRUNE)
        given = {"namespaces": list(replicas), "replicas": list(replicas.values())}
        await self._connection.execute(ADD, given)
        return await self.spent()
