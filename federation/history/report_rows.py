"""Row structs of reports, and of what is promised beside them.

Must not know in which documents they stand.
"""

from __future__ import annotations

from typing import Final

import msgspec

from federation.history.cluster_rows import TaintRow
from federation.history.rows import DocumentPart, Rows, always
from federation.history.workload_rows import REQUIREMENTS, RequirementsRow
from federation.model.cluster import CapacityReport
from federation.model.reservations import Outstanding, PromiseCertificate


class ResourceSummaryRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ResourceSummary``."""

    allocatable: dict[str, int] = msgspec.field(default_factory=dict)
    allocated: dict[str, int] = msgspec.field(default_factory=dict)
    allocating: dict[str, int] = msgspec.field(default_factory=dict)


class NodeSummaryRow(DocumentPart, frozen=True, kw_only=True):
    """A ``NodeSummary``."""

    total: int = 0
    ready: int = 0
    graded: int = 0


class ReportedPoolRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ReportedPool``."""

    taints: tuple[TaintRow, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class ReportedPoolsRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ReportedPools``."""

    label_keys: tuple[str, ...]
    pools: tuple[ReportedPoolRow, ...]
    resources: tuple[str, ...]
    cell_pools: tuple[int, ...]
    counts: tuple[int, ...]
    minimums: tuple[int, ...]
    spreads: tuple[int, ...]
    surpluses: tuple[int, ...]
    open_cells: tuple[int, ...] = ()
    allocatables: tuple[int, ...] = ()
    kubernetes_minor: int = 0


class EchoRow(DocumentPart, frozen=True, kw_only=True):
    """An ``Echo``."""

    binding: str
    component: str = ""
    shape: tuple[tuple[str, int], ...]
    bound: int = 0
    unbound: int = 0
    finished: int = 0


class ReportRow(DocumentPart, frozen=True, kw_only=True):
    """A ``CapacityReport``."""

    epoch: int
    sequence: int
    snapshot_time: float
    summary: ResourceSummaryRow
    nodes: NodeSummaryRow
    grade_counts: dict[int, int] = msgspec.field(default_factory=dict)
    model_hash: str = ""
    content_hash: str = ""
    pools: ReportedPoolsRow | None = None
    interest_version: int = 0
    echoes: tuple[EchoRow, ...] = ()
    picture_age_seconds: float = always(0.0)
    source: str = ""


class OutstandingRow(DocumentPart, frozen=True, array_like=True):
    """An ``Outstanding``. It is stored as an array, so that its keys have no names."""

    binding: str
    requirements: RequirementsRow
    in_cells: int
    component: str = ""
    certificate: PromiseCertificate = PromiseCertificate.CAREFUL
    in_summary: int = 0
    credited: int = 0


def outstanding_row(outstanding: Outstanding) -> OutstandingRow:
    """Return the row struct of what is outstanding."""
    fields = outstanding._asdict()
    return OutstandingRow(**{**fields, "requirements": REQUIREMENTS.pack(outstanding.requirements)})


def outstanding_of_row(row: OutstandingRow) -> Outstanding:
    """Return what is outstanding by its row struct."""
    fields = msgspec.structs.asdict(row)
    return Outstanding(**{**fields, "requirements": REQUIREMENTS.unpack(row.requirements)})


REPORTS: Final = Rows(CapacityReport, ReportRow, "reports")
