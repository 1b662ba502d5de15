"""The statements of control planes, watched from outside: their names, and the order of locks.

Must not change what a transaction does.
"""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import Connection, NullPool, event
from sqlalchemy.engine import Engine

from federation.store.statements import PREFIX, Lock, locks_of

NAME: Final = re.compile(rf"\s*\w+ /\* {PREFIX}([a-z_.]+) \*/")


def name_of(statement: str) -> str | None:
    """Return the name that a statement carries, None where it has none."""
    match = NAME.match(statement)
    return None if match is None else match[1]


class LockOrders:
    """The locks of each open transaction of all engines of this process, from ``watch`` on.

    Engines without a pool are those of migrations, and of tests: their statements need no names.
    """

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._taken: dict[int, dict[Lock, str]] = {}

    def watch(self) -> None:
        event.listen(Engine, "before_cursor_execute", self._record)
        for end in ("commit", "rollback"):
            event.listen(Engine, end, self._forget)

    def stop(self) -> None:
        event.remove(Engine, "before_cursor_execute", self._record)
        for end in ("commit", "rollback"):
            event.remove(Engine, end, self._forget)

    def _record(self, connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        name = name_of(statement)
        if name is None:
            if not isinstance(connection.engine.pool, NullPool):
                self.violations.append(f"a statement has no name: {statement.strip()}")
            return
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return
        taken = self._taken.setdefault(id(connection), {})
        for lock in locks_of(name):
            if lock not in taken and taken and lock < max(taken):
                last = max(taken)
                self.violations.append(
                    f"{name} takes {lock.name} after {taken[last]} has taken {last.name}"
                )
            taken.setdefault(lock, name)

    def _forget(self, connection: Connection) -> None:
        self._taken.pop(id(connection), None)
