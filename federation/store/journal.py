"""The journal and the versions of clusters' ledgers: rows, and statements over them.

Must not apply a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import chain, islice
from typing import Any, assert_never

import msgspec
from sqlalchemy import (
    BigInteger,
    Interval,
    LargeBinary,
    Text,
    any_,
    bindparam,
    not_,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.history.bodies import Body, NewerBody, read_body
from federation.history.workload_rows import REQUIREMENTS, RequirementsRow
from federation.model.echoes import Owner
from federation.model.reservations import PromiseCertificate, Share
from federation.model.workload import ReplicaRequirements
from federation.services.journal import (
    NO_NONCES,
    NO_VERSIONS,
    NONE_KNOWN,
    START,
    BindingChanged,
    Change,
    ClusterChanged,
    ClusterShares,
    Entry,
    JournalBounds,
    LedgerVersion,
    Position,
    ReportAdvanced,
    UnknownChange,
)
from federation.services.journal_ports import OpenTransaction
from federation.store.columns import Factored, factored, lengthened, multiplied, shortened
from federation.store.floors import JOURNAL, HeldFloors
from federation.store.journal_tables import journal as table
from federation.store.journal_tables import journal_horizon
from federation.store.prepared import Prepared
from federation.store.statements import named
from federation.store.tables import cluster, cluster_capacity

_APPENDING = """
    appended AS (
        INSERT INTO journal (floor, kind, body, nonce)
        SELECT :floor, kind, body, nonce FROM unnest(:kinds, :bodies, :nonces) WITH ORDINALITY
            AS given (kind, body, nonce, place)
        ORDER BY place RETURNING id
    )
    SELECT array_agg(id ORDER BY id) AS ids FROM appended
"""
_APPENDED = (
    bindparam("floor", type_=BigInteger),
    bindparam("kinds", type_=ARRAY(Text)),
    bindparam("bodies", type_=ARRAY(LargeBinary)),
    bindparam("nonces", type_=ARRAY(BigInteger)),
)
APPEND = Prepared(text(f"WITH /* fedsched:journal.append */ {_APPENDING}").bindparams(*_APPENDED))

_ADVANCING = """
    UPDATE /* fedsched:journal.advance */ cluster_capacity
    SET version = given.version, history = cluster_capacity.history # given.turn
    FROM unnest(:names, :versions, :turns) AS given (name, version, turn)
    JOIN cluster USING (name)
    WHERE cluster_capacity.cluster_id = cluster.id
"""
_ADVANCED = (
    bindparam("names", type_=ARRAY(Text)),
    bindparam("versions", type_=ARRAY(BigInteger)),
    bindparam("turns", type_=ARRAY(BigInteger)),
)
ADVANCE = text(_ADVANCING).bindparams(*_ADVANCED)
# Both in one trip to the server, while the ledgers are locked.
APPEND_AND_ADVANCE = Prepared(
    text(
        f"WITH /* fedsched:journal.append_and_advance */ advanced AS ({_ADVANCING}), {_APPENDING}"
    ).bindparams(*_APPENDED, *_ADVANCED)
)

TAKE_FLOOR = Prepared(text(f"SELECT /* fedsched:journal.take_floor */ ({JOURNAL.take})"))
BOUNDS = Prepared(text(f"WITH /* fedsched:journal.bounds */ {JOURNAL.bounds}"))
HOLDER = text(f"WITH /* fedsched:journal.holder */ {JOURNAL.holder}").bindparams(
    bindparam("floor", type_=BigInteger)
)

LOCK = Prepared(
    named(
        "journal.lock",
        select(cluster.c.name, cluster_capacity.c.version, cluster_capacity.c.history)
        .join(cluster, cluster.c.id == cluster_capacity.c.cluster_id)
        .where(cluster.c.name == any_(bindparam("names", type_=ARRAY(Text))))
        .order_by(cluster_capacity.c.cluster_id)
        .with_for_update(of=cluster_capacity),
    )
)
AFTER = (
    select(table.c.id, table.c.kind, table.c.body, table.c.nonce)
    .where(table.c.id > bindparam("after", type_=BigInteger))
    .order_by(table.c.id)
    .limit(bindparam("limit", type_=BigInteger))
)
READ = named("journal.read", AFTER.where(table.c.id <= bindparam("settled", type_=BigInteger)))
READ_AHEAD = named(
    "journal.read_ahead",
    AFTER.where(not_(table.c.id == any_(bindparam("own", type_=ARRAY(BigInteger))))),
)

# The oldest entries in the order they are read; the horizon is the last of them.
PRUNE = text("""
    WITH /* fedsched:journal.prune */ oldest AS (
        SELECT id, created_at FROM journal WHERE id <= :settled ORDER BY id LIMIT :limit
    ), gone AS (
        DELETE FROM journal USING oldest
        WHERE journal.id = oldest.id AND oldest.created_at < now() - :age
        RETURNING journal.id
    ), marked AS (
        INSERT INTO journal_pruned_to AS stored (id)
        SELECT max(id) FROM gone HAVING count(*) > 0
        ON CONFLICT (is_only) DO UPDATE SET id = excluded.id WHERE stored.id < excluded.id
    )
    SELECT count(*) FROM gone
""").bindparams(bindparam("age", type_=Interval))


class JournalStatements:
    """Implements ``journal_ports.Journal`` within one transaction."""

    def __init__(self, connection: AsyncConnection, floors: HeldFloors) -> None:
        self._connection = connection
        self._floors = floors
        self._own: list[int] = []

    @property
    def has_appended(self) -> bool:
        return bool(self._own)

    async def lock(self, clusters: Sequence[str]) -> Mapping[str, LedgerVersion]:
        rows = await LOCK.execute(self._connection, {"names": list(clusters)})
        return {row.name: LedgerVersion(row.version, row.history) for row in rows}

    async def advance(
        self, versions: Mapping[str, int], nonces: Mapping[str, int] = NO_NONCES
    ) -> None:
        if versions:
            await self._connection.execute(ADVANCE, _advance(versions, nonces))

    async def append(
        self,
        changes: Sequence[Change],
        versions: Mapping[str, int] = NO_VERSIONS,
        nonces: Mapping[str, int] = NO_NONCES,
    ) -> Sequence[int]:
        if not changes:
            await self.advance(versions, nonces)
            return ()
        if self._floors.journal is None:
            taken = await TAKE_FLOOR.execute(self._connection, {})
            self._floors.journal = taken.scalar_one()
        kinds, bodies = zip(*map(packed_change, changes), strict=True)
        turns = [change.nonce for change in changes]
        entries = {"floor": self._floors.journal, "kinds": kinds, "bodies": bodies, "nonces": turns}
        if versions:
            advanced = _advance(versions, nonces)
            appended = await APPEND_AND_ADVANCE.execute(self._connection, {**entries, **advanced})
        else:
            appended = await APPEND.execute(self._connection, entries)
        ids = list(appended.one().ids)
        self._own += ids
        return ids

    async def read(
        self,
        after: Position,
        limit: int,
        cached: Mapping[int, Change] = NONE_KNOWN,
        settled: Position = START,
    ) -> Sequence[Entry]:
        settled = max(settled, await self.position())
        if settled <= after:
            return []
        values = {"after": after, "settled": settled, "limit": limit}
        rows = (await self._connection.execute(READ, values)).all()
        return [
            Entry(Position(entry_id), cached.get(entry_id) or change_of(kind, body, nonce))
            for entry_id, kind, body, nonce in rows
        ]

    async def read_ahead(
        self, after: Position, limit: int, cached: Mapping[int, Change] = NONE_KNOWN
    ) -> Sequence[Change]:
        values = {"after": after, "own": self._own, "limit": limit}
        rows = (await self._connection.execute(READ_AHEAD, values)).all()
        return [
            cached.get(entry_id) or change_of(kind, body, nonce)
            for entry_id, kind, body, nonce in rows
        ]

    async def position(self) -> Position:
        return (await self.bounds()).settled

    async def bounds(self) -> JournalBounds:
        settled, newest = (await BOUNDS.execute(self._connection, {})).one()
        return JournalBounds(settled, newest)

    async def oldest(self) -> Position:
        statement = named("journal.oldest", select(journal_horizon.c.id))
        return Position((await self._connection.scalar(statement)) or START)

    async def holder_of(self, position: Position) -> OpenTransaction | None:
        row = (await self._connection.execute(HOLDER, {"floor": position})).one_or_none()
        return None if row is None else OpenTransaction(*row)

    async def prune(self, older_than_seconds: float, limit: int) -> int:
        values = {
            "settled": await self.position(),
            "age": timedelta(seconds=older_than_seconds),
            "limit": limit,
        }
        return int((await self._connection.execute(PRUNE, values)).scalar_one())


def _advance(versions: Mapping[str, int], nonces: Mapping[str, int]) -> dict[str, Any]:
    """As ``ADVANCE`` takes them."""
    return {
        "names": [*versions],
        "versions": [*versions.values()],
        "turns": [nonces.get(name, 0) for name in versions],
    }


BINDING = "binding"
REPORT = "report"
CLUSTER = "cluster"


class OwnerBody(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An ``Owner``."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _BindingBody(Body, frozen=True):
    """Clusters and their shares are columns: of clusters up to ``adopted``, then of shares.

    ``sizes`` are how many shares each cluster has.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    owner: OwnerBody | None = None
    decision: str = ""
    deleted: bool = False
    clusters: Sequence[str] = ()
    versions: Sequence[int] = ()
    sizes: Sequence[int] = (0,)
    adopted: Sequence[Mapping[str, int]] = msgspec.field(default_factory=lambda: [{}])
    requirements: Factored[RequirementsRow] = ((), ())
    replicas: Sequence[int] = ()
    components: Factored[str] = (("",), ())
    certificates: Factored[PromiseCertificate] = ((PromiseCertificate.CAREFUL,), ())
    priority: int = 0
    waits: bool = False
    is_first: bool = False


class _ReportBody(Body, frozen=True):
    cluster: str
    version: int
    epoch: int
    sequence: int


class _ClusterBody(Body, frozen=True):
    cluster: str
    deleted: bool = False
    emptied: int = 0


_BINDINGS = msgspec.msgpack.Decoder(_BindingBody)
_REPORTS = msgspec.msgpack.Decoder(_ReportBody)
_CLUSTERS = msgspec.msgpack.Decoder(_ClusterBody)


def packed_change(change: Change) -> tuple[str, bytes]:
    """Its kind and its body."""
    match change:
        case BindingChanged():
            return BINDING, _packed_binding(change)
        case ReportAdvanced():
            return REPORT, msgspec.msgpack.encode(
                _ReportBody(
                    v=_ReportBody.newest,
                    cluster=change.cluster,
                    version=change.version,
                    epoch=change.epoch,
                    sequence=change.sequence,
                )
            )
        case ClusterChanged():
            return CLUSTER, msgspec.msgpack.encode(
                _ClusterBody(
                    v=_ClusterBody.newest,
                    cluster=change.cluster,
                    deleted=change.deleted,
                    emptied=change.emptied,
                )
            )
        case UnknownChange():
            raise ValueError(f"a change of the unknown kind {change.kind!r} cannot be written")
        case _:
            assert_never(change)


def change_of(kind: str, body: bytes, nonce: int) -> Change:
    """Of a kind or version that only a newer release knows, that alone is told."""
    try:
        match kind:
            case "report":
                return _report_of(read_body(_REPORTS, body, "reports in the journal"), nonce)
            case "cluster":
                return _cluster_of(read_body(_CLUSTERS, body, "clusters in the journal"), nonce)
            case "binding":
                return _binding_of(read_body(_BINDINGS, body, "bindings in the journal"), nonce)
            case _:
                return UnknownChange(kind=kind, nonce=nonce)
    except NewerBody as error:
        return UnknownChange(kind=kind, version=error.version, nonce=nonce)


def requirement_rows(column: Sequence[ReplicaRequirements]) -> Factored[RequirementsRow]:
    """Return a column of requirements as it is stored."""
    distinct, places = factored(column)
    return list(map(REQUIREMENTS.pack, distinct)), places


def owner_body(owner: Owner | None) -> OwnerBody | None:
    return None if owner is None else OwnerBody(*owner)


def _packed_binding(change: BindingChanged) -> bytes:
    versions, shares, adopted = _turned(change.clusters.values(), 3)
    requirements, replicas, components, certificates = _turned(chain.from_iterable(shares), 4)
    return msgspec.msgpack.encode(
        _BindingBody(
            v=_BindingBody.newest,
            namespace=change.namespace,
            name=change.name,
            uid=change.uid,
            owner=owner_body(change.owner),
            decision=change.decision,
            deleted=change.deleted,
            clusters=list(change.clusters),
            versions=versions,
            sizes=shortened([len(each) for each in shares]),
            adopted=shortened(adopted),
            requirements=requirement_rows(requirements),
            replicas=shortened(replicas),
            components=factored(components),
            certificates=factored(certificates),
            priority=change.priority,
            waits=change.waits,
            is_first=change.is_first,
        )
    )


def _turned(rows: Iterable[tuple[Any, ...]], columns: int) -> list[tuple[Any, ...]]:
    """Their columns."""
    return list(zip(*rows, strict=True)) or [()] * columns


def _report_of(body: _ReportBody, nonce: int) -> ReportAdvanced:
    return ReportAdvanced(
        cluster=body.cluster,
        version=body.version,
        epoch=body.epoch,
        sequence=body.sequence,
        nonce=nonce,
    )


def _cluster_of(body: _ClusterBody, nonce: int) -> ClusterChanged:
    return ClusterChanged(
        cluster=body.cluster, deleted=body.deleted, emptied=body.emptied, nonce=nonce
    )


def _binding_of(body: _BindingBody, nonce: int) -> BindingChanged:
    clusters = len(body.clusters)
    sizes = lengthened(body.sizes, clusters)
    count = sum(sizes)
    distinct, places = body.requirements
    shares = map(
        Share,
        multiplied(list(map(REQUIREMENTS.unpack, distinct)), places, count),
        lengthened(body.replicas, count),
        multiplied(*body.components, count),
        multiplied(*body.certificates, count),
    )
    return BindingChanged(
        namespace=body.namespace,
        name=body.name,
        uid=body.uid,
        owner=None if body.owner is None else Owner(*msgspec.structs.astuple(body.owner)),
        decision=body.decision,
        deleted=body.deleted,
        nonce=nonce,
        priority=body.priority,
        waits=body.waits,
        is_first=body.is_first,
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
