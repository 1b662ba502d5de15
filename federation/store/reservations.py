"""What bindings hold: rows, and statements over them.

Must not know how a ledger changes: rows are replaced as a whole. Clusters of one decision share
nearly everything: what is equal in all is written once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import repeat
from typing import Any, Final, TypeVar, cast

import msgspec
from sqlalchemy import (
    BigInteger,
    LargeBinary,
    Row,
    Select,
    Text,
    bindparam,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.bodies import Body, read_body, refusal
from federation.history.workload_rows import REQUIREMENTS, RequirementsRow
from federation.model.echoes import Owner
from federation.model.namespace_quotas import held_amounts
from federation.model.placement import binding_key
from federation.model.reservations import Growth, PromiseCertificate, Reservation
from federation.model.shapes import ReservationKey
from federation.model.workload import ReplicaRequirements, shared_request
from federation.services.journal import StoredReservations
from federation.services.journal_ports import Finished, Holding
from federation.store.columns import Factored, factored, lengthened, multiplied, shortened
from federation.store.journal import OwnerBody, owner_body, requirement_rows
from federation.store.journal_tables import reservation as table
from federation.store.prepared import Prepared
from federation.store.statements import named
from federation.store.tables import unix_seconds

T = TypeVar("T")

# What ``reservations_of`` reads of a row.
COLUMNS: Final = (
    table.c.namespace,
    table.c.name,
    table.c.uid,
    table.c.body,
    table.c.lease_expires_at,
)

NAMES = ("namespaces", "names")
# Clusters travel as one text each: arrays of arrays would have to be equally long. No name of a
# cluster has a space.
PUT = Prepared(
    text("""
    INSERT /* fedsched:reservations.put */ INTO reservation AS stored
        (namespace, name, uid, clusters, held, body, lease_expires_at)
    SELECT namespace, name, uid, string_to_array(clusters, ' '), held::jsonb, body,
        now() + seconds * interval '1 second'
    FROM unnest(:namespaces, :names, :uids, :clusters, :held, :bodies, :seconds)
        AS given (namespace, name, uid, clusters, held, body, seconds)
    ORDER BY namespace, name
    ON CONFLICT (namespace, name) DO UPDATE
    SET uid = excluded.uid, clusters = excluded.clusters, held = excluded.held,
        body = excluded.body,
        lease_expires_at = CASE
            WHEN stored.namespace || '/' || stored.name = ANY(:leased)
            THEN excluded.lease_expires_at ELSE stored.lease_expires_at
        END
""").bindparams(
        *(
            bindparam(name, type_=ARRAY(Text))
            for name in (*NAMES, "uids", "clusters", "held", "leased")
        ),
        bindparam("bodies", type_=ARRAY(LargeBinary)),
        bindparam("seconds", type_=ARRAY(BigInteger)),
    )
)
DELETE = text("""
    DELETE /* fedsched:reservations.delete */
        FROM reservation USING unnest(:namespaces, :names) AS given (namespace, name)
    WHERE reservation.namespace = given.namespace AND reservation.name = given.name
""").bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in NAMES))

HOLDINGS = text("""
    SELECT /* fedsched:reservations.holdings */ reservation.namespace, reservation.name, clusters,
        coalesce(lease_expires_at <= now(), false) AS has_expired
    FROM reservation JOIN unnest(:namespaces, :names) AS given (namespace, name)
        ON reservation.namespace = given.namespace AND reservation.name = given.name
""").bindparams(*(bindparam(name, type_=ARRAY(Text)) for name in NAMES))
_given: Final = (
    func.unnest(*(bindparam(name, type_=ARRAY(Text)) for name in NAMES))
    .table_valued("namespace", "name")
    .render_derived()
)
LOCK: Final = named(
    "reservations.lock",
    select(*COLUMNS)
    .join(_given, (table.c.namespace == _given.c.namespace) & (table.c.name == _given.c.name))
    .order_by(table.c.namespace, table.c.name)
    .with_for_update(of=table),
)

# So many are unpacked in less than 5 ms; then it is others' turn on the event loop. Not in a
# thread: rows are read under locks, which must not wait for one.
ROWS_AT_ONCE = 100


class ReservationStatements:
    """Implements ``journal_ports.Reservations`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def all(self) -> Sequence[StoredReservations]:
        return await self._fetched(named("reservations.all", _all()))

    async def in_clusters(self, clusters: Collection[str]) -> Sequence[StoredReservations]:
        return await self._fetched(named("reservations.in_clusters", _in_clusters(clusters)))

    async def of(self, namespace: str, name: str) -> StoredReservations | None:
        of_binding = select(*COLUMNS).where(table.c.namespace == namespace, table.c.name == name)
        rows = await self._fetched(named("reservations.of", of_binding))
        return rows[0] if rows else None

    async def holdings(
        self, keys: Collection[tuple[str, str]]
    ) -> Mapping[tuple[str, str], Holding]:
        return {
            (row.namespace, row.name): Holding(
                clusters=tuple(sorted(row.clusters)), has_expired=row.has_expired
            )
            for row in await self._connection.execute(HOLDINGS, _named(keys))
        }

    async def put(
        self, rows: Sequence[StoredReservations], lease_seconds: Mapping[str, int | None]
    ) -> None:
        kept = [row for row in rows if row.reservations]
        if kept:
            await PUT.execute(
                self._connection,
                {
                    "namespaces": [row.namespace for row in kept],
                    "names": [row.name for row in kept],
                    "uids": [row.uid for row in kept],
                    "clusters": [" ".join(clusters_of(row)) for row in kept],
                    "held": [_held(row) for row in kept],
                    "bodies": [packed_reservations(row) for row in kept],
                    "seconds": [lease_seconds.get(row.key) for row in kept],
                    "leased": [
                        f"{row.namespace}/{row.name}" for row in kept if row.key in lease_seconds
                    ],
                },
            )
        emptied = [row for row in rows if not row.reservations]
        if emptied:
            await self._connection.execute(
                DELETE, _named([(row.namespace, row.name) for row in emptied])
            )

    async def leave(self, cluster: str) -> None:
        locked = _in_clusters([cluster]).with_for_update()
        rows = await self._fetched(named("reservations.lock_in_cluster", locked))
        await self.put([_without(row, cluster) for row in rows], {})

    async def finish(self, finished: Sequence[Finished]) -> None:
        known = {
            (each.cluster, ReservationKey(each.binding, each.component, each.shape)): each.finished
            for each in finished
        }
        keys = {_parts(each.binding) for each in finished}
        rows = await self._fetched(LOCK, _named(keys))
        await self.put([_finished(row, known) for row in rows], {})

    async def renew(self, key: str, seconds: int) -> float | None:
        namespace, name = _parts(key)
        statement = (
            update(table)
            .where(
                table.c.namespace == namespace,
                table.c.name == name,
                table.c.lease_expires_at > func.now(),
            )
            .values(lease_expires_at=func.now() + timedelta(seconds=seconds))
            .returning(table.c.lease_expires_at)
        )
        row = (await self._connection.execute(named("reservations.renew", statement))).one_or_none()
        return None if row is None else unix_seconds(row.lease_expires_at)

    async def expired(self, limit: int) -> Sequence[tuple[str, str]]:
        statement = (
            select(table.c.namespace, table.c.name)
            .where(table.c.lease_expires_at <= func.now())
            .order_by(table.c.lease_expires_at, table.c.namespace, table.c.name)
            .limit(limit)
        )
        rows = await self._connection.execute(named("reservations.expired", statement))
        return [(row.namespace, row.name) for row in rows]

    async def has_expired(self, namespace: str, name: str) -> bool:
        statement = select(table.c.name).where(
            table.c.namespace == namespace,
            table.c.name == name,
            table.c.lease_expires_at <= func.now(),
        )
        return (
            await self._connection.execute(named("reservations.has_expired", statement))
        ).one_or_none() is not None

    async def _fetched(
        self, statement: Select[Any], parameters: Mapping[str, Any] | None = None
    ) -> list[StoredReservations]:
        rows = (await self._connection.execute(statement, parameters)).all()
        unpacked: list[StoredReservations] = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            unpacked += reservations_of(rows[start : start + ROWS_AT_ONCE])
        return unpacked


def _named(keys: Collection[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the parameters of statements that join ``given``."""
    return {
        "namespaces": [namespace for namespace, _ in keys],
        "names": [name for _, name in keys],
    }


def _all() -> Select[Any]:
    return select(*COLUMNS).order_by(table.c.namespace, table.c.name)


def _in_clusters(clusters: Collection[str]) -> Select[Any]:
    return _all().where(table.c.clusters.overlap(list(clusters)))


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.rpartition("/")
    return namespace, name


def _without(row: StoredReservations, cluster: str) -> StoredReservations:
    left = tuple(each for each in row.reservations if each.cluster != cluster)
    return replace(row, reservations=left)


def _finished(
    row: StoredReservations, known: Mapping[tuple[str, ReservationKey], int]
) -> StoredReservations:
    def raised(each: Reservation) -> Reservation:
        finished = known.get((each.cluster, each.key), 0)
        return each._replace(finished=finished) if finished > each.finished else each

    return replace(row, reservations=tuple(map(raised, row.reservations)))


# A new field is written only where it says something.
_NOTHING_EARLIER: Final[Factored[tuple[Growth, ...]]] = (((),), ())


class _Body(Body, frozen=True):
    """Columns of reservations: numbers are shortened, what is larger is factored."""

    clusters: Sequence[str]
    requirements: Factored[msgspec.Raw]
    replicas: Sequence[int]
    decisions: Factored[tuple[str, ...]]
    owner: OwnerBody | None = None
    components: Factored[str] = (("",), ())
    certificates: Factored[PromiseCertificate] = ((PromiseCertificate.CAREFUL,), ())
    interest_versions: Sequence[int] = (0,)
    adopted: Sequence[int] = (0,)
    finished: Sequence[int] = (0,)
    grown_versions: Sequence[int] = (0,)
    earlier: Factored[tuple[Growth, ...]] = _NOTHING_EARLIER


_BODIES: Final = msgspec.msgpack.Decoder(_Body)
_REQUIREMENTS: Final = msgspec.msgpack.Decoder(RequirementsRow)


def clusters_of(row: StoredReservations) -> list[str]:
    """Where it holds something, each once, in the order of the reservations."""
    return list(dict.fromkeys([each.cluster for each in row.reservations]))


def _held(row: StoredReservations) -> str:
    """What it counts against the quota of its namespace, as JSON."""
    parts = ((each.replicas - each.finished, each.requirements) for each in row.reservations)
    return json.dumps(held_amounts(parts))


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
        earlier,
    ) = zip(*row.reservations, strict=True)
    return msgspec.msgpack.encode(
        _Body(
            v=_Body.newest,
            owner=owner_body(row.owner),
            clusters=clusters,
            requirements=cast("Factored[msgspec.Raw]", requirement_rows(requirements)),
            replicas=shortened(replicas),
            decisions=factored(decisions),
            components=factored(components),
            certificates=factored(certificates),
            interest_versions=shortened(interest_versions),
            adopted=shortened(adopted),
            finished=shortened(finished),
            grown_versions=shortened(grown_versions),
            earlier=factored(earlier) if any(earlier) else _NOTHING_EARLIER,
        )
    )


def reservations_of(rows: Iterable[Row[Any]]) -> list[StoredReservations]:
    """From the columns of ``COLUMNS``; what is equal in several rows is one object in all."""
    repeated = _Repeated()
    stored = []
    for row in rows:
        body = read_body(_BODIES, row.body, "reservations")
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

    def owner(self, owner: OwnerBody | None) -> Owner | None:
        if owner is None:
            return None
        kind, namespace = self.text(owner.kind), self.text(owner.namespace)
        return Owner(self.text(owner.api_version), kind, namespace, owner.name)

    def requirements(self, raw: msgspec.Raw) -> ReplicaRequirements:
        packed = bytes(raw)
        known = self._requirements.get(packed)
        if known is None:
            read = _requirements_of(packed)
            request = shared_request(read.request)
            known = self._requirements[packed] = replace(read, request=request)
        return known


def _requirements_of(packed: bytes) -> ReplicaRequirements:
    """Raises NewerBody."""
    try:
        return REQUIREMENTS.unpack(_REQUIREMENTS.decode(packed))
    except msgspec.ValidationError as error:
        raise refusal(error, "reservations") from error


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
            each(*body.earlier),
        )
    )
