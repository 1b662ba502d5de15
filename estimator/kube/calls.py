"""Calls to one API server from threads: with fresh credentials, and failures as the error tree.

Must not decide what to call. None is repeated but once, when its credentials were refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from estimator.kube.access import JSON, connect, request
from estimator.kube.objects import Status
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

THREADS: Final = 8
TIMEOUT_SECONDS: Final = (5.0, 10.0)

Answer = TypeVar("Answer")


class KubeCalls:
    """Calls to the API server of one kubeconfig. They block; ``in_thread`` runs them beside the
    loop.

    They raise NotFound, Conflict, PermissionRefused, PreconditionFailed and Unavailable.
    """

    def __init__(self, kubeconfig: Path | None, *, threads: int = THREADS) -> None:
        self._kubeconfig = kubeconfig
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="kube-calls")
        self._connecting = threading.Lock()
        self._api: client.ApiClient | None = None

    def close(self) -> None:
        """Take no more work; what runs ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def reconnect(self) -> None:
        """Take credentials as they are now for the next calls."""
        with self._connecting:
            self._api = None

    async def in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def call(
        self, verb: str, path: str, body: object = None, *, content_type: str = JSON, **names: str
    ) -> bytes:
        """The body of the answer; once more with fresh credentials when they were refused."""
        prepared = partial(
            _answer, verb=verb, path=path, names=names, body=body, content_type=content_type
        )
        used = self._connected()
        try:
            return prepared(used)
        except PermissionRefused:
            with self._connecting:
                if self._api is used:
                    self._api = None
            return prepared(self._connected())

    def _connected(self) -> client.ApiClient:
        with self._connecting:
            if self._api is None:
                self._api = connect(self._kubeconfig)
            return self._api


def _answer(api: client.ApiClient, **asked: Any) -> bytes:
    try:
        content: bytes = request(api, timeout=TIMEOUT_SECONDS, **asked).data
    except ApiException as error:
        raise _refusal(error) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the API server cannot be reached: {error}") from error
    return content


def _refusal(error: ApiException) -> FederationError:
    status = _status(error)
    text = f"the API server answers {error.status}: {status.message}"
    match error.status:
        case 401:
            return PermissionRefused(text)
        case 404:
            return NotFound(text)
        case 409:
            return Conflict(text)
        case 429:
            return Unavailable(text)
        case code if code and 400 <= code < 500:
            return PreconditionFailed(text, reason=status.reason or None)
    return Unavailable(text)


def _status(error: ApiException) -> Status:
    """What the server says; proxies answer with something else."""
    try:
        return from_json(error.body or b"", Status)
    except (*UNREADABLE, TypeError):
        return Status(message=str(error.reason))
