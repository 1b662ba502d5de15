"""What a binding holds, as one small body, and back.

Must not talk to the database. Clusters of one decision share nearly everything: what is equal in
all is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from sqlalchemy import Row

from federation.model.echoes import Owner
from federation.model.placement import binding_key
from federation.model.reservations import PromiseCertificate, Reservation
from federation.model.workload import ReplicaRequirements
from federation.services.journal import StoredReservations
from federation.store.columns import Factored, factored, lengthened, multiplied, shortened
from federation.store.rows import unix_seconds
from federation.store.tables import reservation as table

T = TypeVar("T")


class _Body(NamedTuple):
    """Columns of reservations: numbers are shortened, what is larger is factored."""

    owner: Owner | None
    clusters: tuple[str, ...]
    requirements: Factored[msgspec.Raw]
    replicas: tuple[int, ...]
    decisions: Factored[tuple[str, ...]]
    components: Factored[str]
    certificates: Factored[PromiseCertificate]
    interest_versions: tuple[int, ...]
    adopted: tuple[int, ...]
    finished: tuple[int, ...]
    grown_versions: tuple[int, ...]


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
    return list(dict.fromkeys([each.cluster for each in row.reservations]))


def packed_reservations(row: StoredReservations) -> bytes:
    """A row that holds something."""
    (
        _,
        clusters,
        requirements,
        replicas,
        decisions,
        components,
        certificates,
        interest_versions,
        adopted,
        finished,
        grown_versions,
    ) = zip(*row.reservations, strict=True)
    return msgspec.msgpack.encode(
        (
            row.owner,
            clusters,
            factored(requirements),
            shortened(replicas),
            factored(decisions),
            factored(components),
            factored(certificates),
            shortened(interest_versions),
            shortened(adopted),
            shortened(finished),
            shortened(grown_versions),
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
    rows = len(body.clusters)

    def each(distinct: Sequence[T], places: Sequence[int]) -> Sequence[T]:
        return multiplied(distinct, places, rows)

    requirements, places = body.requirements
    components, component_places = body.components
    return tuple(
        map(
            Reservation,
            repeat(binding, rows),
            map(repeated.text, body.clusters),
            each([repeated.requirements(one) for one in requirements], places),
            lengthened(body.replicas, rows),
            each(*body.decisions),
            each([repeated.text(one) for one in components], component_places),
            each(*body.certificates),
            lengthened(body.interest_versions, rows),
            lengthened(body.adopted, rows),
            lengthened(body.finished, rows),
            lengthened(body.grown_versions, rows),
        )
    )
