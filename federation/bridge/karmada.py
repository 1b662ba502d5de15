"""Karmada's objects as structs with only the fields that are needed.

Must not interpret more than a field's absence: zeros are omitted on the wire.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import msgspec

from estimator.kube.objects import Metadata, RawObject, RawStored

Document = dict[str, Any]

SCHEDULED: Final = "Scheduled"
APPLIED_PLACEMENT: Final = "policy.karmada.io/applied-placement"
DEFAULT_SCHEDULER: Final = "default-scheduler"
# One of these labels, with a value, says that Karmada's own controllers manage a binding.
MANAGED_BY: Final = (
    "propagationpolicy.karmada.io/permanent-id",
    "clusterpropagationpolicy.karmada.io/permanent-id",
    "binding.karmada.io/managed-by",
)


class StoredMetadata(Metadata, frozen=True):
    annotations: dict[str, str] | None = None
    generation: int = 0
    deletion_timestamp: str | None = None


class AggregatedItem(RawObject, frozen=True):
    cluster_name: str = ""
    applied: bool = False
    status: Document | None = None


class BindingStatus(RawObject, frozen=True):
    scheduler_observed_generation: int = 0
    scheduler_observing_affinity_name: str = ""
    last_scheduled_time: str | None = None
    conditions: list[Document] | None = None
    aggregated_status: list[AggregatedItem] | None = None


class RawBinding(RawStored, frozen=True):
    metadata: StoredMetadata
    spec: Document = msgspec.field(default_factory=dict)
    status: BindingStatus | None = None


class ReadyReplicas(NamedTuple):
    """Replicas of a binding in one cluster: ready on nodes, and of a Job those that succeeded."""

    running: int = 0
    finished: int = 0


NO_REPLICAS: Final = ReadyReplicas()


class RawCluster(RawStored, frozen=True):
    metadata: StoredMetadata
    spec: Document = msgspec.field(default_factory=dict)
    status: Document | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KarmadaBinding:
    """A ResourceBinding, or a ClusterResourceBinding where ``namespace`` is empty.

    ``ready`` says by cluster which replicas are ready there, as far as Karmada was told.
    """

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Document
    applied_placement: str | None = None
    is_deleting: bool = False
    observed_generation: int = 0
    observing_affinity: str = ""
    last_scheduled_time: str = ""
    conditions: tuple[Document, ...] = ()
    ready: Mapping[str, ReadyReplicas] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def kind(self) -> str:
        return "ResourceBinding" if self.namespace else "ClusterResourceBinding"

    @property
    def placement(self) -> Document | None:
        placement: Document | None = self.spec.get("placement")
        return placement

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas") or 0)

    @property
    def targets(self) -> dict[str, int]:
        """Replicas by cluster, as they are written now."""
        return {
            each["name"]: int(each.get("replicas") or 0) for each in self.spec.get("clusters") or ()
        }

    @property
    def is_workload(self) -> bool:
        spec = self.spec
        return bool(self.replicas or spec.get("replicaRequirements") or spec.get("components"))

    @property
    def is_duplicated(self) -> bool:
        """Without a strategy at all every cluster gets all replicas."""
        strategy = (self.placement or {}).get("replicaScheduling")
        return not strategy or strategy.get("replicaSchedulingType") == "Duplicated"

    @property
    def is_suspended(self) -> bool:
        return bool((self.spec.get("suspension") or {}).get("scheduling"))

    def is_for(self, scheduler: str) -> bool:
        """Whether the scheduler of that name has to decide it, now or when it is resumed."""
        named = self.spec.get("schedulerName") or DEFAULT_SCHEDULER
        return named == scheduler and any(self.labels.get(label) for label in MANAGED_BY)

    def with_spec(self, spec: Document) -> KarmadaBinding:
        """The same binding if its spec were this."""
        return replace(self, spec=spec)

    def condition(self, kind: str) -> Document | None:
        return next((each for each in self.conditions if each.get("type") == kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KarmadaCluster:
    """A member cluster. ``is_deleting``: Karmada waits until no binding lists it."""

    name: str
    uid: str
    version: str
    generation: int
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Document
    status: Document = field(default_factory=dict)
    is_deleting: bool = False

    @property
    def identity(self) -> str:
        """The uid of its kube-system namespace, as an agent says it; else the object's own."""
        return str(self.spec.get("id") or self.uid)


def binding_from_raw(raw: RawBinding) -> KarmadaBinding:
    metadata, status = raw.metadata, raw.status or BindingStatus()
    return KarmadaBinding(
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        version=metadata.resource_version or "",
        generation=metadata.generation,
        labels=metadata.labels or {},
        spec=raw.spec,
        applied_placement=(metadata.annotations or {}).get(APPLIED_PLACEMENT),
        is_deleting=metadata.deletion_timestamp is not None,
        observed_generation=status.scheduler_observed_generation,
        observing_affinity=status.scheduler_observing_affinity_name,
        last_scheduled_time=status.last_scheduled_time or "",
        conditions=tuple(status.conditions or ()),
        ready=_ready(raw.spec, status.aggregated_status or []),
    )


def cluster_from_raw(raw: RawCluster) -> KarmadaCluster:
    metadata = raw.metadata
    return KarmadaCluster(
        name=metadata.name,
        uid=metadata.uid or "",
        version=metadata.resource_version or "",
        generation=metadata.generation,
        labels=metadata.labels or {},
        spec=raw.spec,
        status=raw.status or {},
        is_deleting=metadata.deletion_timestamp is not None,
    )


def _ready(spec: Document, items: list[AggregatedItem]) -> dict[str, ReadyReplicas]:
    """What is evidence that pods run: applied, of the newest spec, and ready. Zeros are omitted.

    ``health`` is none: it may be of an older assignment, and kinds without a rule are always
    healthy.
    """
    assigned = {each["name"]: int(each.get("replicas") or 0) for each in spec.get("clusters") or ()}
    return {
        item.cluster_name: _ready_replicas(item.status, assigned[item.cluster_name])
        for item in items
        if item.applied and item.status and item.cluster_name in assigned
    }


def _ready_replicas(status: Document, assigned: int) -> ReadyReplicas:
    generation = status.get("generation")
    if generation is not None and status.get("observedGeneration", generation) != generation:
        return NO_REPLICAS
    # Jobs say active and succeeded: both have, or had, their room.
    ready = status.get("readyReplicas")
    running = _count(status.get("active") if ready is None else ready)
    finished = _count(status.get("succeeded"))
    return ReadyReplicas(min(running, assigned), min(finished, assigned))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
