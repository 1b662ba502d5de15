"""Which APIs a cluster serves: two requests where the server aggregates, else one per group.

Must not judge what an API is good for. Subresources are no APIs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from estimator.kube.client import JSON, connect, decoded, request
from estimator.kube.objects import RawObject
from federation.model.errors import Unavailable

TIMEOUT_SECONDS: Final = 10.0
AGGREGATED: Final = "APIGroupDiscoveryList"
ACCEPT: Final = ",".join(
    (
        *(
            f"application/json;g=apidiscovery.k8s.io;v={version};as={AGGREGATED}"
            for version in ("v2", "v2beta1")
        ),
        JSON,
    )
)


class _Kind(RawObject, frozen=True):
    kind: str = ""


class _DiscoveredResource(RawObject, frozen=True):
    response_kind: _Kind | None = None


class _DiscoveredVersion(RawObject, frozen=True):
    version: str
    resources: list[_DiscoveredResource] | None = None


class _GroupMetadata(RawObject, frozen=True):
    name: str = ""


class _DiscoveredGroup(RawObject, frozen=True):
    metadata: _GroupMetadata = _GroupMetadata()
    versions: list[_DiscoveredVersion] | None = None


class _GroupVersion(RawObject, frozen=True):
    version: str


class _Group(RawObject, frozen=True):
    name: str
    versions: list[_GroupVersion]


class _Discovery(RawObject, frozen=True):
    """Any of the answers: aggregated ``items``, or a plain list of ``groups``."""

    kind: str = ""
    items: list[_DiscoveredGroup] | None = None
    groups: list[_Group] | None = None


class _Resource(RawObject, frozen=True):
    name: str
    kind: str


class _ResourceList(RawObject, frozen=True):
    group_version: str
    resources: list[_Resource] | None = None


def served_apis(kubeconfig: Path | None) -> frozenset[tuple[str, str]]:
    """(groupVersion, kind) pairs. Blocks.

    A group whose server does not answer is left out. Raises Unavailable when the API server
    itself cannot tell, and PreconditionFailed without access to one.
    """
    api = connect(kubeconfig)
    return frozenset((*_core(api), *_groups(api)))


def _core(api: client.ApiClient) -> Iterator[tuple[str, str]]:
    answer = _read(_Discovery, api, "/api/")
    if answer.kind == AGGREGATED:
        yield from _aggregated(answer)
    else:
        yield from _listed(api, "/api/v1/")


def _groups(api: client.ApiClient) -> Iterator[tuple[str, str]]:
    answer = _read(_Discovery, api, "/apis/")
    if answer.kind == AGGREGATED:
        yield from _aggregated(answer)
        return
    for group in answer.groups or ():
        for each in group.versions:
            try:
                yield from _listed(
                    api, "/apis/{group}/{version}", group=group.name, version=each.version
                )
            except Unavailable:
                continue  # An aggregated API server that is down takes only its own group along.


def _aggregated(answer: _Discovery) -> Iterator[tuple[str, str]]:
    for group in answer.items or ():
        for each in group.versions or ():
            name = group.metadata.name
            group_version = f"{name}/{each.version}" if name else each.version
            for resource in each.resources or ():
                if resource.response_kind is not None and resource.response_kind.kind:
                    yield group_version, resource.response_kind.kind


def _listed(api: client.ApiClient, path: str, **names: str) -> Iterator[tuple[str, str]]:
    answer = _read(_ResourceList, api, path, **names)
    for resource in answer.resources or ():
        if "/" not in resource.name:
            yield answer.group_version, resource.kind


def _read(kind: type[Any], api: client.ApiClient, path: str, **names: str) -> Any:
    try:
        answer = request(api, "GET", path, names=names, timeout=TIMEOUT_SECONDS, accept=ACCEPT)
        return decoded(answer.data, kind)
    except ApiException as error:
        raise Unavailable(f"the API server answers {error.status} {error.reason}") from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unavailable(f"the API server cannot be reached: {error}") from error
