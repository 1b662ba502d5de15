"""A store in front of PostgreSQL that does what a test commands: ``ControlPlane(store=…)``.

    store = CommandedStore()
    running_control_plane(url, folder, store=store)
    store.is_reachable = False             every transaction and reading raises Unavailable
    store.cut_off_after(7)                 so it is after seven more statements
    store.stall() ... store.go_on()        every transaction and reading waits meanwhile
    store.before("requests.lock", act)     ``act`` runs once, before the next such statement
    store.after("journal.append", act)     ``act`` runs once, after the next such statement
    store.fail_at("journal.append")        the next such statement raises Unavailable
    store.forget_outcome("journal.append") the next transaction with it commits, and raises then
    store.transactions, store.statements   how many there were; of each statement, by its name

A statement is named as ``federation.services.ports.Transaction`` names it. How the database itself
loses connections and goes back: ``RunningControlPlane.lose_connections``, ``Databases.put_back``.
Must not change what a statement does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from federation.model.errors import Unavailable
from federation.services.ports import CheckedStore, Transaction

Act = Callable[[], Awaitable[object]]


class CommandedStore:
    """Implements ``ports.CheckedStore`` once it was called with the store that it stands before."""

    def __init__(self) -> None:
        self.is_reachable = True
        self.transactions = 0
        self.statements: Counter[str] = Counter()
        self._store: CheckedStore | None = None
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._acts: dict[str, list[Act]] = {}
        self._acts_after: dict[str, list[Act]] = {}
        self._left: int | None = None
        self._forgotten: set[str] = set()

    def __call__(self, store: CheckedStore) -> CheckedStore:
        """Stand before ``store``."""
        self._store = store
        return self

    def stall(self) -> None:
        self._goes_on.clear()

    def go_on(self) -> None:
        self._goes_on.set()

    def before(self, statement: str, act: Act) -> None:
        """Run ``act`` before the next statement of this name; several run one a statement."""
        self._acts.setdefault(statement, []).append(act)

    def after(self, statement: str, act: Act) -> None:
        """Run ``act`` after the next statement of this name, in its transaction."""
        self._acts_after.setdefault(statement, []).append(act)

    def cut_off_after(self, statements: int) -> None:
        """Let nothing reach the database any more after so many statements of any name."""
        self._left = statements

    def forget_acts(self) -> None:
        """Let nothing happen any more that has not happened yet."""
        self._acts.clear()
        self._acts_after.clear()

    def fail_at(self, statement: str, reason: str = "") -> None:
        """Let the next statement of this name find the connection lost, and its transaction end."""

        async def fail() -> None:
            raise Unavailable(reason=reason) if reason else Unavailable

        self.before(statement, fail)

    def forget_outcome(self, statement: str) -> None:
        """Commit the next transaction that has this statement, and lose the answer."""
        self._forgotten.add(statement)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        store = await self._reached()
        self.transactions += 1
        names: set[str] = set()
        async with store.transaction() as tx:
            yield cast(Transaction, _Statements(tx, self._meet, self._leave, names))
        if forgotten := self._forgotten & names:
            self._forgotten -= forgotten
            raise Unavailable

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Transaction]:
        store = await self._reached()
        async with store.reading() as read:
            yield cast(Transaction, _Statements(read, self._meet, self._leave, set()))

    async def check(self) -> None:
        await (await self._reached()).check()

    async def _reached(self) -> CheckedStore:
        assert self._store is not None, "no control plane was given this store"
        await self._goes_on.wait()
        if not self.is_reachable:
            raise Unavailable
        return self._store

    async def _meet(self, statement: str) -> None:
        self.statements[statement] += 1
        if self._left is not None:
            self._left -= 1
            self.is_reachable = self._left >= 0
            if not self.is_reachable:
                raise Unavailable
        if acts := self._acts.get(statement):
            await acts.pop(0)()

    async def _leave(self, statement: str) -> None:
        if acts := self._acts_after.get(statement):
            await acts.pop(0)()


class _Statements:
    """The statements of a transaction, or of one group, each met before it runs and left after."""

    def __init__(
        self,
        inner: Any,
        meet: Callable[[str], Awaitable[None]],
        leave: Callable[[str], Awaitable[None]],
        names: set[str],
        group: str = "",
    ) -> None:
        self._inner = inner
        self._meet = meet
        self._leave = leave
        self._names = names
        self._group = group

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not self._group:
            return _Statements(value, self._meet, self._leave, self._names, name)
        if not inspect.iscoroutinefunction(value):
            return value
        statement = f"{self._group}.{name}"

        async def run(*arguments: Any, **named: Any) -> Any:
            self._names.add(statement)
            await self._meet(statement)
            result = await value(*arguments, **named)
            await self._leave(statement)
            return result

        return run
