"""The journal: what was committed about promises, reports, clusters and bindings, in order.

Plain values. Must not apply anything: ``services.fleet`` does, ``services.watches`` tells of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Final, NamedTuple, NewType, Self, TypeAlias

from federation.model.echoes import Owner
from federation.model.placement import Binding, binding_key
from federation.model.reservations import Reservation, Share

# Nobody writes to it.
NO_REPLICAS: Final[Mapping[str, int]] = {}
NO_NONCES: Final[Mapping[str, int]] = {}
NO_VERSIONS: Final[Mapping[str, int]] = {}


# A place in the journal: the number of an entry, up to which every entry is known.
Position = NewType("Position", int)
START: Final = Position(0)


class JournalBounds(NamedTuple):
    """Places up to which the journal can be read, and up to which numbers were given out.

    A writer whose transaction is still open holds back the entries between them.
    """

    settled: Position
    newest: Position


class LedgerVersion(NamedTuple):
    """A state of a cluster's ledger. ``history`` names what led to it: the XOR of the nonces of all
    changes since the cluster was added. One version with two histories is of a database that was
    put back and went on from there.
    """

    version: int
    history: int = 0


class Bookmark(NamedTuple):
    """An entry that was read: the journal has it as long as the database does not go back."""

    position: Position
    created_at: datetime


class ClusterShares(NamedTuple):
    """The shares of a binding in one cluster from a ``version`` of the cluster's ledger on.

    No shares: it left the cluster. ``adopted`` counts by component the replicas that ran before
    the binding was known.
    """

    version: int
    shares: tuple[Share, ...] = ()
    adopted: Mapping[str, int] = NO_REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingChanged:
    """A binding was decided, changed, released or deleted; ``key`` is ``Binding.key``.

    ``clusters`` are those in which its promises changed, by name. ``nonce`` is a random number that
    no other change has; so it is with every change that makes versions. ``waits``: for what has no
    place. ``is_first``: it held nothing anywhere before, so that nothing can have become free.
    """

    namespace: str
    name: str
    uid: str = ""
    owner: Owner | None = None
    decision: str = ""
    clusters: Mapping[str, ClusterShares] = field(default_factory=dict)
    deleted: bool = False
    nonce: int = 0
    priority: int = 0
    waits: bool = False
    is_first: bool = False

    @classmethod
    def of(
        cls,
        binding: Binding,
        *,
        decision: str,
        waits: bool,
        clusters: Mapping[str, ClusterShares] | None = None,
        deleted: bool = False,
        is_first: bool = False,
    ) -> Self:
        """A change like no other."""
        return cls(
            namespace=binding.namespace,
            name=binding.name,
            uid=binding.uid,
            owner=owner_of(binding),
            decision=decision,
            clusters=clusters or {},
            deleted=deleted,
            nonce=new_nonce(),
            priority=binding.priority,
            waits=waits,
            is_first=is_first,
        )

    @property
    def key(self) -> str:
        return binding_key(self.namespace, self.name)

    @property
    def ledgers(self) -> Collection[str]:
        """Names of the clusters whose ledgers have one more version by this change."""
        return self.clusters.keys()

    @property
    def makes_versions(self) -> bool:
        """Whether a ledger has another version by this change."""
        return bool(self.clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportAdvanced:
    """A cluster's newest report is this one; its body is in the store."""

    makes_versions: ClassVar[bool] = True

    cluster: str
    version: int
    epoch: int
    sequence: int
    nonce: int = 0

    @property
    def ledgers(self) -> Collection[str]:
        return (self.cluster,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChanged:
    """The spec of a cluster, or its agent's hello, changed, or it was deleted.

    ``emptied`` is the ledger version from which on nothing is promised or reported there, because
    the name belongs to another Kubernetes cluster; 0: promises stay. Its history begins with
    ``nonce``.
    """

    ledgers: ClassVar[Collection[str]] = ()

    cluster: str
    deleted: bool = False
    emptied: int = 0
    nonce: int = 0

    @property
    def makes_versions(self) -> bool:
        return self.emptied > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownChange:
    """One of a kind, or of a version of a kind that is known (else 0), of a newer release."""

    makes_versions: ClassVar[bool] = False
    ledgers: ClassVar[Collection[str]] = ()

    kind: str
    version: int = 0
    nonce: int = 0


Change: TypeAlias = BindingChanged | ReportAdvanced | ClusterChanged | UnknownChange

# By the ids of their entries.
NONE_KNOWN: Final[Mapping[int, Change]] = {}


class Entry(NamedTuple):
    """A change and its place in the journal."""

    position: Position
    change: Change


def owner_of(binding: Binding) -> Owner | None:
    """The workload whose pods stand for the binding; None where nothing is named."""
    resource = binding.resource
    if not (resource.kind and resource.name):
        return None
    return Owner(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=resource.namespace or binding.namespace,
        name=resource.name,
    )


def new_nonce() -> int:
    return secrets.randbits(63)


def nonces_by_cluster(changes: Sequence[BindingChanged]) -> Mapping[str, int]:
    """Return the nonces that change the histories of ledgers, by cluster."""
    nonces: dict[str, int] = {}
    for change in changes:
        for name in change.clusters:
            nonces[name] = nonces.get(name, 0) ^ change.nonce
    return nonces


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
