"""The journal: what was committed about promises, reports, clusters and bindings, in order.

Plain values. Must not apply anything: ``services.fleet`` does, ``services.watches`` tells of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from federation.model.echoes import Owner
from federation.model.placement import binding_key
from federation.model.reservations import Reservation, Share

# Nobody writes to it.
NO_REPLICAS: Final[Mapping[str, int]] = {}


class Position(NamedTuple):
    """A place in the journal: everything before it is known. ``xid`` is the transaction's."""

    xid: int = 0
    id: int = 0


class ClusterShares(NamedTuple):
    """What a binding has in one cluster from version ``version`` of the cluster's ledger on.

    No shares: it let go of the cluster. ``adopted`` says by component how many replicas ran before
    the binding was known.
    """

    version: int
    shares: tuple[Share, ...] = ()
    adopted: Mapping[str, int] = NO_REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingChanged:
    """A binding was decided, changed, released or deleted; ``key`` is ``Binding.key``.

    ``clusters`` are those in which its promises changed, by name.
    """

    namespace: str
    name: str
    uid: str = ""
    owner: Owner | None = None
    decision: str = ""
    clusters: Mapping[str, ClusterShares] = field(default_factory=dict)
    deleted: bool = False

    @property
    def key(self) -> str:
        return binding_key(self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAdvanced:
    """A cluster's newest report is this one; its body is in the store."""

    cluster: str
    version: int
    epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChanged:
    """What people or its agent's hello say of a cluster changed, or it was deleted.

    ``emptied`` is the ledger version from which on nothing is promised there and nothing reported:
    the name belongs to another Kubernetes cluster; 0: promises stay.
    """

    cluster: str
    deleted: bool = False
    emptied: int = 0


Change: TypeAlias = BindingChanged | ReportAdvanced | ClusterChanged

# By the ids of their entries.
NONE_KNOWN: Final[Mapping[int, Change]] = {}


class Entry(NamedTuple):
    """A change and its place in the journal."""

    position: Position
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReservations:
    """All that one binding holds, in all clusters: one row, replaced as a whole.

    ``lease_expires_at`` is in Unix seconds by the store's clock, None without a lease.
    """

    namespace: str
    name: str
    uid: str = ""
    owner: Owner | None = None
    reservations: tuple[Reservation, ...] = ()
    lease_expires_at: float | None = None

    @property
    def key(self) -> str:
        return binding_key(self.namespace, self.name)
