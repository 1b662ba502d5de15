"""The store on PostgreSQL: transactions, and the statements that run in them.

Must not retry: who asked knows whether that is right.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncTransaction

from federation.model.errors import Unavailable
from federation.store.bindings import BindingStatements
from federation.store.clusters import ClusterStatements
from federation.store.credentials import CredentialStatements
from federation.store.decisions import DecisionStatements
from federation.store.duties import DutyStatements
from federation.store.engine import OUTCOME_UNKNOWN, translated
from federation.store.histories import HistoryStatements
from federation.store.journal import JournalStatements
from federation.store.presences import PresenceStatements, ReplicaStatements
from federation.store.previews import PreviewStatements
from federation.store.reports import ReportStatements
from federation.store.requests import RequestStatements
from federation.store.reservations import ReservationStatements


class PostgresTransaction:
    """Implements ``ports.Transaction`` on one connection."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.credentials = CredentialStatements(connection)
        self.clusters = ClusterStatements(connection)
        self.reports = ReportStatements(connection)
        self.bindings = BindingStatements(connection)
        self.decisions = DecisionStatements(connection)
        self.previews = PreviewStatements(connection)
        self.journal = JournalStatements(connection)
        self.reservations = ReservationStatements(connection)
        self.requests = RequestStatements(connection)
        self.duties = DutyStatements(connection)
        self.presences = PresenceStatements(connection)
        self.replicas = ReplicaStatements(connection)
        self.histories = HistoryStatements(connection)


class PostgresStore:
    """Implements ``ports.Store``; the engine is closed by whoever made it.

    ``announce`` is called after every commit that appended to the journal: readers wake up then.
    """

    def __init__(self, engine: AsyncEngine, announce: Callable[[], None] | None = None) -> None:
        self._engine = engine
        self._announce = announce
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        async with translated(), self._engine.connect() as connection:
            begun = await connection.begin()
            transaction = PostgresTransaction(connection)
            try:
                yield transaction
            except BaseException:
                await begun.rollback()
                raise
            await _commit(begun)
        if self._announce is not None and transaction.journal.has_appended:
            self._announce()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[PostgresTransaction]:
        async with translated(), self._reading.connect() as connection:
            yield PostgresTransaction(connection)


async def _commit(begun: AsyncTransaction) -> None:
    try:
        async with translated():
            await begun.commit()
    except Unavailable as error:
        raise Unavailable(OUTCOME_UNKNOWN) from error
