"""Member clusters as the control plane sees them, and the reports of their agents.

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
    # An import cycle: reservations import requirements, which import taints from here.
    from federation.model.reservations import Outstanding


class TaintEffect(StrEnum):
    """The effect of a taint on workloads that do not tolerate it."""

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


# The taint that the control plane sets on a lost cluster; taints that people write with this key
# are ignored.
UNREACHABLE_KEY: Final = "fedsched.io/unreachable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The spec of a member cluster, without what its agent measures.

    ``api_enablements`` holds (groupVersion, kind) pairs; None: not reported. ``ready`` is the Ready
    condition; True by default. ``cordoned`` keeps new replicas away. So does ``held``: the cluster
    joined and waits to be accepted.
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
        """Return since when the cluster is lost, in Unix seconds; None: it is not."""
        added = [taint.time_added for taint in self.taints if taint.key == UNREACHABLE_KEY]
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
    """The number of nodes, of Ready nodes, and of nodes that were graded as capacity."""

    total: int = 0
    ready: int = 0
    graded: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPool:
    """Nodes that node claims treat alike: taints that keep pods away, and distinguishing labels."""

    taints: tuple[Taint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPools:
    """Pools and cells as they are sent and stored; ``federation.model.pools`` computes with them.

    ``cell_pools`` (positions in ``pools``) and ``counts`` have one value per cell. ``minimums``,
    ``spreads`` and ``surpluses`` have one per resource and cell, resource after resource. A spread
    is ``maximum - minimum``, a surplus ``sum - count * minimum``. In ``open_cells`` the surplus is
    a lower bound. ``allocatables`` are the average allocatable cpu, then memory, of a node of each
    cell; empty where not reported.
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
    """One whole report of an agent, taken from one snapshot.

    ``grade_counts`` maps grade to node count; empty when modelling is off. ``model_hash`` names the
    model of the grades: under another model the counts mean nothing. ``(epoch, sequence)`` only
    grows; the epoch is the agent's session. ``snapshot_time`` is in Unix seconds by the agent's
    clock. ``picture_age_seconds``: when the report was sent, so long ago the agent last had proof
    that its caches were current. ``echoes`` count the pods of promises that the agent knew of at
    ``interest_version``. ``source`` names another origin of the totals if no agent saw the nodes.
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
    """A cluster with its newest report (None before the first) and when that was last confirmed.

    ``as_of`` is in Unix seconds by the control plane's clock. Files also state what is ``promised``
    and not bound yet, and whether a placer of ours ``follows_claims`` there. In the control plane,
    both come from elsewhere.
    """

    cluster: Cluster
    report: CapacityReport | None = None
    as_of: float | None = None
    promised: tuple[Outstanding, ...] = ()
    follows_claims: bool = False


API_SERVER_UNREACHABLE: Final = "ApiServerUnreachable"
REPORT_MISSING: Final = "ReportMissing"
# The control plane was down for a while, and its database may be restored from a backup.
AGENT_AWAITED: Final = "AgentAwaited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blindness:
    """The time since when a cluster is not observed although its agent is connected, and the
    reason.

    ``since`` is in Unix seconds by the control plane's clock, ``reason`` is that of its condition.
    """

    since: float
    reason: str
    message: str = ""

    @property
    def since_text(self) -> str:
        """Return the time in UTC, to the second."""
        return datetime.fromtimestamp(self.since, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
