"""One cluster's nodes and pods as values: only what capacity and placement depend on.

Pure; amounts in base units. Must not know Kubernetes' JSON, which ``estimator.kube`` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from federation.model.cluster import Taint
from federation.model.echoes import UNKNOWN_ORIGIN, PodOrigin
from federation.model.selectors import matches_requirements
from federation.model.workload import Requirement

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. ``taints`` hold those written on it and those its state amounts to.

    ``allocatable`` is rounded down. ``kubelet_version`` and ``provider_id`` are empty when the
    node does not say.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    provider_id: str = ""
    kubelet_version: str = ""


class PodState(StrEnum):
    """The meaning of a pod for capacity."""

    BOUND = "holds its request on a node"
    WAITING = "has no node yet"
    GATED = "has no node yet, and asks for none until its scheduling gates open"
    DROPPED = "ended without ever having had a node"
    DONE = "has given its node's resources back"
    SUCCEEDED = "has given them back, and its work is done"

    @property
    def has_no_node_yet(self) -> bool:
        return self is _WAITING or self is _GATED

    @property
    def is_over(self) -> bool:
        """Whether it takes no resources and waits for none; what was DROPPED is counted apart."""
        return self is _DONE or self is _SUCCEEDED


# Python 3.11 is slow to look a member of an enum up, and events ask for these again and again.
_DONE: Final = PodState.DONE
_SUCCEEDED: Final = PodState.SUCCEEDED
_WAITING: Final = PodState.WAITING
_GATED: Final = PodState.GATED


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRef:
    """The owner of a pod: a Deployment rather than its ReplicaSet, else the pod's controller."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repulsion:
    """A required anti-affinity: no pod with such labels near the one that has it.

    ``namespaces`` is None when it cannot be told from names alone which are meant.
    """

    namespaces: frozenset[str] | None
    requirements: tuple[Requirement, ...]

    def concerns(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether it may keep such a pod away."""
        meant = self.namespaces is None or namespace in self.namespaces
        return meant and matches_requirements(self.requirements, labels)


class Pod(NamedTuple):
    """A pod. ``node`` is empty unless it is, or was, bound. A tuple: every event makes one.

    ``request`` is what it counts for, without its pod slot. ``nonzero`` holds cpu and memory as
    kube-scheduler's scoring counts them on the node: containers that ask for none count a default.
    ``revision`` is which of a Deployment's ReplicaSets it belongs to. Times are in Unix seconds;
    ``unschedulable_since`` is None unless the scheduler has found no node for it. ``origin`` is
    what promises find it by. ``nominated_node`` is where a pod without a node is expected to run:
    its room there is taken from pods of no higher ``priority``. ``selects_by`` are the node labels
    that its selector and its required affinity look at, each once.
    """

    uid: str
    namespace: str
    name: str
    state: PodState
    node: str = ""
    request: Mapping[str, int] = _NOTHING
    nonzero: Mapping[str, int] = _NOTHING
    owner: WorkloadRef | None = None
    revision: str = ""
    created_at: float = 0.0
    unschedulable_since: float | None = None
    repulsions: tuple[Repulsion, ...] = ()
    origin: PodOrigin = UNKNOWN_ORIGIN
    selects_by: tuple[str, ...] = ()
    nominated_node: str = ""
    priority: int = 0
