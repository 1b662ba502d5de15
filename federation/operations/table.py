"""One table of operations: the methods of the API, for gRPC and for the page.

Must not know how a request came. Callers have passed the gate of ``federation.rpc``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from federation.codec.rights import PACKAGE
from federation.codec.rules import check_rules
from federation.codec.strict import refuse_nul
from federation.codec.violations import Violations
from federation.model.access import Scope
from federation.operations.services import Services
from federation.rpc.served import METHODS
from federation.services.values import Principal

V = TypeVar("V")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCall:
    """A call that was let in; ``ends_at`` is its deadline on the clock of the event loop."""

    caller: Principal
    services: Services
    ends_at: float | None = None

    @property
    def scope(self) -> Scope:
        return self.caller.scope

    @property
    def seconds_left(self) -> float | None:
        """The time until the deadline; None for a caller that gave none."""
        if self.ends_at is None:
            return None
        return self.ends_at - asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One unary method. ``run`` takes the request, or the value that ``read`` makes of it.

    The rules of its proto are checked ahead of ``read``. Documents have readers of their own: their
    requests are not ``checked`` here.
    """

    path: str
    request_type: type[Message]
    response_type: type[Message]
    run: Callable[[OperationCall, Any], Awaitable[Any]]
    read: Callable[[Any, Violations], Any] | None
    checked: bool

    async def perform(self, call: OperationCall, request: Any) -> Any:
        """Answer a request. Raises InvalidRequest with every broken rule, and what it does."""
        if not self.checked:
            return await self.run(call, request)
        violations, value = Violations(), request
        refuse_nul(request, "", violations)
        check_rules(request, "", violations)
        if self.read is not None:
            value = self.read(request, violations)
        violations.check()
        return await self.run(call, value)


# Filled by the modules of this package when ``federation.operations.serving`` imports them.
OPERATIONS: Final[dict[str, Operation]] = {}


def operation(
    name: str,
    *,
    read: Callable[[Any, Violations], Any] | None = None,
    checked: bool = True,
) -> Callable[
    [Callable[[OperationCall, V], Awaitable[M]]], Callable[[OperationCall, V], Awaitable[M]]
]:
    """Make a function the operation of a method, which is named like ``Clusters/GetCluster``."""
    path = f"{PACKAGE}{name}"
    method = METHODS[path]

    def add(
        run: Callable[[OperationCall, V], Awaitable[M]],
    ) -> Callable[[OperationCall, V], Awaitable[M]]:
        OPERATIONS[path] = Operation(
            path=path,
            request_type=GetMessageClass(method.input_type),
            response_type=GetMessageClass(method.output_type),
            run=run,
            read=read,
            checked=checked,
        )
        return run

    return add
