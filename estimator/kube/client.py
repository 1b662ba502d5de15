"""The API server as the agent reaches it: credentials, requests, and errors as the error tree.

Must not use the official client's models: answers are taken as bytes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config import incluster_config
from kubernetes.config.config_exception import ConfigException
from yaml import YAMLError

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
from federation.runtime.tokens import checked_token
from federation.runtime.typed_values import from_json

REQUEST_TIMEOUT_SECONDS: Final = 30.0
JSON: Final = "application/json"
BEARER: Final = "BearerToken"
# The loader takes for granted that the file is whole, and of the right shape.
MISSHAPEN: Final = (ValueError, TypeError, LookupError, AttributeError)

Content = TypeVar("Content")


def connect(kubeconfig: Path | None) -> client.ApiClient:
    """A client with credentials as they are now; dial again when they were refused.

    Without ``kubeconfig``: the service account where there is one, else the user's own file.
    Raises PreconditionFailed when there is no usable configuration.
    """
    configuration = client.Configuration()
    try:
        where = _configure(configuration, kubeconfig)
    except (ConfigException, YAMLError, OSError, *MISSHAPEN) as error:
        source = kubeconfig or "a service account or the user's kubeconfig"
        raise PreconditionFailed(f"no access to Kubernetes by {source}: {error}") from error
    _check_token(configuration, where)
    # urllib3 would sleep through 429s on its own; backing off is ours, and visible.
    configuration.retries = False
    return client.ApiClient(configuration)


def _configure(configuration: client.Configuration, kubeconfig: Path | None) -> str:
    """Load the credentials, and return where they are, as people call it."""
    load_file: Any = config.load_kube_config
    load_service_account: Any = config.load_incluster_config
    if kubeconfig is not None:
        load_file(str(kubeconfig), client_configuration=configuration)
        return f"kubeconfig {kubeconfig} (or the tokenFile that it names)"
    try:
        load_service_account(client_configuration=configuration)
    except ConfigException:
        load_file(client_configuration=configuration)
        return "the user's kubeconfig (or the tokenFile that it names)"
    return f"the service account's token file {incluster_config.SERVICE_TOKEN_FILENAME}"


def _check_token(configuration: client.Configuration, where: str) -> None:
    """Check the bearer token, now and whenever the client reads it again.

    An HTTP library shows a header that it refuses, and so the token. Raises PreconditionFailed.
    """
    untyped: Any = configuration
    token, read_again = untyped.api_key.get(BEARER), untyped.refresh_api_key_hook
    if token is not None:
        scheme, _, credential = token.partition(" ")
        untyped.api_key[BEARER] = f"{scheme} {checked_token(credential, where)}"
    if read_again is None:
        return

    def checked_again(_: client.Configuration) -> None:
        read_again(configuration)
        # The client has put its own hook in the place of this one.
        _check_token(configuration, where)

    untyped.refresh_api_key_hook = checked_again


def request(
    api: client.ApiClient,
    verb: str,
    path: str,
    *,
    timeout: float | tuple[float, float],
    names: Mapping[str, str] | None = None,
    query: Mapping[str, object] | None = None,
    body: object = None,
    content_type: str = JSON,
    accept: str = JSON,
) -> Any:
    """The answer, not read yet. ``names`` fill the path's places; a ``query`` of None is left out.

    Not by the client's typed methods: loading these and their models costs as much CPU as reading
    20,000 pods. Raises the client's ApiException, urllib3's HTTPError, and OSError.
    """
    headers = {"Accept": accept}
    if body is not None:
        headers["Content-Type"] = content_type
    untyped: Any = api
    prepared = untyped.param_serialize(
        verb,
        path,
        path_params=dict(names or {}),
        query_params=[(key, value) for key, value in (query or {}).items() if value is not None],
        header_params=headers,
        body=body,
        auth_settings=[BEARER],
    )
    answer = untyped.call_api(*prepared, _request_timeout=timeout)
    if not 200 <= answer.status <= 299:
        answer.read()
        raise ApiException(http_resp=answer)
    return answer.response


def lister(api: client.ApiClient, path: str) -> Callable[..., Any]:
    """A method that lists and watches what is at ``path``: keywords are the query's keys."""

    def ask(*, timeout: tuple[float, float], **query: object) -> Any:
        return request(api, "GET", path, query=query, timeout=timeout)

    return ask


def cluster_facts(api: client.ApiClient) -> tuple[str, str]:
    """The kube-system namespace's uid and the server's version. Blocks.

    Empty where the agent may not read it, or the server has none: only joining needs the uid.
    Raises Unavailable when the server cannot be reached, PreconditionFailed when it refuses the
    credentials.
    """
    namespace = _readable(api, "/api/v1/namespaces/kube-system")
    version = _readable(api, "/version/")
    uid = decoded(namespace, Kinded).metadata.uid if namespace is not None else None
    return uid or "", decoded(version, VersionInfo).git_version if version is not None else ""


def decoded(content: bytes, kind: type[Content]) -> Content:
    """What an API server answered. Raises Unavailable for what none answers, as a proxy's page."""
    try:
        return from_json(content, kind)
    except UNREADABLE as error:
        raise Unavailable(f"the API server's answer cannot be read: {error}") from error


def _readable(api: client.ApiClient, path: str) -> bytes | None:
    """Return the object; None if there is none or the agent may not read it."""
    try:
        content: bytes = request(api, "GET", path, timeout=REQUEST_TIMEOUT_SECONDS).data
    except ApiException as error:
        if error.status in (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
            return None
        answer = f"the API server answers {error.status} {error.reason}"
        if error.status and 400 <= error.status < 500 and error.status != 429:
            hint = "the agent needs to list and watch nodes and pods"
            raise PreconditionFailed(f"{answer}: {hint}") from error
        raise Unavailable(answer) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the API server cannot be reached: {error}") from error
    return content


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
    """Return the message of the server; proxies answer with something else."""
    try:
        return from_json(error.body or b"", Status)
    except (*UNREADABLE, TypeError):
        return Status(message=str(error.reason))
