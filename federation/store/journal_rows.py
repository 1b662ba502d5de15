"""Changes of the journal as small bodies, and back.

Must not talk to the database, nor apply a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import Any, NamedTuple, assert_never

import msgspec

from federation.model.echoes import Owner
from federation.model.reservations import PromiseCertificate, Share
from federation.model.workload import ReplicaRequirements
from federation.services.journal import (
    BindingChanged,
    Change,
    ClusterChanged,
    ClusterShares,
    ReportAdvanced,
    UnknownChange,
)
from federation.store.columns import Factored, factored, lengthened, multiplied, shortened

BINDING = "binding"
REPORT = "report"
CLUSTER = "cluster"


class _Binding(NamedTuple):
    """Clusters and their shares are columns: of clusters up to ``adopted``, then of shares.

    ``sizes`` are how many shares each cluster has.
    """

    namespace: str
    name: str
    uid: str
    owner: Owner | None
    decision: str
    deleted: bool
    clusters: tuple[str, ...]
    versions: tuple[int, ...]
    sizes: tuple[int, ...]
    adopted: tuple[dict[str, int], ...]
    requirements: Factored[ReplicaRequirements]
    replicas: tuple[int, ...]
    components: Factored[str]
    certificates: Factored[PromiseCertificate]


_BINDINGS = msgspec.msgpack.Decoder(_Binding)
_REPORTS = msgspec.msgpack.Decoder(ReportAdvanced)
_CLUSTERS = msgspec.msgpack.Decoder(ClusterChanged)


def packed_change(change: Change) -> tuple[str, bytes]:
    """Its kind and its body."""
    match change:
        case BindingChanged():
            return BINDING, _packed_binding(change)
        case ReportAdvanced():
            return REPORT, msgspec.msgpack.encode(change)
        case ClusterChanged():
            return CLUSTER, msgspec.msgpack.encode(change)
        case UnknownChange():
            raise ValueError(f"a change of the unknown kind {change.kind!r} cannot be written")
        case _:
            assert_never(change)


def change_of(kind: str, body: bytes, nonce: int) -> Change:
    match kind:
        case "report":
            return _REPORTS.decode(body)
        case "cluster":
            return _CLUSTERS.decode(body)
        case "binding":
            return _binding_of(_BINDINGS.decode(body), nonce)
        case _:
            return UnknownChange(kind=kind, nonce=nonce)


def _packed_binding(change: BindingChanged) -> bytes:
    versions, shares, adopted = _turned(change.clusters.values(), 3)
    requirements, replicas, components, certificates = _turned(chain.from_iterable(shares), 4)
    return msgspec.msgpack.encode(
        (
            change.namespace,
            change.name,
            change.uid,
            change.owner,
            change.decision,
            change.deleted,
            list(change.clusters),
            versions,
            shortened([len(each) for each in shares]),
            shortened(adopted),
            factored(requirements),
            shortened(replicas),
            factored(components),
            factored(certificates),
        )
    )


def _turned(rows: Iterable[tuple[Any, ...]], columns: int) -> list[tuple[Any, ...]]:
    """Their columns."""
    return list(zip(*rows, strict=True)) or [()] * columns


def _binding_of(body: _Binding, nonce: int) -> BindingChanged:
    clusters = len(body.clusters)
    sizes = lengthened(body.sizes, clusters)
    count = sum(sizes)
    shares = map(
        Share,
        multiplied(*body.requirements, count),
        lengthened(body.replicas, count),
        multiplied(*body.components, count),
        multiplied(*body.certificates, count),
    )
    return BindingChanged(
        namespace=body.namespace,
        name=body.name,
        uid=body.uid,
        owner=body.owner,
        decision=body.decision,
        deleted=body.deleted,
        nonce=nonce,
        clusters={
            name: ClusterShares(version, tuple(islice(shares, size)), adopted)
            for name, version, size, adopted in zip(
                body.clusters,
                body.versions,
                sizes,
                lengthened(body.adopted, clusters),
                strict=True,
            )
        },
    )
