"""Changes of the journal as small bodies, and back.

Must not talk to the database, nor apply a change.
"""

from __future__ import annotations

from typing import NamedTuple, assert_never

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
)
from federation.store.distinct import Distinct

BINDING = "binding"
REPORT = "report"
CLUSTER = "cluster"


class _Share(NamedTuple):
    """``requirements`` is a place in the body's list: clusters mostly share them."""

    component: str
    requirements: int
    replicas: int
    certificate: PromiseCertificate


class _Shares(NamedTuple):
    version: int
    shares: tuple[_Share, ...]
    adopted: dict[str, int]


class _Binding(NamedTuple):
    namespace: str
    name: str
    uid: str
    owner: Owner | None
    decision: str
    deleted: bool
    requirements: tuple[ReplicaRequirements, ...]
    clusters: dict[str, _Shares]


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
        case _:
            assert_never(change)


def change_of(kind: str, body: bytes) -> Change:
    match kind:
        case "report":
            return _REPORTS.decode(body)
        case "cluster":
            return _CLUSTERS.decode(body)
        case _:
            return _binding_of(_BINDINGS.decode(body))


def _packed_binding(change: BindingChanged) -> bytes:
    requirements: Distinct[ReplicaRequirements] = Distinct()
    clusters = {
        name: (
            given.version,
            [
                (
                    share.component,
                    requirements.place(share.requirements),
                    share.replicas,
                    share.certificate,
                )
                for share in given.shares
            ],
            given.adopted,
        )
        for name, given in change.clusters.items()
    }
    return msgspec.msgpack.encode(
        (
            change.namespace,
            change.name,
            change.uid,
            change.owner,
            change.decision,
            change.deleted,
            requirements.values,
            clusters,
        )
    )


def _binding_of(body: _Binding) -> BindingChanged:
    return BindingChanged(
        namespace=body.namespace,
        name=body.name,
        uid=body.uid,
        owner=body.owner,
        decision=body.decision,
        deleted=body.deleted,
        clusters={
            name: ClusterShares(
                version=given.version,
                shares=tuple(
                    Share(
                        component=share.component,
                        requirements=body.requirements[share.requirements],
                        replicas=share.replicas,
                        certificate=share.certificate,
                    )
                    for share in given.shares
                ),
                adopted=given.adopted,
            )
            for name, given in body.clusters.items()
        },
    )
