"""Row structs of bindings, and of their surroundings in a decision.

Must not know in which statements they are written.
"""

from __future__ import annotations

from typing import Final

import msgspec

from federation.history.rows import Document, DocumentPart, Documents, Rows, always
from federation.history.workload_rows import (
    ComponentRow,
    ObjectReferenceRow,
    RequirementRow,
    RequirementsRow,
    TargetRow,
    TolerationRow,
)
from federation.model.placement import (
    Binding,
    Certificate,
    DivisionPreference,
    EvictionTask,
    OnClusterLoss,
    OnClusterReturn,
    PreemptionPolicy,
    PurgeMode,
    SchedulingType,
    SpreadField,
    TieBreak,
)
from federation.model.reasons import Reason
from federation.scheduler.state import BindingContext


class ClusterAffinityRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ClusterAffinity``."""

    cluster_names: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[RequirementRow, ...] = ()
    match_fields: tuple[RequirementRow, ...] = ()


class AffinityGroupRow(DocumentPart, frozen=True, kw_only=True):
    """An ``AffinityGroup``. SQL reads the name of the first one."""

    name: str
    affinity: ClusterAffinityRow
    overflow: tuple[ClusterAffinityRow, ...] = ()


class SpreadConstraintRow(DocumentPart, frozen=True, kw_only=True):
    """A ``SpreadConstraint``."""

    by: SpreadField
    min_groups: int = 1
    max_groups: int | None = None


class StaticWeightRow(DocumentPart, frozen=True, kw_only=True):
    """A ``StaticWeight``."""

    target: ClusterAffinityRow
    weight: int


class ClusterLimitRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ClusterLimit``."""

    target: ClusterAffinityRow
    min: int = 0
    max: int | None = None


class ReplicaSchedulingRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ReplicaScheduling``. Studies read the type in SQL."""

    type: SchedulingType = always(SchedulingType.DUPLICATED)
    preference: DivisionPreference = DivisionPreference.WEIGHTED
    static_weights: tuple[StaticWeightRow, ...] | None = None
    dynamic: bool = False
    limits: tuple[ClusterLimitRow, ...] = ()
    capacity_bounded: bool = False


class PlacementRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Placement``. SQL reads the name of its first affinity group."""

    affinity: ClusterAffinityRow | None = None
    affinity_groups: tuple[AffinityGroupRow, ...] = always(())
    tolerations: tuple[TolerationRow, ...] = ()
    spread_constraints: tuple[SpreadConstraintRow, ...] = ()
    replica_scheduling: ReplicaSchedulingRow = ReplicaSchedulingRow()
    workload_affinity_key: str = ""
    workload_anti_affinity_key: str = ""
    partial: bool = False
    tie_break: TieBreak = TieBreak.HASH


class EvictionTaskRow(DocumentPart, frozen=True, kw_only=True):
    """An ``EvictionTask``. SQL reads its producer, and studies read the other fixed keys."""

    from_cluster: str
    replicas: int = always(0)
    reason: str = always("")
    message: str = ""
    producer: str = always("")
    created_at: float | None = always(None)
    purge_mode: PurgeMode | None = None
    clusters_before: tuple[TargetRow, ...] = ()


class GangRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Gang``. SQL reads its name and size."""

    name: str
    size: int
    timeout_seconds: int | None = None


class BindingValues(Document, frozen=True, kw_only=True):
    """The fields of a ``Binding`` that have no column of their own."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    resource: ObjectReferenceRow = ObjectReferenceRow()
    replicas: int = 0
    requirements: RequirementsRow = RequirementsRow()
    components: tuple[ComponentRow, ...] = ()
    placement: PlacementRow = PlacementRow()
    scheduler_name: str = ""
    priority: int = 0
    reschedule_triggered_at: float | None = None
    eviction_tasks: tuple[EvictionTaskRow, ...] = ()
    suspended: bool = False
    certificate: Certificate | None = None
    lease_seconds: int | None = None
    preemption_policy: PreemptionPolicy = PreemptionPolicy.NEVER
    min_available: int | None = None
    preemptible: bool = True
    on_cluster_loss: OnClusterLoss = OnClusterLoss.REPLACE
    on_cluster_return: OnClusterReturn = OnClusterReturn.KEEP_REPLACEMENT
    gang: GangRow | None = None
    is_unsettled: bool = False
    clusters_are_stated: bool = False


class BindingSpecRow(BindingValues, frozen=True, kw_only=True):
    """``binding.spec``, with the keys that SQL reads always written."""

    replicas: int = always(0)
    scheduler_name: str = always("")
    priority: int = always(0)
    eviction_tasks: tuple[EvictionTaskRow, ...] = always(())
    preemptible: bool = always(True)
    gang: GangRow | None = always(None)
    is_unsettled: bool = always(False)


class BindingRow(BindingValues, frozen=True, kw_only=True):
    """A whole ``Binding``: in previews, in inputs of decisions, and with the table's columns."""

    namespace: str = ""
    name: str
    uid: str = ""
    generation: int = 1
    resource_version: int = 0
    clusters: tuple[TargetRow, ...] = ()
    fresh: bool = False
    last_scheduled_time: float | None = None
    stored_id: int = 0
    expected_version: tuple[str, int, int] | None = None
    observed_affinity: str = ""


BINDINGS: Final = Documents(Binding, BindingRow, "bindings")
SPECS: Final = Documents(Binding, BindingSpecRow, "bindings")
EVICTION_TASKS: Final = Rows(EvictionTask, EvictionTaskRow, "eviction tasks")


class SurroundingsRow(DocumentPart, frozen=True, kw_only=True):
    """A ``BindingContext``."""

    affinity_peers: tuple[frozenset[str], ...] = ()
    anti_affinity_peers: tuple[frozenset[str], ...] = ()
    observed_affinity: str = ""
    is_settled: bool = False
    triggers: tuple[Reason, ...] = ()


SURROUNDINGS: Final = Rows(BindingContext, SurroundingsRow, "inputs of decisions")
