"""A workload: its requirements, its components and the clusters where it runs.

Pure values, amounts in base units. Must not know where clusters are or how many replicas fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Final

from federation.model.cluster import TaintEffect

# Requests with more resources are few and large, and are not shared.
MAX_SHARED: Final = 16


class Operator(StrEnum):
    """Operators of label, field and node selector requirements."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One expression over a key (a label, or a field): key, operator, values."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """Requirements that must all hold; a term with none matches nothing."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class TolerationOperator(StrEnum):
    """The comparison of a toleration's value; Equal by default."""

    EQUAL = "Equal"
    EXISTS = "Exists"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """Tolerates matching taints; an empty key with Exists tolerates all, no effect means any."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClaim:
    """A condition on the nodes of a replica. ``required_terms`` are ORed; None means no
    affinity.
    """

    node_selector: Mapping[str, str] = field(default_factory=dict)
    required_terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    @property
    def key(self) -> Hashable:
        """Return a hashable value that is equal for equal claims."""
        return frozenset(self.node_selector.items()), self.required_terms, self.tolerations

    @property
    def chooses_nodes(self) -> bool:
        """Return whether it excludes nodes by their labels or names."""
        return bool(self.node_selector) or self.required_terms is not None

    @property
    def label_keys(self) -> frozenset[str]:
        """Return the keys of the node labels that it reads."""
        terms = self.required_terms or ()
        return frozenset(
            {
                *self.node_selector,
                *(expression.key for term in terms for expression in term.match_expressions),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class ReplicaRequirements:
    """The requirements of one replica: amounts in base units by resource, and its node claim."""

    request: Mapping[str, int] = field(default_factory=dict)
    node_claim: NodeClaim | None = None
    namespace: str = ""
    priority_class_name: str = ""

    @property
    def chooses_nodes(self) -> bool:
        """Return whether its node claim excludes nodes by their labels or names."""
        return self.node_claim is not None and self.node_claim.chooses_nodes


def shared_request(request: Mapping[str, int]) -> Mapping[str, int]:
    """Return one shared object for equal requests, so that comparing them is fast. It must not
    change.
    """
    if len(request) > MAX_SHARED:
        return request
    return _shared(tuple(request.items()))


@lru_cache(maxsize=1024)
def _shared(items: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    return dict(items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One kind of pod of a multi-component workload."""

    name: str
    replicas: int
    requirements: ReplicaRequirements = field(default_factory=ReplicaRequirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The workload's template object. Its uid decides ties; empty means ascending names."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCluster:
    """A cluster and the replicas it holds of a workload."""

    name: str
    replicas: int = 0
