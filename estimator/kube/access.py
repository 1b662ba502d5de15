"""The API server as the official client reaches it: kubeconfig or in-cluster, no hidden retries.

Must not use the client's models for nodes and pods: answers are taken as bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import urllib3
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException
from yaml import YAMLError

from estimator.kube.objects import Kinded, VersionInfo
from estimator.unreadable import UNREADABLE
from federation.model.errors import PreconditionFailed, Unavailable

REQUEST_TIMEOUT_SECONDS: Final = 30.0
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
        _configure(configuration, kubeconfig)
    except (ConfigException, YAMLError, OSError, *MISSHAPEN) as error:
        where = kubeconfig or "a service account or the user's kubeconfig"
        raise PreconditionFailed(f"no access to Kubernetes by {where}: {error}") from error
    # urllib3 would sleep through 429s on its own; backing off is ours, and visible.
    configuration.retries = False
    return client.ApiClient(configuration)


def _configure(configuration: client.Configuration, kubeconfig: Path | None) -> None:
    load_file: Any = config.load_kube_config
    load_service_account: Any = config.load_incluster_config
    if kubeconfig is not None:
        load_file(str(kubeconfig), client_configuration=configuration)
        return
    try:
        load_service_account(client_configuration=configuration)
    except ConfigException:
        load_file(client_configuration=configuration)


def cluster_facts(api: client.ApiClient) -> tuple[str, str]:
    """The kube-system namespace's uid and the server's version. Blocks.

    Raises Unavailable when the server cannot be reached, PreconditionFailed when it refuses.
    """
    namespace = _read(client.CoreV1Api(api).read_namespace, "kube-system")
    version = _read(client.VersionApi(api).get_code)
    uid = decoded(namespace, Kinded).metadata.uid
    return uid or "", decoded(version, VersionInfo).git_version


def decoded(content: bytes, kind: type[Content]) -> Content:
    """What an API server answered. Raises Unavailable for what none answers, as a proxy's page."""
    try:
        return msgspec.json.decode(content, type=kind)
    except UNREADABLE as error:
        raise Unavailable(f"the API server's answer cannot be read: {error}") from error


def _read(method: Any, *arguments: str) -> bytes:
    try:
        answer = method(
            *arguments, _preload_content=False, _request_timeout=REQUEST_TIMEOUT_SECONDS
        )
        content: bytes = answer.data
    except ApiException as error:
        if error.status and 400 <= error.status < 500 and error.status != 429:
            raise PreconditionFailed(
                f"the API server answers {error.status} {error.reason}: the agent needs to get "
                "the namespace kube-system, and to list and watch nodes and pods"
            ) from error
        raise Unavailable(f"the API server answers {error.status} {error.reason}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the API server cannot be reached: {error}") from error
    return content
