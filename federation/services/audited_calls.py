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
    """Who changes what. Its first transaction records it, once; or, where it ``is_decided``, each
    transaction that commits decisions of it, with their bindings.

    ``is_known``: the actor has proved to be who is named.
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
    # Its context has this: a strong reference would keep all that it reads, until a collection.
    task: ReferenceType[asyncio.Task[Any]] = field(default_factory=lambda: ref(this_task()))

    def record(
        self, objects: Sequence[str] = (), *, result: str = "OK", reason: str = ""
    ) -> AuditRecord:
        """What is recorded of it, about these objects, or else about its own."""
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
    """What the task that runs does from now on is this call's."""
    _current.set(call)


def current_call() -> AuditedCall | None:
    """The call that this very task serves; None in others that it started."""
    call = _current.get(None)
    return call if call is not None and call.task() is asyncio.current_task() else None


def this_task() -> asyncio.Task[Any]:
    """Raises RuntimeError outside of one."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a call is served by a task")
    return task
