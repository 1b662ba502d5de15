"""What a binding holds, as one small body, and back.

Must not talk to the database. Clusters of one decision share nearly everything: requirements and
decisions are written once, and each reservation as a few numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Row

from federation.model.echoes import Owner
from federation.model.reservations import PromiseCertificate, Reservation
from federation.model.workload import ReplicaRequirements
from federation.services.journal import StoredReservations, binding_key
from federation.store.distinct import Distinct
from federation.store.rows import unix_seconds
from federation.store.tables import reservation as table


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
    requirements: tuple[msgspec.Raw, ...]
    decisions: tuple[tuple[str, ...], ...]
    held: tuple[_Held, ...]


# What ``reservations_of`` reads of a row.
COLUMNS: Final = (
    table.c.namespace,
    table.c.name,
    table.c.uid,
    table.c.body,
    table.c.lease_expires_at,
)

_BODIES: Final = msgspec.msgpack.Decoder(_Body)
_REQUIREMENTS: Final = msgspec.msgpack.Decoder(ReplicaRequirements)


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


def reservations_of(rows: Iterable[Row[Any]]) -> list[StoredReservations]:
    """From the columns of ``COLUMNS``; what is equal in several rows is one object in all."""
    repeated = _Repeated()
    stored = []
    for row in rows:
        body = _BODIES.decode(row.body)
        stored.append(
            StoredReservations(
                namespace=repeated.text(row.namespace),
                name=row.name,
                uid=row.uid,
                owner=repeated.owner(body.owner),
                reservations=_unpacked(binding_key(row.namespace, row.name), body, repeated),
                lease_expires_at=unix_seconds(row.lease_expires_at),
            )
        )
    return stored


class _Repeated:
    """Texts and requirements that were read before: most bindings ask for what others do."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._requirements: dict[bytes, ReplicaRequirements] = {}

    def text(self, text: str) -> str:
        return self._texts.setdefault(text, text)

    def owner(self, owner: Owner | None) -> Owner | None:
        if owner is None:
            return None
        kind, namespace = self.text(owner.kind), self.text(owner.namespace)
        return Owner(self.text(owner.api_version), kind, namespace, owner.name)

    def requirements(self, raw: msgspec.Raw) -> ReplicaRequirements:
        packed = bytes(raw)
        known = self._requirements.get(packed)
        if known is None:
            known = self._requirements[packed] = _REQUIREMENTS.decode(packed)
        return known


def _unpacked(binding: str, body: _Body, repeated: _Repeated) -> tuple[Reservation, ...]:
    clusters = [repeated.text(each) for each in body.clusters]
    components = [repeated.text(each) for each in body.components]
    requirements = [repeated.requirements(each) for each in body.requirements]
    return tuple(
        [
            Reservation(
                binding=binding,
                cluster=clusters[each.cluster],
                component=components[each.component],
                requirements=requirements[each.requirements],
                replicas=each.replicas,
                decisions=body.decisions[each.decisions],
                certificate=each.certificate,
                interest_version=each.interest_version,
                adopted=each.adopted,
                finished=each.finished,
                grown_version=each.grown_version,
            )
            for each in body.held
        ]
    )
