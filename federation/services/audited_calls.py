"""The call that is being served, as the audit names it.

Must not write anything: the transaction of what it changes does, and ``access.audit`` of a refusal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from weakref import ReferenceType, ref

from federation.model.audit import AuditRecord


@dataclass(kw_only=True, eq=False, slots=True)
class AuditedCall:
    """A caller and its change. Its first transaction records it, once.

    If it ``is_decided``, each transaction that commits decisions of it records it, with their
    bindings. ``is_known``: the actor has proved its identity.
    """

    actor: str
    is_known: bool
    credential_id: str
    address: str
    method: str
    objects: tuple[str, ...] = ()
    request_sha256: str = ""
    is_decided: bool = False
    is_recorded: bool = False
    # A weak reference, because the context of the task holds this call.
    task: ReferenceType[asyncio.Task[Any]] = field(default_factory=lambda: ref(this_task()))

    def record(
        self, objects: Sequence[str] = (), *, result: str = "OK", reason: str = ""
    ) -> AuditRecord:
        """Return a record of the call about these objects, or else about its own."""
        return AuditRecord(
            actor=self.actor,
            credential_id=self.credential_id,
            address=self.address,
            method=self.method,
            objects=tuple(objects) or self.objects,
            result=result,
            reason=reason,
            request_sha256=self.request_sha256,
        )


_current: ContextVar[AuditedCall] = ContextVar("audited call")


def audit_from_now(call: AuditedCall) -> None:
    """Let this call be that of the current task from now on."""
    _current.set(call)


def current_call() -> AuditedCall | None:
    """Return the call that this very task serves; None in tasks that it started."""
    call = _current.get(None)
    return call if call is not None and call.task() is asyncio.current_task() else None


def this_task() -> asyncio.Task[Any]:
    """Return the current task. Raises RuntimeError outside of one."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call is served by a task")
    return task
