"""Statements over the tokens of people and programs. Only hashes of secrets come here.

Must not compare secrets, nor decide what a token may do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    Interval,
    Row,
    Text,
    any_,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncConnection

from federation.model.access import CallerLimits, Role, Scope
from federation.services.ports import NewToken, StoredToken, TokenUse
from federation.store.access_tables import access_token as table
from federation.store.prepared import Prepared
from federation.store.statements import named
from federation.store.tables import unix_seconds

# What ended is listed so long.
ENDED_FOR = timedelta(days=30)

COLUMNS = (*table.c, (table.c.expires_at <= func.now()).label("is_expired"))
# Whoever guesses asks this again and again.
IS_THERE = Prepared(
    named("tokens.is_there", select(table.c.id).where(table.c.id == bindparam("id")))
)
# In the order of their ids, so that two control planes never wait for each other.
PUT_USES = text("""
    UPDATE /* fedsched:tokens.put_uses */ access_token AS stored
    SET last_used_at = latest.at, last_used_from = latest.address
    FROM (
        SELECT token.id, to_timestamp(given.at) AS at, given.address
        FROM unnest(CAST(:ids AS text[]), CAST(:times AS float8[]), CAST(:addresses AS text[]))
            AS given (id, at, address)
        JOIN access_token AS token ON token.id = given.id
        ORDER BY token.id FOR UPDATE OF token
    ) AS latest
    WHERE stored.id = latest.id
        AND (stored.last_used_at IS NULL OR stored.last_used_at < latest.at)
""")


class AccessTokenStatements:
    """Implements ``ports.AccessTokens`` within one transaction."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(self, token_id: str, secret_hash: bytes, token: NewToken) -> StoredToken:
        lifetime = bindparam(None, timedelta(seconds=token.ttl_seconds), type_=Interval)
        statement = (
            insert(table)
            .values(
                id=token_id,
                secret_hash=secret_hash,
                name=token.name,
                role=token.role.value,
                namespaces=list(token.scope.namespaces),
                clusters=list(token.scope.clusters),
                cluster_labels=dict(token.scope.cluster_labels),
                networks=list(token.networks),
                calls_per_second=token.limits.calls_per_second,
                calls_at_once=token.limits.calls_at_once,
                created_by=token.created_by,
                expires_at=func.now() + lifetime,
            )
            .returning(*COLUMNS)
        )
        return _token((await self._connection.execute(named("tokens.add", statement))).one())

    async def count(self) -> int:
        statement = select(func.count()).where(
            table.c.revoked_at.is_(None), table.c.expires_at > func.now()
        )
        return int(await self._connection.scalar(named("tokens.count", statement)) or 0)

    async def find(self, token_id: str) -> StoredToken | None:
        if not (await IS_THERE.execute(self._connection, {"id": token_id})).all():
            return None
        statement = select(*COLUMNS).where(table.c.id == token_id)
        row = (await self._connection.execute(named("tokens.find", statement))).one_or_none()
        return None if row is None else _token(row)

    async def page(self, after: str, limit: int) -> Sequence[StoredToken]:
        statement = select(*COLUMNS).where(table.c.id > after).order_by(table.c.id).limit(limit)
        return [
            _token(row) for row in await self._connection.execute(named("tokens.page", statement))
        ]

    async def revoke(self, token_id: str) -> StoredToken | None:
        statement = (
            update(table)
            .where(table.c.id == token_id)
            .values(revoked_at=func.coalesce(table.c.revoked_at, func.now()))
            .returning(*COLUMNS)
        )
        row = (await self._connection.execute(named("tokens.revoke", statement))).one_or_none()
        return None if row is None else _token(row)

    async def unrevoked(self, token_ids: Collection[str]) -> Collection[str]:
        ids = any_(bindparam("ids", list(token_ids), type_=ARRAY(Text)))
        statement = select(table.c.id).where(table.c.id == ids, table.c.revoked_at.is_(None))
        return set((await self._connection.scalars(named("tokens.unrevoked", statement))).all())

    async def put_uses(self, uses: Mapping[str, TokenUse]) -> None:
        await self._connection.execute(
            PUT_USES,
            {
                "ids": list(uses),
                "times": [use.at for use in uses.values()],
                "addresses": [use.address for use in uses.values()],
            },
        )

    async def prune(self, limit: int) -> int:
        ended_at = func.least(table.c.revoked_at, table.c.expires_at)
        ended = select(table.c.id).where(ended_at <= func.now() - ENDED_FOR).limit(limit)
        statement = delete(table).where(table.c.id.in_(ended)).returning(table.c.id)
        return len((await self._connection.execute(named("tokens.prune", statement))).all())


def _token(row: Row[Any]) -> StoredToken:
    return StoredToken(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        scope=Scope(
            namespaces=tuple(row.namespaces),
            clusters=tuple(row.clusters),
            cluster_labels=tuple(sorted(row.cluster_labels.items())),
        ),
        networks=tuple(row.networks),
        limits=CallerLimits(calls_per_second=row.calls_per_second, calls_at_once=row.calls_at_once),
        secret_hash=bytes(row.secret_hash),
        created_by=row.created_by,
        created_at=row.created_at.timestamp(),
        expires_at=row.expires_at.timestamp(),
        is_expired=row.is_expired,
        revoked_at=unix_seconds(row.revoked_at),
        last_used_at=unix_seconds(row.last_used_at),
        last_used_from=row.last_used_from,
    )
