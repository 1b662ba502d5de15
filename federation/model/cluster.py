"""Member clusters as the control plane knows them, and what their agents report.

Pure values. Must not decide anything: rules over clusters live in the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from federation.model.grades import DEFAULT_MODEL, ResourceModel
from federation.model.shapes import Echo

if TYPE_CHECKING:
    # What is outstanding is told of by requirements, and those by taints.
    from federation.model.reservations import Outstanding


class TaintEffect(StrEnum):
    """What a taint does to workloads that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a cluster or node. ``time_added`` is in Unix seconds, None when not stated."""

    key: str
    value: str = ""
    effect: TaintEffect
    time_added: float | None = None


# Ours, on a cluster that is lost; what people write under this key is passed over.
UNREACHABLE_KEY: Final = "fedsched.io/unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """What people say about a member cluster (the spec), without what its agent measures.

    ``api_enablements`` holds (groupVersion, kind) pairs; None when nobody has said.
    ``ready`` is the Ready condition; True when nobody has said. ``cordoned`` keeps new replicas
    away, as does ``held``: it joined and waits for somebody to accept it.
    """

    name: str
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()
    model: ResourceModel = DEFAULT_MODEL
    modeling_enabled: bool = True
    ready: bool = True
    cordoned: bool = False
    cordon_reason: str = ""
    cordoned_by: str = ""
    held: bool = False
    api_enablements: frozenset[tuple[str, str]] | None = None
    generation: int = 1
    resource_version: int = 0

    @property
    def lost_since(self) -> float | None:
        """When it was found lost, in Unix seconds; None while it is not."""
        added = [each.time_added for each in self.taints if each.key == UNREACHABLE_KEY]
        return added[0] if added else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSummary:
    """Totals over a cluster, in base units by resource name (cpu in millicores).

    ``allocatable``: nodes that are capacity; ``allocated``: bound, non-terminal pods on them;
    ``allocating``: pods that wait for a node. Each holds ``pods`` beside the resources.
    """

    allocatable: Mapping[str, int] = field(default_factory=dict)
    allocated: Mapping[str, int] = field(default_factory=dict)
    allocating: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSummary:
    """How many nodes there are, how many are Ready, and how many were graded as capacity."""

    total: int = 0
    ready: int = 0
    graded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPool:
    """Nodes that claims treat alike: the taints that keep pods away, and the labels told apart."""

    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPools:
    """Pools and cells as they travel and are stored; ``federation.model.pools`` reckons with them.

    One value per cell in ``cell_pools`` (positions in ``pools``) and ``counts``; one per resource
    and cell, resource after resource, in ``minimums``, in ``spreads`` (maximum less minimum) and in
    ``surpluses`` (sum less count times minimum). Of ``open_cells`` the surpluses may be more.
    ``allocatables`` are what a node of each cell has on average, of cpu and then of memory; empty
    where that is not told.
    """

    label_keys: tuple[str, ...]
    pools: tuple[ReportedPool, ...]
    resources: tuple[str, ...]
    cell_pools: tuple[int, ...]
    counts: tuple[int, ...]
    minimums: tuple[int, ...]
    spreads: tuple[int, ...]
    surpluses: tuple[int, ...]
    open_cells: tuple[int, ...] = ()
    allocatables: tuple[int, ...] = ()
    kubernetes_minor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityReport:
    """One whole report of an agent, all of it from one snapshot.

    ``grade_counts`` maps grade to node count; empty when modelling is off. ``model_hash`` names
    the model it was graded under: under another model the counts mean nothing.
    ``(epoch, sequence)`` only ever grows; epoch is the agent's session.
    ``snapshot_time`` is in Unix seconds by the agent's clock; ``picture_age_seconds`` is for how
    long nothing had shown that the picture was current when the report was sent. ``echoes`` count
    the pods of the promises that the agent knew of at ``interest_version``. ``source`` is whose
    totals these are where nobody saw the nodes, empty: the agent's own.
    """

    epoch: int
    sequence: int
    snapshot_time: float
    summary: ResourceSummary
    nodes: NodeSummary
    grade_counts: Mapping[int, int] = field(default_factory=dict)
    model_hash: str = ""
    content_hash: str = ""
    pools: ReportedPools | None = None
    interest_version: int = 0
    echoes: tuple[Echo, ...] = ()
    picture_age_seconds: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """A cluster with its newest report (None before the first) and when that last was true.

    ``as_of`` is in Unix seconds by the control plane's clock. Files also say what is ``promised``
    and on no node yet, and whether a placer of ours ``follows_claims`` there; the control plane
    knows both from elsewhere.
    """

    cluster: Cluster
    report: CapacityReport | None = None
    as_of: float | None = None
    promised: tuple[Outstanding, ...] = ()
    follows_claims: bool = False


API_SERVER_UNREACHABLE: Final = "ApiServerUnreachable"
REPORT_MISSING: Final = "ReportMissing"
# Nobody listened for a while, and the database may be a restored one.
AGENT_AWAITED: Final = "AgentAwaited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blindness:
    """Since when a cluster is not seen as it is though its agent is not silent, and why.

    ``since`` is in Unix seconds by the control plane's clock, ``reason`` that of its condition.
    """

    since: float
    reason: str
    message: str = ""

    @property
    def since_text(self) -> str:
        """In UTC, to the second."""
        return datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
