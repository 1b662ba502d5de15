"""Row structs of member clusters: the spec in the table, and whole clusters elsewhere.

Must not know in which statements they are written.
"""

from __future__ import annotations

from typing import Final

import msgspec

from federation.history.rows import Document, DocumentPart, Documents, Rows, always
from federation.model.cluster import Cluster, TaintEffect
from federation.model.grades import DEFAULT_MODEL, ResourceModel


class TaintRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Taint``."""

    key: str
    value: str = ""
    effect: TaintEffect
    time_added: float | None = None


class GradeRangeRow(DocumentPart, frozen=True, kw_only=True):
    """A ``GradeRange``."""

    name: str
    min: int
    max: int


class GradeRow(DocumentPart, frozen=True, kw_only=True):
    """A ``Grade``."""

    grade: int
    ranges: tuple[GradeRangeRow, ...]


class ModelRow(DocumentPart, frozen=True, kw_only=True):
    """A ``ResourceModel``."""

    grades: tuple[GradeRow, ...] = ()


MODELS: Final = Rows(ResourceModel, ModelRow, "resource models")
DEFAULT_MODEL_ROW: Final = MODELS.pack(DEFAULT_MODEL)


class ClusterSpecRow(Document, frozen=True, kw_only=True):
    """``cluster.spec``: the fields of a ``Cluster`` that have no column of their own.

    SQL reads ``held``.
    """

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    provider: str = ""
    region: str = ""
    zones: tuple[str, ...] = ()
    taints: tuple[TaintRow, ...] = ()
    model: ModelRow = DEFAULT_MODEL_ROW
    modeling_enabled: bool = True
    cordoned: bool = False
    cordon_reason: str = ""
    cordoned_by: str = ""
    held: bool = always(False)


class KeptClusterRow(ClusterSpecRow, frozen=True, kw_only=True):
    """A whole ``Cluster``, in the inputs of decisions and with columns of the table."""

    name: str
    uid: str = ""
    ready: bool = True
    api_enablements: frozenset[tuple[str, str]] | None = None
    generation: int = 1
    resource_version: int = 0


SPECS: Final = Documents(Cluster, ClusterSpecRow, "clusters")
CLUSTERS: Final = Documents(Cluster, KeptClusterRow, "clusters")
