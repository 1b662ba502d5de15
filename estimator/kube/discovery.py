"""Which APIs a cluster serves: two requests where the server aggregates, else one per group.

Must not judge what an API is good for. Subresources are no APIs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeVar

from estimator.kube.client import JSON, KubeClient, decoded
from estimator.kube.objects import RawObject
from federation.model.errors import FederationError

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


_Answer = TypeVar("_Answer")


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


async def served_apis(client: KubeClient) -> frozenset[tuple[str, str]]:
    """Return (groupVersion, kind) pairs.

    A group whose server does not answer is left out. Raises as requests do.
    """
    core = await _read(_Discovery, client, "/api/")
    if core.kind == AGGREGATED:
        pairs = set(_aggregated(core))
    else:
        pairs = set(await _listed(client, "/api/v1/"))
    groups = await _read(_Discovery, client, "/apis/")
    if groups.kind == AGGREGATED:
        return frozenset(pairs.union(_aggregated(groups)))
    for group in groups.groups or ():
        for entry in group.versions:
            names = {"group": group.name, "version": entry.version}
            try:
                pairs.update(await _listed(client, "/apis/{group}/{version}", **names))
            except FederationError:
                continue  # An aggregated API server that is down takes only its own group along.
    return frozenset(pairs)


def _aggregated(answer: _Discovery) -> Iterator[tuple[str, str]]:
    for group in answer.items or ():
        for entry in group.versions or ():
            name = group.metadata.name
            group_version = f"{name}/{entry.version}" if name else entry.version
            for resource in entry.resources or ():
                if resource.response_kind is not None and resource.response_kind.kind:
                    yield group_version, resource.response_kind.kind


async def _listed(client: KubeClient, path: str, **names: str) -> list[tuple[str, str]]:
    answer = await _read(_ResourceList, client, path, **names)
    return [
        (answer.group_version, resource.kind)
        for resource in answer.resources or ()
        if "/" not in resource.name
    ]


async def _read(kind: type[_Answer], client: KubeClient, path: str, **names: str) -> _Answer:
    return decoded(await client.request("GET", path, accept=ACCEPT, names=names), kind)
