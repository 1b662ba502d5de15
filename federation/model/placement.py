"""Placement and binding: where a workload may go and how its replicas are divided.

Pure values with Karmada's vocabulary. Must not evaluate anything: the scheduler does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from federation.model.workload import (
    Component,
    ObjectReference,
    ReplicaRequirements,
    Requirement,
    TargetCluster,
    Toleration,
)


class SchedulingType(StrEnum):
    """Whether every cluster gets all replicas or the replicas are divided."""

    DUPLICATED = "Duplicated"
    DIVIDED = "Divided"


class DivisionPreference(StrEnum):
    """How replicas are divided; FillFirst is ours."""

    WEIGHTED = "Weighted"
    AGGREGATED = "Aggregated"
    FILL_FIRST = "FillFirst"


class SpreadField(StrEnum):
    """What a spread constraint groups clusters by."""

    CLUSTER = "cluster"
    REGION = "region"
    ZONE = "zone"
    PROVIDER = "provider"


class TieBreak(StrEnum):
    """Order among equals: a keyed hash (ours, fair to all), or Karmada's name order."""

    HASH = "hash"
    KARMADA = "karmada"


class Certificate(StrEnum):
    """What a promise of capacity is worth; see the reservations page of the documentation."""

    PLANNED = "planned"
    CAREFUL = "careful"
    STRICT = "strict"


class PreemptionPolicy(StrEnum):
    """Whether a binding may displace reservations of lower priority."""

    NEVER = "Never"
    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"


class PurgeMode(StrEnum):
    """When what an eviction task names is taken away: at once, or when its replacement runs."""

    GRACEFULLY = "Gracefully"
    GRACIOUSLY = "Graciously"
    DIRECTLY = "Directly"
    IMMEDIATELY = "Immediately"
    NEVER = "Never"


class OnClusterLoss(StrEnum):
    """What becomes of a binding's replicas in a cluster that is lost."""

    REPLACE = "replace"
    WAIT = "wait"


class OnClusterReturn(StrEnum):
    """Which replicas stay when a lost cluster is back before the eviction has ended; BEST: the
    original ones where less than half of the others has been started.
    """

    KEEP_REPLACEMENT = "keepReplacement"
    KEEP_ORIGINAL = "keepOriginal"
    BEST = "best"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAffinity:
    """Which clusters qualify: every stated part must match; ``exclude`` is looked at first."""

    cluster_names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()

    def __hash__(self) -> int:
        """Hash by value: placements are keys of caches, and a mapping has no hash of its own."""
        labels = frozenset(self.match_labels.items())
        fields = self.match_expressions, self.match_fields
        return hash((self.cluster_names, self.exclude, labels, *fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityGroup:
    """One of several ordered affinities, with the tiers it may overflow into."""

    name: str
    affinity: ClusterAffinity
    overflow: tuple[ClusterAffinity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadConstraint:
    """At least ``min_groups`` and at most ``max_groups`` (None: no limit) groups by one field."""

    by: SpreadField
    min_groups: int = 1
    max_groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticWeight:
    """A weight for the clusters an affinity matches."""

    target: ClusterAffinity
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimit:
    """Least and most replicas for the clusters an affinity matches (None: no upper limit)."""

    target: ClusterAffinity
    min: int = 0
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaScheduling:
    """How replicas are divided.

    ``static_weights`` is None when no list was given; ``dynamic`` is weight by available replicas.
    """

    type: SchedulingType = SchedulingType.DUPLICATED
    preference: DivisionPreference = DivisionPreference.WEIGHTED
    static_weights: tuple[StaticWeight, ...] | None = None
    dynamic: bool = False
    limits: tuple[ClusterLimit, ...] = ()
    capacity_bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Placement:
    """The whole wish. ``affinity_groups`` are tried in order and exclude ``affinity``.

    ``workload_affinity_key`` / ``workload_anti_affinity_key`` are label keys that group workloads
    which must, or must not, share clusters; empty when not asked for.
    """

    affinity: ClusterAffinity | None = None
    affinity_groups: tuple[AffinityGroup, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    spread_constraints: tuple[SpreadConstraint, ...] = ()
    replica_scheduling: ReplicaScheduling = field(default_factory=ReplicaScheduling)
    workload_affinity_key: str = ""
    workload_anti_affinity_key: str = ""
    partial: bool = False
    tie_break: TieBreak = TieBreak.HASH


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionTask:
    """A cluster the workload is being moved away from, with the replicas it still holds.

    ``created_at`` is in Unix seconds. ``clusters_before`` is where it ran before the move.
    """

    from_cluster: str
    replicas: int = 0
    reason: str = ""
    message: str = ""
    producer: str = ""
    created_at: float | None = None
    purge_mode: PurgeMode | None = None
    clusters_before: tuple[TargetCluster, ...] = ()

    @property
    def is_ours(self) -> bool:
        return self.producer == EVICTION_PRODUCER


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """Which ``size`` bindings of a namespace are placed together or not at all.

    After ``timeout_seconds`` (None: never) it is told what is missing still.
    """

    name: str
    size: int
    timeout_seconds: int | None = None


# Of the tasks that fedsched makes, and ends.
EVICTION_PRODUCER: Final = "fedsched"

# A binding's namespace and name.
BindingName: TypeAlias = tuple[str, str]


def binding_key(namespace: str, name: str) -> str:
    """``namespace/name``, or the name alone for cluster-scoped bindings."""
    return f"{namespace}/{name}" if namespace else name


class BindingVersion(NamedTuple):
    """A state of a stored binding: of which history of the database, which row, and its number."""

    history: str
    stored_id: int
    number: int

    def __str__(self) -> str:
        return f"{self.history}-{self.stored_id}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A workload to be scheduled, named (namespace, name).

    ``min_available`` is from how many replicas on, over all clusters, a partial placement is
    acceptable. ``clusters`` is where it runs now. ``fresh`` asks to divide anew instead of
    steadily: true when a reschedule was triggered after the last scheduling. ``is_unsettled``
    says that it asks for something that no decision has placed yet. ``observed_affinity`` is the
    affinity group of ``clusters`` where a caller states both, "" elsewhere.
    ``clusters_are_stated`` as long as no decision has promised anything where a caller says that it
    runs. ``stored_id`` is the id of a stored binding, 0 of others, and ``expected_version`` the
    version that a caller has read; neither is a part of what the binding is.
    """

    namespace: str = ""
    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    generation: int = 1
    resource_version: int = 0
    resource: ObjectReference = field(default_factory=ObjectReference)
    replicas: int = 0
    requirements: ReplicaRequirements = field(default_factory=ReplicaRequirements)
    components: tuple[Component, ...] = ()
    clusters: tuple[TargetCluster, ...] = ()
    placement: Placement = field(default_factory=Placement)
    scheduler_name: str = ""
    priority: int = 0
    fresh: bool = False
    reschedule_triggered_at: float | None = None
    last_scheduled_time: float | None = None
    eviction_tasks: tuple[EvictionTask, ...] = ()
    suspended: bool = False
    certificate: Certificate | None = None
    lease_seconds: int | None = None
    preemption_policy: PreemptionPolicy = PreemptionPolicy.NEVER
    min_available: int | None = None
    preemptible: bool = True
    on_cluster_loss: OnClusterLoss = OnClusterLoss.REPLACE
    on_cluster_return: OnClusterReturn = OnClusterReturn.KEEP_REPLACEMENT
    gang: Gang | None = None
    is_unsettled: bool = False
    stored_id: int = field(default=0, compare=False)
    expected_version: BindingVersion | None = field(default=None, compare=False)
    observed_affinity: str = ""
    clusters_are_stated: bool = False

    @property
    def key(self) -> str:
        return binding_key(self.namespace, self.name)


def gang_to_join(binding: Binding) -> Gang | None:
    """The gang that it is placed with, None where it has its place already, is suspended, or has
    no gang.
    """
    return None if binding.clusters or binding.suspended else binding.gang


def is_grouped(binding: Binding) -> bool:
    """Whether it goes with other bindings, or keeps away from them."""
    placement = binding.placement
    return bool(placement.workload_affinity_key or placement.workload_anti_affinity_key)


def groups_of(binding: Binding) -> tuple[str, str]:
    """Its workload affinity group and anti-affinity group, empty where it is in none."""
    placement = binding.placement
    return (
        _group(binding, placement.workload_affinity_key),
        _group(binding, placement.workload_anti_affinity_key),
    )


def _group(binding: Binding, key: str) -> str:
    """Workloads are grouped by the value of a label; one without the label is in no group."""
    return f"{key}={binding.labels[key]}" if key and key in binding.labels else ""
