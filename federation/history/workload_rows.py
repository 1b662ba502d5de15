"""Row structs of workloads: requirements, components, tolerations, and shares of clusters.

Must not know in which documents they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from federation.history.rows import DocumentPart, Rows, always
from federation.model.cluster import TaintEffect
from federation.model.workload import (
    Operator,
    ReplicaRequirements,
    TargetCluster,
    TolerationOperator,
)


class RequirementRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Requirement``."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class NodeSelectorTermRow(DocumentPart, frozen=True, kw_only=True):
    """A ``NodeSelectorTerm``."""

    match_expressions: tuple[RequirementRow, ...] = ()
    match_fields: tuple[RequirementRow, ...] = ()


class TolerationRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Toleration``."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect | None = None
    toleration_seconds: int | None = None


class NodeClaimRow(DocumentPart, frozen=True, kw_only=True):
    """A ``NodeClaim``."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    required_terms: tuple[NodeSelectorTermRow, ...] | None = None
    tolerations: tuple[TolerationRow, ...] = ()


class RequirementsRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ReplicaRequirements``."""

    request: dict[str, int] = msgspec.field(default_factory=dict)
    node_claim: NodeClaimRow | None = None
    namespace: str = ""
    priority_class_name: str = ""


class ComponentRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Component``."""

    name: str
    replicas: int
    requirements: RequirementsRow = RequirementsRow()


class ObjectReferenceRow(DocumentPart, frozen=True, kw_only=True):
    """An ``ObjectReference``."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class TargetRow(DocumentPart, frozen=True, kw_only=True):
    """A ``TargetCluster``."""

    name: str
    replicas: int = always(0)


def target_rows(clusters: Iterable[TargetCluster]) -> list[TargetRow]:
    """Return the shares of clusters as they are stored."""
    return [TargetRow(name=target.name, replicas=target.replicas) for target in clusters]


TARGETS: Final = Rows(TargetCluster, TargetRow, "shares of clusters")
REQUIREMENTS: Final = Rows(ReplicaRequirements, RequirementsRow, "requirements")
