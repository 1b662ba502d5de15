"""Requests to one API server over one session, and its errors as the error tree.

Must not read answers with the official client's models: they are bytes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import msgspec
from yarl import URL

from estimator.kube.access import Access, ServiceAccount, access_files, load_access
from estimator.kube.objects import Kinded, Status, VersionInfo
from estimator.unreadable import UNREADABLE
from federation.model.errors import (
    Conflict,
    FederationError,
    NotFound,
    PermissionRefused,
    PreconditionFailed,
    Unavailable,
)
from federation.runtime.typed_values import from_json
from federation.runtime.watched_files import FileWatch

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 10.0
# A whole call, its body included.
CALL_SECONDS: Final = 30.0
# Credentials that end are loaded again so long before.
RENEWAL_SECONDS: Final = 60.0
MAX_RETRY_AFTER_SECONDS: Final = 60.0
READ_BUFFER_BYTES: Final = 131_072
JSON: Final = "application/json"

Content = TypeVar("Content")


class ReadTimedOut(Unavailable):
    """The API server said nothing for too long."""


class Forbidden(PreconditionFailed):
    """The API server does not allow this to its caller, or a webhook refuses it."""


class RefusedRequest(Exception):
    """An answer with an error status. ``request`` raises it as an error of the tree."""

    def __init__(self, status: int, body: Status, retry_after: str) -> None:
        super().__init__(f"the API server answers {status}: {body.message}")
        self.status = status
        self._reason = body.reason
        seconds = float(retry_after) if retry_after.isdigit() else 1.0
        self.retry_after_seconds = min(seconds, MAX_RETRY_AFTER_SECONDS)

    def as_error(self) -> FederationError:
        text = str(self)
        match self.status:
            case HTTPStatus.UNAUTHORIZED:
                return PermissionRefused(text)
            case HTTPStatus.FORBIDDEN:
                return Forbidden(text, reason=self._reason or None)
            case HTTPStatus.NOT_FOUND:
                return NotFound(text)
            case HTTPStatus.CONFLICT:
                return Conflict(text)
            case HTTPStatus.TOO_MANY_REQUESTS:
                return Unavailable(text)
            case status if 400 <= status < 500:
                return PreconditionFailed(text, reason=self._reason or None)
        return Unavailable(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request without its address and credentials."""

    verb: str
    path: str
    query: Mapping[str, object]
    headers: Mapping[str, str]
    patience: aiohttp.ClientTimeout
    content: bytes | None = None


@dataclass(slots=True)
class _Connection:
    """A session by some access, and how many of its answers are being read."""

    access: Access
    session: aiohttp.ClientSession
    uses: int = 0


class KubeClient:
    """An API server. Belongs to one event loop, on which it is closed.

    Without ``kubeconfig`` it is reached by the service account, else by the user's kubeconfig.
    Credentials are loaded with the first request, and again once they are refused or about to end.
    """

    def __init__(
        self, kubeconfig: Path | None = None, account: ServiceAccount | None = None
    ) -> None:
        self._kubeconfig = kubeconfig
        self._account = account
        self._current: _Connection | None = None
        self._is_outdated = False
        self._loading = asyncio.Lock()
        # The server's clock, as its newest answer said it; "" where it did not.
        self.server_date = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all that is open."""
        connection, self._current = self._current, None
        if connection is not None:
            await connection.session.close()

    def renew(self) -> None:
        """Load the credentials again for the next request."""
        self._is_outdated = True

    def watch_files(self, files: FileWatch) -> None:
        """Load the credentials again once one of their files has changed."""

        async def changed() -> None:
            self.renew()

        name = "kubeconfig" if self._kubeconfig is not None else "service account"
        if paths := access_files(self._kubeconfig, self._account):
            files.watch(name, paths, lambda: None, changed)

    async def check(self) -> None:
        """Raises PreconditionFailed where there is no usable configuration."""
        await self._connected()

    async def request(
        self,
        verb: str,
        path: str,
        body: object = None,
        *,
        content_type: str = JSON,
        accept: str = JSON,
        names: Mapping[str, str] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> bytes:
        """Return the body of the answer. ``names`` fill the places of the path.

        Refused credentials are loaded again, once. Raises NotFound, Conflict, PermissionRefused,
        PreconditionFailed and Unavailable.
        """
        places = {place: quote(name, safe="") for place, name in (names or {}).items()}
        headers = {"Accept": accept}
        content = None
        if body is not None:
            headers["Content-Type"] = content_type
            content = msgspec.json.encode(body)
        request = _Request(
            verb=verb,
            path=path.format_map(places),
            query=query or {},
            headers=headers,
            patience=aiohttp.ClientTimeout(
                total=CALL_SECONDS, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
            ),
            content=content,
        )
        for is_last in (False, True):
            try:
                async with self._send(request) as response:
                    return await response.read()
            except RefusedRequest as refusal:
                if is_last or refusal.status != HTTPStatus.UNAUTHORIZED:
                    raise refusal.as_error() from refusal
        raise AssertionError("the last try returns or raises")

    @asynccontextmanager
    async def open(
        self, path: str, query: Mapping[str, object], *, connect_seconds: float, read_seconds: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Give an answer that is read piece by piece. Raises RefusedRequest and Unavailable.

        ``read_seconds`` is how long each piece may take.
        """
        request = _Request(
            verb="GET",
            path=path,
            query=query,
            headers={"Accept": JSON},
            patience=aiohttp.ClientTimeout(sock_connect=connect_seconds, sock_read=read_seconds),
        )
        async with self._send(request) as response:
            yield response

    @asynccontextmanager
    async def _send(self, request: _Request) -> AsyncIterator[aiohttp.ClientResponse]:
        connection = await self._connected()
        access = connection.access
        headers = dict(request.headers)
        if access.authorization:
            headers["Authorization"] = access.authorization
        pairs = [(key, value) for key, value in request.query.items() if value is not None]
        url = f"{access.url}{request.path}?{urlencode(pairs)}".rstrip("?")
        connection.uses += 1
        try:
            async with connection.session.request(
                request.verb,
                URL(url, encoded=True),
                data=request.content,
                headers=headers,
                timeout=request.patience,
                allow_redirects=False,
                proxy=access.proxy,
                proxy_headers=access.proxy_headers,
                server_hostname=access.server_name,
            ) as response:
                self.server_date = response.headers.get("Date", "")
                if not 200 <= response.status <= 299:
                    raise await _refusal(response)
                yield response
        except RefusedRequest as refusal:
            if refusal.status == HTTPStatus.UNAUTHORIZED:
                self._outdate(connection)
            raise
        except aiohttp.SocketTimeoutError as error:
            self._outdate(connection)
            raise ReadTimedOut(f"the API server cannot be reached: {error}") from error
        except (aiohttp.ClientError, OSError) as error:
            # The certificates of a kubeconfig may be others by now.
            self._outdate(connection)
            raise Unavailable(f"the API server cannot be reached: {_text(error)}") from error
        finally:
            connection.uses -= 1
            if connection is not self._current and not connection.uses:
                await connection.session.close()

    def _outdate(self, connection: _Connection) -> None:
        """Load credentials again, unless newer ones are in use by now."""
        if self._current is connection:
            self._is_outdated = True

    async def _connected(self) -> _Connection:
        if (connection := self._usable()) is not None:
            return connection
        async with self._loading:
            if (connection := self._usable()) is not None:
                return connection
            self._is_outdated = False
            try:
                access = await asyncio.to_thread(load_access, self._kubeconfig, self._account)
            except BaseException:
                self._is_outdated = True
                raise
            return await self._take(access)

    def _usable(self) -> _Connection | None:
        connection = self._current
        if connection is None or self._is_outdated:
            return None
        ends_at = connection.access.expires_at
        if ends_at is not None and time.time() >= ends_at - RENEWAL_SECONDS:
            return None
        return connection

    async def _take(self, access: Access) -> _Connection:
        """Use this access; open connections go on where they serve it, too."""
        former = self._current
        if former is not None and former.access.identity == access.identity:
            former.access = access
            return former
        connector = aiohttp.TCPConnector(limit=0, ssl=access.tls or True)
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Unpacking would cost more CPU than the network.
            headers={"Accept-Encoding": "identity", "User-Agent": "fedsched"},
            read_bufsize=READ_BUFFER_BYTES,
        )
        self._current = _Connection(access, session)
        if former is not None and not former.uses:
            await former.session.close()
        return self._current

    async def cluster_facts(self) -> tuple[str, str]:
        """Return the kube-system namespace's uid and the server's version.

        Empty where the agent may not read it, or the server has none: only joining needs the uid.
        Raises PreconditionFailed where it is refused, and Unavailable.
        """
        namespace = await self._readable("/api/v1/namespaces/kube-system")
        version = await self._readable("/version/")
        uid = decoded(namespace, Kinded).metadata.uid if namespace is not None else None
        return uid or "", decoded(version, VersionInfo).git_version if version is not None else ""

    async def _readable(self, path: str) -> bytes | None:
        """Return the object; None if there is none or the agent may not read it."""
        try:
            return await self.request("GET", path)
        except (NotFound, Forbidden):
            return None
        except PermissionRefused as error:
            hint = "the agent needs to list and watch nodes and pods"
            raise PreconditionFailed(f"{error.message}: {hint}") from error


def decoded(content: bytes, kind: type[Content]) -> Content:
    """Return the answer of an API server. Raises Unavailable for a proxy's page, for example."""
    try:
        return from_json(content, kind)
    except UNREADABLE as error:
        raise Unavailable(f"the API server's answer cannot be read: {error}") from error


async def _refusal(response: aiohttp.ClientResponse) -> RefusedRequest:
    """Return the refusal in the server's words; proxies answer with something else."""
    try:
        body = from_json(await response.read(), Status)
    except UNREADABLE:
        body = Status()
    if not body.message:
        body = Status(message=response.reason or "", reason=body.reason, code=body.code)
    return RefusedRequest(response.status, body, response.headers.get("Retry-After", ""))


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
