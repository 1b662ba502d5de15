"""Calls from this process, as the page makes them: the same gate, and the same operations.

Must not know the page, nor read anything that a caller's role and scope do not allow.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from federation.codec.rights import PACKAGE
from federation.model.errors import DeadlineMissed
from federation.operations.services import Services
from federation.operations.table import OPERATIONS, OperationCall
from federation.rpc.auditing import audit
from federation.rpc.interceptors import Gate
from federation.rpc.limits import VIEWS, SharedLimit
from federation.rpc.permissions import check_scope
from federation.rpc.status import result_of
from federation.rpc.visibility import as_seen
from federation.services.values import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcess:
    """Methods are named like ``Clusters/GetCluster``; an ``address`` is that of the caller."""

    gate: Gate
    services: Services

    @asynccontextmanager
    async def reading(
        self,
        name: str,
        caller: Principal,
        address: str,
        request: Message | None = None,
        limit: SharedLimit = VIEWS,
    ) -> AsyncGenerator[None]:
        """Enter for a read that is written out elsewhere. Raises FederationError.

        ``request`` is what a caller of the API would send, where its scope has to be checked.
        """
        path = f"{PACKAGE}{name}"
        with self._measured(path), self.gate.place(path, caller, address, limit):
            check_scope(path, request or OPERATIONS[path].request_type(), caller)
            yield

    async def perform(
        self, name: str, caller: Principal, address: str, ask: Callable[[], Message], seconds: float
    ) -> Any:
        """Perform an operation; ``ask`` makes its request once the caller is let in.

        Raises FederationError; DeadlineMissed after so many seconds.
        """
        path, ends_at = f"{PACKAGE}{name}", asyncio.get_running_loop().time() + seconds
        with self._measured(path):
            try:
                async with asyncio.timeout_at(ends_at):
                    with self.gate.place(path, caller, address):
                        request = ask()
                        await audit(path, request, caller, address)
                        check_scope(path, request, caller)
                        call = OperationCall(caller=caller, services=self.services, ends_at=ends_at)
                        return await as_seen(await OPERATIONS[path].perform(call, request), caller)
            except TimeoutError as error:
                raise DeadlineMissed from error

    @contextmanager
    def _measured(self, path: str) -> Iterator[None]:
        started, code = time.perf_counter(), "OK"
        try:
            yield
        except BaseException as error:
            code = result_of(error)
            raise
        finally:
            self.gate.measures.end(path, code, time.perf_counter() - started)
