"""Background work that one control plane at a time does for the whole fleet, under a lease.

Must not trust its lease: a token that only grows is checked in the transaction that does the work,
so that one which slept over its lease changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from federation.model.errors import Conflict, FederationError
from federation.model.printable import printable
from federation.services.journal_ports import DutyFailure
from federation.services.ports import Store, Timer, Transaction
from federation.services.troubles import Trouble

LEASE_SECONDS = 10.0
# For duties that people wait for: another control plane goes on within a lease and a round.
URGENT_LEASE_SECONDS = 3.0
ROUNDS_PER_LEASE = 3
JOURNAL_SECONDS = 3600.0
PRUNE_EVERY_SECONDS = 60.0
PRUNED_AT_ONCE = 1000
# Decisions are large, and this many are moved in one transaction.
DECISIONS_PRUNED_AT_ONCE = 200

# The reason why a duty fails, in the database and wherever it is shown.
MAX_REASON_CHARACTERS = 500

logger = logging.getLogger(__name__)


Begin: TypeAlias = Callable[[], AbstractAsyncContextManager[Transaction]]
# One piece of a duty: it says how much it did.
Work: TypeAlias = Callable[[Begin], Awaitable[int]]
TransactionWork: TypeAlias = Callable[[Transaction], Awaitable[int]]


class DutyLost(Exception):
    """Another control plane has the duty now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Work in small pieces: ``work`` does one and says how much it was.

    Its argument begins a transaction, which fails once the duty is lost. It is called again as
    long as it did as much as it does ``at_once``, and then after ``every_seconds``. While a duty
    that ``is_steady`` has more work, the next round begins at once.
    """

    name: str
    work: Work
    at_once: int = 1
    every_seconds: float = 0.0
    is_steady: bool = False


class Duties:
    """Rounds of one control plane: it takes or keeps duties, and does those that are due."""

    def __init__(
        self,
        store: Store,
        replica_id: str,
        duties: Sequence[Duty],
        clock: Timer,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self._store = store
        self._replica_id = replica_id
        self._duties = duties
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._pause_seconds = lease_seconds / ROUNDS_PER_LEASE
        self._tokens: dict[str, int] = {}
        self._due_at: dict[str, float] = {}
        # The failures in the database, as this control plane last wrote them.
        self._recorded: dict[str, str] = {}
        self._troubles = {
            duty.name: Trouble(logger, f"duty not done: {duty.name}") for duty in duties
        }

    @property
    def held(self) -> frozenset[str]:
        """The duties that this control plane had in the last round."""
        return frozenset(self._tokens)

    async def failures(self) -> Sequence[DutyFailure]:
        """Return the duties whose last round failed, of all control planes. Raises Unavailable."""
        async with self._store.reading() as read:
            return await read.duties.failures()

    async def keep_doing(self) -> None:
        """Do rounds until cancelled."""
        trouble = Trouble(logger, "duties not held")
        while True:
            goes_on = False
            try:
                goes_on = await self.do_round()
                trouble.over()
            except Exception as error:  # noqa: BLE001 - told; somebody has to go on asking for duties
                trouble.met(error)
            await (asyncio.sleep(0) if goes_on else self._clock.sleep(self._pause_seconds))

    async def do_round(self) -> bool:
        """Do a round; return whether the next one begins at once.

        Raises Unavailable when no duty can be held.
        """
        await self._hold()
        goes_on = False
        renewing = asyncio.create_task(self._keep_renewing())
        try:
            for duty in self._duties:
                is_due = self._clock.now() >= self._due_at.get(duty.name, 0.0)
                if duty.name in self._tokens and is_due:
                    goes_on |= await self._try(duty) and duty.is_steady
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
        return goes_on

    async def _keep_renewing(self) -> None:
        """Renew duties until cancelled, because a piece of work may outlast a lease."""
        while True:
            await asyncio.sleep(self._pause_seconds)
            # The next round logs the error.
            with suppress(FederationError):
                await self._hold()

    async def leave(self) -> None:
        """Let other control planes take over at once."""
        async with self._store.transaction() as tx:
            for name in sorted(self._tokens):
                await tx.duties.leave(name, self._replica_id)
        self._tokens.clear()

    async def _hold(self) -> None:
        names = [duty.name for duty in self._duties]
        async with self._store.transaction() as tx:
            tokens = dict(await tx.duties.hold(names, self._replica_id, self._lease_seconds))
        taken = sorted(tokens.keys() - self._tokens.keys())
        if taken:
            names_and_tokens = ", ".join(f"{name} ({tokens[name]})" for name in taken)
            fields = {"duties": names_and_tokens}
            logger.info("duties taken, with their tokens", extra={"fields": fields})
        for name in taken:
            self._recorded.pop(name, None)
        self._tokens = tokens

    async def _try(self, duty: Duty) -> bool:
        """Do a duty; return whether it has more work.

        Work that fails is tried again in the next round, and stops no other duty.
        """
        try:
            has_more = await self._do(duty)
            self._troubles[duty.name].over()
            await self._record(duty.name, "")
        except Exception as error:  # noqa: BLE001 - told; the other duties are done
            self._troubles[duty.name].met(error)
            await self._record(duty.name, _reason_of(error))
            return False
        return has_more

    async def _record(self, name: str, why: str) -> None:
        """Write whether a duty fails, once for each change: doctor and every plane show it."""
        token = self._tokens.get(name)
        if token is None or self._recorded.get(name) == why:
            return
        # The next round writes it if the database is away.
        with suppress(FederationError):
            async with self._store.transaction() as tx:
                await tx.duties.record_failure(name, token, why)
            self._recorded[name] = why

    async def _do(self, duty: Duty) -> bool:
        """Work piece by piece until it is another duty's turn; return whether there is more."""
        stop_at = self._clock.now() + self._lease_seconds / ROUNDS_PER_LEASE
        while self._clock.now() < stop_at:
            try:
                done = await duty.work(partial(self._begin, duty))
            except DutyLost:
                self._tokens.pop(duty.name, None)
                logger.warning("duty lost", extra={"fields": {"duty": duty.name}})
                return False
            if done < duty.at_once:
                self._due_at[duty.name] = self._clock.now() + duty.every_seconds
                return False
        return True

    @asynccontextmanager
    async def _begin(self, duty: Duty) -> AsyncIterator[Transaction]:
        """Begin a transaction of a duty. Raises DutyLost."""
        async with self._store.transaction() as tx:
            token = self._tokens.get(duty.name)
            if token is None or not await tx.duties.check(duty.name, token):
                raise DutyLost
            yield tx


def _reason_of(error: Exception) -> str:
    """Return why a duty failed: the kind of a fault of ours is a part of it."""
    kind = "" if isinstance(error, FederationError) else f"{type(error).__name__}: "
    return printable(f"{kind}{error}")[:MAX_REASON_CHARACTERS]


def in_one(work: TransactionWork) -> Work:
    """Return work that needs one transaction for all it does."""

    async def do(begin: Begin) -> int:
        async with begin() as tx:
            return await work(tx)

    return do


def unless_used(work: TransactionWork) -> Work:
    """Return work on whole tables, which is left for later if others use them."""
    once = in_one(work)

    async def do(begin: Begin) -> int:
        try:
            return await once(begin)
        except Conflict:
            return 0

    return do


def _prune(what: str, work: Work, at_once: int = PRUNED_AT_ONCE) -> Duty:
    return Duty(name=f"prune {what}", work=work, at_once=at_once, every_seconds=PRUNE_EVERY_SECONDS)


def auditing(keep_seconds: float) -> Sequence[Duty]:
    """Return the duties of sealing and forgetting the audit; 0: it is stored for ever."""
    seal = in_one(lambda tx: tx.audit.seal(PRUNED_AT_ONCE))
    duties = [Duty(name="seal audit", work=seal, at_once=PRUNED_AT_ONCE)]
    if keep_seconds:
        prune = unless_used(lambda tx: tx.audit.prune(keep_seconds))
        duties.append(_prune("audit", prune, at_once=1))
    return duties


def keeping_reports(
    keep: Work, keep_seconds: float, *, at_once: int, every_seconds: float
) -> Sequence[Duty]:
    """Return the duties of storing and forgetting reports; ``keep_seconds`` 0: none is stored."""
    prune = unless_used(lambda tx: tx.kept_reports.prune(keep_seconds))
    duties = [_prune("reports", prune, at_once=1)]
    if keep_seconds:
        store = Duty(name="keep reports", work=keep, at_once=at_once, every_seconds=every_seconds)
        duties.append(store)
    return duties


def pruning(keep_seconds: float) -> Sequence[Duty]:
    """Return the duties of forgetting old rows; ``keep_seconds`` 0: decisions stay for ever."""
    rows: dict[str, TransactionWork] = {
        "journal": lambda tx: tx.journal.prune(JOURNAL_SECONDS, PRUNED_AT_ONCE),
        "requests": lambda tx: tx.requests.prune(PRUNED_AT_ONCE),
        "credentials": lambda tx: tx.credentials.prune(PRUNED_AT_ONCE),
        "join tokens": lambda tx: tx.credentials.prune_join_tokens(PRUNED_AT_ONCE),
        "tokens": lambda tx: tx.tokens.prune(PRUNED_AT_ONCE),
    }
    if keep_seconds:
        rows["inputs of decisions"] = lambda tx: tx.decisions.prune_shared(
            keep_seconds, PRUNED_AT_ONCE
        )
        rows["deletions"] = lambda tx: tx.decisions.prune_deletions(keep_seconds, PRUNED_AT_ONCE)
        rows["plans"] = lambda tx: tx.plans.prune(keep_seconds, PRUNED_AT_ONCE)
    duties = [_prune(what, in_one(work)) for what, work in rows.items()]
    duties.append(
        Duty(
            name="make partitions",
            work=unless_used(lambda tx: tx.partitions.make()),
            at_once=PRUNED_AT_ONCE,
            every_seconds=PRUNE_EVERY_SECONDS,
        )
    )
    if keep_seconds:
        decisions = unless_used(
            lambda tx: tx.decisions.prune(keep_seconds, DECISIONS_PRUNED_AT_ONCE)
        )
        duties.append(_prune("decisions", decisions, DECISIONS_PRUNED_AT_ONCE))
    return duties
