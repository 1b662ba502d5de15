"""Kubernetes' JSON as structs with only the fields that are needed; msgspec skips the others.

Must not interpret: ``estimator.kube.translate`` does. Anything may be absent or null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

Quantities = dict[str, str]

# Of 64 bits.
MAX_VERSION_DIGITS: Final = 20

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class RawObject(msgspec.Struct, rename="camel", frozen=True):
    """Base of all: camelCase on the wire, unknown fields skipped."""


class ListMetadata(RawObject, frozen=True):
    resource_version: str = ""
    continue_: str | None = msgspec.field(name="continue", default=None)


class Metadata(RawObject, frozen=True):
    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    labels: dict[str, str] | None = None


def version_number(text: str | None) -> int:
    """Return a resourceVersion as the number that orders it, or 0 for one that is none."""
    if text is None or len(text) > MAX_VERSION_DIGITS or not text.isascii() or not text.isdigit():
        return 0
    return int(text)


class OwnerReference(RawObject, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool | None = None


class PodMetadata(Metadata, frozen=True):
    creation_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class RawStored(RawObject, frozen=True):
    """Base of what the API server stores and watches tell of."""

    metadata: Metadata


class RawTaint(RawObject, frozen=True):
    key: str
    effect: str
    value: str | None = None


class NodeCondition(RawObject, frozen=True):
    type: str
    status: str


class NodeSpec(RawObject, frozen=True):
    taints: list[RawTaint] | None = None
    unschedulable: bool | None = None
    provider_id: str | None = msgspec.field(name="providerID", default=None)


class NodeVersions(RawObject, frozen=True):
    kubelet_version: str = ""


class NodeStatus(RawObject, frozen=True):
    allocatable: Quantities | None = None
    conditions: list[NodeCondition] | None = None
    node_info: NodeVersions | None = None


class RawNode(RawStored, frozen=True):
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(RawObject, frozen=True):
    requests: Quantities | None = None


class Container(RawObject, frozen=True):
    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None


class ContainerStatus(RawObject, frozen=True):
    name: str = ""
    allocated_resources: Quantities | None = None
    resources: Resources | None = None


class RawRequirement(RawObject, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeTerm(RawObject, frozen=True):
    match_expressions: list[RawRequirement] | None = None
    match_fields: list[RawRequirement] | None = None


class NodeTerms(RawObject, frozen=True):
    node_selector_terms: list[NodeTerm] | None = None


class NodeAffinity(RawObject, frozen=True):
    required: NodeTerms | None = msgspec.field(name=_REQUIRED, default=None)


class RawLabelSelector(RawObject, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[RawRequirement] | None = None


class PodTerm(RawObject, frozen=True):
    label_selector: RawLabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: RawLabelSelector | None = None


class PodAffinity(RawObject, frozen=True):
    """Affinity to pods, or the opposite of it."""

    required: list[PodTerm] | None = msgspec.field(name=_REQUIRED, default=None)


class Affinity(RawObject, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SchedulingGate(RawObject, frozen=True):
    name: str = ""


class PodSpec(RawObject, frozen=True):
    node_name: str | None = None
    containers: Sequence[Container] | None = None
    init_containers: Sequence[Container] | None = None
    overhead: Quantities | None = None
    resources: Resources | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    priority: int | None = None
    scheduling_gates: list[SchedulingGate] | None = None


class PodCondition(RawObject, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: str | None = None


class PodStatus(RawObject, frozen=True):
    phase: str = ""
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    allocated_resources: Quantities | None = None
    resources: Resources | None = None
    nominated_node_name: str | None = None


class RawPod(RawStored, frozen=True):
    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Status(RawObject, frozen=True):
    """The API server's answer in place of an object when something went wrong."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Kinded(RawObject, frozen=True):
    kind: str = ""
    metadata: Metadata = Metadata()


class BookmarkMetadata(RawObject, frozen=True):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class WatchBookmark(RawObject, frozen=True):
    """A version without an object: required fields of its kind may be null."""

    metadata: BookmarkMetadata


class Event(RawObject, frozen=True):
    """One line of a watch; the object is decoded once its type is known."""

    type: str
    object: msgspec.Raw


class VersionInfo(RawObject, frozen=True):
    git_version: str = ""
