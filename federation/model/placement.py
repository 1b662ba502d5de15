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
    """Whether every cluster gets all replicas, or the replicas are divided."""

    DUPLICATED = "Duplicated"
    DIVIDED = "Divided"


class DivisionPreference(StrEnum):
    """The way to divide replicas; FillFirst is ours."""

    WEIGHTED = "Weighted"
    AGGREGATED = "Aggregated"
    FILL_FIRST = "FillFirst"


class SpreadField(StrEnum):
    """The property by which a spread constraint groups clusters."""

    CLUSTER = "cluster"
    REGION = "region"
    ZONE = "zone"
    PROVIDER = "provider"


class TieBreak(StrEnum):
    """The order among equals: a keyed hash (ours, fair to all), or Karmada's name order."""

    HASH = "hash"
    KARMADA = "karmada"


class Certificate(StrEnum):
    """The worth of a promise of capacity; see docs/reservations.md."""

    PLANNED = "planned"
    CAREFUL = "careful"
    STRICT = "strict"


class PreemptionPolicy(StrEnum):
    """Whether a binding may displace reservations of lower priority."""

    NEVER = "Never"
    PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"


class PurgeMode(StrEnum):
    """When an eviction removes replicas: at once, or when their replacement runs."""

    GRACEFULLY = "Gracefully"
    GRACIOUSLY = "Graciously"
    DIRECTLY = "Directly"
    IMMEDIATELY = "Immediately"
    NEVER = "Never"


class OnClusterLoss(StrEnum):
    """The treatment of a binding's replicas in a cluster that is lost."""

    REPLACE = "replace"
    WAIT = "wait"


class OnClusterReturn(StrEnum):
    """The replicas that stay when a lost cluster returns before its eviction has ended.

    BEST: the original ones if less than half of their replacement has been started.
    """

    KEEP_REPLACEMENT = "keepReplacement"
    KEEP_ORIGINAL = "keepOriginal"
    BEST = "best"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAffinity:
    """A condition on clusters: every stated part must match; ``exclude`` comes first."""

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
    """One of several ordered affinities, with the tiers into which it may overflow."""

    name: str
    affinity: ClusterAffinity
    overflow: tuple[ClusterAffinity, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadConstraint:
    """Between ``min_groups`` and ``max_groups`` (None: no limit) groups by one field."""

    by: SpreadField
    min_groups: int = 1
    max_groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticWeight:
    """A weight for the clusters that an affinity matches."""

    target: ClusterAffinity
    weight: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLimit:
    """Minimum and maximum replicas of each matching cluster (None: no maximum)."""

    target: ClusterAffinity
    min: int = 0
    max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaScheduling:
    """The division of replicas.

    ``static_weights`` is None without a list; ``dynamic`` means weights by available replicas.
    """

    type: SchedulingType = SchedulingType.DUPLICATED
    preference: DivisionPreference = DivisionPreference.WEIGHTED
    static_weights: tuple[StaticWeight, ...] | None = None
    dynamic: bool = False
    limits: tuple[ClusterLimit, ...] = ()
    capacity_bounded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Placement:
    """The placement policy of a binding: ``affinity``, or ``affinity_groups`` that are tried in
    order.

    ``workload_affinity_key`` and ``workload_anti_affinity_key`` are label keys. Workloads with
    equal labels must, or must not, share clusters; empty: no such rule.
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
    """A cluster from which the workload is moved away, with the replicas it still holds.

    ``created_at`` is in Unix seconds. ``clusters_before`` are the clusters of the binding before
    the move.
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
    """A group of ``size`` bindings of a namespace that are placed together or not at all.

    After ``timeout_seconds`` (None: never) its status says what is still missing.
    """

    name: str
    size: int
    timeout_seconds: int | None = None


# The producer of the eviction tasks that fedsched makes and ends.
EVICTION_PRODUCER: Final = "fedsched"

# A binding's namespace and name.
BindingName: TypeAlias = tuple[str, str]


def binding_key(namespace: str, name: str) -> str:
    """Return ``namespace/name``, or the name alone for cluster-scoped bindings."""
    return f"{namespace}/{name}" if namespace else name


class BindingVersion(NamedTuple):
    """A version of a stored binding: history of the database, row, and number."""

    history: str
    stored_id: int
    number: int

    def __str__(self) -> str:
        return f"{self.history}-{self.stored_id}-{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A workload to be scheduled, named (namespace, name).

    ``min_available`` is the minimum of replicas, over all clusters, of a partial placement.
    ``clusters`` is where it runs now. ``fresh`` asks to divide all replicas again: a reschedule was
    triggered after the last scheduling. ``is_unsettled``: it asks for something that no decision
    has placed yet.

    ``observed_affinity`` is the affinity group of ``clusters`` if a caller states both, ""
    otherwise. ``clusters_are_stated``: a caller states where it runs, and no decision has promised
    anything there yet. ``stored_id`` is the id of a stored binding, else 0. ``expected_version`` is
    the version that a caller has read. Comparisons ignore these two.
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
    """Return the gang with which it is placed; None if it has a place, is suspended, or has no
    gang.
    """
    return None if binding.clusters or binding.suspended else binding.gang


def is_grouped(binding: Binding) -> bool:
    """Return whether the binding is in a workload affinity or anti-affinity group."""
    placement = binding.placement
    return bool(placement.workload_affinity_key or placement.workload_anti_affinity_key)


def groups_of(binding: Binding) -> tuple[str, str]:
    """Return the workload affinity group and anti-affinity group, empty without one."""
    placement = binding.placement
    return (
        _group(binding, placement.workload_affinity_key),
        _group(binding, placement.workload_anti_affinity_key),
    )


def _group(binding: Binding, key: str) -> str:
    """Return the group of a workload: the value of a label; without the label it is in no group."""
    return f"{key}={binding.labels[key]}" if key and key in binding.labels else ""
