"""The store on PostgreSQL: transactions, and the statements that run in them.

Must not retry: who asked knows whether that is right.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncTransaction

from federation.model.errors import Unavailable
from federation.services.audited_calls import current_call
from federation.store.access_tokens import AccessTokenStatements
from federation.store.audit import AuditStatements
from federation.store.bindings import BindingStatements
from federation.store.clusters import ClusterStatements
from federation.store.credentials import CredentialStatements
from federation.store.decision_inputs import SharedBodyStatements, WrittenBodies
from federation.store.decisions import DecisionStatements, PreviewStatements
from federation.store.duties import DutyStatements
from federation.store.engine import IMPAIRED, OUTCOME_UNKNOWN, translated
from federation.store.failover import FailoverStatements
from federation.store.floors import HeldFloors
from federation.store.histories import HistoryStatements
from federation.store.journal import JournalStatements
from federation.store.kept_reports import KeptReportStatements
from federation.store.namespace_quotas import NamespaceQuotaStatements
from federation.store.partitions import PartitionStatements
from federation.store.plans import PlanStatements
from federation.store.preemptions import PreemptionStatements
from federation.store.presences import PresenceStatements, ReplicaStatements
from federation.store.reports import ReportStatements
from federation.store.requests import RequestStatements
from federation.store.reservations import ReservationStatements
from federation.store.waiting import WaitingStatements

# A page that cannot be compressed: it needs room in a file.
TAKE_ROOM = text("""
    INSERT /* fedsched:store.take_room */ INTO journal (floor, kind, body)
    SELECT 0, '', string_agg(uuid_send(gen_random_uuid()), '') FROM generate_series(1, 4096)
""")

logger = logging.getLogger(__name__)


class PostgresTransaction:
    """Implements ``ports.Transaction`` on one connection; makes what is asked for."""

    def __init__(self, connection: AsyncConnection, written: WrittenBodies) -> None:
        self._connection = connection
        self._floors = HeldFloors()
        self.bodies = SharedBodyStatements(connection, written)

    @cached_property
    def credentials(self) -> CredentialStatements:
        return CredentialStatements(self._connection)

    @cached_property
    def tokens(self) -> AccessTokenStatements:
        return AccessTokenStatements(self._connection)

    @cached_property
    def audit(self) -> AuditStatements:
        return AuditStatements(self._connection, self._floors)

    @cached_property
    def quotas(self) -> NamespaceQuotaStatements:
        return NamespaceQuotaStatements(self._connection)

    @cached_property
    def clusters(self) -> ClusterStatements:
        return ClusterStatements(self._connection)

    @cached_property
    def reports(self) -> ReportStatements:
        return ReportStatements(self._connection)

    @cached_property
    def kept_reports(self) -> KeptReportStatements:
        return KeptReportStatements(self._connection)

    @cached_property
    def bindings(self) -> BindingStatements:
        return BindingStatements(self._connection)

    @cached_property
    def decisions(self) -> DecisionStatements:
        return DecisionStatements(self._connection, self.bodies, self._floors)

    @cached_property
    def previews(self) -> PreviewStatements:
        return PreviewStatements(self._connection, self.bodies)

    @cached_property
    def journal(self) -> JournalStatements:
        return JournalStatements(self._connection, self._floors)

    @cached_property
    def reservations(self) -> ReservationStatements:
        return ReservationStatements(self._connection)

    @cached_property
    def preemptions(self) -> PreemptionStatements:
        return PreemptionStatements(self._connection)

    @cached_property
    def requests(self) -> RequestStatements:
        return RequestStatements(self._connection)

    @cached_property
    def duties(self) -> DutyStatements:
        return DutyStatements(self._connection)

    @cached_property
    def presences(self) -> PresenceStatements:
        return PresenceStatements(self._connection)

    @cached_property
    def replicas(self) -> ReplicaStatements:
        return ReplicaStatements(self._connection)

    @cached_property
    def failover(self) -> FailoverStatements:
        return FailoverStatements(self._connection)

    @cached_property
    def histories(self) -> HistoryStatements:
        return HistoryStatements(self._connection)

    @cached_property
    def plans(self) -> PlanStatements:
        return PlanStatements(self._connection)

    @cached_property
    def waiting(self) -> WaitingStatements:
        return WaitingStatements(self._connection)

    @cached_property
    def partitions(self) -> PartitionStatements:
        return PartitionStatements(self._connection)


class PostgresStore:
    """Implements ``ports.Store``; the engine is closed by whoever made it.

    ``announce`` is called after every commit that appended to the journal: readers wake up then.
    The first transaction of a call that changes something records it in the audit.
    """

    def __init__(self, engine: AsyncEngine, announce: Callable[[], None] | None = None) -> None:
        self.impairment = Impairment()
        self._engine = engine
        self._announce = announce
        self._written = WrittenBodies()
        self._reading = engine.execution_options(isolation_level="AUTOCOMMIT")

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[PostgresTransaction]:
        async with self._noted(), self._engine.connect() as connection:
            begun = await connection.begin()
            transaction = PostgresTransaction(connection, self._written)
            call = current_call()
            if call is not None and (call.is_decided or call.is_recorded):
                call = None
            try:
                yield transaction
                if call is not None:
                    await transaction.audit.add([call.record()])
            except BaseException:
                await begun.rollback()
                raise
            await _commit(begun)
        if call is not None:
            call.is_recorded = True
        transaction.bodies.were_committed()
        if transaction.journal.has_appended:
            self.impairment.is_over()
            if self._announce is not None:
                self._announce()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[PostgresTransaction]:
        async with self._noted(), self._reading.connect() as connection:
            yield PostgresTransaction(connection, self._written)

    async def check(self) -> None:
        """Raises Unavailable, saying why, when the store cannot be used in full."""
        async with self.reading() as read:
            await read.histories.get()
        if self.impairment.why:
            async with self._noted(), self._engine.connect() as connection:
                # Room that is given back when the connection is closed without a commit.
                await connection.execute(TAKE_ROOM)
            self.impairment.is_over()

    @asynccontextmanager
    async def _noted(self) -> AsyncIterator[None]:
        try:
            async with translated():
                yield
        except Unavailable as error:
            if error.reason == IMPAIRED:
                self.impairment.is_met(error.message)
            raise


class Impairment:
    """Why the database is of no use although it can be reached; logged once, as long as it lasts.

    ``why`` is empty when nothing is known to be wrong.
    """

    def __init__(self) -> None:
        self.why = ""

    def is_met(self, why: str) -> None:
        if why != self.why:
            self.why = why
            logger.error("the database cannot be used", extra={"fields": {"why": why}})

    def is_over(self) -> None:
        if self.why:
            self.why = ""
            logger.info("the database can be used again")


async def _commit(begun: AsyncTransaction) -> None:
    try:
        async with translated():
            await begun.commit()
    except Unavailable as error:
        if error.reason == IMPAIRED:
            # The server itself says that it did not commit.
            raise
        raise Unavailable(OUTCOME_UNKNOWN) from error
