"""What a binding holds, as one small body, and back.

Must not talk to the database. Clusters of one decision share nearly everything: requirements and
decisions are written once, and each reservation as a few numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row

from federation.model.echoes import Owner
from federation.model.reservations import PromiseCertificate, Reservation
from federation.model.workload import ReplicaRequirements
from federation.services.journal import StoredReservations
from federation.store.distinct import Distinct
from federation.store.rows import unix_seconds


class _Held(NamedTuple):
    """A reservation; the first four are places in the body's lists."""

    cluster: int
    component: int
    requirements: int
    decisions: int
    replicas: int
    certificate: PromiseCertificate
    interest_version: int
    adopted: int
    finished: int
    grown_version: int = 0


class _Body(NamedTuple):
    owner: Owner | None
    clusters: tuple[str, ...]
    components: tuple[str, ...]
    requirements: tuple[ReplicaRequirements, ...]
    decisions: tuple[tuple[str, ...], ...]
    held: tuple[_Held, ...]


_BODIES = msgspec.msgpack.Decoder(_Body)


def clusters_of(row: StoredReservations) -> list[str]:
    """Where it holds something, each once, in the order of the reservations."""
    return list(dict.fromkeys(each.cluster for each in row.reservations))


def packed_reservations(row: StoredReservations) -> bytes:
    clusters: dict[str, int] = {}
    components: dict[str, int] = {}
    decisions: dict[tuple[str, ...], int] = {}
    requirements: Distinct[ReplicaRequirements] = Distinct()
    held = [
        _Held(
            clusters.setdefault(each.cluster, len(clusters)),
            components.setdefault(each.component, len(components)),
            requirements.place(each.requirements),
            decisions.setdefault(each.decisions, len(decisions)),
            each.replicas,
            each.certificate,
            each.interest_version,
            each.adopted,
            each.finished,
            each.grown_version,
        )
        for each in row.reservations
    ]
    return msgspec.msgpack.encode(
        (
            row.owner,
            list(clusters),
            list(components),
            requirements.values,
            list(decisions),
            held,
        )
    )


def reservations_of(row: Row[Any]) -> StoredReservations:
    """From the columns of ``reservation``."""
    body = _BODIES.decode(row.body)
    bare = StoredReservations(
        namespace=row.namespace,
        name=row.name,
        uid=row.uid,
        owner=body.owner,
        lease_expires_at=unix_seconds(row.lease_expires_at),
    )
    return replace(bare, reservations=_unpacked(bare.key, body))


def _unpacked(binding: str, body: _Body) -> tuple[Reservation, ...]:
    return tuple(
        Reservation(
            binding=binding,
            cluster=body.clusters[each.cluster],
            component=body.components[each.component],
            requirements=body.requirements[each.requirements],
            replicas=each.replicas,
            decisions=body.decisions[each.decisions],
            certificate=each.certificate,
            interest_version=each.interest_version,
            adopted=each.adopted,
            finished=each.finished,
            grown_version=each.grown_version,
        )
        for each in body.held
    )
