"""Karmada's objects: structs with the fields that are needed, values, and the watches of them.

Must not interpret more than a field's absence, nor keep objects: zeros are omitted on the wire.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from estimator.kube.client import KubeClient
from estimator.kube.decoding import Watched
from estimator.kube.informer import DEFAULT_PATIENCE, Informer, Patience, Receiver
from estimator.kube.objects import Metadata, RawObject, RawStored
from estimator.sight import Loss
from federation.codec.descriptors import fields_of, inner_message
from federation.codec.karmada_fields import READ_OVER
from federation.codec.violations import joined
from federation.runtime.backoff import uniform

Document = dict[str, Any]
Value = TypeVar("Value")

BINDINGS: Final = "/apis/work.karmada.io/v1alpha2/resourcebindings"
CLUSTER_BINDINGS: Final = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings"
CLUSTERS: Final = "/apis/cluster.karmada.io/v1alpha1/clusters"
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


class RawCluster(RawStored, frozen=True):
    metadata: StoredMetadata
    spec: Document = msgspec.field(default_factory=dict)
    status: Document | None = None


class ReadyReplicas(NamedTuple):
    """Replicas of a binding in one cluster: ready on nodes, and of a Job those that succeeded."""

    running: int = 0
    finished: int = 0


NO_REPLICAS: Final = ReadyReplicas()


@dataclass(frozen=True, slots=True, kw_only=True)
class KarmadaBinding:
    """A ResourceBinding, or a ClusterResourceBinding where ``namespace`` is empty.

    ``ready`` has the ready replicas by cluster, as far as Karmada has collected them.
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
        targets = self.spec.get("clusters") or ()
        return {target["name"]: int(target.get("replicas") or 0) for target in targets}

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
    def goes_everywhere(self) -> bool:
        """Whether it goes to all clusters that match. Only these does Karmada decide again when
        a cluster joins, becomes ready or has more capacity.
        """
        return not self.is_workload or self.is_duplicated

    @property
    def is_suspended(self) -> bool:
        return bool((self.spec.get("suspension") or {}).get("scheduling"))

    def is_for(self, scheduler: str) -> bool:
        """Whether the scheduler of that name has to decide it, now or when it is resumed."""
        scheduler_name = self.spec.get("schedulerName") or DEFAULT_SCHEDULER
        return scheduler_name == scheduler and any(self.labels.get(label) for label in MANAGED_BY)

    def with_spec(self, spec: Document) -> KarmadaBinding:
        """The same binding with another spec."""
        return replace(self, spec=spec)

    def condition(self, kind: str) -> Document | None:
        return next((entry for entry in self.conditions if entry.get("type") == kind), None)


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
    """Evidence that pods run: applied, of the newest spec, and ready. Zeros are omitted.

    ``health`` is none: it may be of an older assignment, and kinds without a rule are always
    healthy.
    """
    targets = spec.get("clusters") or ()
    assigned = {target["name"]: int(target.get("replicas") or 0) for target in targets}
    return {
        item.cluster_name: _ready_replicas(item.status, assigned[item.cluster_name])
        for item in items
        if item.applied and item.status and item.cluster_name in assigned
    }


def _ready_replicas(status: Document, assigned: int) -> ReadyReplicas:
    generation = status.get("generation")
    if generation is not None and status.get("observedGeneration", generation) != generation:
        return NO_REPLICAS
    # Jobs say active and succeeded: both have, or had, their capacity.
    ready = status.get("readyReplicas")
    running = _count(status.get("active") if ready is None else ready)
    finished = _count(status.get("succeeded"))
    return ReadyReplicas(min(running, assigned), min(finished, assigned))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def known_fields(document: Any, descriptor: Any, path: str, unknown: Counter[str]) -> Any:
    """The part of a document that a message of fedsched has fields for.

    Karmada's API server has checked the document: a newer field there must not stop the bridge.
    ``unknown`` counts the fields that no version of Karmada has so far, by path.
    """
    if isinstance(document, list):
        return [known_fields(item, descriptor, f"{path}[]", unknown) for item in document]
    if not isinstance(document, dict):
        return document
    fields = _fields_by_name(descriptor)
    readable: dict[str, Any] = {}
    for name, value in document.items():
        if (field_of_name := fields.get(name)) is None:
            if name not in READ_OVER.get(descriptor.name, {}):
                unknown[joined(path, name)] += 1
            continue
        inner = inner_message(field_of_name)
        if inner is None:
            readable[name] = value
        else:
            readable[name] = known_fields(value, inner, joined(path, name), unknown)
    return readable


@cache
def _fields_by_name(descriptor: Any) -> Mapping[str, Any]:
    return {entry.json_name: entry for entry in fields_of(descriptor)}


class KarmadaWatches:
    """Informers of the three kinds. ``are_current``: none of them is interrupted."""

    def __init__(
        self,
        client: KubeClient,
        *,
        clusters: Receiver[KarmadaCluster],
        bindings: Receiver[KarmadaBinding],
        cluster_bindings: Receiver[KarmadaBinding],
        clock: Callable[[], float],
        patience: Patience = DEFAULT_PATIENCE,
    ) -> None:
        self._client = client
        self._clock = clock
        self._patience = patience
        self._interrupted: set[str] = set()
        self._informers = (
            self._informer(CLUSTERS, RawCluster, cluster_from_raw, clusters),
            self._informer(BINDINGS, RawBinding, binding_from_raw, bindings),
            self._informer(CLUSTER_BINDINGS, RawBinding, binding_from_raw, cluster_bindings),
        )

    @property
    def are_current(self) -> bool:
        return not self._interrupted

    async def follow(self) -> None:
        """Keep in step until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._informers:
                tasks.create_task(informer.run())

    def are_alive(self) -> bool:
        """Whether no informer ends again and again: another process may do better."""
        now = asyncio.get_running_loop().time()
        return not any(informer.is_failing_at(now) for informer in self._informers)

    def _informer(
        self,
        path: str,
        raw: type[RawStored],
        translate: Callable[[Any], Value],
        receiver: Receiver[Value],
    ) -> Informer[Value]:
        name = path.rpartition("/")[2]

        def note_loss(loss: Loss | None, _is_forbidden: bool) -> None:
            if loss is None:
                self._interrupted.discard(name)
            else:
                self._interrupted.add(name)

        return Informer(
            self._client,
            Watched(name=name, path=path, raw=raw, translate=translate),
            replace(receiver, on_loss=note_loss),
            uniform,
            self._patience,
            self._clock,
        )
